"""Papi's models have the sizes that the paper gives, with the paper's vocabularies."""

import dataclasses

import pytest

from simuljax.config.model import ModelConfig
from simuljax.models import presets
from simuljax.serve.run import parameter_count

SOURCE, TARGET = 5_000, 8_000  # pieces
SIZES = {"papi_transformer": 32_357_513, "papi_conformer": 35_631_753}


def sized(name: str, source: int = SOURCE, target: int = TARGET) -> ModelConfig:
    model: ModelConfig = getattr(presets, name)()
    return dataclasses.replace(model, source_vocabulary=source, target_vocabulary=target)


@pytest.mark.parametrize(
    ("name", "millions"), [("papi_transformer", 32.4), ("papi_conformer", 35.6)]
)
def test_has_the_size_of_the_paper(name, millions):
    count = parameter_count(sized(name))
    assert count == SIZES[name]
    assert round(count / 1e6, 1) == millions


def test_the_conformer_is_what_its_parts_are():
    d, encoder, decoder, kernel = 256, 1024, 2048, 31
    half = (d + 1) * encoder + (encoder + 1) * d + 2 * d
    attention = 4 * (d + 1) * d + d * d + 2 * d + 2 * d
    convolution = 2 * d * d + kernel * d + 2 * d + d * d + 2 * d
    layer = 2 * half + attention + convolution + 2 * d
    written = 8 * (d + 1) * d + (d + 1) * decoder + (decoder + 1) * d + 6 * d
    subsampling = (80 * 5 + 1) * 1024 + (512 * 5 + 1) * 512
    ends = (d + 1) * (SOURCE + 1) + 2 * TARGET * d + 2 * d
    assert 12 * layer + 6 * written + subsampling + ends == SIZES["papi_conformer"]


def test_the_teacher_has_its_size_with_vocabularies_of_seventeen_thousand():
    """The paper gives 212M and no vocabulary; layers alone are 176M."""
    count, pieces = parameter_count(sized("papi_teacher", 17_400, 17_400)), 2 * 17_400
    assert count - pieces * 1024 == 176_361_472
    assert round(count / 1e6) == 212


@pytest.mark.parametrize("name", ["papi_transformer", "papi_conformer", "small_conformer"])
def test_hears_words_and_waits_for_the_end(name):
    model = sized(name)
    assert model.speech is not None
    assert model.speech.ctc_after is not None
    assert model.monotonic.policy == "offline"
    assert model.text is None


def test_the_small_one_is_small():
    assert parameter_count(sized("small_conformer", 1_000, 1_000)) == 17_239_017
