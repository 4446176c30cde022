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

from simuljax.audio import FeatureRecord, Features, SpecAugment, WaveAugment, neutral
from simuljax.audio.filterbank import FRAME, SHIFT
from simuljax.batch import Batch
from simuljax.config.model import ModelConfig
from simuljax.config.training import Objective, Optimiser
from simuljax.losses import JointObjective
from simuljax.models import presets
from simuljax.models.joint import JointModel
from simuljax.models.parameters import initialise
from simuljax.profile.measure import (
    check_positive,
    collectives,
    compile_named,
    compile_timed,
    cost_of,
    environment,
    memory_of,
    say,
    trace,
)
from simuljax.train.flops import BACKWARD, forward_flops, peak_flops
from simuljax.train.step import Replicas, TrainState, Update

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


def run(config: TrainProfile, traces: Path | None = None) -> dict[str, Any]:
    """Compile the update, time it and trace it; keep the trace in `traces`."""
    update = build(config)
    replicas = Replicas.on_all("shard_map")
    batch = replicas.share(random_batch(config))
    weights = {k: jnp.float32(v) for k, v in update.objective.weights().items()}
    weights = replicas.replicate(weights)
    params, statistics = initialise(update.model, jax.random.key(0, impl="rbg"))
    optimiser = update.optimiser.build().init(params)
    first = TrainState(step=jnp.int32(0), params=params, statistics=statistics, optimiser=optimiser)
    state = replicas.replicate(first)
    step: Any = replicas.wrap(update.whole, 4, donate=0)
    seed = replicas.replicate(np.int32(0))
    lowered = step.lower(state, batch, weights, seed)
    compiled, compile_s = compile_timed(lowered, "the update")
    call = Repeated(compiled, state, batch, weights, seed)
    ms = call.best_ms(config.updates)
    augmented = augmented_ms(update, replicas, call, config.updates) if config.wave_augment else {}
    say(f"{ms:.1f} ms; compiling it again for a trace whose kernels have names")
    call.compiled = named = compile_named(lowered, compiled)
    call()
    say("tracing it")
    traced = trace(call, 3, named, traces)
    say("counting the operations of a forward pass")
    validate = replicas.wrap(functools.partial(update.validate, watch=False))
    flops = (1 + BACKWARD) * forward_flops(validate, call.state, batch)
    peak = peak_flops(jax.devices()[0].device_kind)
    return {
        **environment(config),
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(call.state.params)),
        "ms": ms,
        **augmented,
        "utterances_per_s": config.utterances / ms * 1e3,
        "frames_per_s": config.utterances * config.frames / ms * 1e3,
        **traced.report(),
        "parts_ms": traced.by_part(PARTS),
        "compile_s": compile_s,
        **memory_of(compiled),
        "model_tflop": flops / 1e12,
        "gbyte": cost_of(compiled)["gbyte"],
        "devices": replicas.mesh.size,
        "collectives": collectives(compiled.as_text() or ""),
        "utilisation": flops / (ms / 1e3) / peak if peak else None,
    }


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
    model = preset(chosen.preset, chosen.dtype, chosen.unroll, chosen.vocabulary)
    return Update(
        model=JointModel(model),
        objective=Objective(terms=JointObjective(latency=0.05).terms(), augment=SpecAugment()),
        optimiser=Optimiser(),
        front_end=FeatureRecord(features=Features(), statistics=neutral(80)),
    )


def preset(name: str, dtype: str, unroll: bool, vocabulary: int) -> ModelConfig:
    """Return the model of a preset in this precision, with vocabularies of this size."""
    base = PRESETS[name]()
    width = dataclasses.replace(base.width, dtype=dtype, unroll=unroll)  # pyright: ignore[reportArgumentType]
    sizes = {"source_vocabulary": vocabulary, "target_vocabulary": vocabulary}
    return dataclasses.replace(base, width=width, **sizes)


def random_batch(chosen: TrainProfile) -> Batch:
    """Return noise and tokens without padding."""
    random, rows = np.random.default_rng(0), chosen.utterances
    samples = (chosen.frames - 1) * SHIFT + FRAME

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
