"""The signal that a machine is wanted back, and the update after which every host stops.

A scheduler sends SIGTERM some time before it takes a machine away, maybe to one host of many.
Alone, a run stops after the update in progress. Among several hosts, JAX's preemption service tells
the others in the background and settles on an update that none has begun: all save the same.
"""

import signal
from types import TracebackType
from typing import Any

import jax
from jax.experimental import multihost_utils


class Interruption:
    """Listens while it is entered; `asked` is to be called once after every update."""

    def __init__(self) -> None:
        self._asked = False
        self._together = jax.distributed.is_initialized()
        self._before: Any = None

    def __enter__(self) -> "Interruption":
        if not self._together:  # JAX's service has a handler of its own, which stays
            self._before = signal.signal(signal.SIGTERM, self._take_note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._together:
            signal.signal(signal.SIGTERM, self._before)

    def asked(self, step: int) -> bool:
        """Whether to stop after this update; the same on every host."""
        if self._together:
            self._asked = self._asked or multihost_utils.reached_preemption_sync_point(step)
        return self._asked

    def _take_note(self, *_: Any) -> None:
        self._asked = True
