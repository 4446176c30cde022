"""The grids for one H200: how many runs, which of them are others' too, and what goes together."""

import dataclasses
from pathlib import Path

import pytest

from data_pipelines.prepared import SUMMARY
from experiments.ma2020 import alignment as ablation_alignment
from experiments.ma2020 import figures_2_to_4 as ablation_ma
from experiments.zaidi2022 import dar as ablation_dar
from experiments.zaidi2022 import decisions as ablation_decisions
from experiments.zaidi2022 import longer as ablation_longer
from experiments.zaidi2022 import mboshi as ablation_mboshi
from experiments.zaidi2022 import multi30k as zaidi_multi30k
from experiments.zaidi2022 import must_c as zaidi_must_c
from experiments.zaidi2022 import table_3 as ablation_zaidi
from simuljax.ablate.grid import Ablation, plan
from simuljax.ablate.scheduler import generation, groups

GRIDS = {
    "zaidi": ablation_zaidi.ABLATION,
    "alignment": ablation_alignment.ABLATION,
    "dar": ablation_dar.ABLATION,
    "decisions": ablation_decisions.ABLATION,
    "longer": ablation_longer.ABLATION,
    **ablation_mboshi.ABLATIONS,
    **ablation_ma.ABLATIONS,
}


@pytest.fixture(scope="module")
def names(tmp_path_factory) -> dict[str, set[str]]:
    """The runs of every grid, on a corpus that is there as far as an address looks at it."""
    corpus = tmp_path_factory.mktemp("corpus")
    (corpus / SUMMARY).write_text("{}")
    return {name: {run.name for run in plan(on(grid, corpus))} for name, grid in GRIDS.items()}


def on(grid: Ablation, corpus: Path) -> Ablation:
    rows = {
        name: dataclasses.replace(row, corpus=dataclasses.replace(row.corpus, directory=corpus))
        for name, row in grid.rows.items()
    }
    return dataclasses.replace(grid, rows=rows)


def rows_of(runs: set[str]) -> set[str]:
    return {run.rsplit("-", 1)[0] for run in runs}


@pytest.mark.parametrize(
    ("grid", "count"),
    {
        "dar": 48,
        "decisions": 18,
        "longer": 32,
        "figures": 26,
        "clock": 18,
        "alone": 32,
        "helped": 33,
    }.items(),
)
def test_the_number_of_runs_is_that_of_the_docstring(names, grid, count):
    assert len(names[grid]) == count


def test_what_another_grid_has_trained_is_not_trained_again(names):
    donors = {"asr", "mt"}
    common = {f"{row}-seed{s}" for row in ("dar", "dar_lambda_0.1") for s in (0, 1)}
    kd = {f"{row}-seed{s}" for row in ("kd", "kd_lambda_0.1") for s in (0, 1)}
    assert rows_of(names["dar"] & names["zaidi"]) == donors | common | kd
    assert rows_of(names["dar"] & names["alignment"]) == donors | common
    assert rows_of(names["decisions"] & names["zaidi"]) == donors | kd
    assert rows_of(names["longer"] & names["zaidi"]) == donors
    assert names["clock"] < names["figures"]
    assert not names["figures"] & names["zaidi"], "without a text branch there is another encoder"


def test_rows_of_one_name_and_other_contents_are_other_runs(names):
    both = rows_of(names["decisions"]) & rows_of(names["figures"])
    assert "words-seed0" in both
    assert not names["decisions"] & names["figures"]


def test_variants_of_dar_differ_from_it_in_one_choice():
    base = zaidi_multi30k.EXPERIMENTS["dar"].training.objective.joint
    for name, changes in ablation_dar.VARIANTS.items():
        joint = ablation_dar.ABLATION.rows[name].training.objective.joint
        (changed,) = changes
        told, usual = dataclasses.asdict(joint), dataclasses.asdict(base)
        assert [field for field in told if told[field] != usual[field]] == [changed]


def together(grid: Ablation, size: int, corpus: Path) -> list[set[str]]:
    """The rows of each process, of those that begin with a donor alone."""
    runs = [run for run in plan(on(grid, corpus)) if generation(run) == 1]
    return [{run.row for run in group} for group in groups(runs, size)]


def test_weights_go_together_and_what_is_compiled_in_does_not(tmp_path):
    (tmp_path / SUMMARY).write_text("{}")
    weights = {"kd", "dar", *(f"dar_weight_{weight}" for weight in ("0.05", "0.1", "0.5"))}
    alone = [{"dar_temperature_0.1"}, {"dar_temperature_10"}, {"dar_per_head"}]
    assert together(GRIDS["dar"], 99, tmp_path) == [weights, *alone]
    learnt = {"learnable", "learnable_counted"}
    assert together(GRIDS["decisions"], 99, tmp_path) == [{"kd"}, {"words"}, learnt]
    assert len(together(GRIDS["figures"], 99, tmp_path)) == 12
    assert len(together(GRIDS["alone"], 99, tmp_path)) == 1


def test_rows_with_augmented_speech_make_as_many_updates():
    rows = zaidi_multi30k.EXPERIMENTS
    for plain, augmented in (("mma", "mma_aug"), ("dar", "mma_dar")):
        for later in ("", "_lambda_0.1"):
            one, other = rows[plain + later], rows[augmented + later]
            assert one.training.epochs == 3 * (other.training.epochs or 0)
            assert dataclasses.replace(other.training, epochs=one.training.epochs) == one.training
            assert other.corpus.directory == zaidi_multi30k.RECIPE.augmented
    paper = zaidi_must_c.EXPERIMENTS
    assert paper["mma_dar"].training.epochs == paper["dar"].training.epochs == 150


def test_longer_rows_differ_from_short_ones_in_how_long_and_in_what_is_best(tmp_path):
    (tmp_path / SUMMARY).write_text("{}")
    short, long = zaidi_multi30k.EXPERIMENTS, ablation_longer.ABLATION
    for row in long.table:
        first, later = long.rows[row].training, long.rows[long.curves[row][0]].training
        base = short[row.removesuffix("_long")].training
        assert dataclasses.replace(first, epochs=base.epochs) == base
        assert first.epochs == 3 * (base.epochs or 0)
        assert later.best_by == "loss_and_latency"
        assert later.objective.joint.latency > 0
    assert together(long, 9, tmp_path) == [{"mma_long", "kd_long", "dar_long"}]


def test_oracles_are_heard_as_they_end_and_never_live():
    for name in ("figures", "clock", "decisions"):
        grid = GRIDS[name]
        for row in grid.seeded:
            kind = grid.rows[row].model.predecision.kind
            for way in grid.ways(row):
                if kind in ("words", "phonemes"):
                    assert way.mode != "live", "no stream carries labels"
                    assert way.mode == "offline" or way.read_ms == 40


def test_the_clock_runs_beside_what_it_is_compared_with():
    grid = GRIDS["clock"]
    played = {row: way for row in grid.seeded for way in grid.ways(row) if way.mode == "live"}
    assert len(played) == 8
    for row, way in played.items():
        free = dataclasses.replace(way, mode="streamed", first=None, repeats=3)
        assert free in grid.ways(row)
        assert set(GRIDS["figures"].ways(row)) < set(grid.ways(row))
