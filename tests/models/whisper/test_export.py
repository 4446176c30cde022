"""A Whisper of whole numbers with fewer tokens: what stays, what is rounded, what is refused."""

import gzip
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.errors import SimuljaxError
from simuljax.models.whisper import WeightsError, load
from simuljax.models.whisper.export import export
from simuljax.models.whisper.tokenizer import common_tokens
from simuljax.models.whisper.weights import SINUSOIDS, read_checkpoint
from simuljax.nn.layers import sinusoids
from tests.models.whisper.small import TOKENIZER, TOKENS, ggml_bytes, random_tensors
from tests.models.whisper.test_weights import SIZES

FEWER, FILE = 260, "model.safetensors.gz"
USUAL = np.asarray(sinusoids(jnp.arange(1500), SIZES.width), np.float16)
SOUND = np.random.default_rng(0).normal(0, 0.1, 16_000).astype(np.float32)


@pytest.fixture(scope="module")
def tensors():
    return random_tensors(replace(SIZES, audio_positions=1500)) | {SINUSOIDS: USUAL}


@pytest.fixture(scope="module")
def weights(tensors, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "ggml.bin"
    path.write_bytes(ggml_bytes(tensors))
    return path


@pytest.mark.parametrize(("dtype", "levels"), [("int8", 127), ("int7", 63)])
def test_weights_are_within_half_a_level_of_every_channel(
    weights, tensors, tmp_path, dtype, levels
):
    held = read_checkpoint(export(weights, tmp_path, dtype=dtype)).tensors
    assert held.keys() == tensors.keys() - {SINUSOIDS}
    for name, now in held.items():
        was = np.asarray(tensors[name], np.float32)
        if was.ndim == 1:
            np.testing.assert_array_equal(now, was)
        else:
            level = np.abs(was).max(1, keepdims=True) / levels
            assert np.abs(now - was).max() > 0 and (np.abs(now - was) <= 0.5001 * level).all()


def test_the_same_model_with_fewer_tokens(weights, tmp_path):
    whole, cut = load(weights), load(export(weights, tmp_path / "cut", tokens=FEWER, dtype="int8"))
    tokenizer, fewer = cut.tokenizer, len(TOKENS) - FEWER
    assert tokenizer.tokens == TOKENS[:FEWER] and tokenizer.multilingual
    assert tokenizer.timestamps.stop == TOKENIZER.size - fewer == cut.config.dimensions.vocabulary
    assert cut.config.alignment_heads == whole.config.alignment_heads and cut.config.name == "cut"
    ours, theirs = (m.model.params["decoder"]["embedding"]["embedding"] for m in (cut, whole))
    np.testing.assert_allclose(ours[:FEWER], theirs[:FEWER], atol=0.05)
    np.testing.assert_allclose(ours[FEWER:], theirs[len(TOKENS) :], atol=0.05)
    np.testing.assert_allclose(cut.model.params["encoder"]["positions"], USUAL, atol=1e-3)
    for text in (" the inner thing", "い", " a <|endoftext|>"):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text and max(ids) < FEWER


def test_it_hears_what_the_whole_one_does(weights, tmp_path):
    exact, rounded = load(weights), load(export(weights, tmp_path, dtype="int8"))
    mel = jnp.asarray(np.random.default_rng(0).normal(size=(1, 40, 80)), jnp.float32)
    encode = jax.jit(lambda model, mel: model.encode(mel))
    one, other = (np.asarray(encode(w.model, mel)) for w in (exact, rounded))
    assert 0 < np.abs(one - other).mean() < 0.05 * np.abs(one).mean()


def test_common_tokens_come_with_what_they_are_merged_of():
    kept = common_tokens(TOKENS, ["sing the thing", "あ"], 261)
    assert [TOKENS[i] for i in kept[256:]] == [b" t", b"he", b" the", b"in", b"ing"]
    assert common_tokens(TOKENS, [], 260) == list(range(260))


@pytest.mark.parametrize("tokens", [255, len(TOKENS) + 1])
def test_a_vocabulary_that_is_none(weights, tmp_path, tokens):
    with pytest.raises(SimuljaxError, match=f"tokens is {tokens}"):
        export(weights, tmp_path / "new", tokens=tokens, dtype="int8")
    assert not (tmp_path / "new").exists()


def test_damage_is_noticed(weights, tmp_path):
    file = export(weights, tmp_path, dtype="int7") / FILE
    good = file.read_bytes()
    for bad in (good[:-9], good[:200] + b"x" + good[201:], gzip.compress(b"short")):
        file.write_bytes(bad)
        with pytest.raises(WeightsError, match=FILE):
            read_checkpoint(tmp_path)
