"""The Conformer's encoder: padding and company have no influence, in training neither."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.model import DecoderWidth, Monotonic, SpeechConfig
from simuljax.decode.beam import translate_speech
from simuljax.models.encoders import ConformerEncoder
from simuljax.models.joint import JointModel
from simuljax.nn.subsampling import state_count
from simuljax.serve.run import shapes
from simuljax.train.objective import shift
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
from tests.oracles.checks import everything_finite, float32
from tests.train import small

LENGTHS = np.array([45, 17, 33, 2])
FRAMES = 45


def encoder(width=TINY, axis=None, **sizes):
    given = {"layers": 2, "shared": 0, "channels": 8, "kernel": 7, "ctc_after": 2, **sizes}
    speech = SpeechConfig(kind="conformer", **given)
    return ConformerEncoder(speech, width, ctc_classes=5, axis=axis)


@cache
def variables():
    return random_variables(encoder(), speech(FRAMES), LENGTHS)


def test_the_same_utterance_alone_padded_or_in_a_batch():
    x, model = speech(FRAMES), encoder()
    batch = evaluated(model, variables(), x, LENGTHS)
    np.testing.assert_array_equal(batch.lengths, state_count(LENGTHS))
    alone = evaluated(model, variables(), x[1:2, : LENGTHS[1]], LENGTHS[1:2])
    more = np.concatenate([x, np.full((4, 20, FEATURES), 7, np.float32)], 1)
    padded = evaluated(model, variables(), more, LENGTHS)
    for of in ("states", "ctc"):
        np.testing.assert_allclose(getattr(alone, of)[0], getattr(batch, of)[1, :5], atol=1e-5)
        for row, length in enumerate(state_count(LENGTHS)):
            one, other = getattr(padded, of)[row, :length], getattr(batch, of)[row, :length]
            np.testing.assert_allclose(one, other, atol=1e-5)
    np.testing.assert_array_equal(padded.states[:, 12:], 0)
    seen = evaluated(model, variables(), more, LENGTHS + 4)  # the control: padding taken for speech
    assert np.abs(seen.states[1, :5] - alone.states[0]).max() > 1e-2


def test_a_batch_padded_further_trains_the_same():
    x, model = speech(FRAMES), encoder()
    more = np.concatenate([x, np.full((4, 20, FEATURES), 7, np.float32)], 1)
    batch, padded = (trained(model, variables(), each, LENGTHS) for each in (x, more))
    np.testing.assert_allclose(padded[0].states[:, :12], batch[0].states, atol=2e-5)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), padded[1], batch[1])
    shorter = trained(model, variables(), x, LENGTHS - 1)  # the control: statistics are of all
    assert np.abs(shorter[0].states[0, :11] - batch[0].states[0, :11]).max() > 1e-3


def test_a_row_without_speech_is_no_harm():
    x, lengths = speech(FRAMES), np.array([45, 17, 33, 0])
    encoded, new = trained(encoder(), variables(), x, lengths)
    assert everything_finite((encoded.states, encoded.ctc, new))
    assert not np.asarray(encoded.states[3]).any()


def gradients(model, variables, x, lengths):
    """Of a sum over the batch, to parameters and features, with new statistics."""

    def loss(params, x):
        given = {"params": params, "statistics": variables["statistics"]}
        encoded, new = model.apply(given, x, lengths, None, train=True, mutable=["statistics"])
        real = encoded.states[..., :1] != 0
        total = jnp.sum(jnp.sin(3 * encoded.states)) + jnp.sum(jnp.sin(encoded.ctc) * real)
        return total, new["statistics"]

    return jax.grad(loss, argnums=(0, 1), has_aux=True)(variables["params"], x)


def of_parameters(model, *batch):
    (found, _), statistics = gradients(model, *batch)
    return found, statistics


on_one_device = quick_jit(partial(gradients, encoder()))


def test_padding_has_no_gradient_and_speech_has():
    (_, of_features), _ = on_one_device(variables(), speech(FRAMES), LENGTHS)
    influence, real = np.abs(of_features).max(-1), np.arange(FRAMES) < LENGTHS[:, None]
    assert not influence[~real].any()
    assert influence[real].min() > 1e-6


def test_every_parameter_learns():
    (found, _), _ = on_one_device(variables(), speech(FRAMES), LENGTHS)
    assert_everything_learns(found)


@pytest.mark.slow
def test_four_devices_are_one():
    many = partial(of_parameters, encoder(axis=AXIS))
    actual = on_four_devices(many, variables(), speech(FRAMES), LENGTHS)
    (found, _), statistics = on_one_device(variables(), speech(FRAMES), LENGTHS)
    expected = jax.device_get((found, statistics))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=2e-3, atol=2e-4), actual, expected)


def test_bfloat16_computes_and_float32_remembers():
    encoded = assert_half_precision_is_near(encoder, variables(), speech(FRAMES), LENGTHS)
    assert encoded.ctc.dtype == jnp.float32


def test_a_head_after_its_layer_and_statistics_for_every_layer():
    chosen = SpeechConfig(kind="conformer", layers=4, shared=1, channels=8, ctc_after=2, kernel=3)
    params, statistics = shapes(small.translator(speech=chosen))
    assert {"below", "above", "ctc", "norm"} < set(params["speech"])  # the norm of shared layers
    for part, layers in (("below", 2), ("above", 1)):
        norm = statistics["speech"][part]["layer"]["convolution"]["norm"]
        assert norm["mean"].shape == (layers, 16)
    assert shapes(small.translator())[1] == {}


def test_a_decoder_of_other_sizes_than_the_encoder():
    own = DecoderWidth(hidden=48, heads=4)
    params, _ = shapes(small.translator(decoder_width=own))
    layer = params["decoder"]["layer"]
    assert layer["feed_forward"]["inner"]["kernel"].shape == (1, 16, 48)
    assert params["shared"]["layer"]["feed_forward"]["inner"]["kernel"].shape == (1, 16, 32)


@pytest.mark.slow
def test_greedy_words_are_those_of_the_training_pass():
    """Through the machinery that decodes, with a decoder of more heads than the encoder."""
    chosen = SpeechConfig(kind="conformer", layers=1, shared=0, channels=8, ctc_after=1, kernel=3)
    model = JointModel(
        small.translator(
            speech=chosen,
            text=None,
            decoder_width=DecoderWidth(hidden=48, heads=4),
            monotonic=Monotonic(policy="offline"),
        )
    )
    rng, frames = np.random.default_rng(2), np.array([40, 23])
    params, statistics = shapes(model.config)
    variables = {
        "params": jax.tree.map(lambda a: float32(rng.normal(0, 0.5, a.shape)), params),
        "statistics": jax.tree.map(lambda a: float32(rng.uniform(0.5, 2, a.shape)), statistics),
    }
    features = float32(rng.normal(size=(2, 40, 80)))
    found = translate_speech(model, variables, features, frames)

    def best(model: JointModel, tokens: jax.Array) -> jax.Array:
        encoded = model.encode_speech(jnp.asarray(features), jnp.asarray(frames), train=False)
        given = (encoded, model.speech_decisions(encoded), jnp.int32(1))
        return model.decode(shift(tokens), *given, train=False).logits.argmax(-1)

    expected = quick_jit(lambda tokens: model.apply(variables, tokens, method=best))(found.tokens)
    for row, length in enumerate(found.lengths.tolist()):
        assert length > 3
        assert found.tokens[row, :length].tolist() == expected[row, :length].tolist()


@pytest.mark.parametrize("kernel", [0, 30])
def test_a_kernel_without_a_middle_is_refused(kernel):
    with pytest.raises(ValueError, match="kernel is"):
        SpeechConfig(kernel=kernel)
