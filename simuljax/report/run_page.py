"""Write the report of runs and logs: figures, tests, and a few utterances, on one page."""

import base64
import difflib
import io
import math
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from simuljax.eval.curves import best_per_bucket
from simuljax.eval.logs import Record, find_unit
from simuljax.eval.scores import latencies
from simuljax.report.collect import AWARE, Comparable, Evaluated, Latency, gather, group
from simuljax.report.figures import draw_curves, draw_losses
from simuljax.report.page import Figure, Table, differing_fields, make_table, number, render
from simuljax.report.results import PAGE, PublishedRun, is_results, read_results, read_run
from simuljax.report.timeline import commits_of, draw_timeline, end_of
from simuljax.report.variants import (
    compare_systems,
    comparison_table,
    name_of,
    representative,
    verdict_of,
)

TIMES = ("AL", "LAAL", "DAL", "ATD", "YAAL")
READING = (
    "Shown are, of the first system, the utterances of highest and of lowest chrF, those with the "
    "highest {latency}, and as many from the middle (nearest to the median chrF); of a system with "
    "several settings the one of best BLEU. Words stand at the moment they were committed. Marked "
    "are words of the hypothesis that the reference has not, and the reverse."
)
CLOCKED = " Orange lines lead to the time on the clock, computation included."


@dataclass(frozen=True, kw_only=True)
class Report:
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
class SourceAudio:
    """The speech of an utterance, mono, and its transcript."""

    samples: np.ndarray
    transcript: str | None = None
    rate: int = 16000


# The source of an utterance by its index in the evaluation's log; None where it is unknown.
SourceOf = Callable[[Evaluated, int], SourceAudio | None]


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """Facts that only the caller knows: it has the corpora and the models."""

    source_of: SourceOf = lambda _evaluated, _index: None
    parameters_of: Callable[[Path], int | None] = lambda _run: None
    changed_fields: Callable[[Path], Mapping[str, str]] = lambda _run: {}


def write_report(options: Report, knowledge: Knowledge | None = None) -> Path:
    """Gather the evaluations, draw them, and write the page."""
    knowledge, out = knowledge or Knowledge(), options.place
    comparables = group(gather(options.runs, options.split), options.latency)
    out.mkdir(parents=True, exist_ok=True)
    runs = _runs([each for comparable in comparables for each in comparable.evaluated])
    sections = []
    for place, comparable in enumerate(comparables, start=1):
        name = f"latency-quality{f'-{place}' * (len(comparables) > 1)}.png"
        figure = draw_comparable(comparable, out / name, options)
        sections.append(section_of(comparable, figure, options, knowledge))
    losses = draw_losses({run.run: run.curves for run in runs.values()}, out / "losses.png")
    page = build_page(options, sections, runs, losses, knowledge)
    (out / PAGE).write_text(page, "utf-8")
    return out / PAGE


def build_page(
    options: Report,
    sections: Sequence[Mapping[str, Any]],
    runs: Mapping[Path, PublishedRun],
    losses: Path | None,
    knowledge: Knowledge,
) -> str:
    """Return the page as text."""
    systems = sorted({name for section in sections for name in section["systems"]})
    more = f" and {len(systems) - 3} more" * (len(systems) > 3)
    changed = [*knowledge.changed_fields(next(iter(runs))).items()] if len(runs) == 1 else []
    caption = "Loss of every run over its updates; runs that differ in their seed share a colour."
    return render(
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


def _runs(evaluated: Iterable[Evaluated]) -> dict[Path, PublishedRun]:
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
    options: Report, runs: Mapping[Path, PublishedRun], knowledge: Knowledge
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


def draw_comparable(comparable: Comparable, path: Path, options: Report) -> Path | None:
    """Draw the latency-quality figure of a test set; None where there is no point."""
    latency = options.latency
    streamed = {system: distinct_settings(e) for system, e in comparable.streamed().items()}
    free, counted = (
        {
            system: [p for e in each if (p := e.point(latency, computation=computation))]
            for system, each in streamed.items()
        }
        for computation in ("free", "counted")
    )
    if not any(free.values()):
        return None
    whole = {s: max(e.scores["BLEU"] for e in each) for s, each in comparable.offline().items()}
    title, unit = next(iter(free)) if len(free) == 1 else "", comparable.unit
    through = None
    if options.bucket_ms is not None and unit == "ms":
        through = partial(best_per_bucket, width_ms=options.bucket_ms)
    shown = {"title": title, "unit": unit, "aware": counted, "offline": whole, "through": through}
    return draw_curves(free, path, latency=latency, **shown)


def distinct_settings(evaluated: Sequence[Evaluated]) -> list[Evaluated]:
    """Shorten the settings by what all of them share."""
    parts = [each.setting.split(", ") for each in evaluated]
    shared = set.intersection(*map(set, parts)) if len(parts) > 1 else set()
    settings = [", ".join(part for part in each if part not in shared) for each in parts]
    settings = [s or ("default" if len(parts) > 1 else "") for s in settings]
    return [replace(e, setting=setting) for e, setting in zip(evaluated, settings, strict=True)]


def section_of(
    comparable: Comparable, figure: Path | None, options: Report, knowledge: Knowledge
) -> dict[str, Any]:
    """Return the context of the template for one test set."""
    latency = options.latency
    caption = f"Quality against {latency}, one line per system; up and to the left is better."
    if comparable.offline():
        caption += " Dotted: the same system with the whole source."
    if any(AWARE in each.scores for each in comparable.evaluated):
        caption += " Dashed: with the time spent computing."
    tested = compare_systems(comparable, latency)
    clock = any(any(r.elapsed) for each in comparable.evaluated for r in each.records)
    return {
        "name": comparable.name,
        "systems": [each.system for each in comparable.evaluated if not each.is_control],
        "figure": Figure.of(figure, caption),
        "verdict": verdict_of(comparable, tested, latency),
        "tables": [_scores(comparable), comparison_table(tested)],
        "reading": READING.format(latency=latency) + CLOCKED * clock,
        "articles": articles_of(comparable, options.utterances, latency, knowledge.source_of),
        "pictures": [
            (f"{each.system}, {each.name}", [Figure(path, path.stem) for path in each.pictures])
            for each in comparable.evaluated
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


@dataclass(frozen=True, kw_only=True)
class Utterance:
    """One utterance of an evaluation with its own scores."""

    record: Record
    chrf: float  # NaN without a reference
    latencies: dict[str, float]  # empty without a word


def utterances_of(evaluated: Evaluated) -> dict[int, Utterance]:
    """Score every utterance of an evaluation, by index, or by place in a log without."""
    import sacrebleu

    metric, records, found = sacrebleu.CHRF(), evaluated.records, {}
    each = latencies(records, profile=evaluated.scores["profile"])
    for place, (record, values) in enumerate(zip(records, each, strict=True)):
        chrf = math.nan
        if record.reference is not None:
            chrf = metric.sentence_score(record.prediction, [record.reference]).score
        key = place if record.index is None else record.index
        found[key] = Utterance(record=record, chrf=chrf, latencies=values or {})
    return found


def choose(utterances: dict[int, Utterance], count: int, latency: Latency) -> dict[int, str]:
    """Choose a quarter each of the best and worst by chrF and of the latest; the rest are median.

    The result is why each was chosen. Of equal ones the longer come first, since they show more.
    """
    chosen: dict[int, str] = {}

    def take(keys: Sequence[int], reason: str, many: int) -> None:
        left = [key for key in keys if key not in chosen][: max(0, many)]
        chosen.update(dict.fromkeys(left, reason))

    def late(key: int) -> float:
        value = utterances[key].latencies.get(latency, math.nan)
        return -math.inf if math.isnan(value) else value

    longer = sorted(utterances, key=lambda key: -utterances[key].record.source_length)
    scored = [key for key in longer if not math.isnan(utterances[key].chrf)]
    best = sorted(scored, key=lambda key: -utterances[key].chrf)
    take(best, "best", count // 4)
    take(sorted(scored, key=lambda key: utterances[key].chrf), "worst", count // 4)
    take(sorted(longer, key=lambda key: -late(key)), "latest", count // 4)
    ranks = {key: abs(rank - (len(best) - 1) / 2) for rank, key in enumerate(best)}
    take(sorted(longer, key=lambda key: ranks.get(key, math.inf)), "middle", count - len(chosen))
    return chosen


def marked(text: str, other: str) -> list[tuple[str, bool]]:
    """Split a text into pieces, each with True if its words are not in the other text there."""
    words = text.split()
    matcher = difflib.SequenceMatcher(None, words, other.split(), autojunk=False)
    return [
        (" ".join(words[begin:end]), kind != "equal")
        for kind, begin, end, _, _ in matcher.get_opcodes()
        if end > begin
    ]


def articles_of(
    comparable: Comparable, count: int, latency: Latency, source_of: SourceOf
) -> list[Mapping[str, Any]]:
    """Return the context of the template for every utterance that is shown."""
    systems = comparable.streamed() or comparable.offline()
    if not systems or count < 1:
        return []
    shown = [representative(evaluated) for evaluated in systems.values()]
    each = [(one, utterances_of(one)) for one in shown]
    chosen = choose(each[0][1], count, latency)
    return [_article(key, reason, each, source_of) for key, reason in chosen.items()]


def _article(
    key: int,
    reason: str,
    systems: Sequence[tuple[Evaluated, Mapping[int, Utterance]]],
    source_of: SourceOf,
) -> Mapping[str, Any]:
    first = systems[0][1][key].record
    known = [source_of(one, key) for one, _ in systems if first.index is not None]
    source = next((found for found in known if found is not None), None)
    samples, text = (source.samples, source.transcript) if source else (None, None)
    until = max(end_of(utterances[key].record) for _, utterances in systems)
    drawn = []
    for evaluated, utterances in systems:
        record, unit = utterances[key].record, find_unit(evaluated.records)
        drawn.append(
            {
                "name": name_of(evaluated),
                "scores": _own_scores(evaluated, utterances[key]),
                "timeline": draw_timeline(record, unit, samples=samples, until=until),
                "commits": commits_of(record, unit),
                "marked": marked(record.prediction, record.reference) if record.reference else [],
            }
        )
    return {
        "key": key,
        "reason": reason,
        "audio": encode_audio(source) if source else "",
        "source": text or (first.source if isinstance(first.source, str) else ""),
        "systems": drawn,
        "reference": marked(first.reference, first.prediction) if first.reference else [],
    }


def encode_audio(source: SourceAudio) -> str:
    """Return the speech as a data URL that browsers play (FLAC)."""
    import soundfile

    buffer = io.BytesIO()
    soundfile.write(buffer, source.samples, source.rate, format="FLAC", subtype="PCM_16")
    return "data:audio/flac;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _own_scores(evaluated: Evaluated, utterance: Utterance) -> str:
    digits, unit = (0, "ms") if evaluated.unit == "ms" else (2, "words")
    known = {name: utterance.latencies.get(name, math.nan) for name in TIMES}
    scores = [f"{k} {number(v, digits)} {unit}" for k, v in known.items() if not math.isnan(v)]
    scores += [f"chrF {utterance.chrf:.1f}"] * (not math.isnan(utterance.chrf))
    return " · ".join(scores)
