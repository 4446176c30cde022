"""`simuljax evaluate` of offline runs under policies, of a CAAT, and of systems of the papers."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from data_pipelines.corpora import Manifest
from experiments.nguyen2021 import multi30k as nguyen_multi30k
from experiments.nguyen2021 import recipe as nguyen
from experiments.papi2022 import multi30k as papi_multi30k
from experiments.papi2022 import recipe as papi
from simuljax.cli import main as cli
from simuljax.config.evaluation import Evaluation
from simuljax.config.model import Monotonic, SpeechConfig
from simuljax.eval import Record, read_records
from simuljax.runs.evaluate import evaluate
from tests.helpers import models
from tests.helpers.corpora import build, write_hums
from tests.helpers.grids import trained, write_untrained
from tests.written_runs import BINS, PIECES, experiment_of, write_files, write_run

pytestmark = pytest.mark.slow

SHORT: dict[str, Any] = {"frames": 8_000, "length_ratio": 0.4, "length_constant": 4}
# One for each way in which an evaluation listens: by words of a CTC head, after a first wait, and
# again from the start.
POLICIES = {
    "wait-k ctc": {"k": 1, "units": "ctc", "convention": "stacl", "avoid_eos_while_reading": True},
    "fixed-steps": {"first_ms": 500, "step_ms": 150, "tokens": 1},
    "local-agreement beam": {"beam": 2, "read_ms": 400},
}
CTC = SpeechConfig(layers=2, shared=1, channels=12, ctc_after=1)


@pytest.fixture(scope="module")
def hums(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("policies")
    root = write_hums(place / "hums", {"train": 1, "test": 4})
    return build(Manifest(), root, place / "prepared").directory


@pytest.fixture(scope="module")
def offline(hums) -> Path:
    run, monotonic = hums.parent / "offline", Monotonic(policy="offline")
    return write_run(run, corpus=hums, seed=8, monotonic=monotonic, speech=CTC)


@pytest.fixture(scope="module")
def caat(hums) -> Path:
    sizes = {"source_vocabulary": PIECES.size, "target_vocabulary": PIECES.size, "features": BINS}
    model = models.caat(**sizes)
    config = experiment_of(hums.parent / "caat", model.config, hums)
    return write_files(config, models.caat_parameters(model)["params"], {})


def played(chosen: Evaluation, **live: Any) -> tuple[list[Record], list[Record]]:
    """The records of an evaluation in batches and of the same one live."""
    other = chosen.but(mode="live", repeats=1, **live)
    evaluate(chosen)
    evaluate(other)
    return read_records(chosen.folder), read_records(other.folder)


def assert_same(batches: list[Record], live: list[Record]) -> None:
    early = 0
    for one, other in zip(batches, live, strict=False):
        assert (one.prediction, one.delays) == (other.prediction, other.delays)
        early += sum(delay < one.source_length - 1 for delay in one.delays)
    assert early > 3, "nothing was written before the end: this shows little"


@pytest.mark.parametrize("name", POLICIES)
def test_in_batches_and_live(offline, name):
    chosen = Evaluation.of(run=offline, policy=name.split()[0], **SHORT, **POLICIES[name])
    assert_same(*played(chosen, first=3))


def test_on_the_command_line(offline, capsys):
    given = ["--policy", "alignatt", "--branch", "text", "--sweep", "last_frames=1,3"]
    cli.main(["evaluate", str(offline), *given, "--force-finish", "--length-ratio", "0.4"])
    assert "alignatt-f3-finish-ratio0.4" in capsys.readouterr().out


def test_a_caat_in_batches_and_live(caat):
    chosen = Evaluation.of(run=caat, inside=2, **SHORT)
    assert_same(*played(chosen, first=3))


def test_a_caat_is_an_offline_model_too(caat):
    chosen = Evaluation.of(run=caat, first=2, **SHORT)
    steps = {"policy": "fixed-steps", "first_ms": 640, "step_ms": 640, "tokens": 2}
    for other in (chosen.but(mode="offline", beam=2), chosen.but(**steps)):
        evaluate(other)
        assert any(record.prediction for record in read_records(other.folder))


GRIDS = {
    "papi": papi.grids(dataclasses.replace(papi_multi30k.RECIPE, distilled=Path("distilled"))),
    "nguyen": nguyen.grids(nguyen_multi30k.RECIPE),
}


@pytest.mark.parametrize(
    ("paper", "grid", "variant", "index", "is_early"),
    [
        ("papi", "figure_4", "conformer_adaptive_k5_kd", 0, True),
        ("nguyen", "table", "characters", 1, False),  # BLSTM and LSTM, beam 10
        ("nguyen", "table", "characters", 2, True),
    ],
)
def test_systems_of_papers(hums, paper, grid, variant, index, is_early):
    """Encoders and decoders that no other test evaluates, as their grids ask for."""
    grid, run = GRIDS[paper][grid], hums.parent / variant
    if not run.exists():
        write_untrained(run, trained(grid)[variant], hums)
    evaluate(way := dataclasses.replace(grid.evaluations_of(variant)[index], run=run, frames=2_000))
    records = read_records(way.folder)
    assert len(records) == 4
    assert is_early == any(delay < r.source_length for r in records for delay in r.delays)
