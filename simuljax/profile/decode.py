"""`simuljax profile decode`: the streaming step of a preset, and how many streams a device bears.

The parameters are random, so what is written means nothing; when is set: a stream writes
`tokens_per_s`, as soon as it may. A step hears a READ, encodes it and decides; each token is one
more pass through the decoder inside the same compiled step.
"""

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from simuljax.audio import RATE, Statistics
from simuljax.decode.options import Decoding, LengthLimit
from simuljax.decode.stream import Chunk, StreamingDecoder, StreamLimits, StreamParams
from simuljax.models.casting import weight_bytes
from simuljax.models.initialise import initialise
from simuljax.models.translator import Translator
from simuljax.nn.batch_norm import STATISTICS
from simuljax.profile import live, parts
from simuljax.profile.measure import copy_gb_per_s, cost_of, say
from simuljax.profile.positive import check_vocabulary, positive
from simuljax.profile.train import ONE_BY_ONE, PRESETS, on_gpu
from simuljax.serve.session import MS, STATE

AT_ONCE = 24  # tokens of a step that has much to write


@dataclass(frozen=True, kw_only=True)
class DecodeProfile:
    """Time per READ and per token, memory, distance to the bandwidth, streams at once."""

    preset: Literal["dar", "small", "tiny"] = "dar"
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    unroll: bool = True
    """Layers one by one rather than in a loop: longer to compile, faster."""
    vocabulary: int = 10_000
    read_ms: int = 280
    seconds: float = 20.0
    """Of an utterance."""
    tokens_per_s: float = 3.0
    """Of speech."""
    batches: tuple[int, ...] = (1, 64)
    """Streams in a step, all of which have a READ."""
    live: tuple[int, ...] = ()
    """So many streams in real time, each READ pushed when it would have been spoken."""
    live_s: float = 30.0

    def __post_init__(self) -> None:
        """Refuse what there is nothing of to measure."""
        positive(self)
        check_vocabulary(self.vocabulary)
        if not self.batches:
            raise ValueError("batches is empty; say how many streams are in a step")
        if self.read_ms * MS % STATE:
            raise ValueError(f"read_ms is {self.read_ms}; choose a multiple of {STATE // MS}")
        if min(self.seconds, self.live_s) * 1000 < self.read_ms:
            raise ValueError(
                f"seconds is {self.seconds} and live_s {self.live_s}; neither may be shorter than "
                f"a READ, read_ms {self.read_ms}"
            )

    @property
    def states(self) -> int:
        """Of an utterance, and a few more."""
        return int(self.seconds * RATE / STATE) + 8


def run(config: DecodeProfile, trace: Path | None = None) -> dict[str, Any]:
    """Measures all of it; the trace of a few steps is kept in the directory, if given."""
    decoder = build(config)
    learnt = learn_nothing(decoder)
    floors = floors_ms(decoder, learnt)
    return {
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "config": dataclasses.asdict(config),
        "parameters": sum(x.size for x in jax.tree.leaves(learnt.variables)),
        "batches": [profile_batch(config, decoder, learnt, batch) for batch in config.batches],
        "write_ms": write_times(config, decoder, learnt),
        "write_floor_ms": floors["decoder"],
        "read_floor_ms": floors["encoder"],
        **traced(config, decoder, learnt, trace),
        "live": [profile_live(config, decoder, learnt, streams) for streams in config.live],
    }


def build(config: DecodeProfile) -> StreamingDecoder:
    """A decoder that writes so many tokens for every second it hears."""
    base = PRESETS[config.preset]()
    assert base.speech is not None
    model = dataclasses.replace(
        base,
        width=dataclasses.replace(base.width, dtype=config.dtype, unroll=config.unroll),
        speech=dataclasses.replace(base.speech, kind="streaming"),
        predecision=dataclasses.replace(base.predecision, step_ms=config.read_ms),
        source_vocabulary=config.vocabulary,
        target_vocabulary=config.vocabulary,
    )
    decoding = Decoding(
        threshold=1e-6,  # no head waits
        avoid_eos_while_reading=True,
        limit=LengthLimit(ratio=config.tokens_per_s * STATE / RATE, constant=1),
    )
    limits = StreamLimits(states=config.states, tokens=300, events=8)
    return StreamingDecoder(model=Translator(model), decoding=decoding, limits=limits)


def learn_nothing(decoder: StreamingDecoder) -> StreamParams:
    """Random parameters."""
    params, statistics = initialise(decoder.model, jax.random.key(0, impl="rbg"))
    zeros, ones = np.zeros(80, np.float32), np.ones(80, np.float32)
    heard = Statistics(mean=zeros + 8, std=ones * 4, frames=1)
    return decoder.params({"params": params, STATISTICS: statistics}, heard)


def profile_batch(
    config: DecodeProfile, decoder: StreamingDecoder, learnt: StreamParams, batch: int
) -> dict[str, Any]:
    """One utterance to every stream of a batch, READ by READ, until its events are on the host."""
    step, compile_s = compile_step(config, decoder, learnt, batch)
    times, tokens = [], 0
    for _ in range(2):  # the first warms up
        state, times, tokens = decoder.init(learnt, batch), [], 0
        for read in range(int(config.seconds * 1000 / config.read_ms)):
            state, written, ms = timed(step, learnt, state, sound(config, batch, read))
            times.append(ms)
            tokens += written
    memory = step.memory_analysis()
    state_bytes = sum(x.nbytes for x in jax.tree.leaves(decoder.init(learnt, 1)))
    return {
        "streams": batch,
        "step_ms": quantiles(times),
        "tokens_per_s": tokens / sum(times) * 1e3,
        "real_time_factor": float(np.mean(times)) / config.read_ms,
        "compile_s": compile_s,
        **cost_of(step),
        "temp_mib": memory.temp_size_in_bytes / 2**20 if memory else None,
        "state_mib_per_stream": state_bytes / 2**20,
    }


def profile_live(
    config: DecodeProfile, decoder: StreamingDecoder, learnt: StreamParams, streams: int
) -> dict[str, Any]:
    """So many streams in real time; said at once, for the next may be too many for the memory."""
    row = live.profile(decoder, learnt, streams, config.read_ms, config.seconds, config.live_s)
    say(live.line(row))
    return row


def compile_step(
    config: DecodeProfile,
    decoder: StreamingDecoder,
    learnt: StreamParams,
    batch: int,
    options: dict[str, str | bool] | None = None,
) -> tuple[Any, float]:
    """The step for a batch, and the seconds that it took to compile."""
    state = decoder.init(learnt, batch)
    lowered = jax.jit(decoder.step, donate_argnums=1).lower(learnt, state, sound(config, batch, 0))
    say(f"compiling the step of {batch}")
    start = time.perf_counter()
    compiled = lowered.compile(compiler_options=options)
    took = time.perf_counter() - start
    say(f"compiled in {took:.0f} s; timing it")
    return compiled, took


def sound(config: DecodeProfile, batch: int, read: int | None) -> Chunk:
    """A READ of noise for every stream; None: they hear nothing."""
    size = config.read_ms * MS
    random = np.random.default_rng(read or 0)
    samples = random.integers(-9_999, 9_999, (batch, size)).astype(np.int16)
    length = np.full(batch, size if read is not None else 0, np.int32)
    return jax.device_put(Chunk(samples=samples, length=length, ended=length < 0))  # pyright: ignore[reportArgumentType]


def timed(step: Any, learnt: StreamParams, state: Any, chunk: Chunk) -> tuple[Any, int, float]:
    """The next state, how many tokens were written, and the time until the host had them."""
    start = time.perf_counter()
    state, events = step(learnt, state, chunk)
    events = jax.device_get(events)
    return state, int(events.written.count.sum()), (time.perf_counter() - start) * 1e3


def write_times(
    config: DecodeProfile, decoder: StreamingDecoder, learnt: StreamParams, rounds: int = 30
) -> dict[str, float]:
    """Of one token of one stream: by how much a step that writes many outlasts one that is idle."""
    free = dataclasses.replace(decoder.decoding, limit=LengthLimit(ratio=0.0, constant=300))
    limits = StreamLimits(states=config.states, tokens=300, events=AT_ONCE)
    decoder = dataclasses.replace(decoder, decoding=free, limits=limits)
    step, _ = compile_step(config, decoder, learnt, 1)
    each: list[float] = []
    while len(each) < rounds:
        state, idle = decoder.init(learnt, 1), []
        for _ in range(6):
            state, _, ms = timed(step, learnt, state, sound(config, 1, None))
            idle.append(ms)
        for read in range(3):
            state, _, _ = timed(step, learnt, state, sound(config, 1, read))
        for _ in range(6):
            state, written, ms = timed(step, learnt, state, sound(config, 1, None))
            if written != AT_ONCE:
                raise RuntimeError(f"a step wrote {written} tokens and should write {AT_ONCE}")
            each.append((ms - float(np.median(idle))) / AT_ONCE)
    return quantiles(each)


def floors_ms(decoder: StreamingDecoder, learnt: StreamParams) -> dict[str, float]:
    """The time to read the weights of the encoder, for a READ, and of the decoder, for a token."""
    params = learnt.variables["params"]
    own = weight_bytes(params["decoder"])
    speed = copy_gb_per_s(jax.local_devices()[0]) * 1e6  # bytes per ms
    streamed = {k: v for k, v in params.items() if k not in ("decoder", "source_embedding")}
    return {"decoder": own / speed, "encoder": weight_bytes(streamed) / speed}


def traced(
    config: DecodeProfile, decoder: StreamingDecoder, learnt: StreamParams, directory: Path | None
) -> dict[str, Any]:
    """Kernels of a step of one stream, and where the device spends its time."""
    step, _ = compile_step(config, decoder, learnt, 1, ONE_BY_ONE if on_gpu() else None)
    held = {"state": decoder.init(learnt, 1), "read": 0}

    def call() -> Any:
        held["read"] += 1
        chunk = sound(config, 1, held["read"])
        held["state"], events = step(learnt, held["state"], chunk)
        return jax.block_until_ready(events)

    for _ in range(4):
        call()
    found = parts.trace(call, 8, directory)
    origin = parts.origins(step.as_text() or "")
    return {
        "kernels": found.kernels,
        "device_ms": sum(found.ms.values()),
        "dearest": parts.dearest(found, origin),
    }


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """The median and the tails."""
    return {f"p{q}": float(np.percentile(values, q)) for q in (50, 90, 99)}


def table(report: dict[str, Any]) -> str:
    """The report for people."""
    chosen = report["config"]
    lines = [
        f"{report['device']}, jax {report['jax']}: {chosen['preset']} with the streaming encoder, "
        f"{chosen['dtype']}, {report['parameters'] / 1e6:.1f} M parameters; READs of "
        f"{chosen['read_ms']} ms, {chosen['tokens_per_s']:g} tokens/s",
        "streams  step ms: p50     p90     p99   real-time   tokens/s   GFLOP  GByte   state MiB",
    ]
    for row in report["batches"]:
        times = "".join(f"{row['step_ms'][q]:8.2f}" for q in ("p50", "p90", "p99"))
        lines.append(
            f"{row['streams']:7d}       {times}{row['real_time_factor']:12.4f}"
            f"{row['tokens_per_s']:11,.0f}{row['gflop']:8.1f}{row['gbyte']:7.2f}"
            f"{row['state_mib_per_stream']:12.1f}"
        )
    writes = "  ".join(f"{q} {ms:.3f}" for q, ms in report["write_ms"].items())
    lines += [
        f"a token takes {writes} ms; reading the decoder's weights {report['write_floor_ms']:.3f}",
        f"reading the encoder's weights takes {report['read_floor_ms']:.3f} ms",
        f"a step of one stream: {report['kernels']} kernels, {report['device_ms']:.2f} ms on the "
        f"device; compiled in {report['batches'][0]['compile_s']:.0f} s",
    ]
    return "\n".join([*lines, *(live.line(row) for row in report["live"])])
