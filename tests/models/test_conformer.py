"""The Conformer's encoder: padding and company have no influence, in training neither."""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from simuljax.decode.offline import translate_speech
from simuljax.models import config
from simuljax.models.conformer import ConformerEncoder
from simuljax.models.translator import Translator
from simuljax.nn.layers import Width
from simuljax.nn.monotonic import Monotonic
from simuljax.nn.subsampling import state_count
from simuljax.run import shapes
from simuljax.train.objective import shift
from tests.oracles.checks import everything_finite, float32
from tests.train import small

AXIS = "replicas"
TINY = Width(model=8, hidden=12, heads=2, dropout=0.0)
LENGTHS = np.array([45, 17, 33, 2])
FRAMES, FEATURES = 45, 10
quick_jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def encoder(width=TINY, axis=None, **sizes):
    given = {"layers": 2, "shared": 0, "channels": 8, "kernel": 7, "ctc_after": 2, **sizes}
    speech = config.SpeechEncoder(kind="conformer", **given)
    return ConformerEncoder(speech, width, ctc_classes=5, axis=axis)


def speech(frames=FRAMES, rows=4, seed=0):
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
    x, model = speech(), encoder()
    more = np.concatenate([x, np.full((4, 20, FEATURES), 7, np.float32)], 1)
    batch, padded = (trained(model, variables(), each, LENGTHS) for each in (x, more))
    np.testing.assert_allclose(padded[0].states[:, :12], batch[0].states, atol=2e-5)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), padded[1], batch[1])
    shorter = trained(model, variables(), x, LENGTHS - 1)  # the control: statistics are of all
    assert np.abs(shorter[0].states[0, :11] - batch[0].states[0, :11]).max() > 1e-3


def test_a_row_without_speech_is_no_harm():
    x, lengths = speech(), np.array([45, 17, 33, 0])
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


on_one_device = quick_jit(partial(gradients, encoder()))


def test_padding_has_no_gradient_and_speech_has():
    (_, of_features), _ = on_one_device(variables(), speech(), LENGTHS)
    influence, real = np.abs(of_features).max(-1), np.arange(FRAMES) < LENGTHS[:, None]
    assert not influence[~real].any()
    assert influence[real].min() > 1e-6


def test_every_parameter_learns():
    (found, _), _ = on_one_device(variables(), speech(), LENGTHS)
    assert everything_finite(found)
    for path, gradient in jax.tree.leaves_with_path(found):
        name = jax.tree_util.keystr(path)
        # Softmax does not see a constant: the keys' bias cannot learn.
        if "['key']['bias']" not in name:
            assert np.abs(gradient).max() > 1e-5, f"{name} does not learn"


@pytest.mark.slow
def test_four_devices_are_one():
    def replica(variables, x, lengths):
        (found, _), statistics = gradients(encoder(axis=AXIS), variables, x, lengths)
        return jax.lax.psum(found, AXIS), statistics

    mesh = Mesh(np.array(jax.devices()[:4]), (AXIS,))
    specs = {"in_specs": (P(), P(AXIS), P(AXIS)), "out_specs": P()}
    many = quick_jit(jax.shard_map(replica, mesh=mesh, check_vma=False, **specs))
    actual = jax.device_get(many(variables(), speech(), LENGTHS))
    (found, _), statistics = on_one_device(variables(), speech(), LENGTHS)
    expected = jax.device_get((found, statistics))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=2e-3, atol=2e-4), actual, expected)


def test_bfloat16_computes_and_float32_remembers():
    width = Width(model=8, hidden=12, heads=2, dropout=0.0, dtype="bfloat16")
    made = jax.eval_shape(
        lambda: encoder(width).init(jax.random.key(0), speech(), LENGTHS, None, train=False)
    )
    assert {leaf.dtype for leaf in jax.tree.leaves(made)} == {jnp.dtype(jnp.float32)}
    encoded, new = trained(encoder(width), variables(), speech(), LENGTHS)
    assert encoded.states.dtype == jnp.bfloat16
    assert encoded.ctc.dtype == jnp.float32
    assert {leaf.dtype for leaf in jax.tree.leaves(new)} == {jnp.dtype(jnp.float32)}
    exact, _ = trained(encoder(), variables(), speech(), LENGTHS)
    assert np.abs(exact.states - encoded.states.astype(np.float32)).mean() < 0.05


def test_a_head_after_its_layer_and_statistics_for_every_layer():
    chosen = config.SpeechEncoder(
        kind="conformer", layers=4, shared=1, channels=8, ctc_after=2, kernel=3
    )
    params, statistics = shapes(small.translator(speech=chosen))
    assert {"below", "above", "ctc", "norm"} < set(params["speech"])  # the norm of shared layers
    for part, layers in (("below", 2), ("above", 1)):
        norm = statistics["speech"][part]["layer"]["convolution"]["norm"]
        assert norm["mean"].shape == (layers, 16)
    assert shapes(small.translator())[1] == {}


def test_a_decoder_of_other_sizes_than_the_encoder():
    own = config.DecoderWidth(hidden=48, heads=4)
    params, _ = shapes(small.translator(decoder_width=own))
    layer = params["decoder"]["layer"]
    assert layer["feed_forward"]["inner"]["kernel"].shape == (1, 16, 48)
    assert params["shared"]["layer"]["feed_forward"]["inner"]["kernel"].shape == (1, 16, 32)


@pytest.mark.slow
def test_greedy_words_are_those_of_the_training_pass():
    """Through the machinery that decodes, with a decoder of more heads than the encoder."""
    chosen = config.SpeechEncoder(
        kind="conformer", layers=1, shared=0, channels=8, ctc_after=1, kernel=3
    )
    model = Translator(
        small.translator(
            speech=chosen,
            text=None,
            decoder_width=config.DecoderWidth(hidden=48, heads=4),
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

    def best(model: Translator, tokens: jax.Array) -> jax.Array:
        encoded = model.encode_speech(jnp.asarray(features), jnp.asarray(frames), train=False)
        given = (encoded, model.speech_decisions(encoded), jnp.int32(1))
        return model.decode(shift(tokens), *given, train=False).logits.argmax(-1)

    expected = quick_jit(lambda tokens: model.apply(variables, tokens, method=best))(found.tokens)
    for row, length in enumerate(found.lengths.tolist()):
        assert length > 3
        assert found.tokens[row, :length].tolist() == expected[row, :length].tolist()


@pytest.mark.parametrize("kernel", [0, 30])
def test_a_kernel_without_a_middle_is_refused(kernel):
    with pytest.raises(ValueError, match=r"kernel is .* odd"):
        config.SpeechEncoder(kernel=kernel)
