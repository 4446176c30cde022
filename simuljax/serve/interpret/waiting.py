"""What waits between two threads: sound for the model, words for the voice.

A line has a bound, and nothing is ever dropped to keep to it. At the bound whoever can wait, waits
(a file); whoever cannot (a microphone) is refused with an error.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, Literal, TypeVar

from simuljax.serve.interpret.hypothesis import InterpretError

T = TypeVar("T")
WhenFull = Literal["wait", "refuse"]


class BehindError(InterpretError):
    """More waits than there is room for: whoever takes it is too slow."""


class Waiting(Generic[T]):
    """First in, first out, for one thread that puts and one that takes."""

    def __init__(
        self, *, most: int, measure: Callable[[T], int], when_full: WhenFull = "refuse"
    ) -> None:
        self.most, self.measure, self.when_full = most, measure, when_full
        self._items: deque[T] = deque()
        self._size = 0
        self._closed = False
        self._changed = threading.Condition()

    @property
    def size(self) -> int:
        """How much waits, as it is measured."""
        return self._size

    def put(self, item: T) -> bool:
        """Whether it was taken in: not after the end. `BehindError` when there is no room for it.

        Something larger than the whole line is taken in when nothing else waits.
        """
        size = self.measure(item)
        with self._changed:
            while not self._closed and self._items and self._size + size > self.most:
                if self.when_full == "refuse":
                    raise BehindError(f"{self._size} of at most {self.most} wait already")
                self._changed.wait()
            if self._closed:
                return False
            self._items.append(item)
            self._size += size
            self._changed.notify_all()
            return True

    def take(self, how_many: Literal["one", "all"] = "all") -> list[T]:
        """The next, or all that waits; waits for it. Nothing after the end."""
        with self._changed:
            while not self._items and not self._closed:
                self._changed.wait()
            count = len(self._items) if how_many == "all" else min(1, len(self._items))
            taken = [self._items.popleft() for _ in range(count)]
            self._size -= sum(map(self.measure, taken))
            self._changed.notify_all()
            return taken

    def close(self) -> None:
        """Nothing more is taken in; what waits can still be taken out."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """Nothing more is taken in or out."""
        with self._changed:
            self._items.clear()
            self._size = 0
        self.close()
