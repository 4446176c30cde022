"""A recogniser and a translator of text as one system with one account of delays.

    both = simuljax.load("runs/asr+runs/mt")  # or "ggml-base.bin+runs/mt"
    stream = both.stream(sentences="pauses", translating={"k": 3})

Words that the recogniser commits are READs of the text model, as they come. A text ends where a run
ends its sentence; Whisper's ends with a word before . ? or !, and with the stream. A word of the
translation has the delay of the recognised word that allowed it: milliseconds of speech read, as
for any other stream. Nguyen et al. 2021 compare with such a system (a hybrid recogniser and
multi-path wait-k).

`TextReader(simuljax.load("runs/mt"), k=3).stream()` translates a written source word by word. What
it writes is what `simulate_text` gives for the same READs.
"""

import functools
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.audio import RATE
from simuljax.config.decoding import Beam, Decoding
from simuljax.config.model import ModelConfig
from simuljax.decode.greedy import Events
from simuljax.decode.policies import AlignAtt, PolicyError, WaitK
from simuljax.decode.reencoding import (
    SHORTEST_TEXT,
    ReencodingDecoder,
    ReencodingState,
    padded,
    sizes_to,
)
from simuljax.decode.stammer import RepetitionFilter
from simuljax.serve.bundled import bundle_of
from simuljax.serve.run_translator import RunTranslator, Streaming, tokens_of
from simuljax.serve.session import Backend, Rows, Session
from simuljax.serve.translator import Translator
from simuljax.serve.whisper import WhisperStreaming, WhisperTranslator
from simuljax.serve.whisper.hypothesis import is_punctuation
from simuljax.text import EOS, UNK, WordStream
from simuljax.text.sentences import ends_sentence
from simuljax.text.vocabulary import SPECIALS
from simuljax.text.words import pieces_of_word
from simuljax.train.run import Run, RunError

KEPT = 1000  # words of a transcript
SHOWN = 20  # characters in a warning
LONGEST = 100  # words of a text of Whisper without . ? or !
RECOGNISING = WhisperStreaming(  # settings of Whisper in a cascade
    task="transcribe", policy=AlignAtt(frames=50), window_s=0.5, marks="confirmed", padding="short"
)
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
        chosen = text_settings(overrides, run)
        self.run, self.most = run, chosen.limits.states
        pieces_of_word(run.source, "", is_first=True)  # refuses a vocabulary without words
        how: dict[str, Any] = {"decoding": chosen.decoding, "limits": chosen.limits}
        try:
            self.decoder = ReencodingDecoder(branch="text", model=translator.network, **how)
            self.params = self.decoder.params(translator.variables, words=translator.words)
        except PolicyError as error:
            raise RunError(f"{run.directory}: {error}") from None
        self.compiled = jax.jit(self.decoder.read)
        self.read(self.begin(), [], ended=False)  # compiles the first shape

    def compile(self) -> None:
        """Read texts of all lengths but the rarest, so that nobody waits for the compiler."""
        for length in sizes_to(min(self.most, 2 * SHORTEST_TEXT), SHORTEST_TEXT):
            self.read(self.begin(), [UNK] * length, ended=False)

    def stream(self) -> "TextStream":
        """Return a stream of a new text."""
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
        self.unrepeated = RepetitionFilter(limits=reader.decoder.decoding.stammer)
        self.pushed = 0  # words of the source
        self.last = ("", 0)  # the last of them, and the pieces before it
        self.ended = self.finished = False  # the source; the translation

    def push(self, text: str) -> list[TextWord]:
        """Read the next word, or several, each a READ. Return the words it completes."""
        if self.ended:
            raise ValueError("the stream has been finished: begin another with reader.stream()")
        written = []
        for word in text.split():
            self.last = (word, len(self.pieces))
            self.pieces += self._pieces(word)
            self.pushed += 1
            written += self._read()
        return written

    def append_mark(self, mark: str) -> None:
        """Append a mark of punctuation to the last word; the next READ reads it."""
        word, first = self.last
        self.last = (word + mark, first)
        del self.pieces[first:]
        self.pieces += self._pieces(word + mark)

    def _pieces(self, word: str) -> list[int]:
        return pieces_of_word(self.reader.run.source, word, is_first=not self.pieces)

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
        written = tokens_of(0, events)
        self.finished = written.finished
        self.words, words = self.words.push([token for token in written.ids if token != EOS])
        words += self.words.finish() if self.finished else []
        self.unrepeated, kept = self.unrepeated.push(words)
        return [TextWord(text=word, delay=self.pushed) for word in kept if word]


def text_settings(overrides: dict[str, Any], run: Run) -> Streaming:
    """Return the settings by names of `Decoding` or `StreamLimits`; refuse others.

    What is not named is as a run without speech is stored with.
    """
    for name in SOUND:
        if name in overrides:
            raise TypeError(f"a stream of text has no setting {name!r}: it is about sound")
    chosen = Streaming.of(overrides, run.decoding if run.model.speech is None else None)
    return replace(chosen, decoding=waiting(chosen.decoding, run.model))


D = TypeVar("D", bound=Decoding)


def waiting(decoding: D, model: ModelConfig) -> D:
    """Return the decoding of a text; a model that was trained offline waits for k by a policy."""
    if decoding.k is None or decoding.policy or model.monotonic.policy != "offline":
        return decoding
    return replace(decoding, policy=WaitK(k=decoding.k, convention="stacl"), k=None)


class Cascade(Translator):
    """Two trained models; the second reads what the first writes."""

    def __init__(self, recogniser: RunTranslator | WhisperTranslator, translator: RunTranslator):
        self.has_marks = isinstance(recogniser, WhisperTranslator)  # that show where a text ends
        if isinstance(recogniser, RunTranslator):
            check_recogniser(recogniser.run)
        check_translator(translator.run)
        if isinstance(recogniser, RunTranslator):
            check_agreement(recogniser.run, translator.run)
        self.recogniser, self.translator = recogniser, translator
        self.steps = (*recogniser.steps, *translator.steps)
        self.live_settings = recogniser.live_settings

    @property
    def name(self) -> str:
        whole = bundle_of(self.translator.run.directory)
        return whole.name if whole else f"{self.recogniser.name}+{self.translator.name}"

    def backend(
        self, *, translating: Mapping[str, Any] | None = None, **recognising: Any
    ) -> "CascadeBackend":
        """Return what streams share: settings of `TextReader`, and of the recogniser's stream."""
        reader = self._reader(text_settings(dict(translating or {}), self.translator.run))
        return CascadeBackend(self.recogniser.backend(**recognising), reader, self.has_marks)

    def translate(self, audio: Any, *, rate: int = RATE, beam: int | Beam = 1) -> str:
        """Return the translation of a recording, transcribed first; `beam` is that of both."""
        transcript = self.recogniser.translate(audio, rate=rate, beam=beam)
        texts = texts_of(transcript) if self.has_marks else [transcript]
        return " ".join(self.translator.translate_text(text, beam=beam) for text in texts)

    @functools.cache  # noqa: B019 (compiled functions live as long as their cascade)
    def _reader(self, chosen: Streaming) -> TextReader:
        """Return what streams with these settings share, compiled once."""
        return TextReader(self.translator, decoding=chosen.decoding, limits=chosen.limits)


def ends_text(word: str, number: int) -> bool:
    """Return True for the last word of a sentence, or of a text that is long."""
    return ends_sentence(word) or number >= LONGEST


def texts_of(transcript: str) -> list[str]:
    """Return the texts of a whole transcript, as a stream would have them."""
    texts: list[list[str]] = [[]]
    for word in transcript.split():
        texts[-1].append(word)
        if ends_text(word, len(texts[-1])):
            texts.append([])
    return [" ".join(words) for words in texts if words]


class CascadeBackend:
    """The backend of the recogniser; its sessions translate what they recognise, one by one."""

    def __init__(self, recogniser: Backend, reader: TextReader, has_marks: bool):
        self.recogniser, self.reader, self.has_marks = recogniser, reader, has_marks

    def open(self) -> Any:
        return CascadeSession(self.recogniser.open(), self.reader, self.has_marks)

    def rows(self, streams: int) -> Any:
        return CascadeRows(self.recogniser.rows(streams))

    def compile(self, streams: int) -> None:
        self.recogniser.compile(streams)
        self.reader.compile()


class CascadeRows:
    """The rows of the recogniser, and the last READs of texts, for which they have no work."""

    meanwhile: Callable[[], object] = bool  # called while the device computes

    def __init__(self, rows: Rows):
        self.rows = rows

    def step(self, reads: Mapping[int, Any]) -> dict[int, Any]:
        """Compute the READs of sound; there is nothing to compute where the speech has ended."""
        self.rows.meanwhile = self.meanwhile
        sound = {row: read for row, read in reads.items() if read is not ENDED}
        written = self.rows.step(sound) if sound else {}
        return {row: written.get(row, ENDED) for row in reads}


ENDED = object()  # the READ after the last of the recogniser, and what it writes


class CascadeSession:
    """A session of the recogniser whose words are those of the text model.

    Sound, READs and delays are those of the recogniser.
    """

    pending = ""  # words that the recogniser may take back are not translated

    def __init__(self, recogniser: Session, reader: TextReader, has_marks: bool):
        self.recogniser, self.reader, self.has_marks = recogniser, reader, has_marks
        self.text: TextStream | None = None  # of this sentence
        self.recognised: deque[tuple[str, float]] = deque(maxlen=KEPT)  # words, their delays

    def __getattr__(self, name: str) -> Any:
        return getattr(self.recogniser, name)

    @property
    def finished(self) -> bool:
        return self.recogniser.finished and self.text is None

    @finished.setter
    def finished(self, finished: bool) -> None:
        self.recogniser.finished = finished
        self.text = None

    @property
    def ready(self) -> bool:
        return self.recogniser.ready or self._text_waits

    @property
    def _text_waits(self) -> bool:
        """Return True if no word will be recognised and a text has not ended: after silence."""
        return self.recogniser.finished and self.text is not None

    def next(self) -> Any:
        read = self.recogniser.next()
        return ENDED if read is None and self._text_waits else read

    def commit(self, written: Any) -> list[str]:
        """Translate the words that the recogniser completes; return those of the translation."""
        words: list[TextWord] = []
        for word in [] if written is ENDED else self.recogniser.commit(written):
            self.recognised.append((word, self.recogniser.delay_ms))
            if self.text and is_punctuation(word):
                self.text.append_mark(word)
            else:
                self.text = self.text or self.reader.stream()
                words += self.text.push(word)
            if self.has_marks and ends_text(self.text.last[0], self.text.pushed):
                words += self._end_text()
        if self.recogniser.sentence_over:
            words += self._end_text()
        return [word.text for word in words]

    def _end_text(self) -> list[TextWord]:
        text, self.text = self.text, None
        return text.finish() if text else []  # of nothing there is no translation


def check_recogniser(run: Run) -> None:
    """Refuse a run that does not transcribe speech."""
    problem = None
    if run.model.speech is None:
        problem = "has no speech branch"
    elif run.config.data.task != "transcription":
        problem = (
            "was trained to translate, not to transcribe: a recogniser is trained with data.task "
            "transcription"
        )
    elif run.target.kind == "phonemes":
        problem = "writes phonemes, and a translator of text reads words"
    if problem:
        raise RunError(f"{run.directory} {problem}")


def check_translator(run: Run) -> None:
    """Refuse a run that does not translate text."""
    if run.model.text is None:
        raise RunError(f"{run.directory} has no text branch, which is to read the transcript")
    if run.config.data.task == "transcription":
        raise RunError(f"{run.directory} was trained to transcribe: it translates nothing")


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
