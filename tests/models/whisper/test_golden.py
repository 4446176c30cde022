"""The real tiny model against values of the original implementation in float32."""

import json

import jax
import numpy as np
import pytest

from simuljax.models.whisper import Decoding, Request, load
from simuljax.models.whisper.decoding import Context, decode, language_probs
from simuljax.models.whisper.spectrogram import log_mel
from simuljax.models.whisper.timing import attend_text, time_words
from simuljax.models.whisper.tokenizer import read_tiktoken
from tests.models.whisper.small import GGML, TINY, needs_tiny

pytestmark = needs_tiny


@pytest.fixture(scope="module")
def golden():
    return dict(np.load(TINY / "golden_jfk_openai_torch_fp32.npz"))


@pytest.fixture(scope="module")
def stored():
    return json.loads((TINY / "golden_jfk.json").read_text())


@pytest.fixture(scope="module")
def whisper():
    return load(GGML)


@pytest.fixture(scope="module")
def mel(golden):
    samples = np.zeros((1, 480_000), np.int16)
    samples[0, :176_000] = golden["audio16k"]
    return jax.jit(log_mel, static_argnums=1)(samples, 80)


@jax.jit
def encode(model, mel):
    return model.encode(mel)


@jax.jit
def remember(model, states):
    return model.remember(states)


@pytest.fixture(scope="module")
def states(whisper, mel):
    return encode(whisper.model, mel)


@pytest.fixture(scope="module")
def memory(whisper, states):
    return remember(whisper.model, states)


@pytest.fixture(scope="module")
def energies(whisper, memory, golden):
    """[6, 28, 1500]; the tokens filled up to the length at which words are timed."""
    tokens = np.full((1, 32), whisper.tokenizer.end, np.int32)
    tokens[0, :28] = golden["tokens"]
    energies, _ = attend_text(whisper.model, memory, tokens, texts=whisper.tokenizer.end)
    return np.asarray(energies)[0, :, :28]


def assert_close(found, stored, tolerance):
    """Values stored in half precision are known to half a step of it."""
    step = np.spacing(np.abs(stored)).astype(np.float64) if stored.dtype == np.float16 else 0
    error = np.abs(np.asarray(found, np.float64) - stored.astype(np.float64)) - step / 2
    assert error.max() < tolerance


def test_encoder_states(states, golden):
    assert_close(states[0, :600], golden["enc"], 1e-3)
    assert_close(states[0, -4:], golden["enc_last"], 1e-3)


def test_attention_of_the_alignment_heads(whisper, energies, golden):
    assert whisper.config.name == "tiny"
    assert [list(head) for head in whisper.config.alignment_heads] == golden["xattn_heads"].tolist()
    weights = jax.nn.softmax(energies)[:, :, :600]
    assert_close(weights, golden["xattn"], 1e-4)


def test_text(whisper, memory, stored):
    options = Decoding(timestamps="none", max_tokens=32)
    (result,) = decode(whisper.model, whisper.tokenizer, memory, [Context(language="en")], options)
    assert result.text == stored["text"]
    assert list(result.tokens) == stored["tokens"]
    assert result.avg_logprob == pytest.approx(stored["avg_logprob"], abs=1e-3)
    assert result.no_speech_prob == pytest.approx(stored["no_speech_prob"], abs=1e-3)
    assert result.temperature == 0


@pytest.mark.parametrize(("padding", "tolerance"), [("silence", 0.0401), ("zeros", 1e-6)])
def test_times_of_words(whisper, mel, memory, stored, padding, tolerance):
    """The original timed the words in a spectrogram padded with zeros, where ours has silence."""
    if padding == "zeros":
        memory = remember(whisper.model, encode(whisper.model, mel.at[:, 1100:].set(0)))
    known = (whisper.model, whisper.tokenizer, memory)
    (words,) = time_words(*known, [stored["tokens"]], [Context(language="en")], [1100])
    assert [word.text for word in words] == [text for text, _, _ in stored["words"]]
    found = np.array([(word.start, word.end) for word in words])
    np.testing.assert_allclose(found, [word[1:] for word in stored["words"]], atol=tolerance)
    assert all(0 < word.probability <= 1 for word in words)


def test_language(whisper, memory):
    ids = whisper.tokenizer.language_ids
    shared = {"start": whisper.tokenizer.start, "first": ids.start, "count": len(ids)}
    probs = np.asarray(language_probs(whisper.model, memory, **shared))
    assert whisper.tokenizer.language_codes[int(probs[0].argmax())] == "en"
    np.testing.assert_allclose(probs.sum(-1), 1, atol=1e-5)


def test_the_vocabulary_in_the_file_is_the_published_one(whisper):
    assert list(whisper.tokenizer.tokens) == read_tiktoken(TINY / "multilingual.tiktoken")


def test_special_tokens(whisper):
    published = json.loads((TINY / "generation_config.json").read_text())
    t = whisper.tokenizer
    languages = {f"<|{c}|>": i for c, i in zip(t.language_codes, t.language_ids, strict=True)}
    assert languages == published["lang_to_id"]
    assert published["task_to_id"] == {"transcribe": t.transcribe, "translate": t.translate}
    assert published["no_timestamps_token_id"] == t.no_timestamps
    assert published["eos_token_id"] == t.end and published["decoder_start_token_id"] == t.start
    special = {t.start, t.translate, t.transcribe, t.start_lm, t.previous, t.no_speech}
    assert published["suppress_tokens"] == sorted({*t.unspoken} | special)
    assert published["begin_suppress_tokens"] == [*t.encode(" "), t.end]


@pytest.mark.slow
def test_a_recording_from_its_file(whisper, stored):
    short = whisper.transcribe(TINY / "jfk.flac", window="short", words="timed")
    assert short.text.replace(",", "") == stored["text"] and short.language == "en"
    assert short.segments[0].start == 0 and 10 < short.segments[-1].end <= 11
    assert [w.text.strip(" ,") for w in short.words] == [w[0].strip() for w in stored["words"]]
    times = [w.start for w in short.words]
    np.testing.assert_allclose(times, [word[1] for word in stored["words"]], atol=0.15)


@pytest.mark.slow
def test_a_minute_in_windows(whisper, golden):
    """Three times the same words, with a pause between them: nothing lost, nothing said twice.

    So much repetition looks like a loop: other temperatures would be tried, and these are drawn.
    """
    sound = np.concatenate([golden["audio16k"], np.zeros(24_000, np.int16)] * 3)
    decoding = Decoding(beams=2, temperatures=(0.0,))
    request = Request(language="en", condition="nothing", decoding=decoding)
    result = whisper.transcribe_all([sound, sound[:200_000]], request)
    assert result[0].text.count("fellow Americans") == 3
    assert [each.text.count("for your country") for each in result] == [3, 1]
    starts = [segment.start for segment in result[0].segments]
    assert starts == sorted(starts) and 30 < result[0].segments[-1].end < 38
