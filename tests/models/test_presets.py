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


def sized(name: str) -> ModelConfig:
    model: ModelConfig = getattr(presets, name)()
    return dataclasses.replace(model, source_vocabulary=10_000, target_vocabulary=10_000)


@pytest.mark.parametrize("name", SIZES)
def test_has_its_size_and_the_docs_say_so(name):
    assert parameter_count(sized(name)) == SIZES[name]
    assert f"| `{name}` |" in DOCS.read_text()
    assert f"{SIZES[name]:,}" in DOCS.read_text()


def test_the_tied_layers_are_counted_once():
    width = sized("dar").width.model
    text_only = 10_000 * width + 2 * width  # embeddings and the last norm of the text encoder
    assert SIZES["dar"] - SIZES["mma"] == text_only


def test_speech_only_leaves_no_text():
    alone = presets.speech_only(presets.dar())
    assert alone.text is None
    assert alone.speech is not None
    assert alone.speech.shared == 0


def test_a_recogniser_has_its_head_above_its_own_layers():
    recogniser = presets.recogniser(presets.dar())
    assert recogniser.monotonic.policy == "offline"
    assert recogniser.speech is not None
    assert recogniser.speech.ctc_after == 6
