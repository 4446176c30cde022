"""Three formats, one model; damaged files are refused by byte; exports; original files."""

import base64
import gzip
import json
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.errors import SimuljaxError
from simuljax.models.whisper import WeightsError, load
from simuljax.models.whisper.config import Dimensions
from simuljax.models.whisper.export import export
from simuljax.models.whisper.model import nothing_written
from simuljax.models.whisper.spectrogram import log_mel, spectrogram
from simuljax.models.whisper.tokenizer import (
    common_tokens,
    make_tokenizer,
    read_tiktoken,
    read_tokenizer_json,
)
from simuljax.models.whisper.weights import SINUSOIDS, read_checkpoint
from simuljax.nn.layers import sinusoids
from tests.models.whisper.small import (
    TOKENIZER,
    TOKENS,
    Call,
    Global,
    ggml_bytes,
    random_tensors,
    safetensors_bytes,
    torch_bytes,
)
from tests.oracles.checks import assert_close

SIZES = Dimensions(
    width=64,
    audio_layers=1,
    text_layers=2,
    vocabulary=TOKENIZER.size,
    audio_positions=6,
    text_positions=9,
)
TENSORS = random_tensors(SIZES)
TENSORS["encoder.positional_embedding"] = TENSORS["encoder.positional_embedding"].astype("f4")
WRITERS = {"pt": torch_bytes, "safetensors": safetensors_bytes, "bin": ggml_bytes}


@pytest.fixture
def vocabulary(tmp_path):
    path = tmp_path / "vocab.json"
    # GPT-2's way to write bytes as characters, for those that stand for themselves and others.
    shown = {b: chr(b) for b in [*range(33, 127), *range(161, 173), *range(174, 256)]}
    others = [b for b in range(256) if b not in shown]
    shown |= {b: chr(256 + k) for k, b in enumerate(others)}
    words = {"".join(shown[b] for b in token): i for i, token in enumerate(TOKENS)}
    path.write_text(json.dumps(words | {"<|endoftext|>": len(TOKENS)}))
    return path


def save(tmp_path, suffix, tensors=TENSORS, **options):
    path = tmp_path / f"weights.{suffix}"
    path.write_bytes(WRITERS[suffix](tensors, **options))
    return path


def test_in_bfloat16_norms_and_positions_stay_exact(tmp_path):
    params = load(save(tmp_path, "bin"), dtype="bfloat16").model.params
    assert params["decoder"]["layers_0"]["forward"]["inner"]["bias"].dtype == jax.numpy.bfloat16
    assert params["decoder"]["norm"]["scale"].dtype == np.float32
    assert params["decoder"]["positions"].dtype == np.float32


def test_a_directory_with_an_index(tmp_path, vocabulary):
    halves = np.array_split(list(TENSORS), 2)
    parts = {f"model-{k}.safetensors": names for k, names in enumerate(halves)}
    for part, names in parts.items():
        (tmp_path / part).write_bytes(safetensors_bytes({n: TENSORS[n] for n in names}))
    where = {str(n): part for part, names in parts.items() for n in names}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    (tmp_path / "generation_config.json").write_text('{"alignment_heads": [[1, 0]]}')
    whisper = load(tmp_path)
    assert whisper.config.alignment_heads == ((1, 0),)
    assert whisper.tokenizer.encode(" the") == TOKENIZER.encode(" the")


def refused(path, data, problem):
    path.write_bytes(data)
    with pytest.raises(WeightsError, match=problem) as caught:
        checkpoint = read_checkpoint(path)
        load(checkpoint.path)
    assert str(path) in str(caught.value) and "byte" in str(caught.value)
    return caught.value.byte


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("share", [0.0, 1e-5, 0.1, 0.9999])
def test_a_truncated_file_is_refused(tmp_path, suffix, share):
    data = WRITERS[suffix](TENSORS)
    size = int(len(data) * share)
    byte = refused(tmp_path / f"cut.{suffix}", data[:size], "cut")
    assert byte is not None and byte <= size


def test_paths_without_weights_are_refused(tmp_path):
    with pytest.raises(WeightsError, match="no such file"):
        load(tmp_path / "missing.pt")
    with pytest.raises(WeightsError, match="directory has none of"):
        load(tmp_path)


def replaced(data, old, new):
    assert old in data
    return data.replace(old, new, 1)


BIAS, NAME = TENSORS["decoder.ln.bias"], "decoder.token_embedding.weight"
GGML, SAFE, TORCH = (write(TENSORS) for write in (ggml_bytes, safetensors_bytes, torch_bytes))
VOCABULARY_AT = 56 + 4 * 80 * 201  # after the sizes and the filters
ASKED = {"evil": Call(Global("torch", "load"), "file")}
BEYOND = np.lib.stride_tricks.as_strided(np.zeros(4, "f4"), (4,), (8,))
FLIPPED = TENSORS["encoder.conv2.weight"].tobytes()
WRONG = {
    "no weights": (b"RIFF not a model at all", "neither a .pt, safetensors nor ggml"),
    "empty": (b"", "empty"),
    "quantised": (ggml_bytes(TENSORS, kinds={NAME: 8}), rf"{NAME}.*quantised \(type 8\)"),
    "vocabulary": (
        GGML[:VOCABULARY_AT] + b"\xff\xff\xff\x7f" + GGML[VOCABULARY_AT + 4 :],
        f"byte {VOCABULARY_AT}: .*vocabulary is 2147483647",
    ),
    "type": (replaced(SAFE, b'"F16"', b'"I16"'), "not a tensor of floats"),
    "shape": (replaced(SAFE, b"[64, 80, 3]", b"[64, 80, 4]"), "bytes, not"),
    "no JSON": (replaced(SAFE, b'{"__', b'{{"_'), "not JSON"),
    "offsets": (replaced(SAFE, b'"data_offsets": [0,', b'"data_offsets": [9,'), "bytes, not"),
    "missing": (
        ggml_bytes({name: t for name, t in TENSORS.items() if name != "decoder.ln.bias"}),
        r"missing: \['decoder.ln.bias'\]",
    ),
    "strange": (
        ggml_bytes(TENSORS | {"adapter.weight": BIAS}),
        r"of no use: \['adapter.weight'\]",
    ),
    "parameter": (
        ggml_bytes(TENSORS | {"decoder.ln.bias": np.zeros(7, np.float32)}),
        r"decoder.ln.bias gives a parameter \(7,\)",
    ),
    "other model": (safetensors_bytes({"encoder.x": BIAS}), "not weights of"),
    "checksum": (
        replaced(TORCH, FLIPPED, bytes([FLIPPED[0] ^ 1]) + FLIPPED[1:]),
        "Bad CRC-32 for file 'archive/data/",
    ),
    "compressed": (torch_bytes(TENSORS, compression=zipfile.ZIP_DEFLATED), "compressed"),
    "beyond storage": (torch_bytes({"encoder.conv1.bias": BEYOND}), "storage does not hold"),
    "pickle": (torch_bytes(TENSORS, extra=ASKED), r"asks for torch\.load"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_said(tmp_path, kind):
    refused(tmp_path / "weights", *WRONG[kind])


def test_code_in_a_pickle_is_refused_and_not_run(tmp_path):
    """The negative control: Python's own unpickler runs it."""
    trace, path = tmp_path / "executed", tmp_path / "evil.pt"
    extra = {"evil": Call(Global("os", "system"), f"touch {trace}")}
    refused(path, torch_bytes(TENSORS, extra=extra), r"asks for os\.system")
    assert not trace.exists()
    path.write_bytes(torch_bytes({}, extra=extra))
    pickle.loads(zipfile.ZipFile(path).read("archive/data.pkl"))
    assert trace.exists()


def test_weights_without_a_vocabulary(tmp_path):
    with pytest.raises(WeightsError, match=r"give one with vocabulary="):
        load(save(tmp_path, "pt"))
    with pytest.raises(ValueError, match="languages would be left"):
        path = tmp_path / "few.tiktoken"
        path.write_text("".join(f"{_base64(bytes([i]))} {i}\n" for i in range(256)))
        load(save(tmp_path, "pt"), vocabulary=path)


def _base64(token):
    return base64.b64encode(token).decode()


def test_the_name_of_a_model_is_checked(tmp_path):
    with pytest.raises(ValueError, match="'huge' is not a published Whisper"):
        load(save(tmp_path, "bin"), name="huge")


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
    again = read_checkpoint(export(tmp_path / "cut", tmp_path / "again", dtype="int8")).tensors
    assert again.keys() == read_checkpoint(tmp_path / "cut").tensors.keys()
    for text in (" the inner thing", "い", " a <|endoftext|>"):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text and max(ids) < FEWER


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
        written = nothing_written(model.config, 1, prompt.shape[1])
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
