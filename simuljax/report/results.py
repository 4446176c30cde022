"""Published results: one folder per grid or experiment, every number with the log it rests on.

    scores.jsonl   one line per evaluation: variant, seed, settings, scores, steps, config hash
    runs.jsonl     first the grid (title, command, baseline, claims), if it is one; then one line
                   per run: its config, the curves of its metrics, what its training cost
    logs.tar.xz    the log of every evaluation, called RUN/EVALUATION/instances.log
    index.html     the page of a grid

`simuljax report FOLDER` writes the page again. `simuljax score FOLDER:RUN/EVALUATION` scores one
of the logs.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from simuljax.config.fields import (
    Checked,
    ConfigError,
    from_json,
    read_object,
    setting,
    without_nan,
)
from simuljax.eval.logs import ARCHIVE, NAME, RecordError, write_archive
from simuljax.eval.significance import Rule
from simuljax.parsing import ParseError, parse_json

SCORES, RUNS, PAGE = "scores.jsonl", "runs.jsonl", "index.html"
Curves = Mapping[str, Mapping[str, Sequence[float | None]]]  # split -> metric -> values
T = TypeVar("T")
Latency = Literal["AL", "LAAL", "DAL", "ATD", "YAAL"]  # those that are times


@dataclass(frozen=True, kw_only=True)
class Claim(Checked):
    """A statement that one variant beats another in one evaluation, by so many BLEU."""

    says: str
    variant: str
    over: str
    evaluation: str = "test-speech-offline"  # by the name of its folder
    published: float | None = setting(None, above=0.0, help="The published gain, in BLEU.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant == self.over:
            raise ConfigError(f"the claim {self.says!r} compares {self.over!r} with itself")


@dataclass(frozen=True, kw_only=True)
class GridInfo:
    """The declaration of a grid, as far as its page needs it."""

    title: str
    command: str
    baseline: str
    variants: tuple[str, ...]  # in the order of the tables
    latency: Latency = "AL"
    claims: tuple[Claim, ...] = ()
    rule: Rule = field(default_factory=Rule)
    date: str = ""


@dataclass(frozen=True, kw_only=True)
class PublishedRun:
    """A training: its configuration and its course. The weights are left out."""

    run: str
    variant: str
    seed: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    curves: Curves = field(default_factory=dict)
    parameters: int | None = None
    spent: Mapping[str, Any] | None = None
    diagnosis: Mapping[str, Any] | None = None

    @property
    def config_hash(self) -> str:
        """Return the first 12 digits of a hash of the configuration."""
        return hashlib.sha256(json.dumps(self.config, sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True)
class PublishedEvaluation:
    """The scores of one evaluation, how it was made, and the name of its log in the archive."""

    run: str
    evaluation: str  # the folder's name within the run
    variant: str = ""  # of the grid; the run may continue another variant's
    setting: str = ""  # the grid's name for the evaluation
    seed: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    config_hash: str = ""  # of the run
    steps: Sequence[int] = ()  # updates of the checkpoints
    scores: Mapping[str, Any] = field(default_factory=dict)

    @property
    def log(self) -> str:
        return f"{self.run}/{self.evaluation}/{NAME}"


@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything in a folder but the logs."""

    grid: GridInfo | None
    runs: tuple[PublishedRun, ...]
    evaluations: tuple[PublishedEvaluation, ...]


def read_run(directory: Path, name: str, variant: str, seed: int | None) -> PublishedRun:
    """Read the files of a run's directory."""
    return PublishedRun(
        run=name,
        variant=variant,
        seed=seed,
        config=read_object(directory / "config.json"),
        curves=curves_of(directory),
        spent=read_object(directory / "spent.json") or None,
        diagnosis=read_object(directory / "diagnosis.json") or None,
    )


def read_evaluation(folder: Path, of: PublishedRun, **names: Any) -> PublishedEvaluation:
    """Read the scores and the settings of an evaluation's folder."""
    scores, config = (read_object(folder / f"{name}.json") for name in ("scores", "config"))
    return PublishedEvaluation(
        run=of.run,
        evaluation=folder.name,
        config={name: value for name, value in config.items() if value is not None},
        config_hash=of.config_hash if of.config else "",
        steps=scores.pop("steps", ()),
        scores=scores,
        **names,
    )


def curves_of(directory: Path) -> Curves:
    """Return the metrics of a run by split, one list per metric; None where it was not logged."""
    path = directory / "metrics.jsonl"
    lines = path.read_bytes().splitlines() if path.exists() else []
    rows: dict[str, list[dict[str, Any]]] = {}
    for number, line in enumerate(lines, start=1):
        try:
            entry = parse_json(line)
            own = {"step": entry["step"], "time": entry.get("time")} | entry.get("values", {})
            rows.setdefault(str(entry.get("split", "train")), []).append(own)
        except (ParseError, KeyError, TypeError, AttributeError) as error:
            if number < len(lines):  # the last line may be broken off
                raise RecordError(f"{path}, line {number} is damaged: {error}") from None
    found: dict[str, dict[str, list[float | None]]] = {}
    for split, entries in rows.items():
        names = dict.fromkeys(name for entry in entries for name in entry)
        found[split] = {name: [entry.get(name) for entry in entries] for name in names}
    return found


def write_results(folder: Path, results: Results, logs: Mapping[str, bytes]) -> None:
    """Write a folder; `logs` are by member name."""
    missing = [each.log for each in results.evaluations if each.log not in logs]
    if missing:
        raise RecordError(f"{len(missing)} evaluations have no log, the first is {missing[0]}")
    folder.mkdir(parents=True, exist_ok=True)
    runs = [{"kind": "grid"} | asdict(results.grid)] if results.grid else []
    for run in results.runs:
        runs.append({"kind": "run"} | asdict(run) | {"config_hash": run.config_hash})
    if runs:
        _write_lines(folder / RUNS, runs)
    scores = [asdict(each) | {"log": each.log} for each in results.evaluations]
    _write_lines(folder / SCORES, scores)
    write_archive(folder / ARCHIVE, logs)


def read_results(folder: Path) -> Results:
    """Read a folder that `write_results` wrote."""
    info = _read_lines(folder / RUNS, _read_info)
    runs = tuple(each for each in info if isinstance(each, PublishedRun))
    grid = next((each for each in info if isinstance(each, GridInfo)), None)
    evaluations = tuple(_read_lines(folder / SCORES, _read_evaluation))
    return Results(grid=grid, runs=runs, evaluations=evaluations)


def _read_info(line: dict[str, Any]) -> GridInfo | PublishedRun:
    """Return the object of a line of runs.jsonl; `row` is an older name of a claim's variant."""
    kind = line.pop("kind", None)
    if kind == "grid":
        renamed = [
            {("variant" if k == "row" else k): v for k, v in claim.items()}
            for claim in line.get("claims", ())
        ]
        return from_json(GridInfo, {"rule": {"margin": 0.0}} | line | {"claims": renamed})
    if kind != "run":
        raise ConfigError(f"kind is {kind!r:.60}; it must be 'grid' or 'run'")
    line.pop("config_hash", None)
    return from_json(PublishedRun, line)


def _read_evaluation(line: dict[str, Any]) -> PublishedEvaluation:
    line.pop("log", None)
    return from_json(PublishedEvaluation, line)


def is_results(folder: Path) -> bool:
    """Return True for a folder of published results."""
    return (folder / SCORES).is_file() and (folder / ARCHIVE).is_file()


def _write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    encoded = (
        json.dumps(without_nan(line), ensure_ascii=False, separators=(",", ":")) for line in lines
    )
    path.write_text("".join(f"{line}\n" for line in encoded), "utf-8")


def _read_lines(path: Path, read: Callable[[dict[str, Any]], T]) -> list[T]:
    """Return what `read` makes of the object of every line."""
    found = []
    for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else [], 1):
        try:
            value = parse_json(line)
            if not isinstance(value, dict):
                raise ConfigError(f"it must hold an object, not {value!r:.60}")
            found.append(read(value))
        except (ParseError, ConfigError, TypeError, AttributeError) as error:
            problem = "is damaged, or of a newer simuljax"
            raise RecordError(f"{path}, line {number} {problem}: {error}") from None
    return found
