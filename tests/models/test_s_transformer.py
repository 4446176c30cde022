import math
from functools import cache, partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.model import SpeechConfig, Width
from simuljax.models.encoders import SpectrogramFrontEnd, Stack, STransformerEncoder
from simuljax.nn.attention import View, distance_penalty
from simuljax.nn.layers import embed_positions, layer_norm, zero_padding
from simuljax.nn.subsampling import state_count
from tests.models.encoding import (
    AXIS,
    FEATURES,
    TINY,
    assert_everything_learns,
    assert_half_precision_is_near,
    evaluated,
    on_four_devices,
    quick_jit,
    random_variables,
    speech,
    trained,
)
from tests.oracles import spectrogram as oracle

LENGTHS = np.array([21, 9, 14, 2])
FRAMES = 21


def encoder(width=TINY, axis=None, **sizes):
    speech = SpeechConfig(kind="s_transformer", **{"layers": 2, "shared": 0, **sizes})
    return STransformerEncoder(speech, width, ctc_classes=5, channels=4, axis=axis)


@cache
def variables():
    return random_variables(encoder(), speech(FRAMES), LENGTHS)


def test_the_same_utterance_alone_padded_or_in_a_batch():
    x, model = speech(FRAMES), encoder()
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
    x, model = speech(FRAMES), encoder()
    more = np.concatenate([x, np.full((4, 6, FEATURES), 7, np.float32)], 1)
    batch, padded = (trained(model, variables(), each, LENGTHS) for each in (x, more))
    np.testing.assert_allclose(padded[0].states[:, :6], batch[0].states, atol=1e-5)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), padded[1], batch[1])


def test_neighbours_count_in_training_alone():
    x, other, model = speech(FRAMES), speech(FRAMES, seed=5), encoder()
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
    encoded = evaluated(encoder(), variables(), speech(FRAMES), LENGTHS)
    np.testing.assert_array_equal(encoded.lengths, state_count(LENGTHS))


def test_the_front_end_is_the_equations_of_each_utterance():
    x, front_end = speech(FRAMES), SpectrogramFrontEnd(TINY, channels=4)
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
    found, _ = on_one_device(variables(), speech(FRAMES), LENGTHS)
    assert_everything_learns(found)


@pytest.mark.slow
def test_four_devices_are_one():
    many = partial(gradients, encoder(axis=AXIS))
    actual = on_four_devices(many, variables(), speech(FRAMES), LENGTHS)
    expected = jax.device_get(on_one_device(variables(), speech(FRAMES), LENGTHS))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4), actual, expected)


def test_self_attention_has_the_distance_penalty():
    params, front_end = variables()["params"], SpectrogramFrontEnd(TINY, channels=4)
    given = {name: tree["front_end"] for name, tree in variables().items()}
    x, lengths = quick_jit(partial(front_end.apply, train=False))(given, speech(FRAMES), LENGTHS)

    @quick_jit
    def layers(bias):
        view = View(lengths=lengths, bias=bias)
        y: Any = Stack(TINY, 2).apply(
            {"params": params["below"]}, embed_positions(x), view, train=False
        )
        normal: Any = layer_norm(TINY).apply({"params": params["norm"]}, y)
        return zero_padding(normal, lengths)

    states = evaluated(encoder(), variables(), speech(FRAMES), LENGTHS).states
    np.testing.assert_allclose(layers(distance_penalty(6)), states, atol=1e-5)
    assert np.abs(layers(jnp.zeros((1, 1, 6, 6))) - states).max() > 1e-3


def test_bfloat16_computes_and_float32_remembers():
    assert_half_precision_is_near(encoder, variables(), speech(FRAMES), LENGTHS)


class Branch(nn.Module):
    """The encoder where it stands in a translator, its top layer in common with another branch."""

    def setup(self):
        self.shared, self.speech = Stack(TINY, 1), encoder(layers=3, shared=1, ctc_after=1)

    def __call__(self, x, lengths):
        return self.speech(x, lengths, self.shared, train=False)


def test_a_ctc_head_and_shared_layers_are_used():
    encoded, made = jax.eval_shape(
        lambda: Branch().init_with_output(jax.random.key(0), speech(FRAMES), LENGTHS)
    )
    assert encoded.ctc.shape == (4, 6, 5)
    assert encoded.ctc.dtype == jnp.float32
    assert set(made["params"]) == {"shared", "speech"}
    assert {"below", "above", "ctc"} < set(made["params"]["speech"])


@pytest.mark.parametrize(("d", "ffn", "heads"), [(256, 768, 4), (512, 1024, 8)])
def test_published_sizes(d, ffn, heads):
    speech = SpeechConfig(kind="s_transformer", layers=6, shared=0)
    whole = STransformerEncoder(speech, Width(model=d, hidden=ffn, heads=heads), ctc_classes=1)
    x, lengths = jnp.zeros((1, 40, 80)), jnp.array([40])
    made = jax.eval_shape(lambda: whole.init(jax.random.key(0), x, lengths, None, train=False))
    layer = 4 * (d + 1) * d + (d + 1) * ffn + (ffn + 1) * d + 4 * d
    convolutions = 9 * 64 + 64 + 9 * 64 * 64 + 64 + 2 * 2 * 64
    attention = 3 * 9 * 64 * 4 + 2 * 4 + 9 * 8 * 64 + 2 * 64
    linear = (80 // 4 * 64 + 1) * d
    expected = 6 * layer + 2 * d + convolutions + 2 * attention + linear
    assert sum(leaf.size for leaf in jax.tree.leaves(made["params"])) == expected
