"""What a finished ablation leaves for others: its answer, and what every number rests on.

    experiments/results/NAME/README.md, curves.png, index.html   the answer
    experiments/results/NAME/RUN/config.json, metrics.jsonl.gz, spent.json, diagnosis.json
    experiments/results/NAME/RUN/eval/EVALUATION/config.json, scores.json, instances.log.gz
    docs/results/NAME.md, NAME.png                                the answer, for the documentation

Weights are left out. `simuljax score` takes the logs as they are.
"""

import gzip
import shutil
from collections.abc import Sequence
from pathlib import Path

from experiments.ablation import Ablation, Planned

KEPT = ("config.json", "spent.json", "diagnosis.json", "eval/*/config.json", "eval/*/scores.json")
PACKED = ("metrics.jsonl", "eval/*/instances.log")


def publish(ablation: Ablation, runs: Sequence[Planned], results: Path, docs: Path) -> Path:
    """Copies the answer and its evidence; gives the directory. What was there before goes."""
    several = () if ablation.answer == "answer" else (ablation.answer,)
    name = "-".join([ablation.runs.name, *several])
    to, answer = results / name, ablation.runs / ablation.answer
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(answer, to)
    for run in runs:
        _copy_run(run.experiment.run, to / run.name)
    docs.mkdir(parents=True, exist_ok=True)
    page = (answer / "README.md").read_text("utf-8")
    (docs / f"{name}.md").write_text(page.replace("(curves.png)", f"({name}.png)"), "utf-8")
    if (answer / "curves.png").exists():
        shutil.copy(answer / "curves.png", docs / f"{name}.png")
    return to


def _copy_run(run: Path, to: Path) -> None:
    for path in _found(run, KEPT):
        (to / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(run / path, to / path)
    for path in _found(run, PACKED):
        packed = to / path.with_name(path.name + ".gz")
        packed.parent.mkdir(parents=True, exist_ok=True)
        with gzip.GzipFile(packed, "wb", mtime=0) as out:  # the same bytes from the same log
            out.write((run / path).read_bytes())


def _found(run: Path, patterns: Sequence[str]) -> list[Path]:
    return [path.relative_to(run) for pattern in patterns for path in sorted(run.glob(pattern))]
