"""The papers' models have the papers' sizes; docs/models.md shows the same numbers."""

import dataclasses
from pathlib import Path

import pytest

from simuljax.config.model import ModelConfig
from simuljax.models import presets
from simuljax.serve.run import parameter_count

DOCS = Path(__file__).parents[2] / "docs" / "models.md"
# With 10,000 source and 10,000 target pieces.
SIZES = {
    "dar": 79_480_838,
    "mma": 74_359_814,
    "simul_mt": 57_532_422,
    "ma_conv_transformer": 30_325_766,
    "ma_s_transformer_base": 13_222_870,
    "ma_s_transformer_big": 40_534_230,
    "small": 14_276_355,
    "tiny": 3_323_521,
    "papi_transformer": 34_666_513,
    "papi_conformer": 37_940_753,
    "papi_teacher": 196_841_472,
    "small_conformer": 21_856_017,
    "nguyen": 187_279_056,
    "small_blstm": 15_102_960,
    "caat": 35_844_608,
    "small_caat": 12_899_328,
}
# With the vocabularies of the papers: Papi's 5k and 8k, Nguyen's characters, BPE400 and BPE2k. Papi
# gives 32.4M, 35.6M and, without a vocabulary, 212M for the teacher.
PUBLISHED = [
    ("papi_transformer", 5_000, 8_000, 32_357_513),
    ("papi_conformer", 5_000, 8_000, 35_631_753),
    ("papi_teacher", 17_400, 17_400, 211_996_672),
    ("small_conformer", 1_000, 1_000, 17_239_017),
    ("nguyen", 10_000, 100, 156_856_356),
    ("nguyen", 10_000, 400, 157_778_256),
    ("nguyen", 10_000, 2_000, 162_695_056),
]


def sized(name: str, source: int = 10_000, target: int = 10_000) -> ModelConfig:
    model: ModelConfig = getattr(presets, name)()
    return dataclasses.replace(model, source_vocabulary=source, target_vocabulary=target)


@pytest.mark.parametrize(
    "name", [n if n == "dar" else pytest.param(n, marks=pytest.mark.slow) for n in SIZES]
)
def test_has_its_size_and_the_docs_say_so(name):
    assert parameter_count(sized(name)) == SIZES[name]
    assert f"| `{name}` |" in DOCS.read_text()
    assert f"{SIZES[name]:,}" in DOCS.read_text()


@pytest.mark.parametrize(("name", "source", "target", "count"), PUBLISHED)
def test_has_the_size_of_the_paper(name, source, target, count):
    assert parameter_count(sized(name, source, target)) == count


def test_the_tied_layers_are_counted_once():
    width = sized("dar").width.model
    text_only = 10_000 * width + 2 * width  # embeddings and the last norm of the text encoder
    assert SIZES["dar"] - SIZES["mma"] == text_only


def test_papis_conformer_by_hand():
    d, encoder, decoder, kernel = 256, 1024, 2048, 31
    half = (d + 1) * encoder + (encoder + 1) * d + 2 * d
    attention = 4 * (d + 1) * d + d * d + 2 * d + 2 * d
    convolution = 2 * d * d + kernel * d + 2 * d + d * d + 2 * d
    layer = 2 * half + attention + convolution + 2 * d
    written = 8 * (d + 1) * d + (d + 1) * decoder + (decoder + 1) * d + 6 * d
    subsampling = (80 * 5 + 1) * 1024 + (512 * 5 + 1) * 512
    ends = (d + 1) * (5_000 + 1) + 2 * 8_000 * d + 2 * d
    assert 12 * layer + 6 * written + subsampling + ends == published("papi_conformer")


def test_nguyens_model_by_hand():
    """2 x (2 x conv), 5 x 2 directions of 1024, a map to 1024; attention, 2 x 1024, output."""
    conv = 9 * (64 + 64 * 64 + 64 * 128 + 128 * 128) + 2 * 64 + 2 * 128
    directions = [2 * 4 * 1024 * (below + 1024 + 1) for below in (21 * 128, *[2048] * 4)]
    encoder = conv + sum(directions) + (2048 + 1) * 1024
    attention = 2 * 1024 * 1024 + 2 * 1024
    lstms = sum(4 * 1024 * (below + 1024 + 1) for below in (2048, 1024))
    vocabulary = 400 * 1024 + 400 * (2048 + 1)
    assert encoder + attention + lstms + vocabulary == published("nguyen", 400)


def published(name: str, target: int = 8_000) -> int:
    return next(count for n, _, t, count in PUBLISHED if (n, t) == (name, target))


def test_a_recogniser_has_its_head_above_its_own_layers():
    recogniser = presets.recogniser(presets.dar())
    assert recogniser.monotonic.policy == "offline"
    assert recogniser.speech is not None and recogniser.speech.ctc_after == 6
