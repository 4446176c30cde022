"""The real tiny model against values of the original implementation in float32."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from simuljax.models.whisper import Decoding, load
from simuljax.models.whisper.decoding import Context, decode
from simuljax.models.whisper.model import log_mel, no_padding, nothing_written
from simuljax.models.whisper.timing import align_text, attend_text
from simuljax.models.whisper.tokenizer import read_tiktoken

TINY = Path(__file__).parents[3] / ".." / "shared" / "data" / "weights" / "whisper-tiny"
GGML = TINY / "ggml-tiny.bin"
pytestmark = pytest.mark.skipif(
    not GGML.exists(), reason="Whisper tiny is not among the shared data (weights/whisper-tiny)"
)


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
    return np.asarray(attend_text(whisper.model, memory, tokens))[0, :, :28]


def assert_close(found, stored, tolerance):
    """Values stored in half precision are known to half a step of it."""
    step = np.spacing(np.abs(stored)).astype(np.float64) if stored.dtype == np.float16 else 0
    error = np.abs(np.asarray(found, np.float64) - stored.astype(np.float64)) - step / 2
    assert error.max() < tolerance


def test_encoder_states(states, golden):
    assert_close(states[0, :600], golden["enc"], 1e-3)
    assert_close(states[0, -4:], golden["enc_last"], 1e-3)


def test_logits_of_every_step(whisper, memory, golden):
    """The first 24 tokens at once, then one by one, into the cache."""

    @jax.jit
    def step(model, memory, written, tokens):
        states, written, _ = model.write(tokens, written, memory)
        return written, model.logits(states)

    written, logits = nothing_written(whisper.config, no_padding(1), 64), []
    for tokens in np.split(golden["tokens"].astype(np.int32), range(24, 28)):
        written, more = step(whisper.model, memory, written, tokens[None])
        logits.append(np.asarray(more[0]))
    found = np.concatenate(logits)
    top = np.take_along_axis(found, golden["logits_topk_idx"], 1)
    assert_close(top, golden["logits_topk"], 1e-3)
    total = np.logaddexp.reduce(found.astype(np.float64), axis=-1)
    assert_close(total, golden["logits_lse"], 1e-3)


def test_attention_of_the_alignment_heads(whisper, energies, golden):
    assert whisper.config.name == "tiny" and whisper.tokenizer.language_codes[0] == "en"
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


def test_where_words_are(whisper, memory, stored):
    """A word's first token attends most to a state inside the word; other heads look before it."""
    known = (whisper.tokenizer, memory, [stored["tokens"]], [Context(language="en")], [1100])
    firsts = np.cumsum([0, *(len(whisper.tokenizer.encode(w)) for w, _, _ in stored["words"])])[:-1]
    starts, ends = np.array([times for _, *times in stored["words"]]).T
    wrong = replace(whisper.config, alignment_heads=tuple((0, head) for head in range(6)))
    inside = []
    for config in (whisper.config, wrong):
        (matrix,) = align_text(replace(whisper.model, config=config), *known)
        found = matrix[firsts].argmax(-1) * 0.02
        inside.append(((starts <= found) & (found <= ends)).mean())
    assert inside[0] > 0.9 and inside[1] < 0.2


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
    whole = whisper.transcribe(TINY / "jfk.flac")
    assert whole.text.replace(",", "") == stored["text"] and whole.language == "en"
    assert whole.segments[0].start == 0 and 10 < whole.segments[-1].end <= 11


@pytest.mark.slow
@pytest.mark.parametrize("beams", [1, 5])
def test_a_minute_in_windows(whisper, golden, beams):
    """Five times the same words, with a pause between them: nothing lost, nothing said twice.

    So much repetition looks like a loop: other temperatures would be tried, and these are drawn.
    """
    sound = np.concatenate([golden["audio16k"], np.zeros(24_000, np.int16)] * 5)
    decoding = Decoding(beams=beams, temperatures=(0.0,))
    result = whisper.transcribe(sound, language="en", decoding=decoding)
    assert result.text.count("for your country") == 5
    starts = [segment.start for segment in result.segments]
    assert starts == sorted(starts) and 45 < result.segments[-1].end < 63


@pytest.mark.slow
def test_bfloat16_writes_the_same(golden, stored):
    half = load(GGML, dtype="bfloat16")
    said = half.transcribe(golden["audio16k"], language="en", decoding=Decoding(timestamps="none"))
    assert said.text.replace(",", "") == stored["text"]
