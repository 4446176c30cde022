"""`simuljax report`, with the sound of the corpora that the runs were evaluated on."""

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines.dataset import PreparedCorpus, open_corpus
from data_pipelines.utterance import CorpusError
from simuljax.config.experiment import read_experiment
from simuljax.config.fields import ConfigError
from simuljax.config.json import read_json
from simuljax.errors import ChoiceError
from simuljax.eval import read_records
from simuljax.report.collect import Evaluated, find_logs
from simuljax.report.write import Report, write_report
from simuljax.runs.alignment import draw_alignment, has_alignment, look
from simuljax.serve.run import open_run
from simuljax.train.checkpoint import CHECKPOINTS

ALIGNMENT = "alignment.png"  # beside a log


def report_command(chosen: Report) -> Callable[[], None]:
    """Draw what evaluations have left, and write a page of it that can be sent as one file."""
    check(chosen)

    def command() -> None:
        draw_alignments(chosen)
        print(write_report(chosen, sound_of))

    return command


def check(chosen: Report) -> None:
    """Refuses what can be seen to be wrong before anything is read."""
    if not chosen.runs:
        raise ChoiceError("a report needs a run, or a log: simuljax report RUN")
    if chosen.bucket_ms is not None and not 0 < chosen.bucket_ms < math.inf:
        raise ChoiceError(
            f"bucket_ms is {chosen.bucket_ms}; a bucket is wider than 0 ms, 500 for example"
        )
    if chosen.utterances < 0:
        raise ChoiceError(f"utterances is {chosen.utterances}; draw 0 or more")
    logs = logs_of(chosen)
    if chosen.split is not None and all(root == log for root, log in logs):
        raise ChoiceError(
            f"--split {chosen.split} chooses among the evaluations of runs, and there are only "
            "logs, whose split nobody knows: leave it out"
        )


def logs_of(chosen: Report) -> list[tuple[Path, Path]]:
    """(Run or log of another system, log of an evaluation) of all that is to be reported."""
    return [found for path in chosen.runs for found in find_logs(path)]


def draw_alignments(chosen: Report) -> None:
    """Of the first utterance of every run that has weights and decides by itself, once."""
    drawn: set[Path] = set()
    for run, log in logs_of(chosen):
        if run in drawn or not (log.parent / "config.json").exists():
            continue
        told = read_json(log.parent / "config.json")
        if chosen.split in (None, told["split"]) and hears_as_trained(told):
            drawn.add(run)
            if not (log.parent / ALIGNMENT).exists():
                draw_alignment_of(run, told, log)


def hears_as_trained(told: Mapping[str, Any]) -> bool:
    """Whether an evaluation streamed speech, its own, with the steps of training."""
    usual = {"mode": "streamed", "branch": "speech", "predecision_ms": None, "audio": "own"}
    return all(told.get(name, value) == value for name, value in usual.items())


def draw_alignment_of(run: Path, told: Mapping[str, Any], log: Path) -> None:
    """Beside the log; of what was published, which has no weights, or no corpus, there is none."""
    corpus = opened(told.get("corpus"), run)
    if corpus is None or not (run / CHECKPOINTS).exists():
        return
    whole = open_run(run)
    if has_alignment(whole.model) and whole.config.data.task == "translation":
        index = read_records(log)[0].index or 0
        looked = look(whole, corpus[told["split"]], index, told["checkpoint"])
        draw_alignment(looked, log.parent / ALIGNMENT)


def sound_of(evaluated: Evaluated, index: int) -> np.ndarray | None:
    """The samples of an utterance, if its corpus is still where it was."""
    if evaluated.run is None or evaluated.told.get("branch") == "text":
        return None
    corpus = opened(evaluated.told.get("corpus"), evaluated.run)
    if corpus is None:
        return None
    (stored,) = corpus[evaluated.told["split"]].source.__getitems__([index])
    return stored["audio"]


@functools.cache
def opened(directory: str | None, run: Path) -> PreparedCorpus | None:
    """The corpus of an evaluation: the one named there, or else the run's own."""
    try:
        return open_corpus(directory or read_experiment(run).data.directory)
    except (CorpusError, ConfigError):
        return None  # published evaluations have no more of their run than its config.json
