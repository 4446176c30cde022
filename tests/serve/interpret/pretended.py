"""A model and a voice for tests of the threads around them: what they hear is kept, and slow."""

import threading
import time

import numpy as np

from simuljax.audio import RATE
from simuljax.serve.session import Word


class Course:
    """How many samples are done with."""

    def __init__(self) -> None:
        self.left = {"said": 0}


class Model:
    """Hears everything, and commits a word with every push: how many samples it had."""

    def __init__(self, slow_s: float = 0.0, fails_at: int | None = None, last_s: float = 0.0):
        self.slow_s, self.fails_at, self.last_s = slow_s, fails_at, last_s
        self.heard: list[np.ndarray] = []
        self.changes: list[object] = []
        self.hypothesis = ""
        self.course = Course()
        self.gate = threading.Event()  # a push waits for it
        self.gate.set()

    @property
    def samples(self) -> np.ndarray:
        return np.concatenate([np.zeros(0, np.int16), *self.heard])

    def push(self, samples: np.ndarray) -> list[Word]:
        self.gate.wait()
        time.sleep(self.slow_s)
        if len(self.heard) == self.fails_at:
            raise ZeroDivisionError("the model broke")
        self.heard.append(samples)
        self.hypothesis = f"perhaps {len(self.heard)}"
        self.course.left["said"] = len(self.samples)
        return [self.word(str(len(samples)))]

    def finish(self) -> list[Word]:
        time.sleep(self.last_s)
        return [self.word("end")]

    def change(self, interpreting: object) -> None:
        self.changes.append(interpreting)

    def word(self, text: str) -> Word:
        delay = 1000 * len(self.samples) / RATE
        return Word(text=text, delay_ms=delay, elapsed_ms=delay + 1)


class Voice:
    """Keeps what it was to say."""

    def __init__(self, fails: bool = False):
        self.fails = fails
        self.gate = threading.Event()
        self.gate.set()
        self.said: list[tuple[str, float]] = []
        self.finished = False
        self.until_s = 0.0

    def say(self, text: str, ready_s: float) -> None:
        self.gate.wait()
        if self.fails:
            raise ZeroDivisionError("the voice broke")
        self.said.append((text, ready_s))

    def finish(self) -> None:
        self.finished = True
