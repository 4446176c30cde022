"""Every reader against files and outputs of the original implementations (make_golden.py)."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.models.whisper import load
from simuljax.models.whisper.model import log_mel, no_padding, nothing_written
from simuljax.models.whisper.tokenizer import make_tokenizer, read_tiktoken, read_tokenizer_json
from simuljax.models.whisper.transcribe import spectrogram
from tests.oracles.checks import assert_close

GOLDEN = dict(np.load(Path(__file__).with_name("golden.npz")))
TEXT = json.loads(str(GOLDEN["text"]))
FILES = {"openai.pt": "", "ggml-model.bin": "", "hf/model.safetensors": "hf_"}
VOCABULARIES = {"small.tiktoken": read_tiktoken, "tokenizer.json": read_tokenizer_json}


def stored(name: str, folder: Path) -> Path:
    path = folder / Path(name).name
    path.write_bytes(GOLDEN[name].tobytes())
    return path


@pytest.fixture(scope="module")
def mel():
    return jax.jit(log_mel, static_argnums=1)(GOLDEN["sound"][None], 80)


def test_the_spectrogram(mel):
    assert_close(mel[0], GOLDEN["mel"], 1e-4)


def test_the_floor_of_a_spectrogram_is_that_of_the_whole_recording():
    """30 s of quiet noise, then 3 s of loud: the windows are as the original cuts them."""
    time = np.arange(33 * 16_000, dtype=np.int64)
    noise = (time * time * 7919 + time * 104_729) % 2001 - 1000
    sound = np.where(time < 30 * 16_000, noise // 999, noise * 30).astype(np.int16)
    found, frames = spectrogram(sound, 80), (0, 1, 1500, 2999, 3000, 3100, 3299)
    assert found.frames == 3300
    assert_close(found.mel[[*frames]], GOLDEN["whole"], 1e-4)
    first, last = found.window(0), found.window(30 * 16_000)
    assert_close(first[[*frames[:4]]], GOLDEN["whole"][:4], 1e-4)
    assert_close(last[[0, 100, 299]], GOLDEN["whole"][4:], 1e-4)
    assert not last[300:].any()
    beginning = spectrogram(sound[:16_000], 80).beginning()
    alone = np.asarray(log_mel(jnp.pad(sound[:16_000], (0, 464_000))[None], 80))[0]
    assert_close(beginning, alone, 1e-4)  # the same for what is not longer than a window
    assert np.abs(beginning[:100] - found.mel[:100]).max() > 0.1


@pytest.mark.parametrize("name", FILES)
def test_states_and_logits_of_every_file(name, mel, tmp_path):
    stored("small.tiktoken", tmp_path)
    whisper = load(stored(name, tmp_path))
    prompt, model = GOLDEN["prompt"].astype(np.int32)[None], whisper.model

    @jax.jit
    def run(model, mel):
        states = model.encode(mel)
        written = nothing_written(model.config, no_padding(1), prompt.shape[1])
        decoded, *_ = model.write(prompt, written, model.remember(states))
        return states, model.logits(decoded)

    states, logits = run(model, mel)
    wanted = GOLDEN[f"{FILES[name]}logits"]
    assert np.std(GOLDEN["states"]) > 0.1 and np.std(wanted) > 0.1
    assert_close(states[0], GOLDEN[f"{FILES[name]}states"], 1e-4)
    assert_close(logits[0, :, : wanted.shape[1]], wanted, 1e-4)
    assert whisper.tokenizer.encode(TEXT["texts"][0]) == TEXT["tiktoken"][0]


@pytest.mark.parametrize("name", VOCABULARIES)
def test_ids_of_texts(name, tmp_path):
    tokens = VOCABULARIES[name](stored(name, tmp_path))
    tokenizer = make_tokenizer(tokens, len(tokens) + 99 + 1509)
    form = name.removeprefix("small.")
    for text, ids in zip(TEXT["texts"], TEXT[form], strict=True):
        assert tokenizer.encode(text) == ids
        assert tokenizer.decode(ids) == text
    assert tokenizer.opening("translate", "French", "predict") == TEXT["opening"]
    assert tokenizer.timestamps.start == TEXT["timestamps"]
    assert list(tokenizer.unspoken) == TEXT["unspoken"]
    words = tokenizer.words(tokenizer.encode(TEXT["texts"][1]), "en")
    assert [word.text for word in words] == TEXT["words"]
