"""A trained run, ready to use: whole recordings, or streams that are translated as they come."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from simuljax.audio import MS, RATE, AudioError, extract_features, frame_count
from simuljax.config.decoding import Beam, Decoding
from simuljax.config.fields import Checked, setting
from simuljax.decode.beam import translate_speech, translate_text
from simuljax.decode.caat import CaatDecoder
from simuljax.decode.context import StreamLimits, StreamParams
from simuljax.decode.greedy import Events
from simuljax.decode.policies import PolicyError
from simuljax.decode.reencoding import ReencodingDecoder, padded, padded_size, sizes_to
from simuljax.decode.stammer import RepetitionFilter
from simuljax.decode.stream import Chunk, StreamingDecoder
from simuljax.errors import unknown
from simuljax.models.joint import JointModel
from simuljax.nn.layers import STATISTICS
from simuljax.serve.session import STATE, Read, ReadSession, Session, Tokens
from simuljax.serve.translator import Translator, batch_sizes, batches, samples_of
from simuljax.text import EOS, Words, WordStream
from simuljax.train.run import Loaded, Run, RunError, Which, load_checkpoint, open_run

NOTHING = Tokens(ids=[], reach=0, finished=False)
NO_SOUND = Read(samples=np.zeros(0, np.int16), ended=False, anew=True)


class DeviceRows:
    """Streams whose state stays on the device."""

    meanwhile: Callable[[], object] = bool  # called while the device computes

    def __init__(self, backend: Any, streams: int):
        self.backend, self.streams = backend, streams
        self.state = jax.tree.map(jnp.copy, backend.init(streams))  # a step takes it for itself

    def begin(self, reads: Mapping[int, Read]) -> None:
        """Let the state have read nothing in the rows where a sentence begins."""
        anew = [row for row, read in reads.items() if read.anew]
        if anew:
            rows = np.full(1 << (len(anew) - 1).bit_length(), self.streams, np.int32)  # few shapes
            rows[: len(anew)] = anew
            self.state = self.backend.put(self.state, rows, self.backend.init(1))

    def advance(self, step: Callable[..., Any], *given: Any) -> Events:
        """Let the device step the state; return the events on the host."""
        self.state, events = step(self.backend.params, self.state, *given)
        self.meanwhile()
        return jax.device_get(events)


class IncrementalRows(DeviceRows):
    """Streams of which every step moves all rows on."""

    def step(self, reads: Mapping[int, Read]) -> dict[int, Tokens]:
        """Compute the READs; go on without sound where there is more to write than events hold."""
        self.begin(reads)
        events = [self._advance(reads)]
        while events[-1].more.any():
            events.append(self._advance({}))
        busy = np.any([each.written.lengths + each.finished for each in events], axis=0).tolist()
        return {row: tokens_of(row, *events) if busy[row] else NOTHING for row in reads}

    def _advance(self, reads: Mapping[int, Read]) -> Events:
        sound = np.zeros((self.streams, self.backend.size), np.int16)
        length, ended = np.zeros(self.streams, np.int32), np.zeros(self.streams, bool)
        for row, read in reads.items():
            sound[row, : len(read.samples)] = read.samples
            length[row], ended[row] = len(read.samples), read.ended
        chunk: Any = Chunk(sound, length, ended)  # pyright: ignore[reportArgumentType]
        return self.advance(self.backend.step, chunk)


class ReencodingRows(DeviceRows):
    """Streams whose sound is kept on the host; a step encodes those that have a READ."""

    def __init__(self, backend: "ReencodingBackend", streams: int):
        super().__init__(backend, streams)
        self.sound = [np.zeros(0, np.int16)] * streams
        self.sizes = batch_sizes(streams)

    def step(self, reads: Mapping[int, Read]) -> dict[int, Tokens]:
        """Compute the READs, as many in a batch as programs are compiled for."""
        most = self.backend.decoder.limits.states * STATE
        self.begin(reads)
        for row, read in reads.items():
            before = self.sound[row][:0] if read.anew else self.sound[row]
            self.sound[row] = np.concatenate([before, read.samples])
            if len(self.sound[row]) > most:
                raise AudioError(
                    "not samples",
                    f"a stream of more than {most / RATE:.0f} s, all of which this encoder would "
                    "read anew each time: raise limits.states, or train the streaming encoder",
                )
        written = {}
        for due, count in batches([*reads], self.sizes):
            lengths = [len(self.sound[row]) for row in due]
            sound = np.zeros((count, padded_size(max(lengths))), np.int16)
            rows, length = np.full(count, self.streams, np.int32), np.zeros(count, np.int32)
            ended = np.zeros(count, bool)
            for place, row in enumerate(due):
                sound[place, : lengths[place]] = self.sound[row]
                rows[place], length[place], ended[place] = row, lengths[place], reads[row].ended
            events = self.advance(self.backend.read, rows, sound, length, ended)
            written |= {row: tokens_of(place, events) for place, row in enumerate(due)}
        return written


def tokens_of(row: int, *events: Events) -> Tokens:
    """Return what a stream has written in these events, which are on the host."""
    ids, reach, finished = [], 0, False
    for each in events:
        count = each.written.lengths[row]
        ids += each.written.tokens[row, :count].tolist()
        reach = max(reach, *each.written.reach[row, :count].tolist(), 0)
        finished |= bool(each.finished[row])
    return Tokens(ids=ids, reach=reach, finished=finished)


Axes = tuple[int, ...]  # of every array of a state, in the order of jax.tree.leaves


def batch_axes(init: Callable[[int], Any]) -> Axes:
    """Return the batch axis of every array of a state; `init` makes the state of so many streams.

    It is found by comparing states of 1 and of 2 streams.
    """

    def shapes(batch: int) -> list[tuple[int, ...]]:
        arrays = jax.eval_shape(lambda: jax.tree.leaves(init(batch)))
        return [array.shape for array in arrays]

    pairs = zip(shapes(1), shapes(2), strict=True)
    return tuple([a == b for a, b in zip(*pair, strict=True)].index(False) for pair in pairs)


def take_rows(state: Any, rows: ArrayLike, axes: Axes) -> Any:
    """Return the streams of these rows [n]; a row beyond the end gives the last."""
    leaves, tree = jax.tree.flatten(state)
    taken = (jnp.take(a, rows, axis=i, mode="clip") for a, i in zip(leaves, axes, strict=True))
    return tree.unflatten(taken)


def put_rows(state: Any, rows: ArrayLike, some: Any, axes: Axes) -> Any:
    """Return the streams with `some`, of n rows, in rows [n]; one beyond the end is dropped."""
    rows, (leaves, tree) = jnp.atleast_1d(rows), jax.tree.flatten(state)
    pairs = zip(leaves, jax.tree.leaves(some), axes, strict=True)
    return tree.unflatten(
        [a.at[(slice(None),) * i + (rows,)].set(b, mode="drop") for a, b, i in pairs]
    )


class DecoderBackend:
    """A decoder with its parameters, compiled once for all of its streams."""

    kind: type[DeviceRows]
    lengths: Sequence[int] = (0,)  # samples of a row that programs are compiled for

    def __init__(
        self, decoder: Any, params: StreamParams, open_session: Callable[[], Session], init: Any
    ):
        self.decoder, self.params, self.open = decoder, params, open_session
        # Bound to its device, as results of a step are, or the second step would recompile.
        place = jax.local_devices()[0]
        self.init = functools.cache(lambda streams: jax.device_put(init(streams), place))
        self.axes = batch_axes(init)
        self.put = jax.jit(
            lambda state, row, new: put_rows(state, row, new, self.axes), donate_argnums=0
        )

    def compile(self, streams: int) -> None:
        """Read nothing in 1, 2, 4, ... new rows, and silence of all lengths that are compiled."""
        rows = self.rows(streams)
        for power in range((streams - 1).bit_length() + 1):
            rows.step(dict.fromkeys(range(min(streams, 1 << power)), NO_SOUND))
        for count, samples in itertools.product(batch_sizes(streams), self.lengths):
            read = dataclasses.replace(NO_SOUND, samples=np.zeros(samples, np.int16))
            rows.step(dict.fromkeys(range(count), read))

    def rows(self, streams: int) -> Any:
        self._compile_first(streams)
        return self.kind(self, streams)

    @functools.cache  # noqa: B019 (lives as long as the translator)
    def _compile_first(self, streams: int) -> None:
        rows: Any = self.kind(self, streams)
        rows.step({0: NO_SOUND})


class IncrementalBackend(DecoderBackend):
    """A streaming encoder: a READ costs the same however long the stream is."""

    kind = IncrementalRows

    def __init__(
        self, decoder: StreamingDecoder, params: StreamParams, open_session: Callable[[], Session]
    ):
        super().__init__(decoder, params, open_session, functools.partial(decoder.init, params))
        self.size = open_session().size
        self.step = jax.jit(decoder.step, donate_argnums=1)


class ReencodingBackend(DecoderBackend):
    """Any other encoder: with every READ all sound so far is encoded anew."""

    kind = ReencodingRows

    def __init__(
        self, decoder: ReencodingDecoder, params: StreamParams, open_session: Callable[[], Session]
    ):
        super().__init__(decoder, params, open_session, decoder.init)
        self.lengths = sizes_to(decoder.limits.states * STATE)

        def read(params: Any, state: Any, rows: Any, *given: Any) -> Any:
            """Read rows [n] of the state; those beyond its end are idle."""
            some, events = decoder.read(params, take_rows(state, rows, self.axes), *given)
            return put_rows(state, rows, some, self.axes), events

        self.read = jax.jit(read, donate_argnums=1)


@dataclass(frozen=True, kw_only=True)
class Streaming(Checked):
    """Settings of a stream; `Translator.stream` takes these by name."""

    rate: int = setting(RATE, help="Rate of the samples that are pushed.", low=1, unit="Hz")
    decoding: Decoding = setting(Decoding(), help="When to write, and how to search.")
    limits: StreamLimits = setting(StreamLimits(), help="Sizes of its arrays.")

    @classmethod
    def of(cls, overrides: dict[str, Any], decoding: Decoding | None = None) -> "Streaming":
        """Return the settings of names that are fields here, of `Decoding` or of `StreamLimits`.

        What is not named is as in this decoding.
        """
        kinds = {"decoding": Decoding, "limits": StreamLimits, "": cls}
        owners = {f.name: part for part, kind in kinds.items() for f in dataclasses.fields(kind)}
        own: dict[str, dict[str, Any]] = {part: {} for part in kinds}
        for name, value in overrides.items():
            if name not in owners:
                raise TypeError(f"a stream has no such setting: {unknown(name, owners)}")
            own[owners[name]][name] = value
        given = {"decoding": decoding or Decoding(), "limits": StreamLimits()} | own.pop("")
        for part, changes in own.items():
            given[part] = dataclasses.replace(given[part], **changes)
        return cls(**given)


def load_run(run: Run | str | Path, checkpoint: Which = "best") -> "RunTranslator":
    """Return the translator that a run has trained."""
    run = run if isinstance(run, Run) else open_run(run)
    return RunTranslator(run, load_checkpoint(run, checkpoint))


class RunTranslator(Translator):
    """A trained model with its vocabularies and its features."""

    live_settings = {"sentences": "pauses"}  # noqa: RUF012 (nobody changes it)

    def __init__(self, run: Run, trained: Loaded):
        self.run, self.steps = run, trained.steps
        self.network = JointModel(run.model)
        self.variables = {"params": trained.params, STATISTICS: trained.statistics}

    @property
    def name(self) -> str:
        return self.run.directory.name

    def translate(self, audio: Any, *, rate: int = RATE, beam: int | Beam = 1) -> str:
        """Return the translation of a recording; `beam` hypotheses are followed at once."""
        if self.run.model.speech is None:
            raise RunError(f"{self.run.directory} translates text: use translate_text")
        samples, features = samples_of(audio, rate), self.run.front_end
        frames = jnp.array([frame_count(len(samples), features.features.filterbank)])
        sound = jnp.asarray(padded(samples))
        extracted = extract_features(sound, features.features, features.statistics)
        given = (self.network, self.variables, extracted, frames)
        whole = translate_speech(*given, beam=_beam(beam), words=self.words)
        return self.text_of(whole.tokens[0], whole.lengths[0])

    def translate_text(self, text: str, *, beam: int | Beam = 1) -> str:
        """Return the translation of a written sentence, by the text branch."""
        if self.run.model.text is None:
            raise RunError(f"{self.run.directory} has no text branch: use translate")
        tokens = [*self.run.source.encode(text), EOS]
        room = np.zeros((1, -(-len(tokens) // 32) * 32), np.int32)
        room[0, : len(tokens)] = tokens
        given = (self.network, self.variables, room, np.array([len(tokens)]))
        whole = translate_text(*given, beam=_beam(beam))
        return self.text_of(whole.tokens[0], whole.lengths[0])

    def backend(self, **overrides: Any) -> IncrementalBackend | ReencodingBackend:
        """Return what streams share; `overrides`: fields of `Streaming`, `Decoding`, limits."""
        if self.run.model.speech is None:
            raise RunError(f"{self.run.directory} translates text, not speech")
        return self._backend(Streaming.of(overrides, self.run.decoding))

    @functools.cache  # noqa: B019 (compiled functions live as long as their translator)
    def _backend(self, chosen: Streaming) -> IncrementalBackend | ReencodingBackend:
        run, policy, speech = self.run, chosen.decoding.policy, self.run.model.speech
        incremental = speech is not None and speech.is_incremental
        incremental = incremental and (policy is None or policy.is_incremental)
        if not incremental and run.model.predecision.kind in ("words", "phonemes"):
            raise RunError(
                f"{run.directory} decides at {run.model.predecision.kind}, which no live stream "
                "knows: evaluate it on a corpus with alignments (simuljax evaluate)"
            )
        groups = run.model.decoder == "caat" and policy is None
        online = CaatDecoder if groups else StreamingDecoder
        model = run.model.with_step(chosen.decoding.predecision_ms)
        try:
            decoder = (online if incremental else ReencodingDecoder)(
                model=JointModel(model),
                features=run.front_end.features,
                decoding=chosen.decoding,
                limits=chosen.limits,
            )
            params = decoder.params(self.variables, run.front_end.statistics, self.words)
            backend = IncrementalBackend if incremental else ReencodingBackend
            return backend(decoder, params, lambda: self.session(chosen))  # pyright: ignore[reportArgumentType]
        except PolicyError as error:
            raise RunError(f"{run.directory}: {error}") from None

    def session(self, chosen: Streaming) -> ReadSession:
        decoding = chosen.decoding
        model = self.run.model.with_step(decoding.predecision_ms)
        first_ms, read_ms = decoding.reads_ms(model.predecision.step_ms)
        return ReadSession(
            self.no_words,
            read=read_ms * MS,
            most=chosen.limits.states * STATE,
            decoding=decoding,
            rate=chosen.rate,
            first=first_ms * MS,
        )

    @functools.cached_property
    def no_words(self) -> WordStream:
        """Return the beginning of every sentence; it takes a walk over the vocabulary."""
        return WordStream.begin(self.run.target)

    @functools.cached_property
    def words(self) -> Words:
        """Return which ids begin and end words."""
        return Words.of(self.run.source, self.run.target)

    def text_of(self, tokens: jax.Array, length: jax.Array) -> str:
        """Return the text of a whole translation, without what it stammers."""
        text = self.run.target.decode(np.asarray(tokens)[: int(length)].tolist())
        return RepetitionFilter().text(text)


def _beam(beam: int | Beam) -> Beam | None:
    """Return None, greedy decoding, for a beam of 1: the same tokens, and quicker."""
    chosen = Beam(size=beam) if isinstance(beam, int) else beam
    return None if chosen.size == 1 else chosen
