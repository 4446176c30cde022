"""Gather evaluations for a report: systems, settings, scores, records.

    RUN                 its evaluations, RUN/eval/NAME/{instances.log, scores.json, config.json}
    RESULTS[:RUN]       evaluations of a folder of published results (see results.py)
    LOG or DIRECTORY    the log of any system, gzipped or not, or a directory of such logs
    NAME=ANY OF THESE   the same under another name; logs of one name are one system

A *system* is one line of the figure: a run with its policy, apart from the numbers that a sweep
varies.
"""

import functools
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, Literal

from simuljax.config.fields import read_object
from simuljax.eval.curves import Point
from simuljax.eval.latency import DEFAULT
from simuljax.eval.logs import (
    ARCHIVE,
    LOGS,
    NAME,
    Record,
    RecordError,
    as_records,
    log_in,
    parse_log,
    read_archive,
    read_records,
    split_member,
)
from simuljax.eval.scores import LATENCIES, build_report
from simuljax.report.results import (
    SCORES,
    Latency,
    PublishedEvaluation,
    is_results,
    read_results,
)

AWARE = "computation_aware"
LARGEST_PICTURE = 8 << 20  # bytes of a PNG that a page embeds
# Labels of the numbers that a sweep varies; other settings are shown with their names.
SWEPT = {
    "k": "k={}",
    "then_k": "k={}",
    "predecision_ms": "{} ms",
    "first_ms": "after {} ms",
    "step_ms": "steps of {} ms",
    "tokens": "N={}",
    "read_ms": "read {} ms",
    "last_frames": "f={}",
    "alpha": "alpha={}",
    "threshold": "p={}",
}
USUAL = {"threshold": 0.5, "then_threshold": 0.5}
# Settings that tell systems apart: their usual values and labels.
VARIANTS = {
    "branch": ("speech", "{}"),
    "checkpoint": ("best", "{} checkpoint"),
    "gather": ("any", "{}"),
    "audio": ("own", "{} audio"),
}
SWITCHES = {"force_finish": "force finish", "avoid_eos_while_reading": "avoid EOS"}
# Settings of the test, of the clock, and those that are part of a system's name.
OTHERS = {"run", "split", "corpus", "data", "name", "mode", "first", "repeats", "frames", "steps"}
OTHERS |= {"weights", "policy", "units", "then", *VARIANTS, *SWITCHES}


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """One evaluation."""

    system: str
    setting: str  # distinguishes it from the others of its system: "k=3", "320 ms"
    name: str  # of its folder, or of the log
    records: tuple[Record, ...]
    scores: Mapping[str, Any]  # as `score` returns them; "computation_aware" has the clock's
    config: Mapping[str, Any]  # the evaluation's settings; empty for a log of another tool
    run: Path | None  # None for a log of another tool
    pictures: tuple[Path, ...] = ()  # PNGs beside the log

    def __str__(self) -> str:
        return ", ".join(filter(None, [self.system, self.setting]))

    @property
    def is_offline(self) -> bool:
        """Return True if the whole source was available at once."""
        return self.config.get("mode") == "offline"

    @property
    def is_control(self) -> bool:
        return self.config.get("audio") == "other"

    @property
    def unit(self) -> Literal["ms", "words"]:
        return "words" if all(record.has_text_source for record in self.records) else "ms"

    @property
    def bleu(self) -> float:
        return float(self.scores["BLEU"])

    def latency(self, name: str, *, clock: bool = False) -> float:
        """Return a latency, with computation if `clock`; NaN where it is unknown."""
        scores = self.scores.get(AWARE, {}) if clock else self.scores
        return float(scores.get(name, math.nan))

    def point(self, name: Latency, *, clock: bool = False) -> Point | None:
        """Return its place in the figure; None without both a latency and a quality."""
        point = Point(
            latency_ms=self.latency(name, clock=clock), quality=self.bleu, label=self.setting
        )
        return None if math.isnan(point.latency_ms + point.quality) else point


@dataclass(frozen=True, kw_only=True)
class LogSource:
    """A log to report, and where it comes from."""

    root: Path  # the run, or the log itself if another tool wrote it
    log: Path  # a file, or ARCHIVE:MEMBER
    name: str | None = None  # given on the command line
    published: PublishedEvaluation | None = None

    @property
    def is_run(self) -> bool:
        """Return True for an evaluation of one of our runs."""
        return self.root != self.log


def gather(inputs: Sequence[Path | str], split: str | None = None) -> list[Evaluated]:
    """Read the evaluations of runs and logs; of runs only those on `split`, if it is given."""
    if not inputs:
        raise RecordError("a report needs a run or a log: simuljax report RUN")
    sources = {each.log: each for given in dict.fromkeys(inputs) for each in find_logs(given)}
    systems = short_names(each.root for each in sources.values() if each.name is None)
    settings: dict[Path, str] = {}  # of logs that share a given name
    for name in {each.name for each in sources.values() if each.name is not None}:
        logs = [log for log, each in sources.items() if each.name == name and not each.is_run]
        settings |= short_names(logs) if len(logs) > 1 else {}
    found = [
        _read(each, each.name or systems[each.root], settings.get(log, ""))
        for log, each in sources.items()
    ]
    kept = [e for e in found if split is None or e.config.get("split", split) == split]
    if not kept:
        splits = sorted({str(each.config["split"]) for each in found})
        raise RecordError(f"no evaluation is of split {split!r}; there are {', '.join(splits)}")
    return kept


def find_logs(given: Path | str) -> list[LogSource]:
    """Return the logs at RUN, RESULTS[:RUN], LOG, DIRECTORY or NAME=ANY OF THESE."""
    text = str(given)
    name, equals, rest = text.partition("=")
    if equals and not Path(text).exists() and "/" not in name:
        if not name or not rest:
            raise RecordError(f"{text!r} names no log; write NAME=LOG")
        return [replace(each, name=name) for each in _find(Path(os.path.abspath(rest)), True)]
    return _find(Path(os.path.abspath(text)), False)


def _find(path: Path, named: bool) -> list[LogSource]:
    if path.is_file():
        return [LogSource(root=path, log=path)]
    if is_results(path) or split_member(path):
        return _find_published(path)
    if not path.is_dir():
        raise RecordError(f"{path} does not exist")
    own = log_in(path)
    if own and path.parent.name == "eval":  # one evaluation of a run
        return [LogSource(root=path.parent.parent, log=own)]
    evaluations = [log for folder in sorted(path.glob("eval/*/")) if (log := log_in(folder))]
    if evaluations:
        return [LogSource(root=path, log=log) for log in evaluations]
    if own:
        return [LogSource(root=own, log=own)]
    several = [log for folder in sorted(path.glob("*/")) if (log := log_in(folder))]
    several += sorted(path.glob("*.log"))
    if several and named:
        return [LogSource(root=log, log=log) for log in several]
    raise RecordError(
        f"{path} has no evaluation: neither eval/*/{NAME} nor {NAME}. "
        f"`simuljax evaluate {path}` makes one of a trained run"
    )


def _find_published(path: Path) -> list[LogSource]:
    place, _, prefix = str(path).partition(":")
    folder = Path(place)
    # A name ends at a part of it: `kd` is `kd-seed0-...`, not `kd_long-seed0-...`.
    begins = re.compile(re.escape(prefix) + r"(?![^-/.])" * prefix[-1:].isalnum())
    found = [each for each in read_results(folder).evaluations if begins.match(each.log)]
    if not found:
        raise RecordError(f"{folder} has no evaluation whose log begins with {prefix!r}")
    return [
        LogSource(root=folder / each.run, log=Path(f"{folder}:{each.log}"), published=each)
        for each in found
    ]


def short_names(paths: Iterable[Path]) -> dict[Path, str]:
    """Return short distinct names: the ends of the paths, without `instances.log`."""
    parts = {path: (path.parent if path.name in LOGS else path).parts for path in paths}
    for count in range(1, max(map(len, parts.values()), default=0) + 1):
        names = {path: "/".join(each[-count:]) for path, each in parts.items()}
        if len(set(names.values())) == len(names):
            return names
    return {path: str(path) for path in parts}


def read_published(folder: Path, each: PublishedEvaluation, system: str = "") -> Evaluated:
    """Return an evaluation of a folder of published results, with its records."""
    log = read_archive(folder / ARCHIVE).get(each.log)
    if log is None:
        raise RecordError(f"{folder / ARCHIVE} has no {each.log}, which {folder / SCORES} names")
    return with_records(each, log, f"{folder}:{each.log}", folder / each.run, system)


def with_records(
    each: PublishedEvaluation, log: bytes, where: str, run: Path, system: str = ""
) -> Evaluated:
    """Return an evaluation of a run with the records of its log."""
    scores = _with_nan(each.scores)
    bad = [name for name in ("BLEU", *LATENCIES) if not isinstance(scores.get(name), Real)]
    if bad:
        raise RecordError(f"the stored scores of {where} have no number for {', '.join(bad)}")
    return Evaluated(
        system=_with_variant(system or each.run, each.config),
        setting=setting_of(each.config),
        name=each.evaluation,
        records=tuple(as_records(parse_log(log.decode("utf-8"), where))),
        scores=scores,
        config=each.config,
        run=run,
    )


def _read(source: LogSource, system: str, setting: str) -> Evaluated:
    log, root, ours = source.log, source.root, source.is_run
    if source.published:
        return read_published(root.parent, source.published, system)
    records = tuple(as_records(read_records(log)))
    config = read_object(log.parent / "config.json") if ours else {}
    return Evaluated(
        system=_with_variant(system, config),
        setting=setting_of(config) or setting,
        name=log.parent.name if log.name in LOGS else log.name,
        records=records,
        scores=_stored_scores(log, records) if ours else build_report(records),
        config=config,
        run=root if ours else None,
        pictures=tuple(filter(_is_picture, sorted(log.parent.glob("*.png")))) if ours else (),
    )


def _is_picture(path: Path) -> bool:
    """Return True for a PNG that is a plain file of modest size."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST_PICTURE:
        return False
    with path.open("rb") as file:
        return file.read(8) == b"\x89PNG\r\n\x1a\n"


def _stored_scores(log: Path, records: Sequence[Record]) -> dict[str, Any]:
    """Return the stored scores, or those of the log where none are stored or some are missing."""
    path = log.parent / "scores.json"
    stored = read_object(path)
    needed = ("BLEU", *LATENCIES, "n", "skipped", "profile", "signature")
    if any(name not in stored for name in needed):
        return build_report(records)
    if stored["n"] != len(records):
        raise RecordError(
            f"{path} is of {stored['n']} utterances, but {log} has {len(records)}: evaluate again"
        )
    if AWARE not in stored and any(any(record.elapsed) for record in records):
        fresh = build_report(records, stored.get("profile", DEFAULT))
        stored |= {AWARE: fresh[AWARE]} if AWARE in fresh else {}
    return _with_nan(stored)


def _with_nan(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scores with NaN for null, which JSON has in its place."""
    plain = {k: _with_nan(v) if isinstance(v, Mapping) else v for k, v in scores.items()}
    return {name: math.nan if value is None else value for name, value in plain.items()}


def setting_of(config: Mapping[str, Any]) -> str:
    """Label the settings of an evaluation that a sweep may vary, where they are not the default."""
    declared, parts = _declared(config.get("policy")), []
    for name in [*SWEPT, *(name for name in config if name not in SWEPT)]:
        value = config.get(name)
        if name in OTHERS or isinstance(value, Mapping):  # sweeps vary single values
            continue
        if value not in (None, False) and value != USUAL.get(name):
            usual, label = declared.get(name, (None, f"{name} {{}}"))
            label = SWEPT.get(name) or (label if value != usual else None)
            parts += [label.replace("{:g}", "{}").format(value)] if label else []
    return ", ".join(parts)


@functools.cache
def _declared(policy: str | None) -> dict[str, tuple[Any, str | None]]:
    """Return (usual value, label) of every option of an evaluation with this policy."""
    from simuljax.config.evaluation import Evaluation
    from simuljax.config.fields import to_json
    from simuljax.config.options import options_of
    from simuljax.decode.policies import POLICIES

    known = options_of(Evaluation, POLICIES.get(policy or ""))
    return {name: (to_json(each.usual), each.setting.label) for name, each in known.items()}


def _with_variant(system: str, config: Mapping[str, Any]) -> str:
    """Add the policy and other settings that make another system of the same run."""
    parts = [policy_of(config), f"then {Path(config['then']).name}" if config.get("then") else ""]
    parts += [
        label.format(config[name])
        for name, (usual, label) in VARIANTS.items()
        if config.get(name) not in (None, usual)
    ]
    parts += [name for key, name in SWITCHES.items() if config.get(key)]
    variant = ", ".join(filter(None, parts))
    return f"{system} ({variant})" if variant else system


def policy_of(config: Mapping[str, Any]) -> str:
    """Return the policy of an evaluation and its units; "" if the model itself decides."""
    given = [str(config[key]) for key in ("policy", "units") if config.get(key)]
    return " ".join("/".join(Path(each).parts[-2:]) for each in given)  # a file may lie anywhere
