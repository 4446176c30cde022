"""Recorder, translator and speaker, each at its own pace.

    source  ->  [sound]  ->  stream  ->  [pieces]  ->  speaker
     recorder            translator              speaker

Each is a thread; in brackets is what waits between two of them. No thread stalls another:

    recorder    puts every sample in line. An hour of sound fits in (115 MB); a model that is an
                hour behind a live speaker is an error, and no sound is skipped before it.
    translator  takes all that waits at once, so that a slow model hears fewer and longer pieces
                instead of falling behind for ever (`Interpreting.behind`). A source that can wait,
                a file that is heard as fast as it goes, is taken piece by piece instead: its words
                do not depend on the speed of the machine.
    speaker     says all that waits at once. Words are few: 100,000 of them may wait.

`finish` ends the recording; what was heard is interpreted, and said, to the end. An error in one
thread ends all; `words` has what was committed until then.

Times are seconds from the start of the source, as on a clock that started with it: a piece is ready
at  max(ready before, sound that was pushed) + time spent on it,  which is the wall clock for a live
source, and for a file what it would have been.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from simuljax.audio import RATE, AudioError
from simuljax.audio.sources import Pace
from simuljax.serve.interpret.settings import Interpreting
from simuljax.serve.interpret.waiting import BehindError, Waiting
from simuljax.serve.session import Word

LIVE_S, PATIENT_S = 3600.0, 5.0  # of sound in line
_WORDS = 100_000
_SILENCE_DB = -100.0


class Runs(Protocol):
    """What `Stream.course` tells."""

    @property
    def left(self) -> Mapping[Any, int]:
        """Samples that are done with: said, silent, or refused."""
        ...


class Listens(Protocol):
    """What `Interpreter.stream()` gives."""

    @property
    def hypothesis(self) -> str: ...
    @property
    def course(self) -> Runs: ...
    def push(self, samples: np.ndarray) -> list[Word]: ...
    def finish(self) -> list[Word]: ...
    def change(self, interpreting: Interpreting) -> None: ...


class Speaks(Protocol):
    """What says a text that is ready at a time."""

    @property
    def until_s(self) -> float: ...
    def say(self, text: str, ready_s: float) -> object: ...
    def finish(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Committed:
    """Words that were committed at once."""

    words: tuple[Word, ...]
    ready_s: float

    @property
    def text(self) -> str:
        """As it is said."""
        return " ".join(word.text for word in self.words)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where everything stands."""

    heard_s: float  # of sound
    pushed_s: float  # the model is through with
    done_s: float  # nothing more will be said of
    level_db: float  # of the sound that came last, below full scale
    hypothesis: str
    spoken_s: float | None  # end of what was said so far; None without a voice


class Pipeline:
    """One speaker being interpreted. At the `real` pace the source does not wait for us."""

    def __init__(
        self,
        stream: Listens,
        source: Generator[np.ndarray, None, None],
        *,
        speaker: Speaks | None = None,
        pace: Pace = "real",
        most_s: float | None = None,
    ):
        self.stream, self.source, self.speaker, self.pace = stream, source, speaker, pace
        room_s = most_s or (LIVE_S if pace == "real" else PATIENT_S)
        self.sound: Waiting[np.ndarray] = Waiting(
            most=round(room_s * RATE),
            measure=len,
            when_full="refuse" if pace == "real" else "wait",
        )
        self.pieces: Waiting[Committed] = Waiting(most=_WORDS, measure=lambda p: len(p.words))
        self.words: list[Word] = []
        self.error: BaseException | None = None
        self._heard = self._pushed = 0  # samples
        self._ready_s = 0.0
        self._level_db = _SILENCE_DB
        self._changed_to: Interpreting | None = None
        self._threads = [self._thread(work) for work in (self._record, self._translate)]
        if speaker is not None:
            self._threads.append(self._thread(self._speak))

    def start(self) -> None:
        """Begins to listen."""
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Stops listening; what was heard is interpreted to the end."""
        self.sound.close()

    def wait(self, seconds: float | None = None) -> bool:
        """Whether all is done, waiting for it so long. A recorder that hangs is not waited for."""
        until = None if seconds is None else time.perf_counter() + seconds
        for thread in self._threads[1:]:
            thread.join(None if until is None else max(0.0, until - time.perf_counter()))
        done = not any(thread.is_alive() for thread in self._threads[1:])
        if done:
            self._threads[0].join(1.0)  # a device is closed before we go; a pipe may never answer
        return done

    def change(self, interpreting: Interpreting) -> None:
        """From the next window on."""
        self._changed_to = interpreting

    @property
    def heard_s(self) -> float:
        """Seconds of sound."""
        return self._heard / RATE

    def progress(self) -> Progress:
        """For whoever watches."""
        return Progress(
            heard_s=self.heard_s,
            pushed_s=self._pushed / RATE,
            done_s=sum(self.stream.course.left.values()) / RATE,
            level_db=self._level_db,
            hypothesis=self.stream.hypothesis,
            spoken_s=self.speaker.until_s if self.speaker else None,
        )

    def _record(self) -> None:
        with contextlib.closing(self.source) as source:
            try:
                for samples in source:
                    if not self.sound.put(samples):
                        break
                    if self.pace == "real":
                        self._hear(samples)
            except AudioError as error:  # like the end of the sound; told when that is done
                self.error = error
            except BehindError as error:
                raise BehindError(self._how_far_behind()) from error
        self.sound.close()

    def _hear(self, samples: np.ndarray) -> None:
        """Sound counts as heard when it is spoken; that of a file, when the model takes it."""
        self._heard += len(samples)
        self._level_db = level_db(samples)

    def _how_far_behind(self) -> str:
        behind = self.sound.size / RATE
        return (
            f"the model is {behind:.0f} s behind the speaker and there is no room for more sound: "
            f"use a smaller model, a larger --window, or --pace fast for sound that can wait"
        )

    def _translate(self) -> None:
        how_many = "all" if self.pace == "real" else "one"
        while waiting := self.sound.take(how_many):
            if (interpreting := self._changed_to) is not None:
                self._changed_to = None
                self.stream.change(interpreting)
            samples = np.concatenate(waiting)
            if self.pace == "fast":
                self._hear(samples)
            self._pushed += len(samples)
            self._commit(lambda samples=samples: self.stream.push(samples))
        if self.error is None or isinstance(self.error, AudioError):
            self._commit(self.stream.finish)
        self.pieces.close()

    def _commit(self, listen: Callable[[], list[Word]]) -> None:
        begin = time.perf_counter()
        words = tuple(listen())
        took = time.perf_counter() - begin
        self._ready_s = max(self._ready_s, self._pushed / RATE) + took
        if words:
            self.words.extend(words)
            if self.speaker is not None:
                self.pieces.put(Committed(words=words, ready_s=self._ready_s))

    def _speak(self) -> None:
        assert self.speaker is not None
        while waiting := self.pieces.take():
            self.speaker.say(" ".join(piece.text for piece in waiting), waiting[-1].ready_s)
        if self.error is None or isinstance(self.error, AudioError):
            self.speaker.finish()

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self.error = self.error or error
                self.sound.abandon()
                self.pieces.abandon()

        return threading.Thread(target=run, name=work.__name__.strip("_"), daemon=True)


def level_db(samples: np.ndarray) -> float:
    """Decibels below the loudest that there is, of int16 samples."""
    power = np.mean(np.square(samples.astype(np.float32) / 32768)) if len(samples) else 0.0
    return max(float(10 * np.log10(power)) if power > 0 else _SILENCE_DB, _SILENCE_DB)
