"""`simuljax profile train`: time one update of a preset at a given shape, by part."""

import dataclasses
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.audio import SpecAugment, Statistics, WaveAugment
from simuljax.batch import Batch
from simuljax.config.model import ModelConfig
from simuljax.config.training import Objective, Optimiser
from simuljax.losses import JointObjective
from simuljax.models import presets
from simuljax.models.joint import JointModel
from simuljax.models.parameters import initialise
from simuljax.profile import measure
from simuljax.profile.measure import check_positive, check_vocabulary, cost_of, environment, say
from simuljax.train.flops import BACKWARD, forward_flops, peak_flops
from simuljax.train.step import Replicas, TrainState, Update

# Kernels in a CUDA graph have no names; a graph needs at least so many.
NO_CUDA_GRAPHS: dict[str, str | bool] = {"xla_gpu_graph_min_graph_size": "1000000"}
PRESETS: dict[str, Callable[[], ModelConfig]] = {
    "dar": presets.dar,
    "small": presets.small,
    "tiny": presets.tiny,
}
# The first pattern that matches the origin of a kernel decides.
PARTS = {
    "communication": r"psum",
    "front end": r"front_end",
    "optimiser": r"optimiser",
    "alignment": r"/alignment/",
    "energies": r"cross\._alignment",  # of the decisions, with projections and noise
    "DAR": r"decision_attentive",
    "other losses": r"losses",
    "speech encoder": r"encode_speech|speech_decisions",
    "text encoder": r"encode_text|text_decisions",
    "decoder": r"decode",
}


@dataclass(frozen=True, kw_only=True)
class TrainProfile:
    """Time of an update by part, memory, and share of the device's peak arithmetic."""

    preset: Literal["dar", "small", "tiny"] = "dar"
    utterances: int = 40
    frames: int = 1000
    """Frames of 10 ms in each utterance."""
    targets: int = 64
    sources: int = 64
    vocabulary: int = 10_000
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    unroll: bool = True
    """Unroll the loop over layers: longer to compile, faster."""
    updates: int = 20
    """Updates in a round; the best of five rounds counts."""
    wave_augment: bool = False
    """Time the update with rooms, noise and channels too, in turn with the one without."""

    def __post_init__(self) -> None:
        check_positive(self)
        check_vocabulary(self.vocabulary)


def run(config: TrainProfile, trace: Path | None = None) -> dict[str, Any]:
    """Compile the update, time it and trace it; keep the trace in `trace`."""
    update = build(config)
    replicas = Replicas.on_all("shard_map")
    batch = replicas.share(random_batch(config))
    weights = {k: jnp.float32(v) for k, v in update.objective.weights().items()}
    weights = replicas.replicate(weights)
    params, statistics = initialise(update.model, jax.random.key(0, impl="rbg"))
    optimiser = update.optimiser.init(params)
    first = TrainState(step=jnp.int32(0), params=params, statistics=statistics, optimiser=optimiser)
    state = replicas.replicate(first)
    step: Any = replicas.wrap(update.whole, 4, donate=0)
    seed = replicas.replicate(np.int32(0))
    lowered = step.lower(state, batch, weights, seed)
    say("compiling the update")
    start = time.perf_counter()
    compiled = lowered.compile()
    compile_s = time.perf_counter() - start
    say(f"compiled in {compile_s:.0f} s; timing it")
    call = Repeated(compiled, state, batch, weights, seed)
    ms = call.best_ms(config.updates)
    say(f"{ms:.1f} ms; compiling it again for a trace whose kernels have names")
    named = lowered.compile(compiler_options=NO_CUDA_GRAPHS) if on_gpu() else compiled
    augmented = augmented_ms(update, replicas, call, config.updates) if config.wave_augment else {}
    say("tracing it")
    named_call = Repeated(named, call.state, batch, weights, seed)
    named_call()
    traced = measure.trace(named_call, 3, trace)
    origin = measure.origins(named.as_text() or "")
    memory = compiled.memory_analysis()
    state = named_call.state
    say("counting the operations of a forward pass")
    forward = forward_flops(
        replicas.wrap(functools.partial(update.validate, watch=False)), state, batch
    )
    flops = (1 + BACKWARD) * forward
    peak = peak_flops(jax.devices()[0].device_kind)
    return {
        **environment(config),
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(state.params)),
        "ms": ms,
        **augmented,
        "utterances_per_s": config.utterances / ms * 1e3,
        "frames_per_s": config.utterances * config.frames / ms * 1e3,
        "device_ms": sum(traced.ms.values()),
        "kernels": traced.kernels,
        "parts_ms": measure.by_part(traced, origin, PARTS),
        "dearest": measure.dearest(traced, origin),
        "compile_s": compile_s,
        "temp_mib": memory.temp_size_in_bytes / 2**20 if memory else None,
        "arguments_mib": memory.argument_size_in_bytes / 2**20 if memory else None,
        "model_tflop": flops / 1e12,
        "gbyte": cost_of(compiled)["gbyte"],
        "devices": replicas.count,
        "collectives": measure.collectives(compiled.as_text() or ""),
        "utilisation": flops / (ms / 1e3) / peak if peak else None,
    }


def table(report: dict[str, Any]) -> str:
    """Format the report as text."""
    chosen = report["config"]
    lines = [
        f"{report['device']}, jax {report['jax']}: {chosen['preset']} in {chosen['dtype']}, "
        f"{report['parameters'] / 1e6:.1f} M parameters, {chosen['utterances']} x "
        f"{chosen['frames']} frames, {chosen['targets']} targets, {chosen['sources']} source "
        "tokens",
        f"{report['ms']:.1f} ms an update, {report['utterances_per_s']:,.0f} utterances/s, "
        f"{report['frames_per_s']:,.0f} frames/s; compiled in {report['compile_s']:.0f} s",
        f"device busy {report['device_ms']:.1f} ms with {report['kernels']} kernels; it needs "
        f"{report['temp_mib'] or 0:,.0f} MiB, and {report['arguments_mib'] or 0:,.0f} for state",
    ]
    peak = f", {report['utilisation']:.1%} of peak" if report["utilisation"] else ""
    lines.append(
        f"{report['model_tflop']:.2f} TFLOP by the model{peak}; {report['gbyte']:,.0f} GB moved, "
        "as XLA counts (a loop's body once)"
    )
    exchanged = ", ".join(
        f"{held['count']} {kind} of {held['mbyte']:,.1f} MB"
        for kind, held in report.get("collectives", {}).items()
    )
    lines.append(f"between {report.get('devices', 1)} devices: {exchanged or 'nothing'}")
    if "augmented_ms" in report:
        lines.append(
            f"with augmented audio {report['augmented_ms']:.1f} ms, without in the same rounds "
            f"{report['plain_ms']:.1f} ms: {report['augmented_speed']:.1%} of the updates a second"
        )
    busy = report["device_ms"] or 1
    for name, ms in report["parts_ms"].items():
        lines.append(f"  {name:<16}{ms:>8.2f} ms {ms / busy:>7.1%}")
    return "\n".join(lines)


def on_gpu() -> bool:
    """Return True if kernels are gathered into CUDA graphs."""
    return jax.default_backend() == "gpu"


class Repeated:
    """Repeat the update, each on the state of the one before."""

    def __init__(self, compiled: Any, state: TrainState, *rest: Any):
        self.compiled, self.state, self.rest = compiled, state, rest

    def __call__(self) -> TrainState:
        self.state, _ = self.compiled(self.state, *self.rest)
        return self.state

    def best_ms(self, calls: int, rounds: int = 5) -> float:
        """Return the time of an update in the best of several rounds."""
        jax.block_until_ready(self())
        return min(self.round_ms(calls) for _ in range(rounds))

    def round_ms(self, calls: int) -> float:
        """Return the mean time of an update in one round."""
        start = time.perf_counter()
        for _ in range(calls):
            self()
        jax.block_until_ready(self.state)
        return (time.perf_counter() - start) / calls * 1e3


def augmented_ms(update: Update, replicas: Replicas, plain: Repeated, calls: int) -> dict[str, Any]:
    """Return the times of an update with and without augmented audio, in alternate rounds."""
    objective = dataclasses.replace(update.objective, wave_augment=WaveAugment.typical())
    step = replicas.wrap(dataclasses.replace(update, objective=objective).whole, 4, donate=0)
    say("compiling it with augmented audio")
    state = jax.tree.map(jnp.copy, plain.state)
    other = Repeated(step.lower(state, *plain.rest).compile(), state, *plain.rest)
    jax.block_until_ready(other())
    rounds = [(plain.round_ms(calls), other.round_ms(calls)) for _ in range(5)]
    without, augmented = map(min, zip(*rounds, strict=True))
    times = {"plain_ms": without, "augmented_ms": augmented}
    return times | {"augmented_speed": without / augmented}


def build(chosen: TrainProfile) -> Update:
    """Return the update of the preset with every loss."""
    base = PRESETS[chosen.preset]()
    width = dataclasses.replace(base.width, dtype=chosen.dtype, unroll=chosen.unroll)
    model = dataclasses.replace(
        base, width=width, source_vocabulary=chosen.vocabulary, target_vocabulary=chosen.vocabulary
    )
    zeros, ones = np.zeros(80, np.float32), np.ones(80, np.float32)
    return Update(
        model=JointModel(model),
        objective=Objective(terms=JointObjective(latency=0.05).terms(), augment=SpecAugment()),
        optimiser=Optimiser().build(),
        statistics=Statistics(mean=zeros + 8, std=ones * 4, frames=1),
    )


def random_batch(chosen: TrainProfile) -> Batch:
    """Return noise and tokens without padding."""
    random, rows = np.random.default_rng(0), chosen.utterances
    samples = (chosen.frames - 1) * 160 + 400

    def tokens(length: int) -> np.ndarray:
        return random.integers(4, chosen.vocabulary, (rows, length)).astype(np.int32)

    def full(length: int) -> np.ndarray:
        return np.full(rows, length, np.int32)

    return Batch(
        audio=random.integers(-9_999, 9_999, (rows, samples)).astype(np.int16),
        audio_length=full(samples),
        source=tokens(chosen.sources),
        source_length=full(chosen.sources),
        target=tokens(chosen.targets),
        target_length=full(chosen.targets),
        index=np.arange(rows, dtype=np.int32),
    )
