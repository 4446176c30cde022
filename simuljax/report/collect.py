"""Gather evaluations for a report: systems, settings, scores, records.

    RUN                 its evaluations, RUN/eval/NAME/{instances.log, scores.json, config.json}
    RESULTS[:RUN]       evaluations of a folder of published results (see results.py)
    LOG or DIRECTORY    the log of any system, gzipped or not, or a directory of such logs
    NAME=ANY OF THESE   the same under another name; logs of one name are one system

A *system* is one line of the figure: a run with its policy, apart from the numbers that a sweep
varies. Runs called NAME_lambda_X are one system, and NAME is its X = 0. Evaluations are compared
with each other only if their references are the same.
"""

import functools
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

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
from simuljax.report.results import PublishedEvaluation, is_results, read_object, read_results

Latency = Literal["AL", "LAAL", "DAL", "ATD", "YAAL"]  # those that are times
Computation = Literal["free", "counted"]
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
OTHERS |= {"policy", "units", "then", *VARIANTS, *SWITCHES}
FAMILY = re.compile(r"(?P<name>.+)_lambda_(?P<value>[0-9.]+(?:e-?[0-9]+)?)")


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

    @property
    def mode(self) -> Literal["streamed", "offline"]:
        """Return "offline" if the whole source was available at once."""
        return "offline" if self.config.get("mode") == "offline" else "streamed"

    @property
    def is_control(self) -> bool:
        return self.config.get("audio") == "other"

    @property
    def unit(self) -> Literal["ms", "words"]:
        return "words" if all(record.has_text_source for record in self.records) else "ms"

    def latency(self, name: str, *, computation: Computation = "free") -> float:
        """Return a latency; NaN where it is unknown."""
        scores = self.scores.get(AWARE, {}) if computation == "counted" else self.scores
        return float(scores.get(name, math.nan))

    def point(self, name: Latency, *, computation: Computation = "free") -> Point | None:
        """Return its place in the figure; None without both a latency and a quality."""
        latency, quality = self.latency(name, computation=computation), float(self.scores["BLEU"])
        if math.isnan(latency) or math.isnan(quality):
            return None
        return Point(latency_ms=latency, quality=quality, label=self.setting)


@dataclass(frozen=True, kw_only=True)
class Comparable:
    """Evaluations with the same references and the same unit of latency."""

    name: str
    unit: Literal["ms", "words"]
    evaluated: tuple[Evaluated, ...]  # by system, then latency

    def streamed(self) -> dict[str, list[Evaluated]]:
        """Return the streamed evaluations of every system, without controls."""
        return self._of("streamed")

    def offline(self) -> dict[str, list[Evaluated]]:
        """Return the evaluations that had the whole source, without controls."""
        return self._of("offline")

    def _of(self, mode: str) -> dict[str, list[Evaluated]]:
        found: dict[str, list[Evaluated]] = {}
        for each in self.evaluated:
            if each.mode == mode and not each.is_control:
                found.setdefault(each.system, []).append(each)
        return found


@dataclass(frozen=True, kw_only=True)
class Source:
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
    sources = {each.log: each for given in dict.fromkeys(inputs) for each in sources_of(given)}
    roots = [*dict.fromkeys(each.root for each in sources.values() if each.name is None)]
    systems = dict(zip(roots, name_systems(roots), strict=True))
    named = _settings_of_names(sources.values())
    found = [
        _read(each, each.name or systems[each.root], named.get(log, ""))
        for log, each in sources.items()
    ]
    kept = [e for e in found if split is None or e.config.get("split", split) == split]
    if not kept:
        splits = sorted({str(each.config["split"]) for each in found})
        raise RecordError(f"no evaluation is of split {split!r}; there are {', '.join(splits)}")
    return kept


def sources_of(given: Path | str) -> list[Source]:
    """Return the logs at RUN, RESULTS[:RUN], LOG, DIRECTORY or NAME=ANY OF THESE."""
    text = str(given)
    name, equals, rest = text.partition("=")
    if equals and not Path(text).exists() and "/" not in name:
        if not name or not rest:
            raise RecordError(f"{text!r} names no log; write NAME=LOG")
        return [replace(each, name=name) for each in _find(Path(os.path.abspath(rest)), True)]
    return _find(Path(os.path.abspath(text)), False)


def _find(path: Path, named: bool) -> list[Source]:
    if path.is_file():
        return [Source(root=path, log=path)]
    if is_results(path) or split_member(path):
        return _published(path)
    if not path.is_dir():
        raise RecordError(f"{path} does not exist")
    own = log_in(path)
    if own and path.parent.name == "eval":  # one evaluation of a run
        return [Source(root=path.parent.parent, log=own)]
    evaluations = [log for folder in sorted(path.glob("eval/*/")) if (log := log_in(folder))]
    if evaluations:
        return [Source(root=path, log=log) for log in evaluations]
    several = [log for folder in sorted(path.glob("*/")) if (log := log_in(folder))]
    several += sorted(path.glob("*.log")) if not own else []
    if own or (several and named):
        return [Source(root=log, log=log) for log in ([own] if own else several)]
    raise RecordError(
        f"{path} has no evaluation: neither eval/*/{NAME} nor {NAME}. "
        f"`simuljax evaluate {path}` makes one of a trained run"
    )


def _published(path: Path) -> list[Source]:
    place, _, prefix = str(path).partition(":")
    folder = Path(place)
    found = [each for each in read_results(folder).evaluations if each.log.startswith(prefix)]
    if not found:
        raise RecordError(f"{folder} has no evaluation whose log begins with {prefix!r}")
    return [
        Source(root=folder / each.run, log=Path(f"{folder}:{each.log}"), published=each)
        for each in found
    ]


def _settings_of_names(sources: Iterable[Source]) -> dict[Path, str]:
    """Label the logs that share a given name by the parts of their paths that differ."""
    groups: dict[str, list[Path]] = {}
    for each in sources:
        if each.name is not None and not each.is_run:
            groups.setdefault(each.name, []).append(each.log)
    return {
        log: label
        for logs in groups.values()
        if len(logs) > 1
        for log, label in zip(logs, name_systems(logs), strict=True)
    }


def name_systems(roots: Sequence[Path]) -> list[str]:
    """Return short distinct names: the ends of the paths, without `instances.log`."""
    paths = [root.parent if root.name in LOGS else root for root in roots]
    longest = max((len(path.parts) for path in paths), default=1)
    for count in range(1, longest + 1):
        names = ["/".join(path.parts[-count:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(root) for root in roots]


def group(evaluated: Iterable[Evaluated], latency: Latency = "AL") -> list[Comparable]:
    """Group evaluations of the same test set; runs that sweep a training weight become one."""
    groups: dict[object, list[Evaluated]] = {}
    for each in join_families([*evaluated]):
        test = tuple(sorted((str(r.index), r.reference or "") for r in each.records))
        groups.setdefault((test, each.unit), []).append(each)
    return [_comparable(members, latency) for members in groups.values()]


def join_families(evaluated: Sequence[Evaluated]) -> list[Evaluated]:
    """Turn runs called NAME_lambda_X into settings of NAME."""
    runs = {each.run for each in evaluated if each.run}
    swept = {run: match for run in runs if (match := FAMILY.fullmatch(run.name))}
    weights = {run: match["value"] for run, match in swept.items()}
    bases = {run.with_name(match["name"]) for run, match in swept.items()}
    weights |= dict.fromkeys(bases & runs, "0")
    joined = []
    for each in evaluated:
        if each.run in weights:
            weight = weights[each.run]
            setting = ", ".join(filter(None, [f"λ={weight}", each.setting]))
            system = each.system.replace(f"_lambda_{weight}", "", 1)
            each = replace(each, system=system, setting=setting)
        joined.append(each)
    return joined


def _comparable(members: Sequence[Evaluated], latency: Latency) -> Comparable:
    def order(each: Evaluated) -> tuple[str, float, str]:
        late = each.latency(latency)
        return each.system, math.inf if math.isnan(late) else late, each.name

    unit = members[0].unit
    splits = list(dict.fromkeys(str(e.config["split"]) for e in members if "split" in e.config))
    name = " = ".join(splits) or members[0].name
    return Comparable(
        name=f"{name}, from text" if unit == "words" else name,
        unit=unit,
        evaluated=tuple(sorted(members, key=order)),
    )


def read_published(folder: Path, each: PublishedEvaluation) -> Evaluated:
    """Return a published evaluation with its records."""
    text = read_archive(folder / ARCHIVE)[each.log].decode("utf-8")
    return Evaluated(
        system=_with_variant(each.run, each.config),
        setting=setting_of(each.config),
        name=each.evaluation,
        records=tuple(as_records(parse_log(text, f"{folder}:{each.log}"))),
        scores=_with_nan(each.scores),
        config=each.config,
        run=folder / each.run,
    )


def _read(source: Source, system: str, setting: str) -> Evaluated:
    log, root = source.log, source.root
    if source.published:
        found = read_published(root.parent, source.published)
        return replace(found, system=_with_variant(system, found.config))
    records = tuple(as_records(read_records(log)))
    config = read_object(log.parent / "config.json") if source.is_run else {}
    return Evaluated(
        system=_with_variant(system, config),
        setting=setting_of(config) or setting,
        name=log.parent.name if log.name in LOGS else log.name,
        records=records,
        scores=_scores(log, records, is_run=source.is_run),
        config=config,
        run=root if source.is_run else None,
        pictures=_pictures(log.parent) if source.is_run and log.name in LOGS else (),
    )


def _pictures(folder: Path) -> tuple[Path, ...]:
    """Return the PNGs that a run's evaluation has beside its log: plain files of modest size."""
    found = sorted(folder.glob("*.png"))
    return tuple(path for path in found if not path.is_symlink() and _is_picture(path))


def _is_picture(path: Path) -> bool:
    if not path.is_file() or path.stat().st_size > LARGEST_PICTURE:
        return False
    with path.open("rb") as file:
        return file.read(8) == b"\x89PNG\r\n\x1a\n"


def _scores(log: Path, records: Sequence[Record], *, is_run: bool) -> dict[str, Any]:
    """Return the stored scores, or those of the log where none are stored or some are missing."""
    path = log.parent / "scores.json"
    stored = read_object(path) if is_run else {}
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
    order = [*SWEPT, *(name for name in config if name not in SWEPT)]
    given = {name: config.get(name) for name in order if name not in OTHERS}
    parts = []
    for name, value in given.items():
        if isinstance(value, Mapping):  # a record of an earlier version; sweeps vary single values
            continue
        if value not in (None, False) and value != USUAL.get(name):
            usual, label = _declared(config.get("policy")).get(name, (None, f"{name} {{}}"))
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
    parts = [
        label.format(config[name])
        for name, (usual, label) in VARIANTS.items()
        if config.get(name) not in (None, usual)
    ]
    parts += [name for key, name in SWITCHES.items() if config.get(key)]
    then = f"then {Path(str(config['then'])).name}" if config.get("then") else ""
    variant = ", ".join(filter(None, [policy_of(config), then, *parts]))
    return f"{system} ({variant})" if variant else system


def policy_of(config: Mapping[str, Any]) -> str:
    """Return the policy of an evaluation and its units; "" if the model itself decides."""
    return " ".join(str(config[key]) for key in ("policy", "units") if config.get(key))
