"""`simuljax report`, with the sound of the corpora that the runs were evaluated on."""

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np

from data_pipelines.prepared import PreparedCorpus, open_corpus
from data_pipelines.utterance import CorpusError
from simuljax.eval.report import Evaluated
from simuljax.eval.reporting import Report, write_report
from simuljax.run import open_run


def report_command(chosen: Report) -> Callable[[], None]:
    """Draw what evaluations have left, and write a page of it that can be sent as one file."""
    return lambda: print(write_report(chosen, sound_of))


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
        return open_corpus(directory or open_run(run).told["corpus"]["directory"])
    except CorpusError:
        return None
