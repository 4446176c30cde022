"""The command `simuljax score`."""

import json as json_format
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from simuljax.config.fields import without_nan
from simuljax.errors import ChoiceError
from simuljax.eval.latency import DEFAULT, Profile
from simuljax.eval.logs import (
    NAME,
    Record,
    RecordError,
    find_faults,
    log_in,
    read_records,
    split_member,
)
from simuljax.eval.long_form import read_segments, score_longform
from simuljax.eval.scores import LATENCIES, build_report

RATIOS = ("BLEU", "AP", "RTF")  # the others are times
NO_REFERENCES = "no references: no BLEU, and latencies count the words of the output in their place"


def score_command(
    log: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(name="INSTANCES.LOG")],
    profile: Profile = DEFAULT,
    computation_aware: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    json: str | None = None,
    segments: Path | None = None,
    references: Path | None = None,
    strict: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> Callable[[], object]:
    """Score a log in SimulEval's format, ours or another tool's.

    Args:
        log: The log, gzipped or not, the directory that has it, or one of a results folder:
            experiments/results/NAME:RUN/EVALUATION.
        profile: Whose definitions: words alone (1.1), or end-of-sentence too (1.0, up to 2022).
        computation_aware: Only the computation-aware scores; otherwise both where there is a clock.
        json: Write the scores as JSON to this file, or to standard output (`--json` alone).
        segments: For whole talks: the times of the reference's segments, a YAML list of
            {wav, offset, duration} in seconds.
        references: For whole talks: the reference, one segment a line.
        strict: Refuse a log with times that cannot be right, instead of a warning.
    """
    if (segments is None) != (references is None):
        raise RecordError("--segments and --references go together")
    _check_log(log)
    for option, file in (("--segments", segments), ("--references", references)):
        if file is not None and not file.exists():
            raise RecordError(f"{option}: there is no file {file}")
    _check_output(json, log, segments, references)

    def command() -> None:
        records = read_records(log)
        _check_times(records, log, strict)
        report = build_report(records, profile, computation_aware=computation_aware)
        if segments and references:
            report["long_form"] = score_longform(records, read_segments(segments, references))
        text = all(record.has_text_source for record in records)
        show(table(report, "words" if text else "ms"), report, json)
        if json == "-" and not report["signature"]:
            print(f"simuljax: {NO_REFERENCES}", file=sys.stderr)

    return command


def _check_log(log: Path) -> None:
    """Reject a path without a log, before anything is read."""
    if split_member(log):
        found = None
    elif log.is_dir():
        found = None if log_in(log) else f"{log} has no {NAME}"
    else:
        found = None if log.exists() else f"there is no log {log}"
    if found:
        raise RecordError(
            f"{found}: give a log in SimulEval's format (a JSON object a line, gzipped or not), or "
            f"the directory that has it as {NAME}"
        )


def _check_output(json: str | None, *inputs: Path | None) -> None:
    """Reject a file for the scores that is one of the inputs, or a directory."""
    if json in (None, "-"):
        return
    out = Path(json)
    if out.is_dir():
        raise ChoiceError(f"--json {out} is a directory; give a file")
    read = [log_in(file) or file if file.is_dir() else file for file in inputs if file is not None]
    if any(out.exists() and file.exists() and out.samefile(file) for file in read):
        raise ChoiceError(f"--json {out} would overwrite what is read; give another file")


def _check_times(records: Sequence[Record], log: Path, strict: bool) -> None:
    """Warn of records with times that cannot be right, or reject them."""
    faults = find_faults(records)
    if not faults:
        return
    found = ", ".join(f"{count} with {fault}" for fault, count in faults.items())
    problem = f"{log}: of {len(records)} records {found}"
    if strict:
        raise RecordError(problem)
    print(f"simuljax: warning: {problem}; --strict refuses such a log", file=sys.stderr)


def table(report: Mapping[str, Any], unit: str = "ms") -> str:
    """Format the report: one row per metric, one column per clock."""
    columns = [report, *_parts(report, "computation_aware")]
    lines = [f"{'':14s}{'by the source':>17s}{'with computation':>20s}"] * (len(columns) == 2)
    for metric in ("BLEU", *LATENCIES):
        cells = "".join(_cell(metric, column[metric], unit) for column in columns)
        lines.append(f"{metric:14s}{cells}")
    lines.append(_counted(report, "utterances"))
    for part in _parts(report, "long_form"):
        lines += ["", "cut at the reference's segments"]
        names = ("BLEU", "StreamLAAL", "StreamLAAL_CA", "LongYAAL", "LongYAAL_CA")
        lines += [f"{name:14s}{_cell(name, part[name], unit)}" for name in names]
        lines.append(_counted(part, "segments"))
    quality = f"BLEU {report['signature']}" if report["signature"] else NO_REFERENCES
    return "\n".join([*lines, "", f"profile {report['profile']}", quality])


def _parts(report: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    part = report.get(name)
    return [part] if isinstance(part, Mapping) else []


def _counted(scores: Mapping[str, Any], things: str) -> str:
    without = f", {scores['skipped']} of them without a word, which have no latency"
    return f"{scores['n']} {things}{without * bool(scores['skipped'])}"


def _cell(metric: str, value: object, unit: str) -> str:
    if not isinstance(value, float) or math.isnan(value):
        return f"{'-':>14s}{'':6s}"
    if metric in RATIOS:
        return f"{value:14.3f}{'':6s}"
    return f"{value:14.1f} {unit:5s}"


def show(text: str, document: Any, path: str | None) -> None:
    """Print the text, or JSON where the path is `-`; write JSON to any other path."""
    as_json = json_format.dumps(without_nan(document), indent=1)
    print(as_json if path == "-" else text)
    if path and path != "-":
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(as_json + "\n")
