"""`simuljax report`, with the sound of the corpora that the runs were evaluated on."""

import functools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from data_pipelines.prepared import PreparedCorpus, open_corpus
from data_pipelines.utterance import CorpusError
from experiments.choosing import ChoiceError
from simuljax import document
from simuljax.document import DocumentError
from simuljax.eval.report import Evaluated, find_logs
from simuljax.eval.reporting import Report, write_report
from simuljax.run import CONFIG_FILE


def report_command(chosen: Report) -> Callable[[], None]:
    """Draw what evaluations have left, and write a page of it that can be sent as one file."""
    check(chosen)
    return lambda: print(write_report(chosen, sound_of))


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
    if chosen.split is not None and all(root == log for root, log in logs_of(chosen)):
        raise ChoiceError(
            f"--split {chosen.split} chooses among the evaluations of runs, and there are only "
            "logs, whose split nobody knows: leave it out"
        )


def logs_of(chosen: Report) -> list[tuple[Path, Path]]:
    """(Run or log of another system, log of an evaluation) of all that is to be reported."""
    return [found for path in chosen.runs for found in find_logs(path)]


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
        return open_corpus(directory or document.read(run / CONFIG_FILE)["corpus"]["directory"])
    except (CorpusError, DocumentError, KeyError):
        return None  # published evaluations have no more of their run than its config.json
