"""Decoders small enough to compile in seconds, whose heads really differ in what they decide."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.config.decoding import Decoding
from simuljax.config.model import (
    DecisionKind,
    ModelConfig,
    Monotonic,
    PreDecision,
    SpeechConfig,
    TextConfig,
    Width,
)
from simuljax.models.encoders import Encoded
from simuljax.models.joint import JointModel
from tests.oracles.hard_decoder import HardDecoder
from tests.random_parameters import random_parameters

VOCABULARY, LAYERS, FEATURES, STEP = 11, 2, 6, 3
FAST: dict[str, str | bool] = {"xla_backend_optimization_level": "0"}


def translator(monotonic: Monotonic | None = None, kind: DecisionKind = "fixed", **changes: Any):
    """Two layers of everything; a decision every 120 ms."""
    given: dict[str, Any] = {
        "source_vocabulary": VOCABULARY,
        "target_vocabulary": VOCABULARY,
        "features": FEATURES,
        "width": Width(model=16, hidden=24, heads=2, dropout=0.0),
        "speech": SpeechConfig(layers=2, shared=1, channels=12),
        "text": TextConfig(layers=1),
        "decoder_layers": LAYERS,
        "output": "own",  # tied weights would mostly repeat the token before
        "monotonic": monotonic or Monotonic(noise=0.0),
        "predecision": PreDecision(kind=kind, step_ms=40 * STEP),
    }
    return JointModel(ModelConfig(**given | changes))


def parameters(model: JointModel, *, decide: float = 3.0, eager: float = 0.5, seed: int = 2):
    """Random ones, with `eager` added to the energies of decisions, and these times `decide`."""

    def everything(model: JointModel) -> None:
        c, prefix = model.config, jnp.zeros((1, 3), jnp.int32)
        if c.text is not None:
            model.encode_text(prefix, jnp.array([3]), train=False)
        assert c.speech is not None
        features, frames = jnp.zeros((1, 32, c.features)), jnp.array([32])
        encoded = model.encode_speech(features, frames, train=False)
        decisions = model.speech_decisions(encoded, jnp.zeros((1, 32), jnp.int32))
        model.decode(prefix, encoded, decisions, jnp.int32(1), train=False)

    drawn = random_parameters(model, method=everything, seed=seed)

    def scale(path, leaf):
        names = [p.key for p in path]
        if "decide_query" in names or "trigger" in names:
            return leaf * decide
        if names[-2:] == ["cross", "bias"]:
            return leaf * decide + eager * decide
        if "embedding" in names or ("cross" in names and names[-2:] == ["out", "kernel"]):
            return leaf * 3  # or every token would be like the one before
        return leaf

    return jax.tree_util.tree_map_with_path(scale, drawn)


def states(lengths, size: int, seed: int = 0) -> Encoded:
    """Random encoder states, 0 where padded."""
    random = np.random.default_rng(seed)
    values = random.normal(size=(len(lengths), size, 16)).astype(np.float32)
    values[np.arange(size) >= np.asarray(lengths)[:, None]] = 0
    return Encoded(states=jnp.asarray(values), lengths=jnp.asarray(lengths, jnp.int32))


def compiled(function, *args):
    """The function for arguments of these shapes."""
    return jax.jit(function).lower(*args).compile(compiler_options=FAST)


def oracle(model: JointModel, variables, **options: Any) -> HardDecoder:
    """The same decoder, slowly."""
    c = model.config
    return HardDecoder(variables["params"]["decoder"], c.monotonic, c.width.heads, **options)


def changed(decoding: Decoding, **changes: Any) -> Decoding:
    """The same but for a few choices."""
    return dataclasses.replace(decoding, **changes)


def compilations(function: Any) -> int:
    """How often a jitted function has been compiled."""
    return function._cache_size()


def fast(function: Any) -> Any:
    """The function, compiled in little time."""
    return jax.jit(function, compiler_options=FAST)
