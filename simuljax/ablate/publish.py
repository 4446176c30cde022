"""What a finished ablation leaves for others: its answer, and what every number rests on.

    experiments/results/NAME/README.md, curves.png, index.html   the answer; where several share
    experiments/results/NAME/ANSWER/README.md ...                their runs, a folder for each
    experiments/results/NAME/RUN/config.json, metrics.jsonl.gz, spent.json, diagnosis.json
    experiments/results/NAME/RUN/eval/EVALUATION/config.json, scores.json, instances.log.gz
    docs/results/NAME.md, NAME.png                                the answer, for the documentation

Weights are left out. `simuljax score` takes the logs as they are.
"""

import gzip
import shutil
from collections.abc import Sequence
from pathlib import Path

from simuljax.ablate.grid import Ablation, Planned, evaluations_of
from simuljax.runs.evaluate import SCORES

RUN = ("config.json", "spent.json", "diagnosis.json")
METRICS, LOGS = "metrics.jsonl", "instances*.log"
PAGE, TABLE, FIGURE = "index.html", "README.md", "curves.png"


def publish(ablation: Ablation, runs: Sequence[Planned], results: Path, docs: Path) -> Path:
    """Copies the answer and its evidence in place of what was there; gives the answer's folder."""
    several = () if ablation.answer == "answer" else (ablation.answer,)
    name, place = "-".join([ablation.runs.name, *several]), results / ablation.runs.name
    to, answer = place.joinpath(*several), ablation.runs / ablation.answer
    _copy(answer, to, (PAGE, TABLE, FIGURE))
    for run in runs:
        _publish_run(run, ablation, place / run.name)
    docs.mkdir(parents=True, exist_ok=True)
    page = (answer / TABLE).read_text("utf-8")
    (docs / f"{name}.md").write_text(page.replace(f"({FIGURE})", f"({name}.png)"), "utf-8")
    if (answer / FIGURE).exists():
        shutil.copy(answer / FIGURE, docs / f"{name}.png")
    return to


def _publish_run(run: Planned, ablation: Ablation, to: Path) -> None:
    directory = run.experiment.run
    _copy(directory, to, RUN)
    _pack(directory / METRICS, to)
    for way in [way for way in evaluations_of(run, ablation) if (way.folder / SCORES).exists()]:
        _copy(way.folder, to / "eval" / way.folder.name, ("config.json", SCORES))
        for log in way.folder.glob(LOGS):  # a clock was looked at several times
            _pack(log, to / "eval" / way.folder.name)


def _copy(source: Path, to: Path, names: Sequence[str]) -> None:
    for path in [source / name for name in names if (source / name).exists()]:
        to.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to / path.name)


def _pack(path: Path, to: Path) -> None:
    if path.exists():
        with gzip.GzipFile(to / f"{path.name}.gz", "wb", mtime=0) as out:  # same log, same bytes
            out.write(path.read_bytes())
