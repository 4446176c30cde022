"""Checkpoints of fairseq fill what they fit; what else they hold is never run."""

import dataclasses
import re
from pathlib import Path

import jax
import numpy as np
import pytest

from simuljax.config.experiment import InitFrom
from simuljax.config.fields import ConfigError
from simuljax.config.model import SpeechConfig, TextConfig
from simuljax.models.fairseq import load_fairseq
from simuljax.models.parameters import by_path, shapes
from simuljax.models.tensor_file import WeightsError
from simuljax.runs.init_from import open_donor, table, transfer
from tests.models.whisper.small import Call, Global, norm, torch_bytes
from tests.train import small

WIDTH, HIDDEN = 16, 32  # of small.translator
MODEL = dataclasses.replace(
    small.translator(),
    speech=SpeechConfig(layers=4, shared=2, channels=12, ctc_after=1),
    text=TextConfig(layers=3),
    decoder_layers=2,
)


def linear(name, out, into):
    return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}


def stack(prefix, count, *attentions):
    shapes = norm(f"{prefix}.layer_norm", WIDTH)
    for layer in (f"{prefix}.layers.{i}" for i in range(count)):
        for attention in attentions:
            for part in ("k_proj", "v_proj", "q_proj", "out_proj"):
                shapes |= linear(f"{layer}.{attention}.{part}", WIDTH, WIDTH)
            shapes |= norm(f"{layer}.{attention}_layer_norm", WIDTH)
        shapes |= linear(f"{layer}.fc1", HIDDEN, WIDTH) | linear(f"{layer}.fc2", WIDTH, HIDDEN)
        shapes |= norm(f"{layer}.final_layer_norm", WIDTH)
    return shapes


def speech(prefix, layers=4, channels=12):
    convolution = f"{prefix}.subsample.conv_layers"
    own = stack(prefix, layers, "self_attn")
    return {name.replace(".layers.", ".transformer_layers."): own[name] for name in own} | {
        f"{convolution}.0.weight": (channels, 80, 5),
        f"{convolution}.0.bias": (channels,),
        f"{convolution}.1.weight": (2 * WIDTH, channels // 2, 5),
        f"{convolution}.1.bias": (2 * WIDTH,),
        f"{prefix}.embed_positions._float_tensor": (1,),
    }


def text(prefix, words=small.SOURCE):
    return stack(prefix, 3, "self_attn") | {f"{prefix}.embed_tokens.weight": (words, WIDTH)}


def decoder(prefix, layers=2):
    words = ("embed_tokens", "output_projection")
    own = {f"{prefix}.{name}.weight": (small.TARGET, WIDTH) for name in words}
    return stack(prefix, layers, "self_attn", "encoder_attn") | own


def filled_at_random(shapes):
    """A state-dict with fairseq's names."""
    random = np.random.default_rng(0)
    return {name: random.normal(size=s).astype(np.float32) for name, s in shapes.items()}


def joint():
    shapes = speech("encoder.spch_encoder.encoder") | text("encoder.text_encoder")
    shapes |= decoder("decoder.spch_decoder") | decoder("decoder.text_decoder")
    made = filled_at_random(shapes | {"encoder.spch_encoder.eos_emb": (1, 80)})
    for name in made:  # the upper layers of both encoders are the same tensors
        if match := re.match(r"(encoder.text_encoder.layers)\.([12])(.*)", name):
            upper = "encoder.spch_encoder.encoder.transformer_layers"
            made[name] = made[f"{upper}.{int(match[2]) + 1}{match[3]}"]
    return made


def save(path: Path, tensors: dict, **options) -> Path:
    """With what a trainer stores beside the model: options, histories, the optimiser."""
    options_seen = Call(Global("argparse", "Namespace"))
    counts = Call(Global("numpy.core.multiarray", "scalar"), Global("numpy", "dtype"), b"1234")
    extra = {"args": options_seen, "extra_state": {"best": counts, "epoch": 3}, **options}
    path.write_bytes(torch_bytes(tensors, entry="model", extra=extra))
    return path


@pytest.fixture(scope="module")
def own():
    return shapes(MODEL)[0]


def filled(path: Path, own, **entry):
    """The parameters after the transfer, and its report; those not taken are 0."""
    init = InitFrom(run=Path(f"fairseq:{path}"), **entry)
    donor = open_donor(init, None, by_path(own))()  # pyright: ignore[reportArgumentType]
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), own)
    params, report = transfer(zeros, donor, init.rules)
    return by_path(params), report


def paths(report, kind: str) -> set[str]:
    return {line.split(" ")[0] for line in report[kind]}


def test_a_joint_model_is_taken_whole_but_for_words(tmp_path, own):
    tensors = joint()
    params, report = filled(save(tmp_path / "joint.pt", tensors), own)
    left = {"decoder/embedding/embedding", "text/embedding/embedding", "decoder/layer/cross/bias"}
    assert paths(report, "missing") == left | {"speech/ctc/kernel", "speech/ctc/bias"}
    assert not report["wrong_shape"] and not report["no_rule"]
    unused = paths(report, "unused")
    assert "fairseq/encoder.spch_encoder.eos_emb" in unused
    assert "fairseq/decoder.text_decoder.layers.0.fc1.weight" in unused
    speech, decoder = "encoder.spch_encoder.encoder", "decoder.spch_decoder"
    upper, text = f"{speech}.transformer_layers", "encoder.text_encoder"
    for path, layer, name in [
        ("speech/below/layer/heads/query/kernel", 0, f"{upper}.0.self_attn.q_proj"),
        ("speech/above/layer/feed_forward/inner/kernel", 0, f"{upper}.1.fc1"),
        ("shared/layer/feed_forward/outer/kernel", 1, f"{upper}.3.fc2"),
        ("text/stack/layer/heads/out/kernel", 0, f"{text}.layers.0.self_attn.out_proj"),
        ("decoder/layer/heads/key/kernel", 1, f"{decoder}.layers.1.self_attn.k_proj"),
        ("decoder/layer/cross/heads/value/kernel", 1, f"{decoder}.layers.1.encoder_attn.v_proj"),
        ("decoder/layer/cross/decide_query/kernel", 0, f"{decoder}.layers.0.encoder_attn.q_proj"),
    ]:
        np.testing.assert_array_equal(params[path][layer], tensors[f"{name}.weight"].T, path)
        bias = params[path.replace("kernel", "bias")][layer]
        np.testing.assert_array_equal(bias, tensors[f"{name}.bias"])
    for path, name in [
        ("decoder/layer/self_norm/scale", f"{decoder}.layers.0.self_attn_layer_norm.weight"),
        ("decoder/layer/cross_norm/bias", f"{decoder}.layers.0.encoder_attn_layer_norm.bias"),
        ("decoder/layer/forward_norm/scale", f"{decoder}.layers.0.final_layer_norm.weight"),
        ("shared/layer/attention_norm/scale", f"{upper}.2.self_attn_layer_norm.weight"),
    ]:
        np.testing.assert_array_equal(params[path][0], tensors[name], path)
    kernel = params["speech/subsampling/conv1/kernel"]
    conv = tensors[f"{speech}.subsample.conv_layers.1.weight"]
    np.testing.assert_array_equal(kernel, conv.transpose(2, 1, 0))
    np.testing.assert_array_equal(
        params["text/norm/bias"], tensors["encoder.text_encoder.layer_norm.bias"]
    )
    assert table(report).startswith("transferred")


def test_embeddings_are_taken_where_a_rule_names_them(tmp_path, own):
    tensors = joint()
    params, report = filled(save(tmp_path / "joint.pt", tensors), own, rules=("text", "decoder"))
    words = tensors["encoder.text_encoder.embed_tokens.weight"]
    np.testing.assert_array_equal(params["text/embedding/embedding"], words)
    assert "shared/layer/heads/key/bias" in paths(report, "no_rule")


def test_a_text_translator_and_a_recogniser_fill_their_parts(tmp_path, own):
    mt = filled_at_random(text("encoder", words=999) | decoder("decoder"))
    params, report = filled(save(tmp_path / "mt.pt", mt), own)
    taken = paths(report, "transferred")
    assert {path.split("/")[0] for path in taken} == {"text", "shared", "decoder"}
    wanted = mt["encoder.layers.2.fc1.weight"].T
    np.testing.assert_array_equal(params["shared/layer/feed_forward/inner/kernel"][1], wanted)
    asr = filled_at_random(speech("encoder", 12, channels=99) | decoder("decoder", layers=6))
    params, report = filled(save(tmp_path / "asr.pt", asr), own)
    assert paths(report, "wrong_shape") == {
        "speech/subsampling/conv0/kernel",
        "speech/subsampling/conv0/bias",
        "speech/subsampling/conv1/kernel",
    }
    wanted = asr["encoder.transformer_layers.11.fc1.weight"].T
    np.testing.assert_array_equal(params["shared/layer/feed_forward/inner/kernel"][1], wanted)
    assert any("(the first 2 of 6 layers)" in line for line in report["transferred"])


def test_no_code_of_the_file_is_run(tmp_path, own):
    struck = tmp_path / "struck"
    evil = Call(Global("os", "system"), f"touch {struck}")
    path = save(tmp_path / "evil.pt", joint(), cfg=evil)
    _, report = filled(path, own)
    assert report["transferred"] and not struck.exists()


def test_other_and_damaged_files_get_a_sentence(tmp_path, own):
    paths_of = by_path(own)
    other = save(tmp_path / "other.pt", {"bert.embed.weight": np.zeros((3, 3), np.float32)})
    with pytest.raises(WeightsError, match=r"no weights of fairseq.*bert\.embed"):
        load_fairseq(other, paths_of)
    (tmp_path / "old.pt").write_bytes(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")
    with pytest.raises(WeightsError, match=r"PyTorch 1\.6"):
        load_fairseq(tmp_path / "old.pt", paths_of)
    whole = save(tmp_path / "cut.pt", joint()).read_bytes()
    (tmp_path / "cut.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WeightsError, match="copy the file again"):
        load_fairseq(tmp_path / "cut.pt", paths_of)
    gap = {n: t for n, t in joint().items() if "text_encoder.layers.1" not in n}
    with pytest.raises(WeightsError, match=r"layers under encoder\.text_encoder\.layers"):
        load_fairseq(save(tmp_path / "gap.pt", gap), paths_of)
    for part, tensors in {"encoder": joint(), "decoder": joint()}.items():
        late = {n: t for n, t in tensors.items() if not re.match(rf"{part}\S*r\.layer_norm", n)}
        with pytest.raises(WeightsError, match=rf"{part}\.\S*\.layer_norm .*normalize_before"):
            load_fairseq(save(tmp_path / "late.pt", late), paths_of)
    wide = {n: np.tile(t, 2) for n, t in filled_at_random(text("encoder")).items()}
    with pytest.raises(ConfigError, match="no parameter of a size"):
        filled(save(tmp_path / "wide.pt", wide), own)
