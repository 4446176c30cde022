"""Check the declared grids: evaluations that apply, runs that grids share."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.ma2020 import alignment, figures_2_to_4
from experiments.zaidi2022 import (
    dar,
    decisions,
    latency_weight,
    longer,
    mboshi,
    multi30k,
    table_3,
)
from simuljax.ablate.grid import Grid, plan
from simuljax.ablate.scheduler import generation, groups
from simuljax.config.loading import load_module
from simuljax.runs.evaluate import check
from tests.helpers.grids import REPOSITORY, summarised_corpus, trained

GRIDS = {
    "zaidi": table_3.GRID,
    "alignment": alignment.GRID,
    "dar": dar.GRID,
    "decisions": decisions.GRID,
    "longer": longer.GRID,
    "latency_weight": latency_weight.GRID,
    **mboshi.GRIDS,
    **figures_2_to_4.GRIDS,
}

EXPERIMENTS = REPOSITORY / "experiments"
FILES = [path for path in sorted(EXPERIMENTS.glob("*/*.py")) if "\nGRID" in path.read_text()]


def grids(path: Path) -> Iterator[Grid]:
    module = load_module(path)
    yield from getattr(module, "GRIDS", {}).values()
    if isinstance(one := getattr(module, "GRID", None), Grid):
        yield one


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_evaluation_applies_to_its_model_and_runs_begin_in_their_grid(path):
    asked = 0
    for grid in grids(path):
        runs = {str(each.run) for each in grid.variants.values()}
        assert len(runs) == len(grid.variants)
        experiments = trained(grid)
        models = {str(variant.run): variant.model for variant in experiments.values()}
        for variant in grid.seeded:
            for each in grid.evaluations_of(variant):
                follows = models[str(each.then)] if each.then else None
                own = experiments[variant].model if variant in experiments else None
                check(each, own, follows)
                asked += 1
            for begin in getattr(grid.variants[variant], "init_from", ()):
                assert begin.whisper is not None or str(begin.run) in runs
    assert asked


@pytest.fixture(scope="module")
def names(tmp_path_factory) -> dict[str, set[str]]:
    """The runs of every grid, on a corpus that is there as far as an address looks at it."""
    corpus = summarised_corpus(tmp_path_factory.mktemp("corpus"))
    return {name: {run.name for run in plan(on(grid, corpus))} for name, grid in GRIDS.items()}


def on(grid: Grid, corpus: Path) -> Grid:
    variants = {
        name: dataclasses.replace(variant, data=dataclasses.replace(variant.data, directory=corpus))
        for name, variant in trained(grid).items()
    }
    return dataclasses.replace(grid, variants=variants)


def rows_of(runs: set[str]) -> set[str]:
    return {run.rsplit("-", 1)[0] for run in runs}


def test_grids_share_runs(names):
    donors = {"asr", "mt"}
    common = {f"{variant}-seed{s}" for variant in ("dar", "dar_lambda_0.1") for s in (0, 1)}
    kd = {f"{variant}-seed{s}" for variant in ("kd", "kd_lambda_0.1") for s in (0, 1)}
    assert rows_of(names["dar"] & names["zaidi"]) == donors | common | kd
    assert rows_of(names["dar"] & names["alignment"]) == donors | common
    assert rows_of(names["decisions"] & names["zaidi"]) == donors | kd
    assert rows_of(names["longer"] & names["zaidi"]) == donors
    assert names["clock"] < names["figures"]
    assert not names["figures"] & names["zaidi"], "without a text branch there is another encoder"
    assert "words-seed0" in rows_of(names["decisions"]) & rows_of(names["figures"])
    assert not names["decisions"] & names["figures"], "one name, other contents"


def test_variants_of_dar_differ_from_it_in_one_choice():
    base = multi30k.EXPERIMENTS["dar"].training.objective.terms
    for name, changes in dar.VARIANTS.items():
        terms = trained(dar.GRID)[name].training.objective.terms
        ((changed, value),) = changes.items()
        (term,) = [new for new, old in zip(terms, base, strict=True) if new != old]
        assert term.name == "dar"
        if changed == "decision_attentive":
            assert term.weight == value
        else:
            assert term.options[changed.removeprefix("decision_")] == value


def together(grid: Grid, size: int, corpus: Path) -> list[set[str]]:
    """The variants of each process, of those that begin with a donor alone."""
    runs = [run for run in plan(on(grid, corpus)) if generation(run) == 1]
    return [{run.variant for run in group} for group in groups(runs, size)]


def test_loss_weights_are_trained_together_and_compiled_constants_are_not(tmp_path):
    summarised_corpus(tmp_path)
    weights = {"kd", "dar", *(f"dar_weight_{weight}" for weight in ("0.05", "0.1", "0.5"))}
    alone = [{"dar_temperature_0.1"}, {"dar_temperature_10"}, {"dar_per_head"}]
    assert together(GRIDS["dar"], 99, tmp_path) == [weights, *alone]
    learnt = {"learnable", "learnable_counted"}
    assert together(GRIDS["decisions"], 99, tmp_path) == [{"kd"}, {"words"}, learnt]
    assert len(together(GRIDS["figures"], 99, tmp_path)) == 12
    assert len(together(GRIDS["alone"], 99, tmp_path)) == 1


def test_every_seed_of_latency_weights_has_its_own_donors_and_order(tmp_path):
    grid = on(GRIDS["latency_weight"], summarised_corpus(tmp_path))
    runs = plan(grid)
    for run in runs:
        assert {need.seed for need in run.needs} <= {run.seed}
        assert (run.to_train.training.seed, run.to_train.training.order) == (run.seed, None)
    donors = {run.name for run in runs if run.variant in ("asr", "mt")}
    assert len(donors) == 2 * len(grid.seeds)
    assert not any(run.evaluations for run in runs if run.name in donors)
    shared = [run for run in plan(on(GRIDS["longer"], tmp_path)) if run.variant in ("asr", "mt")]
    assert [run.seed for run in shared] == [None, None]
    for count, size in ((1, 2), (2, 12)):  # one program for all runs of a seed
        some = groups([run for run in runs if generation(run) == count], 99)
        assert [len(each) for each in some] == [size] * len(grid.seeds)


def test_real_time_evaluations_have_a_counterpart_and_oracles_have_none():
    for name in ("figures", "clock", "decisions"):
        grid = GRIDS[name]
        for variant in grid.seeded:
            if trained(grid)[variant].model.predecision.kind in ("words", "phonemes"):
                ways = [(each.mode, each.read_ms) for each in grid.evaluations_of(variant)]
                assert {*ways} <= {("offline", None), ("streamed", 40)}, "no stream carries labels"
    grid = GRIDS["clock"]
    every = [(variant, each) for variant in grid.seeded for each in grid.evaluations_of(variant)]
    played = [(variant, each) for variant, each in every if each.mode == "live"]
    assert len(played) == 8
    for variant, each in played:
        free = dataclasses.replace(each, mode="streamed", first=None, repeats=3)
        assert free in grid.evaluations_of(variant)
        assert set(GRIDS["figures"].evaluations_of(variant)) < set(grid.evaluations_of(variant))
