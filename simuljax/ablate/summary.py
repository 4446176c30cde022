"""Collect the results of a grid's runs; write its page beside them, or publish them.

A published grid is experiments/results/NAME/, see simuljax/report/results.py. NAME is that of the
runs' folder, with the grid's own after it where several grids share the folder.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from simuljax.ablate.grid import UNNAMED, Grid, Planned, Pretrained
from simuljax.config.experiment import CONFIG_FILE, read_experiment
from simuljax.config.fields import ConfigError
from simuljax.eval.logs import ARCHIVE, NAME, read_archive
from simuljax.models.parameters import parameter_count
from simuljax.report.collect import Evaluated, with_records
from simuljax.report.grid_page import read_variants, write_grid_page, write_published_page
from simuljax.report.page import Table, make_table
from simuljax.report.results import SCORES as LINES
from simuljax.report.results import (
    GridInfo,
    PublishedEvaluation,
    PublishedRun,
    Results,
    is_results,
    read_evaluation,
    read_results,
    read_run,
    write_results,
)
from simuljax.runs.evaluate import SCORES

LOGS = "instances*.log"  # several where the clock was measured more than once


def write_summary(grid: Grid, runs: Sequence[Planned], command: str) -> Path:
    """Write the page of a grid beside its runs, with its figures."""
    results = results_of(grid, runs, command)
    if not results.evaluations:
        raise ConfigError(f"{grid.runs}: no evaluation of this grid is complete")
    folders = {run.name: run.directory for run in runs}

    def read(each: PublishedEvaluation) -> Evaluated:
        log = folders[each.run] / "eval" / each.evaluation / NAME
        return with_records(each, log.read_bytes(), str(log), folders[each.run])

    variants = read_variants(results, read)
    return write_grid_page(grid.runs / grid.name, results, variants, missing_table(grid, runs))


def publish(grid: Grid, runs: Sequence[Planned], results: Path, command: str) -> Path:
    """Write the folder of a grid; return it. Evaluations made elsewhere stay in it."""
    to = results / "-".join([grid.runs.name, *([] if grid.name == UNNAMED else [grid.name])])
    written = results_of(grid, runs, command)
    folders = {run.name: run.directory for run in runs}
    logs = {
        f"{each.run}/{each.evaluation}/{log.name}": log.read_bytes()
        for each in written.evaluations
        for log in (folders[each.run] / "eval" / each.evaluation).glob(LOGS)
    }
    if is_results(to):
        old = read_results(to)
        kept = _kept(old, written, grid, runs, to)
        held = {run.run: run for run in old.runs if run.run in folders}
        written = _joined(written, kept, held, grid)
        elsewhere = {Path(each.log).parent for each in kept}
        archive = read_archive(to / ARCHIVE).items()
        logs |= {name: log for name, log in archive if Path(name).parent in elsewhere}
    write_results(to, written, logs)
    write_published_page(to)
    return to


def _kept(
    old: Results, new: Results, grid: Grid, runs: Sequence[Planned], folder: Path
) -> list[PublishedEvaluation]:
    """Return the published evaluations that stay: those the grid asks for and has none of here.

    Print which go. Refuse to remove those of a variant and a seed that the grid declares, but of
    another run (with another corpus, say), unless there is something new in their place.
    """
    asked = {run.name: [way.folder.name for way in run.evaluations] for run in runs}
    variants = {run.run: run.variant for run in (*old.runs, *new.runs)}
    replaced = {(variants[each.run], each.seed) for each in new.evaluations}
    here = {each.log for each in new.evaluations}
    kept, gone, lost = [], [], []
    for each in [each for each in old.evaluations if each.log not in here]:
        variant = variants.get(each.run, each.variant)
        named = (each.variant, *grid.curves.get(each.variant, ()))
        if each.variant not in grid.table or variant not in named or each.seed not in grid.seeds:
            gone.append(each)
        elif each.run in asked:
            (kept if each.evaluation in asked[each.run] else gone).append(each)
        else:
            (gone if (variant, each.seed) in replaced else lost).append(each)
    if lost:
        raise ConfigError(
            f"publishing would remove {', '.join(_names(lost))} from {folder}: their experiments "
            "or corpora differ from those here. Publish where they were run; or, if they are out "
            f"of date, remove their lines from {folder / LINES}"
        )
    if gone:
        print(f"removed from {folder}: {', '.join(_names(gone))}")
    return kept


def _names(evaluations: Sequence[PublishedEvaluation]) -> list[str]:
    """Return the runs of evaluations, each with how many it has."""
    return [
        f"{run} ({count} evaluations)" for run, count in Counter(e.run for e in evaluations).items()
    ]


def _joined(
    new: Results,
    kept: Sequence[PublishedEvaluation],
    held: Mapping[str, PublishedRun],
    grid: Grid,
) -> Results:
    """Add what was published from elsewhere, in the order of the grid's tables.

    `kept` are evaluations, `held` all runs published before. A run that was evaluated only
    elsewhere is taken from there.
    """
    assert new.grid is not None
    here = {each.run for each in new.evaluations}
    elsewhere, every = {each.run for each in kept} - here, [*new.evaluations, *kept]
    own = {run.run: run for run in new.runs if not (run.run in elsewhere and run.run in held)}
    runs = {**own, **{name: run for name, run in held.items() if name not in own}}
    seeded = [run for run in runs.values() if run.seed is not None]
    place = {run.run: grid.seeded.index(run.variant) for run in seeded}
    every.sort(key=lambda e: (grid.table.index(e.variant), place[e.run], e.seed, e.evaluation))
    variants = tuple(dict.fromkeys(each.variant for each in every))
    info = replace(new.grid, variants=variants)
    return Results(grid=info, runs=tuple(runs.values()), evaluations=tuple(every))


def results_of(grid: Grid, runs: Sequence[Planned], command: str) -> Results:
    """Read the runs that exist and their evaluations, of the variants in the table."""
    started = [run for run in runs if run.directory.exists()]
    trained = {
        run.name: replace(
            read_run(run.directory, run.name, run.variant, run.seed), parameters=_parameters(run)
        )
        for run in started
    }
    evaluations = [
        each
        for variant in grid.table
        for name in (variant, *grid.curves.get(variant, ()))
        for run in started
        if run.variant == name and run.seed is not None
        for each in _evaluations(run, trained[run.name], variant)
    ]
    times = [run.directory.stat().st_mtime for run in started]
    info = GridInfo(
        title=grid.title,
        command=command,
        baseline=grid.baseline,
        variants=tuple(dict.fromkeys(each.variant for each in evaluations)),
        latency=grid.latency,
        claims=grid.claims,
        rule=grid.rule,
        date=time.strftime("%Y-%m-%d", time.gmtime(max(times))) if times else "",
    )
    return Results(grid=info, runs=tuple(trained.values()), evaluations=tuple(evaluations))


def _evaluations(run: Planned, trained: PublishedRun, variant: str) -> list[PublishedEvaluation]:
    """Return the evaluations of a run by the grid's names.

    These are the names of folders except for cascades: there a folder has the name of the run that
    follows, and the grid that of its variant. A variant that continues another comes first.
    """
    later = run.variant.removeprefix(variant).strip("_")
    named = {need.directory: Path(need.variant) for need in run.needs}
    found = []
    for way in sorted(run.evaluations, key=lambda way: way.folder.name):
        if (way.folder / SCORES).exists():
            setting = replace(way, then=way.then and named.get(way.then, way.then)).folder.name
            setting = "/".join(filter(None, [later, setting]))
            names = {"variant": variant, "setting": setting, "seed": run.seed}
            found.append(read_evaluation(way.folder, trained, **names))
    return found


def _parameters(run: Planned) -> int | None:
    """Count the parameters of a trained model; its vocabularies are known once training starts."""
    if isinstance(run.experiment, Pretrained) or not (run.directory / CONFIG_FILE).exists():
        return None
    model = read_experiment(run.directory).model
    return parameter_count(model) if model.target_vocabulary else None


def missing_table(grid: Grid, runs: Sequence[Planned]) -> list[Table]:
    """Return what the grid asks for and has not been run, or not to its end."""
    planned, seeds = {run.variant for run in runs}, [str(seed) for seed in grid.seeds]
    missing = {(name, "all"): seeds for name in grid.seeded if name not in planned}
    for run in [run for run in runs if run.seed is not None and run.state != "done"]:
        left = run.pending()
        partly = run.is_trained and len(left) < len(run.evaluations)
        ways = ", ".join(way.folder.name for way in left) if partly else "all"
        missing.setdefault((run.variant, ways), []).append(str(run.seed))
    lines = tuple((variant, ", ".join(seeds), ways) for (variant, ways), seeds in missing.items())
    return [make_table("missing", lines)] if lines else []
