"""Collect the results of a grid's runs; write its page beside them, or publish them.

A published grid is experiments/results/NAME/, see simuljax/report/results.py. NAME is that of the
runs' folder, with the grid's own after it where several grids share the folder.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from simuljax.ablate.grid import UNNAMED, Grid, Planned, Pretrained, evaluations_of
from simuljax.ablate.state import is_trained, lacking, state_of
from simuljax.config.experiment import CONFIG_FILE, read_experiment
from simuljax.config.fields import ConfigError
from simuljax.report.collect import Evaluated, gather
from simuljax.report.grid_page import write_grid_page, write_published_page
from simuljax.report.page import Table, make_table
from simuljax.report.results import (
    GridInfo,
    PublishedRun,
    Results,
    read_evaluation,
    read_run,
    write_results,
)
from simuljax.report.variants import Variant, make_variant
from simuljax.runs.evaluate import SCORES
from simuljax.serve.run import parameter_count

LOGS = "instances*.log"  # several where the clock was measured more than once


def write_summary(grid: Grid, runs: Sequence[Planned], command: str) -> Path:
    """Write the page of a grid beside its runs, with its figures."""
    trained = published_runs(runs)
    variants = variants_of(grid, runs, trained)
    if not variants:
        raise ConfigError(f"{grid.runs}: no evaluation of this grid is complete")
    info, missing = grid_info(grid, runs, variants, command), missing_table(grid, runs)
    return write_grid_page(grid.runs / grid.name, info, variants, [*trained.values()], missing)


def publish(grid: Grid, runs: Sequence[Planned], results: Path, command: str) -> Path:
    """Write the folder of a grid in place of what was there; return it."""
    to = results / "-".join([grid.runs.name, *([] if grid.name == UNNAMED else [grid.name])])
    trained, logs, evaluations = published_runs(runs), {}, []
    for variant in grid.table:
        for run, setting, each in evaluated_of(grid, runs, variant):
            folder = run.experiment.run / "eval" / each.name
            names = {"variant": variant, "setting": setting, "seed": run.seed}
            evaluations.append(read_evaluation(folder, trained[run.name], **names))
            for log in folder.glob(LOGS):
                logs[f"{run.name}/{folder.name}/{log.name}"] = log.read_bytes()
    info = grid_info(grid, runs, variants_of(grid, runs, trained), command)
    written = Results(grid=info, runs=(*trained.values(),), evaluations=(*evaluations,))
    write_results(to, written, logs)
    write_published_page(to)
    return to


def published_runs(runs: Sequence[Planned]) -> dict[str, PublishedRun]:
    """Read the configurations, curves and costs of the runs that exist, each once."""
    return {
        run.name: replace(
            read_run(run.experiment.run, run.name, run.variant, run.seed),
            parameters=_parameters(run),
        )
        for run in runs
        if run.experiment.run.exists()
    }


def _parameters(run: Planned) -> int | None:
    """Count the parameters of a trained model; its vocabularies are known once training starts."""
    if isinstance(run.experiment, Pretrained) or not (run.experiment.run / CONFIG_FILE).exists():
        return None
    model = read_experiment(run.experiment.run).model
    return parameter_count(model) if model.target_vocabulary else None


def grid_info(
    grid: Grid, runs: Sequence[Planned], variants: Sequence[Variant], command: str
) -> GridInfo:
    """Return the declaration of a grid, as far as its page needs it."""
    times = [path.stat().st_mtime for run in runs if (path := run.experiment.run).exists()]
    return GridInfo(
        title=grid.title,
        command=command,
        baseline=grid.baseline,
        variants=tuple(each.name for each in variants),
        latency=grid.latency,
        claims=grid.claims,
        rule=grid.rule,
        date=time.strftime("%Y-%m-%d", time.gmtime(max(times))) if times else "",
    )


def variants_of(
    grid: Grid, runs: Sequence[Planned], trained: Mapping[str, PublishedRun]
) -> list[Variant]:
    """Return the variants that have been evaluated, each with those that continue it."""
    found = []
    for name in grid.table:
        evaluations: dict[str, dict[int, Evaluated]] = {}
        for run, setting, each in evaluated_of(grid, runs, name):
            evaluations.setdefault(setting, {})[run.seed or 0] = each
        own = [run for run in trained.values() if run.variant == name and run.seed is not None]
        # A run that was killed may not have written what it cost.
        spent = [run.spent["training"] for run in own if run.spent and run.spent.get("training")]
        if evaluations:
            found.append(make_variant(name, evaluations, spent))
    return found


def evaluated_of(
    grid: Grid, runs: Sequence[Planned], variant: str
) -> list[tuple[Planned, str, Evaluated]]:
    """Return (run, name of the evaluation in the grid, evaluation) of a variant's runs."""
    found = []
    for name in (variant, *grid.curves.get(variant, ())):
        later = name.removeprefix(variant).strip("_")
        for run in [run for run in runs if run.variant == name and run.seed is not None]:
            for setting, each in _evaluations(run, grid).items():
                found.append((run, "/".join(filter(None, [later, setting])), each))
    return found


def _evaluations(run: Planned, grid: Grid) -> Mapping[str, Evaluated]:
    """Return the evaluations of a run by the grid's names.

    These are the names of folders except for cascades: there a folder has the name of the run that
    follows, and the grid that of its variant.
    """
    directory = run.experiment.run
    done = {scores.parent.name for scores in directory.glob(f"eval/*/{SCORES}")}
    if not done:
        return {}
    named = {need.experiment.run: Path(need.variant) for need in run.needs}
    asked = {
        way.folder.name: replace(way, then=way.then and named.get(way.then, way.then)).folder.name
        for way in evaluations_of(run, grid)
        if way.folder.name in done
    }
    return {asked[each.name]: each for each in gather([directory]) if each.name in asked}


def missing_table(grid: Grid, runs: Sequence[Planned]) -> list[Table]:
    """Return what the grid asks for and has not been run, or not to its end."""
    planned, seeds = {run.variant for run in runs}, [str(seed) for seed in grid.seeds]
    missing = {(name, "all"): seeds for name in grid.seeded if name not in planned}
    for run in [run for run in runs if run.seed is not None and state_of(run, grid) != "done"]:
        left = lacking(run, grid)
        partly = is_trained(run) and len(left) < len(evaluations_of(run, grid))
        ways = ", ".join(way.folder.name for way in left) if partly else "all"
        missing.setdefault((run.variant, ways), []).append(str(run.seed))
    lines = tuple((variant, ", ".join(seeds), ways) for (variant, ways), seeds in missing.items())
    return [make_table("missing", lines)] if lines else []
