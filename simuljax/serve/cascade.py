"""A recogniser and a translator of text as one system with one account of delays.

    both = simuljax.load("runs/asr+runs/mt")
    stream = both.stream(sentences="pauses", translating={"k": 3})
    for samples in microphone:
        for word in stream.push(samples):
            print(word.text, word.delay_ms)
    print(stream.finish())

Words that the recogniser commits are READs of the text model, as they come; where its transcript
ends, the text ends, and the next sentence begins another. A word of the translation has the delay
of the recognised word that allowed it: milliseconds of speech read, as for any other stream. Nguyen
et al. 2021 compare with such a system (a hybrid recogniser and multi-path wait-k).

`TextReader(simuljax.load("runs/mt"), k=3).stream()` translates a written source word by word. What
it writes is what `simulate_text` gives for the same READs.
"""

import functools
import warnings
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.audio import RATE
from simuljax.decode.policies import PolicyError
from simuljax.decode.reencoding import SHORTEST_TEXT, ReencodingState, ReencodingTextDecoder, padded
from simuljax.decode.stream import Events
from simuljax.serve.run import Run, RunError
from simuljax.serve.run_translator import RunTranslator, Streaming, load_run
from simuljax.serve.stream import ReadSession, Stream, Tokens
from simuljax.serve.translator import Translator
from simuljax.text import EOS, UNK, WordStream
from simuljax.text.vocabulary import SPECIALS
from simuljax.text.words import pieces_of_word
from simuljax.train.transfer import Which

Settings = Mapping[str, Any]  # of a stream, by name
KEPT = 1000  # words of a transcript
SHOWN = 20  # characters in a warning
SOUND = ("sentences", "rate", "read_ms", "predecision_ms")  # settings that a text has not


@dataclass(frozen=True, kw_only=True)
class TextWord:
    """A committed word of the translation: it will not change."""

    text: str
    delay: int  # words of the source that had been pushed


class TextReader:
    """A text branch with its settings; what its streams share is compiled once."""

    def __init__(self, translator: RunTranslator, **overrides: Any):
        """Take fields of `Decoding` and `StreamLimits` by name; `states` are pieces here."""
        run = translator.run
        if run.model.text is None:
            raise RunError(f"{run.directory} has no text branch: use translator.stream")
        chosen = text_settings(overrides)
        self.run, self.most = run, chosen.limits.states
        pieces_of_word(run.source, "", is_first=True)  # refuses a vocabulary without words
        self.decoder = ReencodingTextDecoder(
            model=translator.network, decoding=chosen.decoding, limits=chosen.limits
        )
        try:
            self.params = self.decoder.params(translator.variables, words=translator.words)
        except PolicyError as error:
            raise RunError(f"{run.directory}: {error}") from None
        self.compiled = jax.jit(self.decoder.read)
        self.read(self.begin(), [], ended=False)  # compiles the first shape

    def stream(self) -> "TextStream":
        return TextStream(self)

    def begin(self) -> ReencodingState:
        """Return a state on its device, as a READ returns it, or the second would compile again."""
        return jax.device_put(self.decoder.init(1), jax.local_devices()[0])

    def read(
        self, state: ReencodingState, pieces: list[int], *, ended: bool
    ) -> tuple[ReencodingState, Events]:
        """Read all pieces so far; return the state, and the events on the host."""
        if len(pieces) > self.most:
            raise ValueError(
                f"a text of more than {self.most} pieces, all of which are read anew with every "
                f"word: cut it into sentences, or say states={2 * self.most}"
            )
        tokens = padded(np.array(pieces, np.int32), SHORTEST_TEXT)
        length, over = jnp.array([len(pieces)]), jnp.array([ended])
        state, events = self.compiled(self.params, state, jnp.asarray(tokens), length, over)
        return state, jax.device_get(events)


class TextStream:
    """One text, word by word."""

    def __init__(self, reader: TextReader):
        self.reader, self.state = reader, reader.begin()
        self.pieces: list[int] = []
        self.words = WordStream.begin(reader.run.target)
        self.unrepeated = reader.decoder.decoding.stammer.begin()
        self.pushed = 0  # words of the source
        self.ended = self.finished = False  # the source; the translation

    def push(self, text: str) -> list[TextWord]:
        """Read the next word, or several, each a READ. Return the words it completes."""
        if self.ended:
            raise ValueError("the stream has been finished: begin another with reader.stream()")
        written = []
        for word in text.split():
            source = self.reader.run.source
            self.pieces += pieces_of_word(source, word, is_first=not self.pieces)
            self.pushed += 1
            written += self._read()
        return written

    def finish(self) -> list[TextWord]:
        """Note that the source has ended; return the words that were still waiting."""
        if self.ended:
            return []
        self.ended = True
        if self.pushed:
            self.pieces.append(EOS)
        return self._read()

    def _read(self) -> list[TextWord]:
        """Write what the pieces allow, unless all has been written."""
        if self.finished:
            return []
        self.state, events = self.reader.read(self.state, self.pieces, ended=self.ended)
        tokens, _, self.finished = events.row(0)
        self.words, words = self.words.push([token for token in tokens if token != EOS])
        words += self.words.finish() if self.finished else []
        self.unrepeated, kept = self.unrepeated.push(words)
        return [TextWord(text=word, delay=self.pushed) for word in kept if word]


def text_settings(overrides: dict[str, Any]) -> Streaming:
    """Return the settings by names of `Decoding` or `StreamLimits`; refuse others."""
    for name in SOUND:
        if name in overrides:
            raise TypeError(f"a stream of text has no setting {name!r}: it is about sound")
    return Streaming.of(overrides)


def load(recogniser: str | Path, translator: str | Path, checkpoint: Which = "best") -> "Cascade":
    """Return the cascade of two runs: one that transcribes, one with a text branch."""
    return Cascade(load_run(recogniser, checkpoint), load_run(translator, checkpoint))


class Cascade(Translator):
    """Two trained models; the second reads what the first writes."""

    def __init__(self, recogniser: RunTranslator, translator: RunTranslator):
        check_parts(recogniser.run, translator.run)
        check_agreement(recogniser.run, translator.run)
        self.recogniser, self.translator = recogniser, translator

    @property
    def name(self) -> str:
        return f"{self.recogniser.name}+{self.translator.name}"

    def backend(
        self, *, translating: Settings | None = None, **recognising: Any
    ) -> "CascadeBackend":
        """Return what streams share: settings of `TextReader`, and of `Translator.stream`."""
        reader = self._reader(text_settings(dict(translating or {})))
        chosen = Streaming.of(recognising, self.recogniser.run.decoding)
        return CascadeBackend(self.recogniser, chosen, reader)

    def stream(
        self,
        *,
        recognising: Settings | None = None,
        translating: Settings | None = None,
        **settings: Any,
    ) -> Stream:
        """Return a live stream; `settings` are of the recogniser, like `recognising`."""
        return super().stream(translating=translating, **(recognising or {}), **settings)

    def translate(self, audio: Any, *, rate: int = RATE, beam: int = 1) -> str:
        """Return the translation of a recording, transcribed first; `beam` is that of both."""
        transcript = self.recogniser.translate(audio, rate=rate, beam=beam)
        return self.translator.translate_text(transcript, beam=beam)

    @functools.cache  # noqa: B019 (compiled functions live as long as their cascade)
    def _reader(self, chosen: Streaming) -> TextReader:
        """Return what streams with these settings share, compiled once."""
        return TextReader(self.translator, decoding=chosen.decoding, limits=chosen.limits)


class CascadeBackend:
    """The rows of the recogniser; its sessions translate what they recognise, one by one."""

    def __init__(self, recogniser: RunTranslator, chosen: Streaming, reader: TextReader):
        self.recogniser, self.chosen, self.reader = recogniser, chosen, reader
        self.rows = recogniser.backend(**vars(chosen)).rows

    def open(self) -> "CascadeSession":
        session = self.recogniser.session(self.chosen, CascadeSession)
        session.reader = self.reader
        return session


class CascadeSession(ReadSession):
    """A session of the recogniser whose words are those of the text model."""

    reader: TextReader

    def __init__(self, *args: Any, **given: Any):
        super().__init__(*args, **given)
        self.text: TextStream | None = None  # of this sentence
        self.text_over = False
        self.recognised: deque[tuple[str, float]] = deque(maxlen=KEPT)  # words, their delays

    def commit(self, written: Tokens) -> list[str]:
        words: list[TextWord] = []
        for word in super().commit(written):
            self.recognised.append((word, self.delay_ms))
            self.text = self.text or self.reader.stream()
            words += self.text.push(word)
        if self.text_over and self.text:  # of nothing there is no translation
            words += self.text.finish()
            self.text = None
        self.text_over = False
        return [word.text for word in words]

    def _end_sentence(self) -> None:
        self.text_over = True
        super()._end_sentence()


def check_parts(recogniser: Run, translator: Run) -> None:
    """Refuse a run that does not transcribe speech, or one that does not translate text."""
    transcribes = recogniser.config.data.task == "transcription"
    problems = {
        f"{recogniser.directory} has no speech branch": recogniser.model.speech is None,
        f"{recogniser.directory} was trained to translate, not to transcribe: a recogniser is "
        "trained with data.task transcription": not transcribes,
        f"{recogniser.directory} writes phonemes, and a translator of text reads words": (
            recogniser.target.kind == "phonemes"
        ),
        f"{translator.directory} has no text branch, which is to read the transcript": (
            translator.model.text is None
        ),
        f"{translator.directory} was trained to transcribe: it translates nothing": (
            translator.config.data.task == "transcription"
        ),
    }
    for problem, is_there in problems.items():
        if is_there:
            raise RunError(problem)


def check_agreement(recogniser: Run, translator: Run) -> None:
    """Refuse lower case where capitals are read; warn of unknown characters."""
    written, read = recogniser.target, translator.source
    if written.config.lowercase and not read.config.lowercase:
        raise RunError(
            f"{recogniser.directory} writes in lower case, and {translator.directory} was trained "
            "with capitals: train the translator with data.source.lowercase, or the recogniser "
            "without data.target.lowercase"
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
