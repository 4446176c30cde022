"""The front end against its equations; the network with a cache and padding against itself."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.audio.filterbank import mel_filters
from simuljax.models.whisper.config import PUBLISHED, Config, Dimensions, later_half, published_name
from simuljax.models.whisper.model import (
    Model,
    Network,
    _attend_by_head,
    nothing_written,
)
from simuljax.models.whisper.spectrogram import log_mel
from tests.models.whisper.small import small_config, small_model

MODEL = small_model()
RANDOM = np.random.default_rng(1)
MEL = jnp.asarray(RANDOM.normal(size=(2, 40, 80)), jnp.float32)
TOKENS = jnp.asarray(RANDOM.integers(0, 256, (2, 12)), jnp.int32)


@jax.jit
def all_at_once(model, mel, tokens):
    return Network(model.config).apply({"params": model.params}, mel, tokens, ((0, 1), (1, 0)))


@pytest.fixture(scope="module")
def whole():
    return jax.tree.map(np.asarray, all_at_once(MODEL, MEL, TOKENS))


@jax.jit
def written_on(model, memory, written, tokens):
    states, written, _ = model.write(tokens, written, memory)
    return written, model.logits(states)


@jax.jit
def memory_of(model, mel):
    return model.remember(model.encode(mel))


def test_token_by_token_is_all_at_once(whole):
    memory = memory_of(MODEL, MEL)
    written = nothing_written(MODEL.config, 2, 30)
    written, first = written_on(MODEL, memory, written, TOKENS[:, :5])
    logits = [first]
    for column in range(5, 12):
        written, more = written_on(MODEL, memory, written, TOKENS[:, column : column + 1])
        logits.append(more)
    np.testing.assert_allclose(np.concatenate(logits, 1), whole[0], atol=1e-4)
    assert int(written.column) == 12


def test_a_prompt_to_the_right_is_the_same_prompt(whole):
    """Row 0 after three columns of padding, whatever stands in them; row 1 without."""
    memory = memory_of(MODEL, MEL)
    padding = jnp.asarray([3, 0], jnp.int32)
    for filling, skipped in ((0, padding), (7, padding), (0, None)):
        left = jnp.concatenate([jnp.full((1, 3), filling), TOKENS[:1, :9]], 1)
        tokens = jnp.concatenate([left, TOKENS[1:]])
        written = nothing_written(MODEL.config, 2, 30, skipped)
        _, logits = written_on(MODEL, memory, written, tokens)
        same = np.abs(logits[0, 3:] - whole[0][0, :9]).max() < 1e-4
        assert same == (skipped is padding)  # that which is taken for text is noticed
        np.testing.assert_allclose(logits[1], whole[0][1], atol=1e-4)


def test_energies_are_those_of_the_heads(whole):
    """The attention of layer 1, head 0, from its own weights and the states before it."""
    swapped = all_at_once(MODEL, MEL[:, ::-1], TOKENS)[1]
    assert whole[1].shape == (2, 2, 12, 20)
    assert np.abs(swapped - whole[1]).max() > 0.1
    memory = memory_of(MODEL, MEL)
    written = nothing_written(MODEL.config, 2, 12)
    *_, one = jax.jit(lambda m, h: m.write(TOKENS, written, h, ((1, 0),)))(MODEL, memory)
    np.testing.assert_allclose(one[:, 0], whole[1][:, 1], atol=1e-4)


def test_bfloat16_is_close(whole):
    half = small_model(dtype="bfloat16")
    logits, _ = all_at_once(half, MEL, TOKENS)
    assert logits.dtype == jnp.float32
    error = np.abs(logits - whole[0]).max() / np.abs(whole[0]).max()
    assert 0 < error < 0.1


def test_heads_one_by_one_are_heads_at_once():
    given = RANDOM.normal(size=(3, 3, 7, 2, 8)).astype(np.float32)
    at_once = jax.nn.dot_product_attention(*jnp.asarray(given))
    np.testing.assert_allclose(_attend_by_head(*jnp.asarray(given)), at_once, atol=1e-5)


def test_less_sound_takes_the_first_positions():
    states = jax.eval_shape(Model.encode, MODEL, MEL[:, :10])
    assert states.shape == (2, 5, 16)
    for frames in (41, 42):
        with pytest.raises(ValueError, match="an even number, to 40"):
            jax.eval_shape(Model.encode, MODEL, jnp.zeros((1, frames, 80)))


@pytest.mark.parametrize(("name", "million"), [("tiny", 37.76), ("large-v3-turbo", 808.9)])
def test_published_sizes(name, million):
    """Parameters as others count them, the encoder's positions among them."""
    config = Config(dimensions=PUBLISHED[name].dimensions, alignment_heads=())
    mel = jnp.zeros((1, 2, config.dimensions.mels))
    init = partial(Network(config).init, jax.random.key(0), mel, jnp.zeros((1, 1), jnp.int32))
    count = sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(init)))
    assert count / 1e6 == pytest.approx(million, rel=1e-3)


@pytest.mark.parametrize("name", PUBLISHED)
def test_alignment_heads_exist(name):
    model = PUBLISHED[name]
    assert len(set(model.alignment_heads)) == len(model.alignment_heads) >= 5
    for layer, head in model.alignment_heads:
        assert 0 <= layer < model.dimensions.text_layers
        assert 0 <= head < model.dimensions.head_count


def test_models_are_known_by_their_sizes():
    for name, model in PUBLISHED.items():
        assert published_name(model.dimensions, f"/models/{name}.pt") == name
    large = PUBLISHED["large-v2"].dimensions
    assert published_name(large, "large.pt") is None
    assert published_name(small_config().dimensions, "tiny") is None
    assert later_half(small_config().dimensions) == ((1, 0), (1, 1))
    with pytest.raises(ValueError, match="does not divide"):
        Dimensions(width=16, heads=3, audio_layers=1, text_layers=1, vocabulary=9)


def slow_filters(mels):
    """Triangles over frequencies; 15 mel are 1 kHz, and 27 more a factor of 6.4."""
    top = 15 + 27 * np.log(8) / np.log(6.4)
    scale = np.linspace(0, top, mels + 2)
    corners = [m * 200 / 3 if m < 15 else 1000 * 6.4 ** ((m - 15) / 27) for m in scale]
    weights = np.zeros((mels, 201))
    for b in range(mels):
        left, centre, right = corners[b : b + 3]
        for k in range(201):
            hertz = k * 40
            up, down = (hertz - left) / (centre - left), (right - hertz) / (right - centre)
            weights[b, k] = max(0, min(up, down)) * 2 / (right - left)
    return weights


@pytest.mark.parametrize("mels", [80, 128])
def test_filters_agree_with_the_equations(mels):
    """`test_weights` compares spectrograms with those of the original."""
    np.testing.assert_allclose(mel_filters(mels), slow_filters(mels), atol=1e-7)
    with pytest.raises(ValueError, match="multiple of 160"):
        log_mel(jnp.zeros((1, 16_001)), mels)
