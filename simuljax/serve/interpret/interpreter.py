"""An offline model as an interpreter: of one stream, or of many recordings side by side."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from simuljax.audio import RATE, Incoming
from simuljax.models.whisper import Whisper
from simuljax.models.whisper.languages import language_code
from simuljax.models.whisper.transcribe import padded_s
from simuljax.serve.interpret.course import Course, Window
from simuljax.serve.interpret.hypothesis import Hypothesis, InterpretError
from simuljax.serve.interpret.settings import Interpreting
from simuljax.serve.interpret.writing import write
from simuljax.serve.session import Word


class Interpreter:
    """A model that listens to any number of speakers."""

    def __init__(self, whisper: Whisper, interpreting: Interpreting | None = None):
        self.whisper, self.interpreting = whisper, interpreting or Interpreting()
        check(whisper, self.interpreting)

    def stream(self) -> "Stream":
        """One speaker, as he speaks."""
        return Stream(self)

    def all(
        self,
        recordings: Sequence[np.ndarray],
        *,
        batch: int = 16,
        progress: Callable[[float], object] | None = None,
    ) -> list[list[Word]]:
        """Recordings, int16 at 16 kHz, up to `batch` of them at a time, a window of each.

        The words are those of a stream that is pushed a window at a time. `elapsed_ms` counts the
        whole of each call that a recording took part in. `progress` is told the seconds of sound
        that were heard, round by round.
        """
        speakers = [
            _Speaker(samples=_checked(recording), course=Course(self.interpreting), words=[])
            for recording in recordings
        ]
        rows = min(batch, len(speakers))
        while busy := [speaker for speaker in speakers if not speaker.course.finished][:rows]:
            before = sum(speaker.pushed for speaker in busy)
            self._round(busy, rows)
            if progress is not None:
                progress((sum(speaker.pushed for speaker in busy) - before) / RATE)
        return [speaker.words for speaker in speakers]

    def _round(self, speakers: Sequence["_Speaker"], rows: int) -> None:
        start = time.perf_counter()
        asked = [(speaker, window) for speaker in speakers if (window := speaker.next())]
        lengths = sorted({self._padded(window) for _, window in asked})
        for length in lengths:  # what is padded differently is written differently
            group = [(s, w) for s, w in asked if self._padded(w) == length]
            written = self.write([window for _, window in group], self.interpreting, rows=rows)
            elapsed = (time.perf_counter() - start) * 1e3
            for (speaker, _), hypothesis in zip(group, written, strict=True):
                speaker.judge(hypothesis, elapsed)
        for speaker, _ in asked:
            speaker.computed_ms += (time.perf_counter() - start) * 1e3

    def _padded(self, window: Window) -> int:
        return padded_s(len(window.samples), self.interpreting.padding)

    def write(
        self, windows: Sequence[Window], interpreting: Interpreting, *, rows: int = 1
    ) -> list[Hypothesis]:
        """What the model makes of windows."""
        return write(self.whisper, windows, interpreting, rows=rows)


def check(whisper: Whisper, interpreting: Interpreting) -> None:
    """Refuses what the model cannot do."""
    name, language = whisper.config.name, interpreting.language
    other = language is not None and language_code(language) != "en"
    if not whisper.tokenizer.multilingual and (interpreting.task == "translate" or other):
        raise InterpretError(
            f"{name} transcribes English alone; load a multilingual model, or ask for "
            "task='transcribe', language='en'"
        )
    if language is not None:
        try:
            whisper.tokenizer.language_id(language)
        except ValueError as error:
            raise InterpretError(str(error)) from None


def _checked(recording: np.ndarray) -> np.ndarray:
    if recording.dtype != np.int16 or recording.ndim != 1:
        raise InterpretError(
            f"a recording of {recording.dtype} {recording.shape}; give int16 [N] at 16 kHz, as "
            "simuljax.audio.as_int16 makes it"
        )
    return recording


@dataclass(kw_only=True, eq=False)
class _Speaker:
    """A recording that is pushed a window at a time."""

    samples: np.ndarray
    course: Course
    words: list[Word]
    pushed: int = 0
    computed_ms: float = 0.0

    def next(self) -> Window | None:
        """The next window, with as much sound as it takes."""
        step = round(self.course.interpreting.window_s * RATE)
        while not (window := self.course.next()) and not self.course.finished:
            chunk = self.samples[self.pushed : self.pushed + step]
            self.pushed += len(chunk)
            self.course.push(chunk)
            if len(chunk) < step:
                self.course.finish()
        return window

    def judge(self, hypothesis: Hypothesis, elapsed_ms: float) -> None:
        """Keeps the words that are said."""
        delay = self.pushed * 1000 / RATE
        elapsed = delay + self.computed_ms + elapsed_ms
        self.words += [
            Word(text=text, delay_ms=delay, elapsed_ms=elapsed)
            for text in self.course.judge(hypothesis)
        ]


class Stream:
    """One speaker. Sound may come in chunks of any size: the words are the same."""

    def __init__(self, interpreter: Interpreter):
        self.interpreter = interpreter
        self.course = Course(interpreter.interpreting)
        self.incoming: Incoming | None = None
        self.rate, self.pushed, self.computed_ms = RATE, 0, 0.0

    @property
    def hypothesis(self) -> str:
        """What the last window made of the sound that nothing is said of yet."""
        return self.course.hypothesis

    @property
    def delay_ms(self) -> float:
        """Sound that was pushed."""
        return self.pushed * 1000 / self.rate

    def push(self, samples: np.ndarray | Sequence[float], rate: int = RATE) -> list[Word]:
        """More sound: mono, int16 or float in [-1, 1]. Gives the words that are said now."""
        start = time.perf_counter()
        if self.course.ended:
            raise InterpretError("the stream has been finished: begin another")
        samples = np.asarray(samples)
        if samples.size == 0:
            return []
        self.course.push(self._incoming(rate).push(samples))
        self.pushed += len(samples)
        return self._listen(start)

    def finish(self) -> list[Word]:
        """Nothing more will be said: gives the words that were still waiting."""
        start = time.perf_counter()
        if self.incoming and not self.course.ended:
            self.course.push(self.incoming.finish())
        self.course.finish()
        return self._listen(start)

    def change(self, interpreting: Interpreting) -> None:
        """From the next window on; what was said stays."""
        check(self.interpreter.whisper, interpreting)
        self.course.change(interpreting)

    def _incoming(self, rate: int) -> Incoming:
        if self.incoming is None:
            self.incoming, self.rate = Incoming(rate), rate
        if rate != self.rate:
            raise InterpretError(
                f"samples at {rate} Hz after others at {self.rate} Hz: begin another stream"
            )
        return self.incoming

    def _listen(self, start: float) -> list[Word]:
        words = []
        while window := self.course.next():
            (hypothesis,) = self.interpreter.write([window], self.course.interpreting)
            texts = self.course.judge(hypothesis)
            elapsed = self.delay_ms + self.computed_ms + (time.perf_counter() - start) * 1e3
            words += [Word(text=t, delay_ms=self.delay_ms, elapsed_ms=elapsed) for t in texts]
        self.computed_ms += (time.perf_counter() - start) * 1e3
        return words
