"""Encoders of whole utterances: padding and company have no influence, in training neither."""

import dataclasses
from functools import cache, partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from simuljax.config.model import DecoderWidth, SpeechConfig, Width
from simuljax.models.encoders import SpectrogramFrontEnd, SpeechEncoder, Stack, VGGBLSTMEncoder
from simuljax.models.parameters import shapes
from simuljax.nn.attention import View, distance_penalty
from simuljax.nn.layers import embed_positions, layer_norm, zero_padding
from simuljax.nn.subsampling import state_count
from tests.helpers.models import drawn
from tests.oracles import spectrogram as oracle
from tests.oracles.checks import everything_finite, float32
from tests.train import small

AXIS, FEATURES = "replicas", 10
pytestmark = pytest.mark.usefixtures("quickly")
TINY = Width(model=8, hidden=12, heads=2, dropout=0.0)
HALF = Width(model=8, hidden=12, heads=2, dropout=0.0, dtype="bfloat16")
LENGTHS = {
    "s_transformer": np.array([21, 9, 14, 2]),
    "conformer": np.array([45, 17, 33, 2]),
    "vgg_blstm": np.array([21, 9, 2, 0]),
}
SIZES: dict[str, Any] = {
    "s_transformer": {"layers": 2, "shared": 0},
    "conformer": {"layers": 2, "shared": 0, "channels": 8, "kernel": 7, "ctc_after": 2},
    "vgg_blstm": {"layers": 3, "shared": 0, "channels": 2, "ctc_after": 2},
}

# Nearly all the time of these tests is compilation, and half of that is optimisation.
quick_jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def encoder(kind: str, width: Width = TINY, axis: str | None = None, **sizes: Any) -> Any:
    speech: Any = SpeechConfig(kind=kind, **SIZES[kind] | sizes)
    if kind == "vgg_blstm":
        return VGGBLSTMEncoder(speech, width, ctc_classes=5)
    return SpeechEncoder(speech, width, ctc_classes=5, image_channels=4, axis=axis)


def speech(kind: str, seed: int = 0) -> np.ndarray:
    return float32(np.random.default_rng(seed).normal(size=(4, LENGTHS[kind][0], FEATURES)))


def shapes_of(model: nn.Module, kind: str) -> Any:
    given = (speech(kind), LENGTHS[kind], None)
    return jax.eval_shape(lambda: model.init(jax.random.key(0), *given, train=False))


@cache
def variables(kind: str) -> dict[str, Any]:
    return drawn(shapes_of(encoder(kind), kind), 0.4)


@partial(quick_jit, static_argnames="model")
def evaluated(model, variables, features, lengths) -> Any:
    return model.apply(variables, features, lengths, None, train=False)


@partial(quick_jit, static_argnames="model")
def trained(model, variables, features, lengths) -> Any:
    return model.apply(variables, features, lengths, None, train=True, mutable=["statistics"])


def padded(x: np.ndarray, more: int) -> np.ndarray:
    return np.concatenate([x, np.full((4, more, FEATURES), 7, np.float32)], 1)


@pytest.mark.parametrize("kind", LENGTHS)
def test_the_same_utterance_padded_or_in_other_company(kind):
    x, lengths, given = speech(kind), LENGTHS[kind], (encoder(kind), variables(kind))
    counts = state_count(lengths)
    batch = evaluated(*given, x, lengths)
    np.testing.assert_array_equal(batch.lengths, counts)
    others = np.where(np.arange(4)[:, None, None] == 1, padded(x, 20), 5 * padded(x, 20)[::-1])
    alone = evaluated(*given, others, np.where(np.arange(4) == 1, lengths, lengths[0]))
    more = evaluated(*given, padded(x, 20), lengths)
    for of in ("states", "ctc") if batch.ctc is not None else ("states",):
        one, other, several = (getattr(each, of) for each in (alone, more, batch))
        np.testing.assert_allclose(one[1, : counts[1]], several[1, : counts[1]], atol=1e-5)
        for row, count in enumerate(counts):
            np.testing.assert_allclose(other[row, :count], several[row, :count], atol=1e-5)
    np.testing.assert_array_equal(more.states[:, counts[0] :], 0)
    seen = evaluated(*given, padded(x, 20), lengths + 4)  # the control: padding taken for speech
    assert np.abs(seen.states[1, : counts[1]] - more.states[1, : counts[1]]).max() > 1e-2


def test_a_row_without_speech_is_no_harm():
    lengths = np.array([45, 17, 33, 0])
    given = (encoder("conformer"), variables("conformer"), speech("conformer"))
    encoded, new = trained(*given, lengths)
    assert everything_finite((encoded.states, encoded.ctc, new))
    assert not np.asarray(encoded.states[3]).any()


def gradients(model, variables, x, lengths):
    """Return gradients of a sum over the batch by parameters and features, and new statistics."""

    def loss(params, x):
        given = {"params": params, "statistics": variables["statistics"]}
        encoded, new = model.apply(given, x, lengths, None, train=True, mutable=["statistics"])
        total = jnp.sum(jnp.sin(3 * encoded.states))
        if encoded.ctc is not None:
            total += jnp.sum(jnp.sin(encoded.ctc) * (encoded.states[..., :1] != 0))
        return total, new["statistics"]

    return jax.grad(loss, argnums=(0, 1), has_aux=True)(variables["params"], x)


@cache
def on_one_device(kind: str) -> Any:
    given = (variables(kind), speech(kind), LENGTHS[kind])
    return jax.device_get(quick_jit(partial(gradients, encoder(kind)))(*given))


def test_every_parameter_learns_from_speech_and_not_from_padding(kind="conformer"):
    (of_parameters, of_features), _ = on_one_device(kind)
    influence = np.abs(of_features).max(-1)
    real = np.arange(influence.shape[1]) < LENGTHS[kind][:, None]
    assert not influence[~real].any()
    assert influence[real].min() > 1e-6
    assert everything_finite(of_parameters)
    for path, gradient in jax.tree.leaves_with_path(of_parameters):
        name = jax.tree_util.keystr(path)  # softmax does not see the bias of keys
        assert np.abs(gradient).max() > 1e-5 or "['key']['bias']" in name, f"{name} does not learn"


@pytest.mark.slow
def test_four_devices_are_one(kind="conformer"):
    def replica(variables, x, lengths):
        (found, _), statistics = gradients(encoder(kind, axis=AXIS), variables, x, lengths)
        return jax.lax.psum(found, AXIS), statistics

    mesh = Mesh(np.array(jax.devices()[:4]), (AXIS,))
    specs = {"in_specs": (P(), P(AXIS), P(AXIS)), "out_specs": P()}
    many = quick_jit(jax.shard_map(replica, mesh=mesh, check_vma=False, **specs))
    actual = jax.device_get(many(variables(kind), speech(kind), LENGTHS[kind]))
    (found, _), statistics = on_one_device(kind)
    close = partial(np.testing.assert_allclose, rtol=2e-3, atol=2e-4)
    jax.tree.map(close, actual, (found, statistics))


def test_bfloat16_computes_and_float32_remembers(kind="conformer"):
    batch, only_float32 = (variables(kind), speech(kind), LENGTHS[kind]), {jnp.dtype("float32")}
    made = jax.tree.leaves(shapes_of(encoder(kind, HALF), kind))
    assert {leaf.dtype for leaf in made} == only_float32
    encoded, new = trained(encoder(kind, HALF), *batch)
    assert encoded.states.dtype == jnp.bfloat16
    assert encoded.ctc.dtype == jnp.float32
    assert {leaf.dtype for leaf in jax.tree.leaves(new)} == only_float32
    exact, _ = trained(encoder(kind), *batch)
    assert np.abs(exact.states - encoded.states.astype(np.float32)).mean() < 0.05


@cache
def front_end() -> tuple[Any, Any, Any]:
    """Its variables; states and their lengths."""
    given = {name: tree["front_end"] for name, tree in variables("s_transformer").items()}
    run = quick_jit(partial(SpectrogramFrontEnd(TINY, channels=4).apply, train=False))
    return given, *run(given, speech("s_transformer"), LENGTHS["s_transformer"])


def test_the_front_end_is_the_equations_of_each_utterance():
    given, states, lengths = front_end()
    x, params, statistics = speech("s_transformer"), given["params"], given["statistics"]
    for row in (1, 3):
        image = x[row, : LENGTHS["s_transformer"][row], :, None]
        for n in range(2):
            image = np.maximum(oracle.convolve(image, **params[f"conv{n}"], stride=2), 0)
            image = oracle.normalise(image, **statistics[f"norm{n}"], **params[f"norm{n}"])
        for n in range(2):
            name = f"attention{n}"
            image = oracle.attention_block(image, params[name], statistics[name])
        linear = params["linear"]
        expected = image.reshape(lengths[row], -1) @ linear["kernel"] + linear["bias"]
        np.testing.assert_allclose(states[row, : lengths[row]], expected, rtol=1e-4, atol=1e-4)


def test_self_attention_has_the_distance_penalty():
    kind, (_, x, lengths) = "s_transformer", front_end()
    params = variables(kind)["params"]

    @quick_jit
    def layers(bias):
        view, below = View(lengths=lengths, bias=bias), {"params": params["below"]}
        y: Any = Stack(TINY, 2).apply(below, embed_positions(x), view, train=False)
        normal: Any = layer_norm(TINY).apply({"params": params["norm"]}, y)
        return zero_padding(normal, lengths)

    states = evaluated(encoder(kind), variables(kind), speech(kind), LENGTHS[kind]).states
    np.testing.assert_allclose(layers(distance_penalty(6)), states, atol=1e-5)
    assert np.abs(layers(jnp.zeros((1, 1, 6, 6))) - states).max() > 1e-3


@pytest.mark.parametrize("kind", ["s_transformer", "conformer"])
def test_a_ctc_head_after_its_layer_and_statistics_for_every_layer(kind):
    chosen: Any = SpeechConfig(kind=kind, layers=4, shared=1, channels=8, ctc_after=2, kernel=3)
    params, statistics = shapes(small.translator(speech=chosen))
    assert {"below", "above", "ctc", "norm"} < set(params["speech"])  # the norm of shared layers
    assert "shared" in params and shapes(small.translator())[1] == {}
    if kind == "conformer":
        for part, layers in (("below", 2), ("above", 1)):
            norm = statistics["speech"][part]["layer"]["convolution"]["norm"]
            assert norm["mean"].shape == (layers, 16)


def test_a_decoder_of_other_sizes_than_the_encoder():
    params, _ = shapes(small.translator(decoder_width=DecoderWidth(hidden=48, heads=4)))
    for part, hidden in ((params["decoder"], 48), (params["shared"], 32)):
        inner = part["layer"]["feed_forward"]["inner"]["kernel"]
        assert inner.shape == (1, 16, hidden)


def test_dropout_stands_between_lstms():
    kind, width = "vgg_blstm", dataclasses.replace(TINY, dropout=0.3)
    params = {k: v for k, v in variables(kind)["params"].items() if k != "ctc"}

    def states(layers):
        model = encoder(kind, width, layers=layers, ctc_after=None)

        def run(key):
            given = (speech(kind), LENGTHS[kind])
            return model.apply({"params": params}, *given, train=True, rngs={"dropout": key}).states

        return quick_jit(jax.vmap(run))(jax.random.split(jax.random.key(0), 2))

    one, other = states(layers=2)
    assert np.abs(one - other).max() > 1e-3
    one, other = states(layers=1)
    np.testing.assert_array_equal(one, other)
