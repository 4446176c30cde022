"""Summarise a grid: its variants gathered from their runs, as a page with verdicts and figures."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from simuljax.ablate.grid import Ablation, Planned, evaluations_of
from simuljax.ablate.scheduler import state_of
from simuljax.ablate.worker import is_trained, lacking
from simuljax.config.fields import ConfigError
from simuljax.report.collect import Evaluated, gather
from simuljax.report.grid_page import write_grid_page
from simuljax.report.page import Table
from simuljax.report.results import GridInfo, PublishedRun, read_run
from simuljax.report.variants import Variant, make_variant
from simuljax.runs.evaluate import SCORES


def write_summary(ablation: Ablation, runs: Sequence[Planned], command: str) -> Path:
    """Write the page of a grid beside its runs, with its figures."""
    variants = variants_of(ablation, runs)
    if not variants:
        raise ConfigError(f"{ablation.runs}: no evaluation of this grid is complete")
    grid = grid_info(ablation, runs, variants, command)
    out, missing = ablation.runs / ablation.answer, missing_table(ablation, runs)
    return write_grid_page(out, grid, variants, [*published_runs(runs).values()], missing)


def grid_info(
    ablation: Ablation, runs: Sequence[Planned], variants: Sequence[Variant], command: str
) -> GridInfo:
    """Return the declaration of a grid, as far as its page needs it."""
    times = [path.stat().st_mtime for run in runs if (path := run.experiment.run).exists()]
    return GridInfo(
        title=ablation.title,
        command=command,
        baseline=ablation.baseline,
        variants=tuple(each.name for each in variants),
        latency=ablation.latency,
        claims=ablation.claims,
        rule=ablation.rule,
        date=time.strftime("%Y-%m-%d", time.gmtime(max(times))) if times else "",
    )


def variants_of(ablation: Ablation, runs: Sequence[Planned]) -> list[Variant]:
    """Return the variants that have been evaluated, each with those that continue it."""
    found = []
    for name in ablation.table:
        evaluations: dict[str, dict[int, Evaluated]] = {}
        for run, setting, each in evaluated_of(ablation, runs, name):
            evaluations.setdefault(setting, {})[run.seed or 0] = each
        own = [run for run in runs if run.row == name and run.seed is not None]
        if evaluations:
            found.append(make_variant(name, evaluations, trainings_of(own)))
    return found


def trainings_of(runs: Sequence[Planned]) -> list[Mapping[str, Any]]:
    """Return what trainings cost; a run that was killed may not have written it."""
    spent = [read_run(run.experiment.run, run.name, run.row, run.seed).spent for run in runs]
    return [each["training"] for each in spent if each and each.get("training")]


def evaluated_of(
    ablation: Ablation, runs: Sequence[Planned], variant: str
) -> list[tuple[Planned, str, Evaluated]]:
    """Return (run, name of the evaluation in the grid, evaluation) of a variant's runs."""
    found = []
    for row in (variant, *ablation.curves.get(variant, ())):
        for run in [run for run in runs if run.row == row and run.seed is not None]:
            for name, each in _evaluations(run, ablation).items():
                setting = "/".join(filter(None, [row.removeprefix(variant).strip("_"), name]))
                found.append((run, setting, each))
    return found


def _evaluations(run: Planned, ablation: Ablation) -> Mapping[str, Evaluated]:
    """Return the evaluations of a run by the grid's names.

    These are the names of folders except for cascades: there a folder has the name of the run that
    follows, and the grid that of its variant.
    """
    directory = run.experiment.run
    done = {scores.parent.name for scores in directory.glob(f"eval/*/{SCORES}")}
    if not done:
        return {}
    rows = {need.experiment.run: Path(need.row) for need in run.needs}
    asked = {
        way.folder.name: replace(way, then=way.then and rows.get(way.then, way.then)).folder.name
        for way in evaluations_of(run, ablation)
        if way.folder.name in done
    }
    return {asked[each.name]: each for each in gather([directory]) if each.name in asked}


def published_runs(runs: Sequence[Planned]) -> dict[str, PublishedRun]:
    """Return the configurations and curves of the runs that exist."""
    return {
        run.name: read_run(run.experiment.run, run.name, run.row, run.seed)
        for run in runs
        if run.experiment.run.exists()
    }


def missing_table(ablation: Ablation, runs: Sequence[Planned]) -> list[Table]:
    """Return what the grid asks for and has not been run, or not to its end."""
    missing: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        if run.seed is not None and state_of(run, ablation) != "done":
            missing.setdefault((run.row, _missing(run, ablation)), []).append(str(run.seed))
    rows = tuple((row, ", ".join(seeds), ways) for (row, ways), seeds in missing.items())
    heads = ("variant", "seeds", "evaluations")
    return [Table(title="Not run", heads=heads, rows=rows, left=3)] if rows else []


def _missing(run: Planned, ablation: Ablation) -> str:
    left = lacking(run, ablation)
    partly = is_trained(run) and len(left) < len(evaluations_of(run, ablation))
    return ", ".join(way.folder.name for way in left) if partly else "all"
