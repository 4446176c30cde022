"""Publish a finished grid: its page, and what every number rests on, without weights.

    experiments/results/NAME/{scores.jsonl, runs.jsonl, logs.tar.xz, index.html}

See simuljax/report/results.py for the files. NAME is that of the runs' folder, with the grid's own
after it where several grids share the folder.
"""

from collections.abc import Sequence
from pathlib import Path

from simuljax.ablate.grid import Ablation, Planned
from simuljax.ablate.summary import evaluated_of, grid_info, published_runs, variants_of
from simuljax.report.grid_page import write_published_page
from simuljax.report.results import Results, read_evaluation, write_results

LOGS = "instances*.log"  # several where the clock was measured more than once


def publish(ablation: Ablation, runs: Sequence[Planned], results: Path, command: str) -> Path:
    """Write the folder of a grid in place of what was there; return it."""
    own = () if ablation.answer == "answer" else (ablation.answer,)
    to = results / "-".join([ablation.runs.name, *own])
    trained, logs, evaluations = published_runs(runs), {}, []
    for variant in ablation.table:
        for run, setting, each in evaluated_of(ablation, runs, variant):
            folder = run.experiment.run / "eval" / each.name
            names = {"variant": variant, "setting": setting, "seed": run.seed}
            evaluations.append(read_evaluation(folder, trained[run.name], **names))
            for log in folder.glob(LOGS):
                logs[f"{run.name}/{folder.name}/{log.name}"] = log.read_bytes()
    variants = variants_of(ablation, runs)
    grid = grid_info(ablation, runs, variants, command)
    written = Results(grid=grid, runs=(*trained.values(),), evaluations=(*evaluations,))
    write_results(to, written, logs)
    write_published_page(to)
    return to
