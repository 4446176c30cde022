"""Models small enough to compile in seconds, whose heads and hypotheses really differ."""

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
from simuljax.decode.beam import write_whole
from simuljax.decode.context import context_of, known_of
from simuljax.models.encoders import Encoded
from simuljax.models.joint import JointModel, source_of
from simuljax.nn.monotonic import fixed_windows
from tests.oracles.checks import float32
from tests.oracles.hard_decoder import HardDecoder


def random_parameters(model, *given, seed=0, **options):
    """Normal numbers in the shapes that `model.init` would make; nothing is compiled."""
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), *given, **options))
    random = np.random.default_rng(seed)

    def draw(path, leaf):
        middle = 1.0 if path[-1].key == "scale" else 0.0
        return (middle + 0.3 * random.normal(size=leaf.shape)).astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw, shapes)


def drawn(shapes, deviation, seed=1):
    """Random parameters and statistics; initial ones have biases of 0 and hide mistakes."""
    random = np.random.default_rng(seed)
    given, kept = shapes["params"], shapes.get("statistics", {})
    return {
        "params": jax.tree.map(lambda a: float32(random.normal(0, deviation, a.shape)), given),
        "statistics": jax.tree.map(lambda a: float32(random.uniform(0.5, 2, a.shape)), kept),
    }


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
        encoded: Any = None
        decisions: Any = None
        if c.text is not None:
            encoded = model.encode_text(prefix, jnp.array([3]), train=False)
            decisions = model.text_decisions(encoded)
        if c.speech is not None:
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


def translate_states(model, variables, encoded, decoding, beam=None):
    """The best tokens for encoder states, decided at fixed windows."""

    @fast
    def translated(variables, encoded):
        context = context_of(model, variables, decoding)
        decisions = fixed_windows(encoded.states, encoded.lengths, STEP, "average")
        ended = jnp.ones(encoded.lengths.shape, bool)
        return write_whole(context, beam, known_of(context, encoded, decisions, ended))[1]

    return translated(variables, encoded)


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
    """Count the compilations of a jitted function."""
    return function._cache_size()


def fast(function: Any) -> Any:
    """The function, compiled in little time."""
    return jax.jit(function, compiler_options=FAST)


CAAT_GROUP = 4  # states
CAAT_SPEECH = SpeechConfig(
    kind="streaming", layers=2, shared=0, channels=12, chunk=4, left=6, right=2
)


def caat(**changes: Any) -> JointModel:
    """Two layers of predictor and of joiner; a group is 160 ms."""
    given: dict[str, Any] = {
        "decoder": "caat",
        "joiner_layers": 2,
        "text": None,
        "speech": CAAT_SPEECH,
        "predecision": PreDecision(step_ms=40 * CAAT_GROUP),
    }
    return translator(Monotonic(policy="offline"), **given | changes)


def caat_parameters(model: JointModel, *, blank: float = 1.5, seed: int = 4):
    """Random ones; `blank` favours the blank, and half as much the end, so that groups end."""
    drawn = parameters(model, seed=seed)
    decoder = drawn["params"]["decoder"]
    decoder["joiner"]["heads"]["out"]["kernel"] *= 4  # or what was heard would hardly matter
    decoder["norm"]["bias"][0] = 1.0
    decoder["output"]["kernel"] *= 6  # or nothing would be sure enough to be written
    decoder["output"]["kernel"][0, 1:3] += blank, blank / 2
    return drawn


def caat_asked(
    model: JointModel, variables: Any, states: np.ndarray, prefix: list[int], reach: int
):
    """Log-probabilities of what follows the prefix [V], from the first states alone.

    By the pass that trains the offline cross-entropy; every length of prefix is one shape.
    """
    heard = states[:reach]
    room = np.zeros((1, len(states), states.shape[1]), np.float32)
    room[0, :reach] = heard
    tokens = np.zeros((1, 32), np.int32)
    tokens[0, : len(prefix) + 1] = [1, *prefix]
    logits = _ask(model, variables, tokens, room, np.array([reach], np.int32))
    return np.asarray(jax.nn.log_softmax(logits[0, len(prefix)]), np.float64)


def _ask(model, variables, tokens, states, lengths):
    if model not in _ASKING:

        def ask(variables, tokens, states, lengths):
            return model.apply(variables, tokens, states, lengths, method=caat_whole)

        _ASKING[model] = fast(ask)
    return _ASKING[model](variables, tokens, states, lengths)


_ASKING: dict[JointModel, Any] = {}


def caat_whole(
    model: JointModel, tokens: jax.Array, states: jax.Array, lengths: jax.Array
) -> jax.Array:
    """Logits [B, T, V] with everything in sight."""
    encoded = Encoded(states=states, lengths=lengths)
    source = source_of(encoded, model.speech_decisions(encoded), jnp.int32(1))
    return model.decoder(tokens, [source], train=False)[0].logits
