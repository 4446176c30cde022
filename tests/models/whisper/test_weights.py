"""Three formats, one model; a file that is not whole, or not what it says, is refused by byte."""

import base64
import json
import pickle
import zipfile

import jax
import numpy as np
import pytest

from simuljax.models.whisper import WeightsError, load
from simuljax.models.whisper.config import Dimensions
from simuljax.models.whisper.weights import dimensions_of, read_checkpoint
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


@pytest.mark.parametrize("suffix", WRITERS)
def test_every_format_holds_the_same(tmp_path, suffix):
    checkpoint = read_checkpoint(save(tmp_path, suffix))
    assert checkpoint.tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        np.testing.assert_array_equal(checkpoint.tensors[name], tensor, name)
    assert dimensions_of(checkpoint) == SIZES


def test_every_format_gives_the_same_parameters(tmp_path, vocabulary):
    models = [load(save(tmp_path, suffix)).model for suffix in WRITERS]
    for model in models[1:]:
        assert model.config.dimensions == models[0].config.dimensions
        jax.tree.map(np.testing.assert_array_equal, model.params, models[0].params)
    kernel = models[0].params["decoder"]["layers_1"]["cross"]["query"]["kernel"]
    original = TENSORS["decoder.blocks.1.cross_attn.query.weight"]
    np.testing.assert_array_equal(kernel, original.T.astype(np.float32))
    assert kernel.dtype == np.float32
    layers = models[0].params["encoder"]["layers"]["self_norm"]["scale"]
    np.testing.assert_array_equal(layers[0], TENSORS["encoder.blocks.0.attn_ln.weight"])


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
    assert byte <= size


def test_what_is_no_file_of_weights_is_refused(tmp_path):
    refused(tmp_path / "a", b"RIFF not a model at all", "neither a .pt, safetensors nor ggml")
    refused(tmp_path / "b", b"", "empty")
    with pytest.raises(WeightsError, match="no such file"):
        load(tmp_path / "missing.pt")
    (tmp_path / "none").mkdir()
    with pytest.raises(WeightsError, match="directory has none of"):
        load(tmp_path / "none")


def test_wrong_ggml_is_refused(tmp_path):
    data = bytearray(ggml_bytes(TENSORS))
    name = "decoder.token_embedding.weight"
    quantised = ggml_bytes(TENSORS, kinds={name: 8})
    refused(tmp_path / "a", quantised, rf"{name}.*quantised \(type 8\)")
    count = 56 + 4 * 80 * 201  # after the sizes and the filters
    data[count : count + 4] = b"\xff\xff\xff\x7f"
    assert refused(tmp_path / "b", bytes(data), "vocabulary is 2147483647") == count


def test_wrong_safetensors_are_refused(tmp_path):
    whole = safetensors_bytes(TENSORS)
    refused(tmp_path / "a", whole.replace(b'"F16"', b'"I16"', 1), "not a tensor of floats")
    refused(tmp_path / "b", whole.replace(b"[64, 80, 3]", b"[64, 80, 4]", 1), "bytes, not")
    refused(tmp_path / "c", whole.replace(b'{"__', b'{{"_', 1), "not JSON")
    past = whole.replace(b'"data_offsets": [0,', b'"data_offsets": [9,', 1)
    refused(tmp_path / "d", past, "bytes, not")


def test_another_model_is_refused(tmp_path):
    fewer = {name: t for name, t in TENSORS.items() if name != "decoder.ln.bias"}
    refused(tmp_path / "a", ggml_bytes(fewer), r"missing: \['decoder.ln.bias'\]")
    more = TENSORS | {"adapter.weight": TENSORS["decoder.ln.bias"]}
    refused(tmp_path / "b", ggml_bytes(more), r"of no use: \['adapter.weight'\]")
    wrong = TENSORS | {"decoder.ln.bias": np.zeros(7, np.float32)}
    refused(tmp_path / "c", ggml_bytes(wrong), r"decoder.ln.bias gives a parameter \(7,\)")
    other = safetensors_bytes({"encoder.x": np.zeros(3, np.float32)})
    refused(tmp_path / "d", other, "not weights of")


@pytest.mark.parametrize("name", [("os", "system"), ("builtins", "eval"), ("torch", "load")])
def test_a_pickle_that_asks_for_more_is_refused_and_not_run(tmp_path, name):
    trace = tmp_path / "executed"
    command = f"touch {trace}" if name[0] == "os" else f"open({str(trace)!r}, 'w')"
    data = torch_bytes(TENSORS, extra={"evil": Call(Global(*name), command)})
    refused(tmp_path / "evil.pt", data, rf"asks for {name[0]}\.{name[1]}")
    assert not trace.exists()


def test_the_evil_pickle_would_run(tmp_path):
    """The negative control: what the reader refuses does something elsewhere."""
    trace = tmp_path / "executed"
    path = tmp_path / "evil.pt"
    path.write_bytes(torch_bytes({}, extra={"e": Call(Global("os", "system"), f"touch {trace}")}))
    pickle.loads(zipfile.ZipFile(path).read("archive/data.pkl"))
    assert trace.exists()


def test_damaged_numbers_of_a_pt_are_refused(tmp_path):
    data = bytearray(torch_bytes(TENSORS))
    place = data.index(TENSORS["encoder.conv2.weight"].tobytes())
    data[place] ^= 1
    refused(tmp_path / "a.pt", bytes(data), "another checksum")
    packed = torch_bytes(TENSORS, compression=zipfile.ZIP_DEFLATED)
    refused(tmp_path / "b.pt", packed, "is compressed")


def test_a_tensor_beyond_its_storage_is_refused(tmp_path):
    whole = {"encoder.conv1.bias": np.zeros(4, np.float32)}
    beyond = {"encoder.conv1.bias": np.lib.stride_tricks.as_strided(np.zeros(4, "f4"), (4,), (8,))}
    assert read_checkpoint(save(tmp_path, "pt", whole)).tensors
    refused(tmp_path / "a.pt", torch_bytes(beyond), "storage does not hold")


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
