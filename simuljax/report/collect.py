"""What evaluations have left, gathered for a report: systems, settings, scores, records.

    RUN                     its evaluations, RUN/eval/NAME/{instances.log, scores.json, config.json}
    LOG, or a directory     a log of any system, gzipped or not: one evaluation, scored here

A *system* is what a line is drawn for: a run as it is decoded, its policy included, apart from the
numbers that are swept (step, READ, threshold, k). Runs called NAME_lambda_X are one system, and
NAME is its X = 0. Evaluations are compared with each other only if their references are the same.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from simuljax.eval.curves import Point
from simuljax.eval.latency import DEFAULT
from simuljax.eval.logs import LOGS, NAME, Record, RecordError, as_records, log_in, read_records
from simuljax.eval.scores import LATENCIES, build_report

Latency = Literal["AL", "LAAL", "DAL", "ATD", "YAAL"]  # those that are times
Computation = Literal["free", "counted"]
AWARE = "computation_aware"
# Numbers that are swept, and how a figure shows them.
SWEPT = {
    "k": "k={}",
    "then_k": "k={}",
    "predecision_ms": "{} ms",
    "first_ms": "after {} ms",
    "step_ms": "steps of {} ms",
    "tokens": "N={}",
    "read_ms": "read {} ms",
    "last_frames": "f={}",
    "alpha": "alpha={:g}",
    "threshold": "p={}",
}
FAMILY = re.compile(r"(?P<name>.+)_lambda_(?P<value>[0-9.]+(?:e-?[0-9]+)?)")


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """One evaluation."""

    system: str
    setting: str  # what tells it from the others of its system: "k=3", "320 ms"
    name: str  # of its folder, or of the log
    records: tuple[Record, ...]
    scores: Mapping[str, Any]  # as `score` gives them; under "computation_aware" by the clock
    told: Mapping[str, Any]  # the evaluation's config.json; empty for a log of another system
    run: Path | None  # that was evaluated, if it is one of ours
    pictures: tuple[Path, ...]  # PNGs that lie beside the log

    @property
    def mode(self) -> Literal["streamed", "offline"]:
        """Whether the whole source came first."""
        return "offline" if self.told.get("mode") == "offline" else "streamed"

    @property
    def is_control(self) -> bool:
        """Whether it heard the wrong audio, so that it must be bad."""
        return self.told.get("audio") == "other"

    @property
    def unit(self) -> Literal["ms", "words"]:
        """Of its latencies."""
        return "words" if all(record.has_text_source for record in self.records) else "ms"

    def latency(self, name: str, *, computation: Computation = "free") -> float:
        """A latency; NaN where it is not known."""
        scores = self.scores.get(AWARE, {}) if computation == "counted" else self.scores
        return float(scores.get(name, math.nan))

    def point(self, name: Latency, *, computation: Computation = "free") -> Point | None:
        """Its place in the figure; none without both a latency and a quality."""
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
        """The evaluations of every system, without controls."""
        return self._of("streamed")

    def offline(self) -> dict[str, list[Evaluated]]:
        """The same with the whole source first."""
        return self._of("offline")

    def _of(self, mode: str) -> dict[str, list[Evaluated]]:
        found: dict[str, list[Evaluated]] = {}
        for each in self.evaluated:
            if each.mode == mode and not each.is_control:
                found.setdefault(each.system, []).append(each)
        return found


def gather(paths: Sequence[Path], split: str | None = None) -> list[Evaluated]:
    """The evaluations of runs and logs; of runs only those on a split, if it is named."""
    if not paths:
        raise RecordError("a report needs a run, or a log: simuljax report RUN")
    unique = list(dict.fromkeys(Path(path).resolve() for path in paths))
    logs = [(root, log) for path in unique for root, log in find_logs(path)]
    roots = list(dict.fromkeys(root for root, _ in logs))
    systems = dict(zip(roots, name_systems(roots), strict=True))
    found = [_evaluated(log, root, systems[root]) for root, log in dict.fromkeys(logs)]
    kept = [e for e in found if split is None or e.told.get("split", split) == split]
    if not kept:
        there = sorted({str(each.told["split"]) for each in found})
        raise RecordError(f"no evaluation is of split {split!r}; there are {', '.join(there)}")
    return kept


def find_logs(path: Path) -> list[tuple[Path, Path]]:
    """(Run or log of another system, log of an evaluation) of everything that lies at a path."""
    if path.is_file():
        return [(path, path)]
    if not path.is_dir():
        raise RecordError(f"{path} is not there")
    own = log_in(path)
    if own and path.parent.name == "eval":  # one evaluation of a run was named
        return [(path.parent.parent, own)]
    folders = sorted(path.glob("eval/*/"))
    evaluations = [(path, log) for folder in folders if (log := log_in(folder))]
    if evaluations:
        return evaluations
    if own:
        return [(own, own)]
    raise RecordError(
        f"{path} has no evaluation: neither eval/*/{NAME} nor {NAME}. "
        f"`simuljax evaluate {path}` makes one of a trained run"
    )


def name_systems(roots: Sequence[Path]) -> list[str]:
    """Short names that tell them apart: the ends of their paths, without `instances.log`."""
    paths = [root.parent if root.name in LOGS else root for root in roots]
    longest = max((len(path.parts) for path in paths), default=1)
    for count in range(1, longest + 1):
        names = ["/".join(path.parts[-count:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(root) for root in roots]


def group(evaluated: Iterable[Evaluated], latency: Latency = "AL") -> list[Comparable]:
    """Those that may stand in one figure; systems that swept their training are made one."""
    groups: dict[object, list[Evaluated]] = {}
    for each in join_families([*evaluated]):
        heard = tuple(sorted((str(r.index), r.reference or "") for r in each.records))
        groups.setdefault((heard, each.unit), []).append(each)
    return [_comparable(members, latency) for members in groups.values()]


def join_families(evaluated: Sequence[Evaluated]) -> list[Evaluated]:
    """Runs called NAME_lambda_X as settings of NAME."""
    runs = {each.run for each in evaluated if each.run}
    swept = {run: match for run in runs if (match := FAMILY.fullmatch(run.name))}
    weights = {run: match["value"] for run, match in swept.items()}
    bases = {run.with_name(match["name"]) for run, match in swept.items()}
    weights |= dict.fromkeys(bases & runs, "0")
    return [
        _as_setting(each, weights[each.run]) if each.run in weights else each for each in evaluated
    ]


def _as_setting(each: Evaluated, weight: str) -> Evaluated:
    setting = ", ".join(filter(None, [f"λ={weight}", each.setting]))
    return replace(each, system=each.system.replace(f"_lambda_{weight}", "", 1), setting=setting)


def _comparable(members: Sequence[Evaluated], latency: Latency) -> Comparable:
    def order(each: Evaluated) -> tuple[str, float, str]:
        late = each.latency(latency)
        return each.system, math.inf if math.isnan(late) else late, each.name

    unit = members[0].unit
    splits = list(dict.fromkeys(str(e.told["split"]) for e in members if "split" in e.told))
    name = " = ".join(splits) or members[0].name
    return Comparable(
        name=f"{name}, from text" if unit == "words" else name,
        unit=unit,
        evaluated=tuple(sorted(members, key=order)),
    )


def _evaluated(log: Path, root: Path, system: str) -> Evaluated:
    is_run = root != log
    records = tuple(as_records(read_records(log)))
    told = _json(log.parent / "config.json") if is_run else {}
    variant = _variant(told)
    return Evaluated(
        system=f"{system} ({variant})" if variant else system,
        setting=_setting(told),
        name=log.parent.name if log.name in LOGS else log.name,
        records=records,
        scores=_scores(log, records, is_run=is_run),
        told=told,
        run=root if is_run else None,
        pictures=tuple(sorted(log.parent.glob("*.png"))) if log.name in LOGS else (),
    )


def _scores(log: Path, records: Sequence[Record], *, is_run: bool) -> dict[str, Any]:
    """As the evaluation left them, or of the log where it left none (or some are missing)."""
    path = log.parent / "scores.json"
    stored = _json(path) if is_run and path.exists() else {}
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
    """JSON has no NaN, so null may stand for it."""
    return {
        name: _with_nan(value)
        if isinstance(value, Mapping)
        else math.nan
        if value is None
        else value
        for name, value in scores.items()
    }


def _setting(told: Mapping[str, Any]) -> str:
    """The numbers that are swept, where they are not as usual."""
    usual = {"threshold": 0.5}
    values = {key: told.get(key) for key in SWEPT}
    return ", ".join(
        SWEPT[key].format(value)
        for key, value in values.items()
        if value is not None and value != usual.get(key)
    )


def _variant(told: Mapping[str, Any]) -> str:
    """What else is not as usual."""
    usual = {"branch": "speech", "checkpoint": "best", "gather": "any", "audio": "own"}
    names = {"branch": "{}", "checkpoint": "{} checkpoint", "gather": "{}", "audio": "{} audio"}
    parts = [names[k].format(told[k]) for k, value in usual.items() if told.get(k, value) != value]
    switches = {"force_finish": "force finish", "avoid_eos_while_reading": "avoid EOS"}
    parts += [name for key, name in switches.items() if told.get(key)]
    then = f"then {Path(str(told['then'])).name}" if told.get("then") else ""
    return ", ".join(filter(None, [policy_of(told), then, *parts]))


def policy_of(told: Mapping[str, Any]) -> str:
    """What decides for a model that was trained offline, and by which units; or nothing."""
    return " ".join(str(told[key]) for key in ("policy", "units") if told.get(key))


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise RecordError(f"{path} is damaged: {error}") from None
    if not isinstance(value, dict):
        raise RecordError(f"{path} is not a JSON object")
    return value
