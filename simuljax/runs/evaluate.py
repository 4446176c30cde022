"""Evaluate models on a split: translate it, write the log and the scores, draw a sweep's curve.

Results go to RUN/eval/NAME/ (config.json, instances.log, scores.json); those of a model file go to
the runs, under its name. After an interruption, the records in instances.log.part are kept.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from data_pipelines.dataset import digest
from simuljax.cache import announce_compilation
from simuljax.config.evaluation import Evaluation, points
from simuljax.config.fields import ConfigError
from simuljax.config.json import differences, read_json, to_json, write_json
from simuljax.config.options import given_options, to_options
from simuljax.eval import Record, read_records, score, write_records
from simuljax.eval.curves import Point
from simuljax.eval.logs import NAME as LOG
from simuljax.eval.logs import record_line
from simuljax.eval.scores import average_runs, word_difference
from simuljax.eval.word_errors import normalise, word_error_rate
from simuljax.report.figures import draw_curves
from simuljax.runs.cascade import CascadeSplit, open_cascade
from simuljax.runs.check import check, check_effects
from simuljax.runs.recordings import (
    RecordingsSplit,
    check_settings,
    open_recordings,
    stream_settings,
)
from simuljax.runs.translate import RunSplit, open_examples
from simuljax.serve.run import learnt, open_run
from simuljax.serve.translator import is_whisper, load

# Settings without influence on a log, or compared elsewhere.
FREE = ("run", "name", "frames", "repeats", "steps", "data")
SCORES, CONFIG = "scores.json", "config.json"
DIGITS = {"BLEU": 2, "WER": 2, "AP": 3}
SHOWN = ("BLEU", "WER", "AL", "LAAL", "AP", "DAL", "ATD")
COMPILE_S = 30.0  # about, for the first batch on a few cores
Source = RunSplit | CascadeSplit | RecordingsSplit


def plan_evaluations(
    chosen: Evaluation, sweep: tuple[str, ...] = (), also: tuple[Path, ...] = ()
) -> dict[Path, list[Evaluation]]:
    """Return every setting of every model; reject any that is impossible, before the first runs."""
    settings = points(chosen, sweep)
    asked = {run: [replace(each, run=run) for each in settings] for run in (chosen.run, *also)}
    for each in asked.values():
        check_all(each)
    return asked


def evaluate_all(asked: Mapping[Path, Sequence[Evaluation]]) -> list[dict[str, Any]]:
    """Evaluate, print the scores and the next command; draw a curve if there are several."""
    all_scores, curves = [], {}
    for run, each in asked.items():
        scores = [evaluate(one) for one in each]
        print(table(run, each, scores), flush=True)
        all_scores += scores
        curves[str(run)] = [
            Point(latency_ms=s["AL"], quality=s["BLEU"], label=one.label)
            for one, s in zip(each, scores, strict=True)
        ]
    drawn = any(math.isfinite(p.latency_ms) for curve in curves.values() for p in curve)
    first = next(iter(asked.values()))[0]
    if len(all_scores) > 1 and first.branch == "speech" and drawn:
        print(f"curve: {draw_curves(curves, first.folder.with_name('curve.png'))}")
    print(f"next: simuljax report {' '.join(str(each[0].results) for each in asked.values())}")
    return all_scores


def check_all(each: Sequence[Evaluation]) -> None:
    """Reject settings that the model of these evaluations cannot have."""
    for chosen in each:
        check(chosen)
    if is_whisper(each[0].run):
        for chosen in each:
            check_settings(chosen)
        return
    for name in given_options(each[0]).keys() & {"task", "language"}:
        raise ConfigError(f"--{name} is for Whisper models; {each[0].run} is a run")
    model = open_run(each[0].run).model
    then = open_run(each[0].then).model if each[0].then else None
    for chosen in each:
        check_effects(chosen, model, then)


def evaluate(chosen: Evaluation) -> dict[str, Any]:
    """Translate what the log lacks of the split, write the results and return the scores."""
    check_all([chosen])
    source = open_source(chosen)
    steps = [*source.steps]
    open_folder(chosen, steps, corpus_of(chosen))
    passes = chosen.repeats if chosen.mode == "live" else 1
    logs = [LOG, *(f"instances-{i}.log" for i in range(2, passes + 1))]
    runs = [translate_split(source, chosen.folder / log) for log in logs]
    scores = score(runs[0]) | {"word_difference": word_difference(runs[0]), "steps": steps}
    if chosen.task == "transcribe":
        scores["WER"] = word_error_rate(_normalised(record) for record in runs[0])
    if chosen.mode == "live":
        clocked = [score(records, computation_aware=True) for records in runs]
        scores["computation_aware"] = average_runs(clocked)
    write_json(chosen.folder / SCORES, scores)
    return scores


def open_source(chosen: Evaluation) -> Source:
    """Load the model and open the split."""
    if is_whisper(chosen.run):
        model = load(chosen.run)
        model.backend(**stream_settings(chosen))  # rejects settings that it cannot have
        split = open_recordings(corpus_of(chosen), chosen.split)
        return RecordingsSplit(model=model, split=split, chosen=chosen)
    run = open_run(chosen.run)
    trained = learnt(run, chosen.checkpoint)
    alone = RunSplit(run=run, trained=trained, examples=open_examples(run, chosen), chosen=chosen)
    return open_cascade(alone) if chosen.then else alone


def corpus_of(chosen: Evaluation) -> Path:
    """Return the corpus of an evaluation: as given, or that of the run."""
    if chosen.corpus is None and is_whisper(chosen.run):
        raise ConfigError(f"{chosen.run} was not trained here: name a --corpus")
    return chosen.corpus or open_run(chosen.run).config.data.directory


def _normalised(record: Record) -> tuple[list[str], list[str]]:
    return normalise(record.reference or ""), normalise(record.prediction)


def check_data(chosen: Evaluation, corpus: Path) -> str | None:
    """Return the digest of the split; reject a folder that holds results of other data."""
    corpus = chosen.corpus or corpus
    path, now = chosen.folder / CONFIG, digest(corpus, chosen.split)
    before = read_json(path).get("data") if path.exists() else None  # old ones do not say
    if None not in (before, now) and before != now:
        raise ConfigError(
            f"{chosen.folder} holds results of other data than {chosen.split} in {corpus} now: "
            "give this evaluation a --name, or remove that directory"
        )
    return now


def open_folder(chosen: Evaluation, steps: list[int], corpus: Path) -> None:
    """Make the folder of the results; reject one that holds another evaluation."""
    data = check_data(chosen, corpus)
    folder, new = chosen.folder, to_json(to_options(chosen)) | {"steps": steps, "data": data}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / CONFIG
    if path.exists():
        defaults: Any = to_json(to_options(Evaluation(run=chosen.run)))  # of newer settings
        old = defaults | read_json(path)
        changed = differences(_comparable(old), _comparable(new))
        if changed:
            raise ConfigError(
                f"{folder} holds another evaluation ({'; '.join(changed)}): give this one a "
                "--name, or remove that directory"
            )
        if old.get("steps") == steps:
            return
        print(f"{folder} is of updates {old.get('steps')}, not {steps}: evaluating again")
        (folder / SCORES).unlink(missing_ok=True)  # first: without scores it is not done
        for stale in [*folder.glob("instances*.log*"), *folder.glob("*.png")]:
            stale.unlink()
    write_json(path, new)


def _comparable(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in FREE}


def translate_split(source: Source, log: Path) -> list[Record]:
    """Return the records of a log; translate first what it lacks."""
    if log.exists():
        return read_records(log)
    part = log.with_name(log.name + ".part")
    records = {record.index: record for record in read_partial(part)}
    with part.open("w", encoding="utf-8") as file:
        write_lines(file, records.values())
        left = source.records({index or 0 for index in records})
        for some in _shown(source, left, len(records)):
            write_lines(file, some)
            records |= {record.index: record for record in some}
    write_records(part, sorted(records.values(), key=lambda record: record.index or 0))
    part.rename(log)
    return read_records(log)


def _shown(source: Source, batches: Iterator[list[Record]], done: int) -> Iterator[list[Record]]:
    """Show a bar of utterances; before the first of them, that the model compiles."""
    name = source.chosen.folder.name
    with announce_compilation(f"{source.chosen.run} {name}", about_s=COMPILE_S):
        first = next(batches, [])
    with tqdm(desc=name, unit="utt", total=len(source), initial=done) as bar:
        for some in itertools.chain([first], batches):
            bar.update(len(some))
            yield some


def write_lines(file: Any, records: Iterable[Record]) -> None:
    """Write a line for each record, all the way to the disk."""
    file.writelines(record_line(record) + "\n" for record in records)
    file.flush()


def read_partial(part: Path) -> list[Record]:
    """Return the records of an interrupted evaluation; half a line at the end is dropped."""
    if not part.exists():
        return []
    *lines, _ = part.read_bytes().split(b"\n")
    if not lines:
        return []
    part.write_bytes(b"".join(line + b"\n" for line in lines))
    return read_records(part)


def table(run: Path, each: Sequence[Evaluation], scores: Sequence[Mapping[str, Any]]) -> str:
    """Format the scores, one line per evaluation."""
    names = [name for name in SHOWN if name in scores[0]]
    names += ["AL_CA"] if any("computation_aware" in one for one in scores) else []
    wide = max(len(one.folder.name) for one in each) + 2
    lines = [
        f"{run} (as SimulEval {scores[0]['profile']})",
        f"{'':{wide}}" + "".join(f"{name:>9}" for name in names),
    ]
    for one, found in zip(each, scores, strict=True):
        values = dict(found) | {"AL_CA": found.get("computation_aware", {}).get("AL")}
        cells = [_cell(name, values.get(name)) for name in names]
        lines.append(f"{one.folder.name:{wide}}" + "".join(cells))
    return "\n".join(lines)


def _cell(name: str, value: float | None) -> str:
    if value is None or math.isnan(value):
        return f"{'-':>9}"
    return f"{value:9.{DIGITS.get(name, 0)}f}"
