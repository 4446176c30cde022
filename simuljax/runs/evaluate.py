"""`simuljax evaluate`: a trained run on a split, its log and its scores; a sweep, and its curve.

Results go to RUN/eval/NAME/: config.json, instances.log, scores.json. What was translated before an
interruption is not translated again: it waits in instances.log.part.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from data_pipelines.dataset import digest
from simuljax.config.evaluation import Evaluation, points
from simuljax.config.fields import ConfigError
from simuljax.config.json import differences, read_json, to_json, write_json
from simuljax.config.options import to_options
from simuljax.eval import Record, read_records, score, write_records
from simuljax.eval.curves import Point
from simuljax.eval.lengths import word_difference
from simuljax.eval.logs import NAME as LOG
from simuljax.eval.logs import record_line
from simuljax.eval.scores import average_runs
from simuljax.report.figures import draw_curves
from simuljax.runs.cascade import Cascading, cascading
from simuljax.runs.check import check, check_effects
from simuljax.runs.translate import Translating, spoken
from simuljax.serve.run import Run, learnt, open_run

FREE = ("run", "name", "frames", "repeats", "steps", "data")
SCORES, CONFIG = "scores.json", "config.json"
DIGITS = {"BLEU": 2, "AP": 3}
SHOWN = ("BLEU", "AL", "LAAL", "AP", "DAL", "ATD")


def all_asked(
    chosen: Evaluation, sweep: tuple[str, ...] = (), also: tuple[Path, ...] = ()
) -> dict[Path, list[Evaluation]]:
    """Every setting of every run, if all of them can be asked, before the first takes its time."""
    ways = points(chosen, sweep)
    asked = {run: [replace(way, run=run) for way in ways] for run in (chosen.run, *also)}
    for each in asked.values():
        open_asked(each)
    return asked


def evaluate_each(asked: Mapping[Path, Sequence[Evaluation]]) -> list[dict[str, Any]]:
    """Prints the scores and, of several, draws the curve, beside the first run's."""
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
    (first, (way, *_)), *_ = asked.items()
    if len(all_scores) > 1 and way.branch == "speech" and drawn:
        print(f"curve: {draw_curves(curves, first / 'eval' / 'curve.png')}")
    return all_scores


def open_asked(each: Sequence[Evaluation]) -> Run:
    """The run of these evaluations, if all of them can be asked of it."""
    for chosen in each:
        check(chosen)
    run = open_run(each[0].run)
    then = open_run(each[0].then).model if each[0].then else None
    for chosen in each:
        check_effects(chosen, run.model, then)
    return run


def evaluate(chosen: Evaluation) -> dict[str, Any]:
    """Translates what is not yet translated of the split, writes the results, gives the scores."""
    run = open_asked([chosen])
    trained = learnt(run, chosen.checkpoint)
    alone = Translating(run=run, trained=trained, examples=spoken(run, chosen), chosen=chosen)
    translating = cascading(alone) if chosen.then else alone
    steps = translating.steps if isinstance(translating, Cascading) else list(trained.steps)
    begin(chosen, steps, run.config.data.directory)
    passes = chosen.repeats if chosen.mode == "live" else 1
    logs = [LOG, *(f"instances-{i}.log" for i in range(2, passes + 1))]
    runs = [translated(translating, chosen.folder / log) for log in logs]
    scores = score(runs[0]) | {"word_difference": word_difference(runs[0]), "steps": steps}
    if chosen.mode == "live":
        clocked = [score(records, computation_aware=True) for records in runs]
        scores["computation_aware"] = average_runs(clocked)
    write_json(chosen.folder / SCORES, scores)
    return scores


def check_data(chosen: Evaluation, corpus: Path) -> str | None:
    """A digest of the split, if what is in the folder already, if anything, is of the same."""
    path, there = chosen.folder / CONFIG, digest(chosen.corpus or corpus, chosen.split)
    kept = read_json(path).get("data") if path.exists() else None  # old ones do not say
    if None not in (kept, there) and kept != there:
        raise ConfigError(
            f"{chosen.folder} is of another {chosen.split} than {chosen.corpus or corpus} holds "
            "now: give this one a --name, or remove that directory"
        )
    return there


def begin(chosen: Evaluation, steps: list[int], corpus: Path) -> None:
    """Makes sure that what is in the folder already is of this evaluation, or makes the folder."""
    data = check_data(chosen, corpus)
    folder, what = chosen.folder, to_json(to_options(chosen)) | {"steps": steps, "data": data}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / CONFIG
    if path.exists():
        usual: Any = to_json(
            to_options(Evaluation(run=chosen.run))
        )  # settings younger than the log
        old = usual | read_json(path)
        other = differences(_told(old), _told(what))
        if other:
            raise ConfigError(
                f"{folder} holds another evaluation ({'; '.join(other)}): give this one a --name, "
                "or remove that directory"
            )
        if old.get("steps") == steps:
            return
        print(f"{folder} is of updates {old.get('steps')}, these are {steps}: evaluated anew")
        (folder / SCORES).unlink(missing_ok=True)  # first: without them it is not done
        for old_one in [*folder.glob("instances*.log*"), *folder.glob("*.png")]:
            old_one.unlink()
    write_json(path, what)


def _told(config: Mapping[str, Any]) -> dict[str, Any]:
    """Without what has no influence on the log of a pass, or is compared elsewhere."""
    return {name: value for name, value in config.items() if name not in FREE}


def translated(translating: Translating | Cascading, log: Path) -> list[Record]:
    """The records of a log, which is written first if it is not there."""
    if log.exists():
        return read_records(log)
    part = log.with_name(log.name + ".part")
    records = {record.index: record for record in whole_lines(part)}
    chosen = translating.chosen
    with (
        part.open("w", encoding="utf-8") as file,
        tqdm(desc=chosen.folder.name, unit="utt", total=len(translating)) as bar,
    ):
        write_lines(file, records.values())
        bar.update(len(records))
        for some in translating.records({index or 0 for index in records}, bar.update):
            write_lines(file, some)
            records |= {record.index: record for record in some}
    write_records(part, sorted(records.values(), key=lambda record: record.index or 0))
    part.rename(log)
    return read_records(log)


def write_lines(file: Any, records: Iterable[Record]) -> None:
    """Each with its own line, and all of them on the disk."""
    file.writelines(record_line(record) + "\n" for record in records)
    file.flush()


def whole_lines(part: Path) -> list[Record]:
    """What an evaluation that was interrupted has left; half a line at the end is no record."""
    if not part.exists():
        return []
    *lines, _ = part.read_bytes().split(b"\n")
    if not lines:
        return []
    part.write_bytes(b"".join(line + b"\n" for line in lines))
    return read_records(part)


def table(run: Path, each: Sequence[Evaluation], scores: Sequence[Mapping[str, Any]]) -> str:
    """A line for each evaluation of a run."""
    aware = any("computation_aware" in one for one in scores)
    names = [*SHOWN, *(["AL_CA"] if aware else [])]
    wide = max(len(one.folder.name) for one in each) + 2
    lines = [
        f"{run} (as SimulEval {scores[0]['profile']})",
        f"{'':{wide}}" + "".join(f"{name:>9}" for name in names),
    ]
    for one, found in zip(each, scores, strict=True):
        values = dict(found) | {"AL_CA": found.get("computation_aware", {}).get("AL")}
        cells = [_cell(name, values[name]) for name in names]
        lines.append(f"{one.folder.name:{wide}}" + "".join(cells))
    return "\n".join(lines)


def _cell(name: str, value: float | None) -> str:
    if value is None or math.isnan(value):
        return f"{'-':>9}"
    return f"{value:9.{DIGITS.get(name, 0)}f}"
