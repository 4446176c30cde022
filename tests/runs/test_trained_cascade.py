"""Runs that were really trained, if little: a cascade of two of them, and one as a teacher."""

import dataclasses
from pathlib import Path

import pytest

from data_pipelines.augmentation import Transform
from data_pipelines.corpora import Phrasebook
from data_pipelines.dataset import decode
from data_pipelines.prepare import Preparation, prepare
from experiments.zaidi2022.recipe import ALONE, with_objective
from simuljax.cli import main as cli
from simuljax.eval import read_records
from simuljax.models import presets
from simuljax.runs.train import train
from simuljax.serve import cascade
from simuljax.serve import translator as live
from tests.helpers.corpora import stored
from tests.helpers.experiments import experiment

pytestmark = pytest.mark.slow
pytest.importorskip("espeakng_loader", reason="needs `pip install 'simuljax[speech]'`")
PHRASES = Phrasebook(train=24, valid=8, test=6)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A corpus, a recogniser and a translator of it."""
    place = tmp_path_factory.mktemp("trained")
    prepare(Preparation(corpus=PHRASES), None, place / "corpus", 1)
    base = experiment(place / "corpus", place / "mt")
    low = dataclasses.replace(base.data.target, lowercase=True)
    train(
        dataclasses.replace(
            base,
            run=place / "asr",
            data=dataclasses.replace(base.data, task="transcription", target=low),
            model=presets.speech_only(base.model),
            training=with_objective(base.training, ALONE),
        )
    )
    text = with_objective(base.training, dataclasses.replace(ALONE, translation=1.0))
    train(dataclasses.replace(base, model=presets.text_only(base.model), training=text))
    return place


def test_a_cascade_is_evaluated_by_the_command(place, capsys):
    command = ["evaluate", str(place / "asr"), "--then", str(place / "mt"), "--frames", "8000"]
    cli.main(command)
    assert "test-speech-streamed-then-mt" in capsys.readouterr().out
    (folder,) = (place / "asr" / "eval").glob("test-speech-streamed-then-mt-*")
    records = read_records(folder)
    assert len(records) == 6
    for record in records:
        assert all(0 < delay <= record.source_length + 1e-3 for delay in record.delays)
        assert len(record.delays) == len(record.prediction.split())
    assert cascade.load(place / "asr", place / "mt").recogniser.run.target.config.lowercase


def test_a_trained_run_teaches(place):
    transform = Transform(distil=str(place / "mt"), distil_mode="join")
    made = prepare(Preparation(corpus=PHRASES, transform=transform), None, place / "taught", 1)
    translator = live.load(place / "mt")
    said = [decode(record).utterance for record in stored(made["train"])]
    assert len(said) == 48
    steps = "+".join(map(str, translator.steps))
    for utterance in said[24:]:
        origin = f"distilled by {place / 'mt'} (updates {steps}, beam 5)"
        assert utterance.translation_origin == origin
        assert utterance.translation == translator.translate_text(utterance.transcript, beam=5)
