"""A trained run, ready to use: whole recordings, or streams that are translated as they come.

translator = simuljax.load("runs/dar")
print(translator.translate("talk.wav"))

stream = translator.stream()
for samples in microphone:
    for word in stream.push(samples):
        print(word.text, word.delay_ms)
print(stream.finish())
"""

import dataclasses
import difflib
import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.audio import RATE, AudioError, as_int16, features_of, frame_count, read_audio
from simuljax.decode.offline import translate_speech, translate_text
from simuljax.decode.options import Decoding
from simuljax.decode.reread import RereadingDecoder, padded
from simuljax.decode.stream import Chunk, StreamingDecoder, StreamLimits
from simuljax.models import config
from simuljax.models.translator import Translator as Network
from simuljax.nn.batch_norm import STATISTICS
from simuljax.nn.subsampling import STRIDE
from simuljax.run import Run, RunError, learnt, open_run
from simuljax.text import EOS, WordStream
from simuljax.train.average import Loaded, Which

MS = RATE // 1000  # samples
STATE = 10 * STRIDE * MS
hear = jax.jit(features_of, static_argnums=1)  # compiled once per shape, whoever asks


@dataclass(frozen=True, kw_only=True)
class Word:
    """A committed word: it will not change."""

    text: str
    delay_ms: float  # of the source that had been pushed
    elapsed_ms: float  # the same plus the time spent computing until then


@dataclass(frozen=True, kw_only=True)
class Streaming:
    """How a stream listens and writes; `Translator.stream` takes these by name."""

    sentences: Literal["one", "many"] = "one"  # `many`: speech goes on after end-of-sentence
    read_ms: int | None = None  # speech to a READ; None: the step between decisions
    predecision_ms: int | None = None  # step between decisions; None: as trained
    decoding: Decoding = dataclasses.field(default_factory=Decoding)
    limits: StreamLimits = dataclasses.field(default_factory=StreamLimits)

    @classmethod
    def of(cls, overrides: dict[str, Any]) -> "Streaming":
        """From names that are fields here, of `Decoding` or of `StreamLimits`."""
        own, decoding, limits = (
            {f.name for f in dataclasses.fields(kind)} for kind in (cls, Decoding, StreamLimits)
        )
        for name in overrides:
            known = sorted(own | decoding | limits)
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                hint = f"; do you mean {close[0]!r}?" if close else f"; there are {known}"
                raise TypeError(f"a stream has no setting {name!r}{hint}")
        given = {name: value for name, value in overrides.items() if name in own}
        parts = [{k: v for k, v in overrides.items() if k in names} for names in (decoding, limits)]
        if parts[0]:
            given["decoding"] = dataclasses.replace(given.get("decoding", Decoding()), **parts[0])
        if parts[1]:
            given["limits"] = dataclasses.replace(given.get("limits", StreamLimits()), **parts[1])
        return cls(**given)


def load(run_dir: str | Path, checkpoint: Which = "best") -> "Translator":
    """The translator that a run has trained; `checkpoint` may be "best", "last", "averaged"."""
    run = open_run(run_dir)
    return Translator(run, learnt(run, checkpoint))


class Translator:
    """A trained model with its vocabularies and its ears."""

    def __init__(self, run: Run, trained: Loaded):
        self.run, self.steps = run, trained.steps
        self.network = Network(run.model)
        self.variables = {"params": trained.params, STATISTICS: trained.statistics}

    def translate(self, audio: str | Path | np.ndarray, *, rate: int = RATE) -> str:
        """The translation of a whole recording: a file, or mono samples at `rate`."""
        if self.run.model.speech is None:
            raise RunError(f"{self.run.directory} translates text: use translate_text")
        is_file = isinstance(audio, str | Path)
        samples = read_audio(audio).samples if is_file else as_int16(np.asarray(audio), rate)
        sound, heard = padded(samples), self.run.heard
        frames = jnp.array([frame_count(len(samples), heard.features.filterbank)])
        whole = translate_speech(self.network, self.variables, self._features(sound), frames)
        return self._text(whole.tokens[0], whole.lengths[0])

    def translate_text(self, text: str) -> str:
        """The translation of a written sentence, by the text branch."""
        if self.run.model.text is None:
            raise RunError(f"{self.run.directory} has no text branch: use translate")
        tokens = [*self.run.source.encode(text), EOS]
        room = np.zeros((1, -(-len(tokens) // 32) * 32), np.int32)
        room[0, : len(tokens)] = tokens
        whole = translate_text(self.network, self.variables, room, np.array([len(tokens)]))
        return self._text(whole.tokens[0], whole.lengths[0])

    def stream(self, **overrides: Any) -> "Stream":
        """A live stream; `overrides` are fields of `Streaming`, `Decoding` and `StreamLimits`."""
        if self.run.model.speech is None:
            raise RunError(f"{self.run.directory} translates text, not speech")
        return Stream(self, Streaming.of(overrides))

    def _text(self, tokens: jax.Array, length: jax.Array) -> str:
        return self.run.target.decode(np.asarray(tokens)[: int(length)].tolist())

    def _features(self, sound: np.ndarray) -> jax.Array:
        return hear(jnp.asarray(sound), self.run.heard.features, self.run.heard.statistics)

    @functools.cache  # noqa: B019 (compiled functions live as long as their translator)
    def ear(self, chosen: Streaming) -> "Incremental | Rereading":
        """What streams with these settings share: compiled once."""
        kind = self.run.model.speech.kind if self.run.model.speech else None
        return (Incremental if kind == "streaming" else Rereading)(self, chosen)


class Stream:
    """One speaker. READs are of `read_ms`, however the samples are cut into pushes.

    With `sentences="many"` speech may go on for hours: when the model ends a sentence, or one is as
    long as `StreamLimits` allow, the next begins with the sound after the last state that any head
    attended to. What came before is forgotten, so that memory and the cost of a READ are bounded.
    """

    def __init__(self, translator: Translator, chosen: Streaming):
        model = with_step(translator.run.model, chosen.predecision_ms)
        self.read = (chosen.read_ms or model.predecision.step_ms) * MS
        self.ear = translator.ear(chosen)
        self.state = self.ear.begin()
        self.words = WordStream.begin(translator.run.target)
        self.sentences, self.target = chosen.sentences, translator.run.target
        self.most = max(1, chosen.limits.states * STATE // self.read - 1) * self.read
        self.waiting = self.sentence = np.zeros(0, np.int16)  # not heard yet; of this sentence
        self.reach = 0  # states of the sentence that were attended to
        self.pushed = 0  # samples
        self.computed_ms = 0.0
        self.ended = self.finished = False

    def push(self, samples: Sequence[float] | np.ndarray) -> list[Word]:
        """More sound: mono at 16 kHz, int16 or float in [-1, 1]. Gives the words it completes."""
        if self.ended:
            raise ValueError("the stream has been finished: begin another with translator.stream()")
        samples = np.asarray(samples)
        if samples.size == 0:
            return []
        sound = as_int16(samples, RATE)
        start = time.perf_counter()
        self.pushed += len(sound)
        self.waiting = np.concatenate([self.waiting, sound])
        words = self._hear_waiting(start)
        self.computed_ms += (time.perf_counter() - start) * 1e3
        return words

    def _hear_waiting(self, start: float) -> list[Word]:
        """Whole READs."""
        words = []
        while len(self.waiting) >= self.read and not self.finished:
            chunk, self.waiting = self.waiting[: self.read], self.waiting[self.read :]
            full = self.sentences == "many" and len(self.sentence) + len(chunk) >= self.most
            words += self._listen(chunk, full, start)
            if self.finished and self.sentences == "many":
                words += self._next_sentence(start)
        return words

    def finish(self) -> list[Word]:
        """Nothing more will be said: gives the words that were still waiting."""
        if self.ended:
            return []
        self.ended, start, words = True, time.perf_counter(), []
        while self.pushed and not self.finished:
            words += self._hear_waiting(start)
            rest, self.waiting = self.waiting, self.waiting[:0]
            words += [] if self.finished else self._listen(rest, True, start)
            if self.sentences == "many" and len(self.sentence) - self.reach * STATE >= self.read:
                words += self._next_sentence(start)
            else:
                self.finished = True
        words += self._timed(self.words.finish(), start)
        self.computed_ms += (time.perf_counter() - start) * 1e3
        return words

    def _next_sentence(self, start: float) -> list[Word]:
        """Forgets what was translated; what was not is heard again. Gives the last word."""
        words = self._timed(self.words.finish(), start)
        done = min(max(self.reach * STATE, self.read), len(self.sentence))
        self.waiting = np.concatenate([self.sentence[done:], self.waiting])
        self.sentence, self.reach, self.finished = self.sentence[:0], 0, False
        self.state, self.words = self.ear.begin(), WordStream.begin(self.target)
        return words

    def _listen(self, chunk: np.ndarray, ended: bool, start: float) -> list[Word]:
        words = []
        if self.sentences == "many":
            self.sentence = np.concatenate([self.sentence, chunk])
        for state, events in self.ear.listen(self.state, chunk, ended):
            self.state = state
            count = int(events.written.count[0])
            tokens = [t for t in events.written.tokens[0, :count].tolist() if t != EOS]
            self.words, new = self.words.push(tokens)
            words += self._timed(new, start)
            self.reach = max(self.reach, int(np.max(events.written.reach[0, :count], initial=0)))
            self.finished = bool(events.finished[0])
        return words

    def _timed(self, texts: list[str], start: float) -> list[Word]:
        delay = self.pushed / MS
        elapsed = delay + self.computed_ms + (time.perf_counter() - start) * 1e3
        return [Word(text=text, delay_ms=delay, elapsed_ms=elapsed) for text in texts]


class Incremental:
    """The streaming encoder: a READ costs the same however long the stream is."""

    def __init__(self, translator: Translator, chosen: Streaming):
        run = translator.run
        model = with_step(run.model, chosen.predecision_ms)
        self.decoder = StreamingDecoder(
            model=Network(model),
            features=run.heard.features,
            decoding=chosen.decoding,
            limits=chosen.limits,
        )
        self.size = (chosen.read_ms or model.predecision.step_ms) * MS
        self.learnt = self.decoder.learnt(translator.variables, run.heard.statistics)
        self.step = jax.jit(self.decoder.step, donate_argnums=1)
        list(self.listen(self.begin(), np.zeros(0, np.int16), False))  # compiles

    def begin(self) -> Any:
        """The state of a stream that has heard nothing."""
        return _placed(self.decoder.init(self.learnt, 1))

    def listen(self, state: Any, chunk: np.ndarray, ended: bool) -> Any:
        """States and events: one, or more where there is more to write than events hold."""
        more, length = True, len(chunk)
        sound = np.pad(chunk, (0, self.size - length))[None]
        while more:
            given = Chunk(
                samples=jnp.asarray(sound), length=jnp.array([length]), ended=jnp.array([ended])
            )
            state, on_device = self.step(self.learnt, state, given)
            events = jax.device_get(on_device)
            yield state, events
            more, length = bool(events.more[0]), 0


class Rereading:
    """Any other encoder: with every READ all that has been heard is encoded anew."""

    def __init__(self, translator: Translator, chosen: Streaming):
        run = translator.run
        kind = run.model.predecision.kind
        if kind in ("words", "phonemes"):
            raise RunError(
                f"{run.directory} decides at {kind}, which no live stream knows: evaluate it on a "
                "corpus with alignments (simuljax evaluate)"
            )
        self.decoder = RereadingDecoder(
            model=Network(with_step(run.model, chosen.predecision_ms)),
            features=run.heard.features,
            decoding=chosen.decoding,
            limits=chosen.limits,
        )
        self.learnt = self.decoder.learnt(translator.variables, run.heard.statistics)
        self.read = jax.jit(self.decoder.read)
        self.most = chosen.limits.states * STATE
        list(self.listen(self.begin(), np.zeros(0, np.int16), False))  # compiles the first shape

    def begin(self) -> Any:
        """The state of a stream that has heard nothing."""
        return np.zeros(0, np.int16), _placed(self.decoder.init(1))

    def listen(self, state: Any, chunk: np.ndarray, ended: bool) -> Any:
        """The state and what it has written."""
        heard = np.concatenate([state[0], chunk])
        if len(heard) > self.most:
            raise AudioError(
                "not samples",
                f"a stream of more than {self.most / RATE:.0f} s, all of which this encoder would "
                "read anew each time: raise limits.states, or train the streaming encoder",
            )
        length, over = jnp.array([len(heard)]), jnp.array([ended])
        after, events = self.read(self.learnt, state[1], jnp.asarray(padded(heard)), length, over)
        yield (heard, after), jax.device_get(events)


def _placed(state: Any) -> Any:
    """Bound to its device, as what a step returns is: or the second step would compile again."""
    return jax.device_put(state, jax.local_devices()[0])


def with_step(model: config.Translator, predecision_ms: int | None) -> config.Translator:
    """The model with another step between decisions, if one is given."""
    if predecision_ms is None:
        return model
    step = dataclasses.replace(model.predecision, step_ms=predecision_ms)
    return dataclasses.replace(model, predecision=step)
