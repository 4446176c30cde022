"""A recogniser and a translator of text as one system with one account of delays.

    from simuljax import cascade

    both = cascade.load("runs/asr", "runs/mt")
    stream = both.stream(translating={"k": 3})
    for samples in microphone:
        for word in stream.push(samples):
            print(word.text, word.delay_ms)
    print(stream.finish())

Words that the recogniser commits are READs of the text model, as they come; where its transcript
ends, the text ends. A word of the translation has the delay of the recognised word that allowed it:
milliseconds of speech heard, as for any other stream. Nguyen et al. 2021 compare with such a system
(a hybrid recogniser and multi-path wait-k).
"""

import functools
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simuljax.audio import RATE
from simuljax.serve.run import Run, RunError
from simuljax.serve.run_translator import RunTranslator, Streaming, load_run
from simuljax.serve.session import Word
from simuljax.serve.stream import Stream
from simuljax.serve.text_stream import TextReader, TextStream, TextWord, text_settings
from simuljax.text import UNK
from simuljax.text.base import SPECIALS
from simuljax.train.average import Which

Settings = Mapping[str, Any]  # of a stream, by name
SHOWN = 20  # characters in a warning


def load(recogniser: str | Path, translator: str | Path, checkpoint: Which = "best") -> "Cascade":
    """Return the cascade of two runs: one that transcribes, one with a text branch."""
    return Cascade(load_run(recogniser, checkpoint), load_run(translator, checkpoint))


class Cascade:
    """Two trained models; the second reads what the first writes."""

    def __init__(self, recogniser: RunTranslator, translator: RunTranslator):
        check_recogniser(recogniser.run)
        check_translator(translator.run)
        check_agreement(recogniser.run, translator.run)
        self.recogniser, self.translator = recogniser, translator

    def stream(
        self, *, recognising: Settings | None = None, translating: Settings | None = None
    ) -> "CascadeStream":
        """Return a live stream of one sentence.

        `recognising` are settings of `Translator.stream`, `translating` those of `TextReader`.
        """
        settings = dict(recognising or {})
        if settings.get("sentences", "one") != "one":
            raise ValueError(
                "a cascade translates one sentence a stream, since a text ends only once: begin a "
                "stream for every sentence"
            )
        reader = self._reader(text_settings(dict(translating or {})))
        return CascadeStream(self.recogniser.stream(**settings), reader.stream())

    def translate(self, audio: str | Path | np.ndarray, *, rate: int = RATE, beam: int = 1) -> str:
        """Return the translation of a recording, transcribed first; `beam` is that of both."""
        transcript = self.recogniser.translate(audio, rate=rate, beam=beam)
        return self.translator.translate_text(transcript, beam=beam)

    @functools.cache  # noqa: B019 (compiled functions live as long as their cascade)
    def _reader(self, chosen: Streaming) -> TextReader:
        """Return what streams with these settings share, compiled once."""
        return TextReader(self.translator, decoding=chosen.decoding, limits=chosen.limits)


class CascadeStream:
    """One speaker; `recognised` is the transcript so far."""

    def __init__(self, recogniser: Stream, translator: TextStream):
        self.recogniser, self.translator = recogniser, translator
        self.recognised: list[Word] = []
        self.computed_ms = 0.0  # of both

    @property
    def read(self) -> int:
        """Return the samples of the next READ, at 16 kHz."""
        return self.recogniser.session.size

    def push(self, samples: Sequence[float] | np.ndarray) -> list[Word]:
        """Take more sound: mono, int16 or float in [-1, 1]. Return the words it completes."""
        start = time.perf_counter()
        heard = self.recogniser.push(samples)
        return self._translate(heard, start, ended=self.recogniser.session.finished)

    def finish(self) -> list[Word]:
        """Note that nothing more will come; return the words that were still waiting."""
        start = time.perf_counter()
        return self._translate(self.recogniser.finish(), start, ended=True)

    def _translate(self, heard: Sequence[Word], start: float, *, ended: bool) -> list[Word]:
        """Translate more words of the transcript, and its end."""
        words = []
        for word in heard:
            words += self._timed(self.translator.push(word.text), word.delay_ms, start)
        self.recognised += heard
        if ended and self.recognised:  # of nothing there is no translation
            delay = self.recogniser.session.delay_ms
            words += self._timed(self.translator.finish(), delay, start)
        self.computed_ms += (time.perf_counter() - start) * 1e3
        return words

    def _timed(self, written: Sequence[TextWord], delay: float, start: float) -> list[Word]:
        elapsed = delay + self.computed_ms + (time.perf_counter() - start) * 1e3
        return [Word(text=word.text, delay_ms=delay, elapsed_ms=elapsed) for word in written]


def check_recogniser(run: Run) -> None:
    """Refuse a run that does not transcribe speech."""
    if run.model.speech is None:
        raise RunError(f"{run.directory} hears nothing: the recogniser needs a speech branch")
    if run.config.data.task != "transcription":
        raise RunError(
            f"{run.directory} was trained to translate, not to transcribe: a recogniser is trained "
            "with data.task transcription"
        )
    if run.target.kind == "phonemes":
        raise RunError(f"{run.directory} writes phonemes, and a translator of text reads words")


def check_translator(run: Run) -> None:
    """Refuse a run without a text branch."""
    if run.model.text is None:
        raise RunError(f"{run.directory} has no text branch, which is to read the transcript")
    if run.config.data.task == "transcription":
        raise RunError(f"{run.directory} was trained to transcribe: it translates nothing")


def check_agreement(recogniser: Run, translator: Run) -> None:
    """Refuse lower case where capitals are read; warn of unknown characters."""
    written, read = recogniser.target, translator.source
    if written.config.lowercase and not read.config.lowercase:
        raise RunError(
            f"{recogniser.directory} writes in lower case, and {translator.directory} has learnt to"
            " read capitals: train the translator with corpus.source.lowercase, or the recogniser "
            "without corpus.target.lowercase"
        )
    texts = (written.decode([i]) for i in range(len(SPECIALS), written.size))
    unknown = sorted(c for c in set("".join(texts)) if UNK in read.encode(c))
    if unknown:
        shown = "".join(unknown[:SHOWN]) + (" ..." if len(unknown) > SHOWN else "")
        warnings.warn(
            f"{recogniser.directory} can write {len(unknown)} characters that "
            f"{translator.directory} has never read, and takes for unknown: {shown}",
            stacklevel=2,
        )
