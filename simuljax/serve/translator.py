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
from numbers import Integral
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.audio import RATE, AudioError, as_int16, features_of, frame_count, read_audio
from simuljax.config.model import ModelConfig
from simuljax.decode.beam import Beam
from simuljax.decode.caat import CaatDecoder
from simuljax.decode.offline import translate_speech, translate_text
from simuljax.decode.options import Decoding
from simuljax.decode.policies import PolicyError
from simuljax.decode.reread import RereadingDecoder, padded
from simuljax.decode.stream import Chunk, StreamingDecoder, StreamLimits
from simuljax.models.translator import Translator as Network
from simuljax.nn.batch_norm import STATISTICS
from simuljax.serve.engine import Engine
from simuljax.serve.run import Run, RunError, learnt, open_run
from simuljax.serve.session import MS, STATE, Listener, Sentences, Word
from simuljax.text import EOS, Words, WordStream
from simuljax.train.average import Loaded, Which

hear = jax.jit(features_of, static_argnums=1)  # compiled once per shape, whoever asks


@dataclass(frozen=True, kw_only=True)
class Streaming:
    """How a stream listens and writes; `Translator.stream` takes these by name."""

    sentences: Sentences = "one"  # `many`: speech goes on after end-of-sentence
    rate: int = RATE  # of the samples that are pushed
    read_ms: int | None = None  # speech to a READ; None: the step between decisions
    predecision_ms: int | None = None  # step between decisions; None: as trained
    decoding: Decoding = dataclasses.field(default_factory=Decoding)
    limits: StreamLimits = dataclasses.field(default_factory=StreamLimits)

    def __post_init__(self) -> None:
        if self.sentences not in get_args(Sentences):
            raise ValueError(
                f"sentences is {self.sentences!r}; choose one of {get_args(Sentences)}"
            )
        for name in ("read_ms", "predecision_ms"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, Integral) or value < 1):
                raise ValueError(f"{name} is {value}; it is a whole number of ms, from 1")

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

    def translate(self, audio: str | Path | np.ndarray, *, rate: int = RATE, beam: int = 1) -> str:
        """The translation of a whole recording: a file, or mono samples at `rate`.

        `beam` is the number of hypotheses that are followed at once; 1 is greedy.
        """
        if self.run.model.speech is None:
            raise RunError(f"{self.run.directory} translates text: use translate_text")
        is_file = isinstance(audio, str | Path)
        samples = read_audio(audio).samples if is_file else as_int16(np.asarray(audio), rate)
        sound, heard = padded(samples), self.run.heard
        frames = jnp.array([frame_count(len(samples), heard.features.filterbank)])
        given = (self.network, self.variables, self._features(sound), frames)
        whole = translate_speech(*given, beam=_beam(beam), words=self.words)
        return self._text(whole.tokens[0], whole.lengths[0])

    def translate_text(self, text: str, *, beam: int = 1) -> str:
        """The translation of a written sentence, by the text branch."""
        if self.run.model.text is None:
            raise RunError(f"{self.run.directory} has no text branch: use translate")
        tokens = [*self.run.source.encode(text), EOS]
        room = np.zeros((1, -(-len(tokens) // 32) * 32), np.int32)
        room[0, : len(tokens)] = tokens
        given = (self.network, self.variables, room, np.array([len(tokens)]))
        whole = translate_text(*given, beam=_beam(beam))
        return self._text(whole.tokens[0], whole.lengths[0])

    def stream(self, **overrides: Any) -> "Stream":
        """A live stream; `overrides` are fields of `Streaming`, `Decoding` and `StreamLimits`."""
        if self.run.model.speech is None:
            raise RunError(f"{self.run.directory} translates text, not speech")
        return Stream(self, Streaming.of(overrides))

    def engine(
        self, *, streams: int = 64, waiting_ms: float = 10_000.0, **overrides: Any
    ) -> Engine:
        """Up to so many live streams at once on this device; see `simuljax.serve.engine`."""
        chosen = Streaming.of(overrides)
        if not self.goes_on(chosen):
            raise RunError(
                f"{self.run.directory} reads all sound anew at every READ, for its encoder or the "
                "policy, which many streams at once cannot afford: train the streaming encoder, "
                "or use stream()"
            )
        ear = self.ear(chosen)
        assert isinstance(ear, Incremental)
        return Engine(
            ear.decoder,
            ear.learnt,
            lambda: self.listener(chosen),
            streams=streams,
            waiting_ms=waiting_ms,
        )

    def _text(self, tokens: jax.Array, length: jax.Array) -> str:
        return self.run.target.decode(np.asarray(tokens)[: int(length)].tolist())

    def _features(self, sound: np.ndarray) -> jax.Array:
        return hear(jnp.asarray(sound), self.run.heard.features, self.run.heard.statistics)

    def listener(self, chosen: Streaming) -> Listener:
        """The books of one stream."""
        policy = chosen.decoding.policy
        return Listener(
            self.nothing_written,
            read=self.read_size(chosen),
            most=chosen.limits.states * STATE,
            sentences=chosen.sentences,
            rate=chosen.rate,
            first=first * MS if policy and (first := policy.first_read_ms) else None,
        )

    def read_size(self, chosen: Streaming) -> int:
        """Samples of a READ."""
        model, policy = with_step(self.run.model, chosen.predecision_ms), chosen.decoding.policy
        usual = (policy.read_ms if policy else None) or model.predecision.step_ms
        return (chosen.read_ms or usual) * MS

    def goes_on(self, chosen: Streaming) -> bool:
        """Whether a READ goes on from the one before; or else all sound is heard anew."""
        speech, policy = self.run.model.speech, chosen.decoding.policy
        streams = speech is not None and speech.kind == "streaming"
        return streams and (policy is None or policy.is_incremental)

    @functools.cached_property
    def nothing_written(self) -> WordStream:
        """Where every sentence begins; to know where words end takes a walk over the vocabulary."""
        return WordStream.begin(self.run.target)

    @functools.cached_property
    def words(self) -> Words:
        """What the run's ids say about words."""
        return Words.of(self.run.source, self.run.target)

    @functools.cache  # noqa: B019 (compiled functions live as long as their translator)
    def ear(self, chosen: Streaming) -> "Incremental | Rereading":
        """What streams with these settings share: compiled once."""
        try:
            return (Incremental if self.goes_on(chosen) else Rereading)(self, chosen)
        except PolicyError as error:
            raise RunError(f"{self.run.directory}: {error}") from None


class Stream:
    """One speaker, with a device to himself; see `simuljax.serve.session` for what it does."""

    def __init__(self, translator: Translator, chosen: Streaming):
        self.listener = translator.listener(chosen)
        self.ear = translator.ear(chosen)
        self.state: Any = None
        self.computed_ms = 0.0

    def push(self, samples: Sequence[float] | np.ndarray) -> list[Word]:
        """More sound: mono, int16 or float in [-1, 1]. Gives the words it completes."""
        start = time.perf_counter()
        self.listener.push(np.asarray(samples))
        return self._listen(start)

    def finish(self) -> list[Word]:
        """Nothing more will be said: gives the words that were still waiting."""
        start = time.perf_counter()
        self.listener.finish()
        return self._listen(start)

    def _listen(self, start: float) -> list[Word]:
        words = []
        while read := self.listener.next():
            if read.anew:
                self.state = self.ear.begin()
            for state, events in self.ear.listen(self.state, read.samples, read.ended):
                self.state = state
                words += self._timed(self.listener.write(*events.row(0)), start)
        self.computed_ms += (time.perf_counter() - start) * 1e3
        return words

    def _timed(self, texts: list[str], start: float) -> list[Word]:
        delay = self.listener.delay_ms
        elapsed = delay + self.computed_ms + (time.perf_counter() - start) * 1e3
        return [Word(text=text, delay_ms=delay, elapsed_ms=elapsed) for text in texts]


class Incremental:
    """The streaming encoder: a READ costs the same however long the stream is."""

    def __init__(self, translator: Translator, chosen: Streaming):
        run = translator.run
        model = with_step(run.model, chosen.predecision_ms)
        groups = model.decoder == "caat" and chosen.decoding.policy is None
        self.decoder = (CaatDecoder if groups else StreamingDecoder)(
            model=Network(model),
            features=run.heard.features,
            decoding=chosen.decoding,
            limits=chosen.limits,
        )
        self.size = translator.read_size(chosen)
        given = (translator.variables, run.heard.statistics, translator.words)
        self.learnt = self.decoder.learnt(*given)
        self.step = jax.jit(self.decoder.step, donate_argnums=1)
        self.fresh = _placed(self.decoder.init(self.learnt, 1))
        list(self.listen(self.begin(), np.zeros(0, np.int16), False))  # compiles

    def begin(self) -> Any:
        """The state of a stream that has heard nothing."""
        return jax.tree.map(jnp.copy, self.fresh)  # a step takes its state for itself

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
        given = (translator.variables, run.heard.statistics, translator.words)
        self.learnt = self.decoder.learnt(*given)
        self.read = jax.jit(self.decoder.read)
        self.fresh = _placed(self.decoder.init(1))
        self.most = chosen.limits.states * STATE
        list(self.listen(self.begin(), np.zeros(0, np.int16), False))  # compiles the first shape

    def begin(self) -> Any:
        """The state of a stream that has heard nothing."""
        return np.zeros(0, np.int16), self.fresh

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


def _beam(size: int) -> Beam | None:
    """None, greedy decoding, is what a beam of 1 comes to, and quicker."""
    return None if size == 1 else Beam(size=size)


def _placed(state: Any) -> Any:
    """Bound to its device, as what a step returns is: or the second step would compile again."""
    return jax.device_put(state, jax.local_devices()[0])


def with_step(model: ModelConfig, predecision_ms: int | None) -> ModelConfig:
    """The model with another step between decisions, if one is given."""
    if predecision_ms is None:
        return model
    step = dataclasses.replace(model.predecision, step_ms=predecision_ms)
    return dataclasses.replace(model, predecision=step)
