import math
from functools import cache, partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from simuljax.models import config
from simuljax.models.encoders import Stack
from simuljax.models.s_transformer import SpectrogramFrontEnd, STransformerEncoder
from simuljax.nn.attention import View, distance_penalty
from simuljax.nn.layers import Width, embed_positions, layer_norm, zero_padding
from simuljax.nn.subsampling import state_count
from tests.oracles import spectrogram as oracle
from tests.oracles.checks import everything_finite, float32

AXIS = "replicas"
TINY = Width(model=8, hidden=12, heads=2, dropout=0.0)
LENGTHS = np.array([21, 9, 14, 2])
FEATURES = 10

# Nearly all the time of these tests is compilation, and half of that is optimisation.
quick_jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def encoder(width=TINY, axis=None, **sizes):
    speech = config.SpeechEncoder(kind="s_transformer", **{"layers": 2, "shared": 0, **sizes})
    return STransformerEncoder(speech, width, ctc_classes=5, channels=4, axis=axis)


def speech(frames=21, rows=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, frames, FEATURES)).astype(np.float32)


@cache
def variables():
    """Random parameters and statistics; initial ones have biases of 0 and hide mistakes."""

    def init():
        return encoder().init(jax.random.key(0), speech(), LENGTHS, None, train=False)

    made, rng = jax.eval_shape(init), np.random.default_rng(1)
    params, statistics = made["params"], made["statistics"]
    return {
        "params": jax.tree.map(lambda a: float32(rng.normal(0, 0.4, a.shape)), params),
        "statistics": jax.tree.map(lambda a: float32(rng.uniform(0.5, 2, a.shape)), statistics),
    }


@partial(quick_jit, static_argnames="model")
def evaluated(model, variables, features, lengths) -> Any:
    return model.apply(variables, features, lengths, None, train=False)


@partial(quick_jit, static_argnames="model")
def trained(model, variables, features, lengths) -> Any:
    return model.apply(variables, features, lengths, None, train=True, mutable=["statistics"])


def test_the_same_utterance_alone_padded_or_in_a_batch():
    x, model = speech(), encoder()
    batch = evaluated(model, variables(), x, LENGTHS)
    alone = evaluated(model, variables(), x[1:2, : LENGTHS[1]], LENGTHS[1:2])
    np.testing.assert_allclose(alone.states[0], batch.states[1, :3], atol=1e-5)
    more = np.concatenate([x, np.full((4, 6, FEATURES), 7, np.float32)], 1)
    padded = evaluated(model, variables(), more, LENGTHS)
    np.testing.assert_allclose(padded.states[:, :6], batch.states, atol=1e-5)
    np.testing.assert_array_equal(padded.states[:, 6:], 0)
    seen = evaluated(model, variables(), more, LENGTHS + 4)  # the control: padding taken for speech
    assert np.abs(seen.states[1, :3] - alone.states[0]).max() > 1e-2


@pytest.mark.slow
def test_a_batch_padded_further_trains_the_same():
    x, model = speech(), encoder()
    more = np.concatenate([x, np.full((4, 6, FEATURES), 7, np.float32)], 1)
    batch, padded = (trained(model, variables(), each, LENGTHS) for each in (x, more))
    np.testing.assert_allclose(padded[0].states[:, :6], batch[0].states, atol=1e-5)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), padded[1], batch[1])


def test_neighbours_count_in_training_alone():
    x, other, model = speech(), speech(seed=5), encoder()
    other[0] = x[0]
    first, second = (evaluated(model, variables(), each, LENGTHS).states[0] for each in (x, other))
    np.testing.assert_array_equal(first, second)
    first, second = (trained(model, variables(), each, LENGTHS)[0].states[0] for each in (x, other))
    assert np.abs(first - second).max() > 1e-3


@pytest.mark.parametrize("frames", [*range(1, 6), 8, 9])
def test_lengths_are_those_of_every_encoder_here(frames):
    def encode(lengths):
        key, x = jax.random.key(0), jnp.zeros((1, frames, FEATURES))
        return encoder().init_with_output(key, x, lengths, None, train=False)[0]

    encoded = jax.eval_shape(encode, jnp.array([frames]))
    halved = math.ceil(math.ceil(frames / 2) / 2)
    assert encoded.states.shape == (1, halved, TINY.model)
    assert state_count(frames) == halved


def test_state_counts_follow_the_lengths():
    encoded = evaluated(encoder(), variables(), speech(), LENGTHS)
    np.testing.assert_array_equal(encoded.lengths, state_count(LENGTHS))


def test_the_front_end_is_the_equations_of_each_utterance():
    x, front_end = speech(), SpectrogramFrontEnd(TINY, channels=4)
    given = {name: tree["front_end"] for name, tree in variables().items()}
    states, lengths = quick_jit(partial(front_end.apply, train=False))(given, x, LENGTHS)
    params, statistics = (jax.device_get(given[name]) for name in ("params", "statistics"))
    for row in (1, 3):
        image = x[row, : LENGTHS[row], :, None]
        for n in range(2):
            image = np.maximum(oracle.convolve(image, **params[f"conv{n}"], stride=2), 0)
            image = oracle.normalise(image, **statistics[f"norm{n}"], **params[f"norm{n}"])
        for n in range(2):
            name = f"attention{n}"
            image = oracle.attention_block(image, params[name], statistics[name])
        linear = params["linear"]
        expected = image.reshape(lengths[row], -1) @ linear["kernel"] + linear["bias"]
        np.testing.assert_allclose(states[row, : lengths[row]], expected, rtol=1e-4, atol=1e-4)


def gradients(model, variables, x, lengths):
    """Of a sum over the batch, with new statistics."""

    def loss(params):
        given = {"params": params, "statistics": variables["statistics"]}
        encoded, new = model.apply(given, x, lengths, None, train=True, mutable=["statistics"])
        return jnp.sum(jnp.sin(3 * encoded.states)), new["statistics"]

    return jax.grad(loss, has_aux=True)(variables["params"])


on_one_device = quick_jit(partial(gradients, encoder()))


@pytest.mark.slow
def test_every_parameter_learns():
    found, _ = on_one_device(variables(), speech(), LENGTHS)
    assert everything_finite(found)
    for path, gradient in jax.tree.leaves_with_path(found):
        name = jax.tree_util.keystr(path)
        # Softmax does not see a constant: the keys' bias of a Transformer layer cannot learn.
        if "['key']['bias']" not in name:
            assert np.abs(gradient).max() > 1e-5, f"{name} does not learn"


@pytest.mark.slow
def test_four_devices_are_one():
    def replica(variables, x, lengths):
        found, statistics = gradients(encoder(axis=AXIS), variables, x, lengths)
        return jax.lax.psum(found, AXIS), statistics

    mesh = Mesh(np.array(jax.devices()[:4]), (AXIS,))
    specs = {"in_specs": (P(), P(AXIS), P(AXIS)), "out_specs": P()}
    many = quick_jit(jax.shard_map(replica, mesh=mesh, check_vma=False, **specs))
    actual = jax.device_get(many(variables(), speech(), LENGTHS))
    expected = jax.device_get(on_one_device(variables(), speech(), LENGTHS))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4), actual, expected)


def test_self_attention_has_the_distance_penalty():
    params, front_end = variables()["params"], SpectrogramFrontEnd(TINY, channels=4)
    given = {name: tree["front_end"] for name, tree in variables().items()}
    x, lengths = quick_jit(partial(front_end.apply, train=False))(given, speech(), LENGTHS)

    @quick_jit
    def layers(bias):
        view = View(lengths=lengths, bias=bias)
        y: Any = Stack(TINY, 2).apply(
            {"params": params["below"]}, embed_positions(x), view, train=False
        )
        normal: Any = layer_norm(TINY).apply({"params": params["norm"]}, y)
        return zero_padding(normal, lengths)

    states = evaluated(encoder(), variables(), speech(), LENGTHS).states
    np.testing.assert_allclose(layers(distance_penalty(6)), states, atol=1e-5)
    assert np.abs(layers(jnp.zeros((1, 1, 6, 6))) - states).max() > 1e-3


def test_bfloat16_computes_and_float32_remembers():
    width = Width(model=8, hidden=12, heads=2, dropout=0.0, dtype="bfloat16")
    made = jax.eval_shape(
        lambda: encoder(width).init(jax.random.key(0), speech(), LENGTHS, None, train=False)
    )
    assert {leaf.dtype for leaf in jax.tree.leaves(made)} == {jnp.dtype(jnp.float32)}
    encoded, new = trained(encoder(width), variables(), speech(), LENGTHS)
    assert encoded.states.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(new)} == {jnp.dtype(jnp.float32)}
    exact, _ = trained(encoder(), variables(), speech(), LENGTHS)
    assert np.abs(exact.states - encoded.states.astype(np.float32)).mean() < 0.05


class Branch(nn.Module):
    """The encoder where it stands in a translator, its top layer in common with another branch."""

    def setup(self):
        self.shared, self.speech = Stack(TINY, 1), encoder(layers=3, shared=1, ctc_after=1)

    def __call__(self, x, lengths):
        return self.speech(x, lengths, self.shared, train=False)


def test_a_ctc_head_and_shared_layers_are_used():
    encoded, made = jax.eval_shape(
        lambda: Branch().init_with_output(jax.random.key(0), speech(), LENGTHS)
    )
    assert encoded.ctc.shape == (4, 6, 5)
    assert encoded.ctc.dtype == jnp.float32
    assert set(made["params"]) == {"shared", "speech"}
    assert {"below", "above", "ctc"} < set(made["params"]["speech"])


@pytest.mark.parametrize(("d", "ffn", "heads"), [(256, 768, 4), (512, 1024, 8)])
def test_published_sizes(d, ffn, heads):
    speech = config.SpeechEncoder(kind="s_transformer", layers=6, shared=0)
    whole = STransformerEncoder(speech, Width(model=d, hidden=ffn, heads=heads), ctc_classes=1)
    x, lengths = jnp.zeros((1, 40, 80)), jnp.array([40])
    made = jax.eval_shape(lambda: whole.init(jax.random.key(0), x, lengths, None, train=False))
    layer = 4 * (d + 1) * d + (d + 1) * ffn + (ffn + 1) * d + 4 * d
    convolutions = 9 * 64 + 64 + 9 * 64 * 64 + 64 + 2 * 2 * 64
    attention = 3 * 9 * 64 * 4 + 2 * 4 + 9 * 8 * 64 + 2 * 64
    linear = (80 // 4 * 64 + 1) * d
    expected = 6 * layer + 2 * d + convolutions + 2 * attention + linear
    assert sum(leaf.size for leaf in jax.tree.leaves(made["params"])) == expected
