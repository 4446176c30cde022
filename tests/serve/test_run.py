"""What does not belong to a run is noticed when it is opened."""

import json
from pathlib import Path

import pytest

from simuljax.serve.run import RunError, open_run
from simuljax.text import VocabularyConfig, learn
from simuljax.text.vocabulary import TARGET_FILE
from tests.written_runs import BINS, WORDS, write_run


@pytest.fixture
def run(tmp_path) -> Path:
    return write_run(tmp_path / "run")


def change_features(run: Path, **changes: float) -> None:
    path = run / "features.json"
    record = json.loads(path.read_text())
    record["features"]["filterbank"] |= changes
    path.write_text(json.dumps(record))


def test_features_that_it_was_not_trained_on_are_refused(run):
    assert open_run(run).front_end.features.dims == BINS
    change_features(run, preemphasis=0.5, high_hz=4000.0)
    with pytest.raises(RunError, match=r"features\.json .*preemphasis was 0\.97 and is 0\.5"):
        open_run(run)


def test_a_vocabulary_of_another_run_is_refused(run):
    learn(WORDS, VocabularyConfig(kind="characters", size=30)).save(run / TARGET_FILE)
    with pytest.raises(RunError, match=r"vocab\.target\.json has \d+ pieces .* trained with"):
        open_run(run)
