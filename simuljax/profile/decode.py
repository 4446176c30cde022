"""`simuljax profile decode`: time the streaming step of a preset, and count streams in real time.

The parameters are random, and a stream writes `tokens_per_s` as early as it may. A step encodes a
READ and decides; each token is one more pass through the decoder inside the same compiled step.

Live, every READ is pushed to an engine when it would have been spoken. Its latency has two parts:
how late it was pushed, because the host may fall behind, and the time from the push to the events
of its step. A machine keeps up if the 99th percentiles of both are together shorter than a READ.
"""

import dataclasses
import gc
import itertools
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from simuljax.audio import MS, RATE, Statistics
from simuljax.config.decoding import Decoding, LengthLimit
from simuljax.decode.context import StreamLimits, StreamParams
from simuljax.decode.stream import Chunk, StreamingDecoder
from simuljax.errors import ChoiceError
from simuljax.models.joint import JointModel
from simuljax.models.parameters import initialise, weight_bytes
from simuljax.nn.layers import STATISTICS
from simuljax.profile.measure import (
    check_positive,
    compile_named,
    compile_timed,
    copy_gb_per_s,
    cost_of,
    counted_programs,
    describe,
    environment,
    memory_of,
    percentiles,
    say,
    trace,
)
from simuljax.profile.train import preset
from simuljax.serve.cascade import Cascade
from simuljax.serve.engine import Behind, Engine, EngineStream
from simuljax.serve.run_translator import IncrementalBackend
from simuljax.serve.session import STATE, Backend, ReadSession
from simuljax.serve.translator import load
from simuljax.serve.whisper import Guards, WhisperTranslator
from simuljax.text import Vocabulary, VocabularyConfig, WordStream, learn

READ_MS = 280
PRESET_ONLY = ("preset", "dtype", "unroll", "vocabulary", "tokens_per_s", "batches")
MANY_TOKENS = 24  # of a step, to time one token


@dataclass(frozen=True, kw_only=True)
class DecodeProfile:
    """Time per READ and per token, memory, share of the bandwidth, streams in real time."""

    preset: Literal["dar", "small", "tiny"] = "dar"
    model: Path | None = None
    """A run or a Whisper file in place of a preset: its live streams (--live) are timed."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    unroll: bool = True
    """Unroll the loop over layers: longer to compile, faster."""
    vocabulary: int = 10_000
    read_ms: int | None = None
    """Sound in a READ, in milliseconds; by default 280, or what the model takes."""
    seconds: float = 20.0
    """Length of an utterance."""
    tokens_per_s: float = 3.0
    """Tokens per second of speech."""
    batches: tuple[int, ...] = (1, 64)
    """Numbers of streams in a step, each with a READ."""
    live: tuple[int, ...] = ()
    """Numbers of streams in real time: each READ is pushed when it would have been spoken."""
    live_s: float = 30.0

    def __post_init__(self) -> None:
        check_positive(self)
        if not self.batches:
            raise ValueError("batches is empty; give the number of streams in a step")
        for field in dataclasses.fields(self):
            given = getattr(self, field.name) != field.default
            if self.model is not None and field.name in PRESET_ONLY and given:
                raise ValueError(f"{field.name} is for a preset: leave it out with a model")
        if self.model is None and self.read * MS % STATE:
            raise ValueError(f"read_ms is {self.read_ms}; choose a multiple of {STATE // MS}")
        if min(self.seconds, self.live_s) * 1000 < self.read:
            raise ValueError(
                f"seconds is {self.seconds} and live_s {self.live_s}; neither may be shorter than "
                f"a READ, read_ms {self.read}"
            )

    @property
    def read(self) -> int:
        """Return the milliseconds of a READ."""
        return READ_MS if self.read_ms is None else self.read_ms


def run(config: DecodeProfile, traces: Path | None = None) -> dict[str, Any]:
    """Measure steps, tokens and live streams; keep the trace of a few steps in `traces`."""
    if config.model is not None:
        return profile_model(config, traces)
    decoder = build(config)
    params = random_params(decoder)
    weights = params.variables["params"]
    streamed = {k: v for k, v in weights.items() if k not in ("decoder", "source_embedding")}
    bytes_per_ms = copy_gb_per_s() * 1e6
    backend = decoder_backend(decoder, params, config.read)
    return {
        **environment(config),
        "parameters": sum(x.size for x in jax.tree.leaves(params.variables)),
        "batches": [profile_batch(config, decoder, params, batch) for batch in config.batches],
        "write_ms": write_times(config, decoder, params),
        # The time to read the weights of the decoder (a token) and the encoder (a READ).
        "write_floor_ms": weight_bytes(weights["decoder"]) / bytes_per_ms,
        "read_floor_ms": weight_bytes(streamed) / bytes_per_ms,
        **trace_steps(config, decoder, params, traces),
        "live": [profile_live(config, backend, streams) for streams in config.live],
    }


def build(config: DecodeProfile) -> StreamingDecoder:
    """Return a decoder that writes `tokens_per_s` tokens per second of sound."""
    base = preset(config.preset, config.dtype, config.unroll, config.vocabulary)
    assert base.speech is not None
    model = dataclasses.replace(
        base,
        speech=dataclasses.replace(base.speech, kind="streaming"),
        predecision=dataclasses.replace(base.predecision, step_ms=config.read),
    )
    decoding = Decoding(
        threshold=1e-6,  # every head writes
        avoid_eos_while_reading=True,
        limit=LengthLimit(ratio=config.tokens_per_s * STATE / RATE, constant=1),
    )
    states = int(config.seconds * RATE / STATE) + 8
    limits = StreamLimits(states=states, tokens=300, events=8)
    return StreamingDecoder(model=JointModel(model), decoding=decoding, limits=limits)


def random_params(decoder: StreamingDecoder) -> StreamParams:
    """Return random parameters."""
    weights, statistics = initialise(decoder.model, jax.random.key(0, impl="rbg"))
    zeros, ones = np.zeros(80, np.float32), np.ones(80, np.float32)
    normalisation = Statistics(mean=zeros + 8, std=ones * 4, frames=1)
    return decoder.params({"params": weights, STATISTICS: statistics}, normalisation)


def profile_batch(
    config: DecodeProfile, decoder: StreamingDecoder, params: StreamParams, batch: int
) -> dict[str, Any]:
    """Time one utterance per stream, READ by READ, until the events are on the host."""
    step, compile_s = compile_timed(lower(config, decoder, params, batch), f"the step of {batch}")
    times, tokens = [], 0
    for _ in range(2):  # the first warms up
        state, times, tokens = decoder.init(params, batch), [], 0
        for read in range(int(config.seconds * 1000 / config.read)):
            state, written, ms = timed(step, params, state, sound(config, batch, read))
            times.append(ms)
            tokens += written
    state_bytes = sum(x.nbytes for x in jax.tree.leaves(decoder.init(params, 1)))
    return {
        "streams": batch,
        "step_ms": percentiles(times),
        "tokens_per_s": tokens / sum(times) * 1e3,
        "real_time_factor": float(np.mean(times)) / config.read,
        "compile_s": compile_s,
        **cost_of(step),
        "temp_mib": memory_of(step)["temp_mib"],
        "state_mib_per_stream": state_bytes / 2**20,
    }


def profile_model(config: DecodeProfile, traces: Path | None = None) -> dict[str, Any]:
    """Time live streams of a run or a Whisper file; every READ is computed, whatever it holds."""
    assert config.model is not None
    translator = load(config.model)
    settings: dict[str, Any] = {} if config.read_ms is None else {"read_ms": config.read_ms}
    hears = translator.recogniser if isinstance(translator, Cascade) else translator
    if isinstance(hears, WhisperTranslator):
        settings["guards"] = Guards(quiet_db=-1e3, steady_db=0.0)
    backend = translator.backend(**settings)
    try:
        config = replace(config, read_ms=round(backend.open().push_size / MS))
    except ValueError as error:  # its READ is longer than what was asked for
        raise ChoiceError(str(error)) from None
    about = environment(config)
    about["config"] = {k: v for k, v in about["config"].items() if k not in PRESET_ONLY}
    return {
        **about,
        "model": translator.name,
        "live": [profile_live(config, backend, streams, traces) for streams in config.live or (1,)],
    }


def lower(
    config: DecodeProfile, decoder: StreamingDecoder, params: StreamParams, batch: int
) -> jax.stages.Lowered:
    """Return the step of a batch of streams, to be compiled."""
    step = jax.jit(decoder.step, donate_argnums=1)
    return step.lower(params, decoder.init(params, batch), sound(config, batch, 0))


def sound(config: DecodeProfile, batch: int, read: int | None) -> Chunk:
    """Return a READ of noise for every stream; None for no sound."""
    size = config.read * MS
    random = np.random.default_rng(read or 0)
    samples = random.integers(-9_999, 9_999, (batch, size)).astype(np.int16)
    length = np.full(batch, size if read is not None else 0, np.int32)
    return jax.device_put(Chunk(samples=samples, length=length, ended=length < 0))  # pyright: ignore[reportArgumentType]


def timed(step: Any, params: StreamParams, state: Any, chunk: Chunk) -> tuple[Any, int, float]:
    """Return the next state, the number of new tokens, and the time until the host has them."""
    start = time.perf_counter()
    state, events = step(params, state, chunk)
    events = jax.device_get(events)
    return state, int(events.written.lengths.sum()), (time.perf_counter() - start) * 1e3


def write_times(
    config: DecodeProfile, decoder: StreamingDecoder, params: StreamParams, rounds: int = 30
) -> dict[str, float]:
    """Return the time of one token: that of a step with many tokens less that of an idle one."""
    free = dataclasses.replace(decoder.decoding, limit=LengthLimit(ratio=0.0, constant=300))
    limits = dataclasses.replace(decoder.limits, events=MANY_TOKENS)
    decoder = dataclasses.replace(decoder, decoding=free, limits=limits)
    step, _ = compile_timed(lower(config, decoder, params, 1), "the step of 1")
    each: list[float] = []
    while len(each) < rounds:
        state, idle = decoder.init(params, 1), []
        for _ in range(6):
            state, _, ms = timed(step, params, state, sound(config, 1, None))
            idle.append(ms)
        for read in range(3):
            state, _, _ = timed(step, params, state, sound(config, 1, read))
        for _ in range(6):
            state, written, ms = timed(step, params, state, sound(config, 1, None))
            if written != MANY_TOKENS:
                raise RuntimeError(f"a step wrote {written} tokens and should write {MANY_TOKENS}")
            each.append((ms - float(np.median(idle))) / MANY_TOKENS)
    return percentiles(each)


def trace_steps(
    config: DecodeProfile, decoder: StreamingDecoder, params: StreamParams, traces: Path | None
) -> dict[str, Any]:
    """Return the kernels of a step of one stream and the slowest instructions."""
    step = compile_named(lower(config, decoder, params, 1))
    state = decoder.init(params, 1)

    def call(read: int = 4) -> Any:
        nonlocal state
        state, events = step(params, state, sound(config, 1, read))
        return jax.block_until_ready(events)

    for read in range(4):
        call(read)
    return trace(call, 8, step, traces).report()


def decoder_backend(
    decoder: StreamingDecoder, params: StreamParams, read_ms: int, cut: Decoding | None = None
) -> IncrementalBackend:
    """Return the backend of a decoder without a run: its words are characters."""
    words = WordStream.begin(character_vocabulary(decoder.model.config.target_vocabulary))
    most = decoder.limits.states * STATE

    def session() -> ReadSession:
        return ReadSession(words, read=read_ms * MS, most=most, decoding=cut)

    return IncrementalBackend(decoder, params, session)


def profile_live(
    config: DecodeProfile, backend: Backend, streams: int, traces: Path | None = None
) -> dict[str, Any]:
    """Time so many streams in real time, with READs spread evenly over time.

    The trace is of two seconds before the timed ones: it slows them, and grows with every second.
    """
    read_ms, seconds = config.read, config.live_s
    gc.collect()  # an engine before this one may still hold the device's memory
    say(f"compiling the step of {streams}")
    engine = Engine(backend, streams=streams)
    with engine:
        speakers = Speakers(engine, streams, read_ms, config.seconds)
        speakers.compile()
        speakers.speak(2.0)  # warms up
        if traces is not None:
            say(f"tracing {streams} streams for 2 s")
            with jax.profiler.trace(str(traces)):
                speakers.speak(2.0)
        say(f"timing {streams} streams for {seconds:.0f} s")
        engine.latencies_ms.clear()
        steps, refused, start = engine.steps, speakers.refused, time.perf_counter()
        with counted_programs() as programs:
            late = np.array(speakers.speak(seconds))
        took = time.perf_counter() - start
    latencies = np.array(engine.latencies_ms) if engine.latencies_ms else np.array([np.inf])
    row = {
        "streams": streams,
        "latency_ms": percentiles(latencies),  # from the push to the events
        "mean_ms": float(latencies.mean()),
        "late_ms": percentiles(late),  # from the due time to the end of the push
        "reads": len(late),
        "reads_per_s": len(late) / took,
        "steps_per_s": (engine.steps - steps) / took,
        "refused": speakers.refused - refused,  # pushes to a full queue
        "compiled": len(programs),  # meanwhile
        "keeps_up": bool(np.percentile(latencies, 99) + np.percentile(late, 99) < read_ms),
    }
    say(describe(row))  # at once: the next may not fit into memory
    return row


def character_vocabulary(size: int) -> Vocabulary:
    """Return a vocabulary of `size` characters."""
    text = ["".join(chr(0x4E00 + i) for i in range(size))]
    return learn(text, VocabularyConfig(kind="characters", size=size))


class Speakers:
    """All streams in one thread: they take turns, each once per READ."""

    def __init__(self, engine: Engine, streams: int, read_ms: int, utterance_s: float):
        self.engine, self.read_s = engine, read_ms / 1000
        self.reads = int(utterance_s / self.read_s)
        random = np.random.default_rng(0)
        self.sound = random.integers(-9_999, 9_999, read_ms * MS).astype(np.int16)
        # Utterances begin at different READs, so that they do not end together.
        self.done = random.integers(0, self.reads, streams).tolist()
        self.streams: list[EngineStream | None] = [None] * streams
        self.turns = itertools.cycle(range(streams))
        self.interval_s = self.read_s / streams
        self.refused = 0

    def compile(self) -> None:
        """Speak one utterance as fast as it is read: longer sound may be another program."""
        stream = self.engine.open()
        for _ in range(self.reads):
            stream.push(self.sound)
            while stream.waiting_ms >= self.read_s * 1000 and not stream.done:
                time.sleep(0.001)
        stream.leave()

    def speak(self, seconds: float) -> list[float]:
        """Push what is due in the next `seconds`; return the lateness of each push in ms."""
        start, late = time.perf_counter(), []
        for count in range(int(seconds / self.interval_s)):
            due = start + count * self.interval_s
            if (early := due - time.perf_counter()) > 0:
                time.sleep(early)
            self._push(next(self.turns))
            late.append((time.perf_counter() - due) * 1e3)
        return late

    def _push(self, speaker: int) -> None:
        stream = self.streams[speaker] = self.streams[speaker] or self.engine.open()
        try:
            stream.push(self.sound)
        except Behind:
            self.refused += 1
        self.done[speaker] += 1
        if self.done[speaker] >= self.reads:
            stream.leave()
            self.streams[speaker], self.done[speaker] = None, 0
