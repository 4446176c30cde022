"""Write the report of runs and logs: figures, tests, and a few utterances, on one page."""

import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from simuljax.eval.curves import best_per_bucket
from simuljax.report.collect import AWARE, Evaluated, Latency, gather
from simuljax.report.figures import draw_curves, draw_losses
from simuljax.report.page import Figure, Table, differing_fields, make_table, number, render
from simuljax.report.results import PAGE, PublishedRun, is_results, read_results, read_run
from simuljax.report.systems import (
    Comparable,
    compare_systems,
    comparison_table,
    group,
    verdict_of,
)
from simuljax.report.utterances import TIMES, AudioOf, describe_utterances

READING = (
    "Shown are, of the first system, the utterances of highest and of lowest chrF, those with the "
    "highest {latency}, and as many from the middle (nearest to the median chrF); of a system with "
    "several settings the one of best BLEU. Words stand at the moment they were committed. Marked "
    "are words of the hypothesis that the reference has not, and the reverse."
)
CLOCKED = " Orange lines lead to the time on the clock, computation included."


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """The inputs and options of a report."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Evaluated runs, folders of published results, or logs in SimulEval's format. NAME=LOG gives
    a log a name; logs of the same name are the points of one line."""
    out: Path | None = None
    """The directory of the page; by default `report` in the first of them."""
    split: str | None = None
    """Only the evaluations of runs on this split."""
    latency: Latency = "AL"
    """The latency on the axis of the figure."""
    utterances: int = 12
    """Utterances to show of every test set."""
    bucket_ms: float | None = None
    """Draw lines through the best point of each bucket this wide: 500 in figure 3 of Ma 2020."""

    @property
    def place(self) -> Path:
        """Return the directory of the page."""
        first = Path(self.runs[0].partition("=")[2] or self.runs[0])
        first = Path(str(first).partition(":")[0]) if not first.exists() else first
        return self.out or (first if first.is_dir() else first.parent) / "report"

    @property
    def command(self) -> str:
        options = {"split": self.split, "latency": self.latency, "bucket-ms": self.bucket_ms}
        words = [
            f"--{name} {value}" for name, value in options.items() if value not in (None, "AL")
        ]
        return " ".join(["simuljax report", *map(shlex.quote, self.runs), *words])


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """Facts that only the caller knows: it has the corpora and the models."""

    audio_of: AudioOf = lambda _evaluated, _index: None
    parameters_of: Callable[[Path], int | None] = lambda _run: None
    changed_fields: Callable[[Path], Mapping[str, str]] = lambda _run: {}


def write_report(options: ReportOptions, knowledge: Knowledge | None = None) -> Path:
    """Gather the evaluations, draw them, and write the page."""
    knowledge, out = knowledge or Knowledge(), options.place
    comparables = group(gather(options.runs, options.split), options.latency)
    out.mkdir(parents=True, exist_ok=True)
    runs = _read_runs([each for comparable in comparables for each in comparable.evaluated])
    sections = []
    for place, comparable in enumerate(comparables, start=1):
        name = f"latency-quality{f'-{place}' * (len(comparables) > 1)}.png"
        figure = draw_comparable(comparable, out / name, options)
        sections.append(_section(comparable, figure, options, knowledge))
    systems = sorted({name for section in sections for name in section["systems"]})
    more = f" and {len(systems) - 3} more" * (len(systems) > 3)
    changed = [*knowledge.changed_fields(next(iter(runs))).items()] if len(runs) == 1 else []
    losses = draw_losses({run.run: run.curves for run in runs.values()}, out / "losses.png")
    caption = "Loss of every run over its updates; runs that differ in their seed share a colour."
    page = render(
        "report.html",
        title="Report: " + ", ".join(systems[:3]) + more,
        facts=_facts(options, runs, knowledge),
        tables=[
            differing_fields({run.run: run.config for run in runs.values()}),
            make_table("changed", changed),
        ],
        losses=Figure.of(losses, caption),
        sections=sections,
        scripted=any(article["audio"] for each in sections for article in each["articles"]),
    )
    (out / PAGE).write_text(page, "utf-8")
    return out / PAGE


def _read_runs(evaluated: Iterable[Evaluated]) -> dict[Path, PublishedRun]:
    """Read the configurations and curves of the runs that were evaluated."""
    found: dict[Path, PublishedRun] = {}
    for run in dict.fromkeys(each.run for each in evaluated if each.run):
        if is_results(run.parent):
            by_name = {each.run: each for each in read_results(run.parent).runs}
            found |= {run: by_name[run.name]} if run.name in by_name else {}
        elif (run / "config.json").exists():
            found[run] = read_run(run, run.name, run.name, None)
    return found


def _facts(
    options: ReportOptions, runs: Mapping[Path, PublishedRun], knowledge: Knowledge
) -> list[tuple[str, str]]:
    sizes = {run.name: knowledge.parameters_of(run) for run in runs}
    shown = [f"{name} {size / 1e6:.1f} M" for name, size in sizes.items() if size]
    distinct = {size for size in sizes.values() if size}
    if len(distinct) == 1:
        shown = [f"{distinct.pop() / 1e6:.1f} M"]
    configs = [run.config.get("training", {}) for run in runs.values()]
    seeds = sorted({config["seed"] for config in configs if "seed" in config})
    curves = [curve for run in runs.values() for curve in run.curves.values()]
    times = [at for curve in curves for at in curve.get("time", ()) if at]
    updates = [str(c["step"][-1]) for r in runs.values() if (c := r.curves.get("train"))]
    return [
        ("runs", ", ".join(run.name for run in runs)),
        ("parameters", ", ".join(shown)),
        ("seeds", ", ".join(map(str, seeds))),
        ("updates", ", ".join(dict.fromkeys(updates))),
        ("trained", time.strftime("%Y-%m-%d", time.gmtime(max(times))) if times else ""),
        ("report of", time.strftime("%Y-%m-%d %H:%M")),
        ("command", options.command),
    ]


def draw_comparable(comparable: Comparable, path: Path, options: ReportOptions) -> Path | None:
    """Draw the latency-quality figure of a test set; None where there is no point."""
    lines: dict[bool, dict[str, Any]] = {False: {}, True: {}}
    for system, evaluated in comparable.systems(offline=False).items():
        for clock, drawn in lines.items():
            points = (e.point(options.latency, clock=clock) for e in distinct_settings(evaluated))
            drawn[system] = [point for point in points if point]
    free = lines[False]
    if not any(free.values()):
        return None
    through = None
    if options.bucket_ms is not None and comparable.unit == "ms":
        through = partial(best_per_bucket, width_ms=options.bucket_ms)
    return draw_curves(
        free,
        path,
        latency=options.latency,
        title=next(iter(free)) if len(free) == 1 else "",
        unit=comparable.unit,
        aware=lines[True],
        offline={s: max(e.bleu for e in o) for s, o in comparable.systems(offline=True).items()},
        through=through,
    )


def distinct_settings(evaluated: Sequence[Evaluated]) -> list[Evaluated]:
    """Shorten the settings by what all of them share."""
    parts = [each.setting.split(", ") for each in evaluated]
    shared = set.intersection(*map(set, parts)) if len(parts) > 1 else set()
    settings = [", ".join(part for part in each if part not in shared) for each in parts]
    settings = [s or ("default" if len(parts) > 1 else "") for s in settings]
    return [replace(e, setting=setting) for e, setting in zip(evaluated, settings, strict=True)]


def _section(
    comparable: Comparable, figure: Path | None, options: ReportOptions, knowledge: Knowledge
) -> dict[str, Any]:
    """Return the context of the template for one test set."""
    latency, evaluated = options.latency, comparable.evaluated
    caption = f"Quality against {latency}, one line per system; up and to the left is better."
    if comparable.systems(offline=True):
        caption += " Dotted: the same system with the whole source."
    if any(AWARE in each.scores for each in evaluated):
        caption += " Dashed: with the time spent computing."
    tested = compare_systems(comparable, latency)
    clock = any(any(record.elapsed) for each in evaluated for record in each.records)
    return {
        "name": comparable.name,
        "systems": [each.system for each in evaluated if not each.is_control],
        "figure": Figure.of(figure, caption),
        "verdict": verdict_of(comparable, tested, latency),
        "tables": [_scores(comparable), comparison_table(tested)],
        "reading": READING.format(latency=latency) + CLOCKED * clock,
        "articles": describe_utterances(
            comparable, options.utterances, latency, knowledge.audio_of
        ),
        "pictures": [
            (f"{each.system}, {each.name}", [Figure(path, path.stem) for path in each.pictures])
            for each in evaluated
            if each.pictures
        ],
    }


def _scores(comparable: Comparable) -> Table:
    """Return one row per evaluation; the note says how they were scored."""
    evaluated, digits = comparable.evaluated, 0 if comparable.unit == "ms" else 2
    ways = []
    for each in evaluated:
        signature = each.scores["signature"]
        ways.append(f"profile {each.scores['profile']}" + f"; BLEU {signature}" * bool(signature))
    several = list(dict.fromkeys(ways))
    clock = any(AWARE in each.scores for each in evaluated)
    heads = ["system", "setting", "evaluation", "BLEU", *TIMES, "AP"]
    heads += [*(f"{name}_CA" for name in TIMES), "RTF_CA"] * clock + ["n", "skipped"]
    heads += ["scored"] * (len(several) > 1)
    rows = []
    for each, way in zip(evaluated, ways, strict=True):
        scores, aware = each.scores, each.scores.get(AWARE, {})
        cells = [each.system, each.setting, each.name, number(scores["BLEU"], 2)]
        cells += [number(scores[name], digits) for name in TIMES] + [number(scores["AP"], 3)]
        if clock:
            cells += [number(aware.get(name), digits) for name in TIMES]
            cells.append(number(aware.get("RTF"), 3))
        cells += [str(scores["n"]), str(scores["skipped"])]
        rows.append(cells + [f"({several.index(way) + 1})"] * (len(several) > 1))
    notes = [f"({i}) {way}" if len(several) > 1 else way for i, way in enumerate(several, start=1)]
    notes.append(f"Latencies are in {comparable.unit}; skipped: without a word, so without latency")
    notes += ["_CA: by the clock, with the time spent computing"] * clock
    if any(each.is_control for each in evaluated):
        notes.append("Grey: a control with the wrong audio, which must score badly")
    return Table("Scores", heads, rows, ". ".join(notes) + ".", left=3)
