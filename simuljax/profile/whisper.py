"""`simuljax profile whisper`: time Whisper here and in other implementations.

All do the same work, from samples on the host to tokens on the host, with the same number of
tokens for every window. They take turns, so that other load on the machine affects all alike.
"""

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from simuljax.audio import read_audio
from simuljax.models.whisper.bound import Heard, Model
from simuljax.models.whisper.config import PUBLISHED, RATE, Config
from simuljax.models.whisper.decoding import Context, Decoding, decode, hear
from simuljax.models.whisper.model import Network
from simuljax.models.whisper.tokenizer import Tokenizer, make_tokenizer
from simuljax.models.whisper.whisper import load
from simuljax.profile.measure import check_positive, percentiles
from simuljax.profile.peers import Job, PeerName, Runner, make_peer

Size = Literal[
    "tiny", "base", "small", "medium", "large-v1", "large-v2", "large-v3", "large-v3-turbo"
]


@dataclass(frozen=True, kw_only=True)
class WhisperProfile:
    """Real-time factor, time to encode a window and to write a token; also of other tools."""

    model: Path | None = None
    """Weights; by default random ones of `size`."""
    size: Size = "tiny"
    audio: Path | None = None
    """A recording, repeated or cut to `seconds`; by default noise."""
    batches: tuple[int, ...] = (1, 16)
    """Windows in a batch."""
    seconds: int = 30
    """Seconds of a window; other implementations always take 30."""
    tokens: int = 64
    """Tokens to write for each window."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    against: tuple[PeerName, ...] = ()
    """Other implementations to measure; their packages have to be installed."""
    rounds: int = 7

    def __post_init__(self) -> None:
        """Refuse settings without anything to measure."""
        check_positive(self)
        for path in (self.model, self.audio):
            if path is not None and not path.exists():
                raise ValueError(f"{path} does not exist")


@dataclass(frozen=True, eq=False)
class Ours:
    """This implementation, as transcriptions use it."""

    job: Job
    name = "simuljax"
    warm_ups = 1

    def encode(self) -> Heard:
        """Return encoder states, with the keys and values of every layer."""
        return jax.block_until_ready(hear(self.job.model, self.job.samples))

    def write(self, states: Heard) -> np.ndarray:
        """Return greedy tokens [B, tokens]."""
        job = self.job
        options = Decoding(
            timestamps="none", max_tokens=job.tokens, temperatures=(0.0,), suppress=job.suppressed
        )
        contexts = [Context()] * len(job.samples)
        written = decode(job.model, job.tokenizer, states, contexts, options)
        return np.array([result.tokens for result in written])

    def peak_mib(self) -> float | None:
        """Return the peak of JAX's allocator."""
        counted = jax.local_devices()[0].memory_stats()
        return counted["peak_bytes_in_use"] / 2**20 if counted else None


@dataclass(frozen=True, kw_only=True)
class Times:
    """Seconds of one round."""

    encoding: float
    writing: float
    cpu: float  # of all cores together


def run(config: WhisperProfile) -> dict[str, Any]:
    """Measure all batches, this implementation and the others in turns."""
    model, tokenizer = _model(config)
    rows = []
    for batch in config.batches:
        samples = sound(config, batch)
        job = Job(model=model, tokenizer=tokenizer, samples=samples, tokens=config.tokens)
        rows += _compare([Ours(job), *(make_peer(name, job) for name in config.against)], config)
    return {
        "device": jax.devices()[0].device_kind,
        "versions": _versions(config),
        "config": {k: _plain(v) for k, v in dataclasses.asdict(config).items()},
        "parameters": sum(x.size for x in jax.tree.leaves(model.params)),
        "weights_mib": sum(x.nbytes for x in jax.tree.leaves(model.params)) / 2**20,
        "rows": rows,
    }


def _model(config: WhisperProfile) -> tuple[Model, Tokenizer]:
    if config.model is not None:
        loaded = load(config.model, dtype=config.dtype)
        return loaded.model, loaded.tokenizer
    published = PUBLISHED[config.size]
    sizes = Config(
        dimensions=published.dimensions,
        alignment_heads=published.alignment_heads,
        dtype=config.dtype,
        name=config.size,
    )
    return random_model(sizes), byte_tokenizer(published.dimensions.vocabulary)


def random_model(config: Config, seed: int = 0) -> Model:
    """Return random weights that keep the scale of their inputs, so that tokens vary."""
    mel = jax.ShapeDtypeStruct((1, 2, config.dimensions.mels), jnp.float32)
    tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    shapes = jax.eval_shape(Network(config).init, jax.random.key(0), mel, tokens)["params"]
    wanted: dict[str, Any] = traverse_util.flatten_dict(shapes, sep="/")
    made = {}
    for k, (path, leaf) in enumerate(wanted.items()):
        exact = "norm" in path or path.endswith("positions")
        dtype = "float32" if exact else config.dtype
        if path.endswith(("scale", "bias")):
            made[path] = jnp.full(leaf.shape, float(path.endswith("scale")), dtype)
        else:
            inputs = leaf.shape[-2] if path.endswith("kernel") else leaf.shape[-1]
            key = jax.random.fold_in(jax.random.key(seed, impl="rbg"), k)
            made[path] = _normal(key, inputs**-0.5, shape=leaf.shape, dtype=dtype)
    return Model(params=traverse_util.unflatten_dict(made, sep="/"), config=config)


@partial(jax.jit, static_argnames=("shape", "dtype"))
def _normal(key: jax.Array, scale: float, *, shape: tuple[int, ...], dtype: str) -> jax.Array:
    return (scale * jax.random.normal(key, shape)).astype(dtype)


def byte_tokenizer(size: int) -> Tokenizer:
    """Return a tokenizer of bytes, with numbers in place of words."""
    words = [bytes([byte]) for byte in range(256)]
    words += [f"<{k}>".encode() for k in range(256, 50_257)]
    return make_tokenizer(words, size)


def sound(config: WhisperProfile, batch: int) -> np.ndarray:
    """Return int16 [batch, samples]; each row begins a second after the one before."""
    count = config.seconds * RATE
    if config.audio is not None:
        one = read_audio(config.audio).samples
    else:
        one = np.random.default_rng(0).normal(0, 3_000, count).astype(np.int16)
    one = np.resize(one, count)
    return np.stack([np.roll(one, -RATE * row) for row in range(batch)])


def _compare(runners: Sequence[Runner], config: WhisperProfile) -> list[dict[str, Any]]:
    """Run rounds in turns; compare tokens with those of the first."""
    starts = [_warm_up(runner) for runner in runners]
    times: list[list[Times]] = [[] for _ in runners]
    for _ in range(config.rounds):
        for runner, own in zip(runners, times, strict=True):
            own.append(_round(runner)[0])
    expected = starts[0][1]
    return [
        _row(runner, own, start, agreement(tokens, expected), config)
        for runner, own, (start, tokens) in zip(runners, times, starts, strict=True)
    ]


def _warm_up(runner: Runner) -> tuple[float, np.ndarray]:
    """Return the seconds until it has its full speed, and its tokens."""
    start, tokens = time.perf_counter(), np.zeros(())
    for _ in range(runner.warm_ups):
        _, tokens = _round(runner)
    return time.perf_counter() - start, tokens


def _round(runner: Runner) -> tuple[Times, np.ndarray]:
    cpu, start = time.process_time(), time.perf_counter()
    states = runner.encode()
    middle = time.perf_counter()
    tokens = runner.write(states)
    end = time.perf_counter()
    cpu = time.process_time() - cpu
    return Times(encoding=middle - start, writing=end - middle, cpu=cpu), tokens


def agreement(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the share of tokens before the first difference, the mean over rows."""
    if found.shape != expected.shape:
        raise ValueError(f"tokens have shape {found.shape}; expected {expected.shape}")
    return float(np.logical_and.accumulate(found == expected, axis=1).mean())


def _row(
    runner: Runner, times: list[Times], start: float, agrees: float, config: WhisperProfile
) -> dict[str, Any]:
    count = len(runner.job.samples)
    whole = float(np.median([t.encoding + t.writing for t in times]))
    return {
        "name": runner.name,
        "batch": count,
        "real_time_factor": whole / (count * config.seconds),
        "hear_ms": percentiles([1e3 * t.encoding for t in times], (50, 99)),
        "token_ms": percentiles([1e3 * t.writing / config.tokens for t in times], (50, 99)),
        "cpu_s": float(np.median([t.cpu for t in times])),
        "compile_s": max(0.0, start - runner.warm_ups * whole),
        "peak_mib": runner.peak_mib(),
        "agreement": agrees,
    }


def _versions(config: WhisperProfile) -> dict[str, str]:
    wanted = ["jax", *(["torch", "transformers"] if config.against else [])]
    wanted += ["faster-whisper"] if "faster-whisper" in config.against else []
    return {package: version(package) for package in wanted}


def _plain(value: Any) -> Any:
    """Return the name of a file, without its directory."""
    return value.name if isinstance(value, Path) else value


def table(report: dict[str, Any]) -> str:
    """Format the report as text."""
    chosen, versions = report["config"], report["versions"]
    lines = [
        f"{report['device']}, {', '.join(f'{k} {v}' for k, v in versions.items())}",
        f"Whisper {chosen['model'] or chosen['size']}, {report['parameters'] / 1e6:.1f} M "
        f"parameters, {chosen['dtype']}; windows of {chosen['seconds']} s, {chosen['tokens']} "
        "tokens each",
        "batch  implementation          real-time   hear ms   token ms: p50     p99   "
        "compile s   peak MiB   same tokens",
    ]
    for row in report["rows"]:
        peak = f"{row['peak_mib']:11,.0f}" if row["peak_mib"] is not None else f"{'':>11}"
        lines.append(
            f"{row['batch']:5d}  {row['name']:<22}{row['real_time_factor']:11.4f}"
            f"{row['hear_ms']['p50']:10.1f}{row['token_ms']['p50']:16.3f}"
            f"{row['token_ms']['p99']:8.3f}{row['compile_s']:12.1f}{peak}"
            f"{row['agreement']:14.1%}"
        )
    return "\n".join(lines)
