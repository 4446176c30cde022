"""`simuljax report`: a page about runs, logs or published results, with the corpora's speech."""

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from data_pipelines.dataset import PreparedCorpus, open_corpus
from data_pipelines.utterance import CorpusError
from simuljax.config.experiment import read_experiment
from simuljax.config.fields import ConfigError, changes, read_object, to_json, without_defaults
from simuljax.config.training import Objective
from simuljax.errors import ChoiceError, SimuljaxError
from simuljax.eval import read_records
from simuljax.models.parameters import parameter_count
from simuljax.report.collect import Evaluated, find_logs
from simuljax.report.figures import draw_alignment
from simuljax.report.grid_page import write_published_page
from simuljax.report.page import flatten
from simuljax.report.results import is_results, read_results
from simuljax.report.run_page import Knowledge, ReportOptions, write_report
from simuljax.report.utterances import UtteranceAudio
from simuljax.runs.alignment import align_utterance, has_alignment
from simuljax.train.checkpoint import CHECKPOINTS
from simuljax.train.run import find_params, open_run

ALIGNMENT = "alignment.png"  # beside a log
TERMS = "training.objective.terms."


def report_command(page: ReportOptions) -> Callable[[], None]:
    """Write a page about evaluations: figures, tests, utterances; of a grid's results its page."""
    check(page)

    def command() -> None:
        folder = Path(page.runs[0])
        if len(page.runs) == 1 and is_results(folder) and read_results(folder).grid:
            print(write_published_page(folder, page.out))
        else:
            draw_alignments(page)
            print(write_report(page, KNOWLEDGE))

    return command


def check(options: ReportOptions) -> None:
    """Reject options that cannot work before anything is read."""
    if not options.runs:
        raise ChoiceError("a report needs a run or a log: simuljax report RUN")
    if options.bucket_ms is not None and not 0 < options.bucket_ms < math.inf:
        raise ChoiceError(f"bucket_ms is {options.bucket_ms}; it must be above 0, 500 for example")
    if options.utterances < 0:
        raise ChoiceError(f"utterances is {options.utterances}; it must be 0 or more")
    found = [source for given in options.runs for source in find_logs(given)]
    if options.split is not None and not any(each.is_run for each in found):
        raise ChoiceError(
            f"--split {options.split} chooses among the evaluations of runs; logs of other tools "
            "have no split. Leave it out."
        )


def draw_alignments(options: ReportOptions) -> None:
    """Draw the alignment of the first utterance of every run that has weights, once."""
    drawn: set[Path] = set()
    for source in (found for given in options.runs for found in find_logs(given)):
        path = source.log.parent / "config.json"
        if source.root in drawn or not path.exists():
            continue
        config = read_object(path)
        usual = {"mode": "streamed", "branch": "speech", "predecision_ms": None, "audio": "own"}
        as_trained = all(config.get(name, value) == value for name, value in usual.items())
        ours = {"split", "checkpoint"} <= config.keys()
        if ours and options.split in (None, config["split"]) and as_trained:
            drawn.add(source.root)
            if not (source.log.parent / ALIGNMENT).exists():
                draw_alignment_of(source.root, config, source.log)


def draw_alignment_of(run: Path, config: Mapping[str, Any], log: Path) -> None:
    """Draw an alignment beside the log, if the weights and the corpus are there."""
    corpus = opened(config.get("corpus"), run)
    if corpus is None or not ((run / CHECKPOINTS).exists() or find_params(run)):
        return
    whole = open_run(run)
    if has_alignment(whole.model) and whole.config.data.task == "translation":
        index = read_records(log)[0].index or 0
        drawn = align_utterance(whole, corpus[config["split"]], index, config["checkpoint"])
        draw_alignment(log.parent / ALIGNMENT, **vars(drawn))


def audio_of(evaluated: Evaluated, index: int) -> UtteranceAudio | None:
    """Return the speech and the transcript of an utterance, if its corpus is still there."""
    if evaluated.run is None or evaluated.config.get("branch") == "text":
        return None
    corpus = opened(evaluated.config.get("corpus"), evaluated.run)
    if corpus is None:
        return None
    split = corpus[evaluated.config["split"]]
    return UtteranceAudio(
        samples=split.source[index]["audio"], transcript=split.table.transcript[index]
    )


def parameters_of(run: Path) -> int | None:
    """Return the number of parameters of a run's model; None if it cannot be opened."""
    try:
        return parameter_count(open_run(run).model)
    except (SimuljaxError, OSError):
        return None


def changed_fields(run: Path) -> Mapping[str, str]:
    """Return the fields of a run's configuration that are not the default; terms by their names."""
    try:
        experiment = read_experiment(run)
    except (SimuljaxError, OSError):
        return {}
    fields = flatten(without_defaults(experiment))
    changed = {name: value for name, value in fields.items() if not name.startswith(TERMS)}
    usual = {term.name: to_json(term) for term in Objective().terms}
    own = {
        term.name: to_json(term) if term.name in usual else without_defaults(term)
        for term in experiment.training.objective.terms
    }
    for place, _, now in changes(usual, own):
        changed |= flatten({f"{TERMS}{place}": "left out" if now is None else now})
    return changed


@functools.cache
def opened(directory: str | None, run: Path) -> PreparedCorpus | None:
    """Return the corpus of an evaluation: the one it names, or else the run's own."""
    try:
        return open_corpus(directory or read_experiment(run).data.directory)
    except (CorpusError, ConfigError):
        return None  # published evaluations have no run directory


KNOWLEDGE = Knowledge(audio_of=audio_of, parameters_of=parameters_of, changed_fields=changed_fields)
