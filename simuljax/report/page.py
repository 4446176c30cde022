"""The page of a report: one HTML file with all in it, that asks nothing of any server.

It is XML as well, reads without scripts, in print and on a phone, and is dark where the reader's
screen is. Whatever comes from a log or a file name is escaped.
"""

import base64
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simuljax.eval.logs import RecordError, find_unit
from simuljax.report.collect import AWARE, Comparable, Evaluated, Latency
from simuljax.report.highlights import (
    Utterance,
    Versus,
    choose,
    compare,
    representative,
    utterances_of,
)
from simuljax.report.timeline import STYLE as TIMELINE_STYLE
from simuljax.report.timeline import draw_timeline, end_of, escape

# The sound of an utterance by its index in the evaluation's log: mono at 16 kHz, or None.
SamplesOf = Callable[[Evaluated, int], np.ndarray | None]
TIMES = ("AL", "LAAL", "DAL", "ATD", "YAAL")
RULE = (
    "Shown are, of the first system, the utterances of the highest and of the lowest chrF, those "
    "that come latest by {latency}, and as many from the middle (nearest to the median chrF), in "
    "equal parts; of a system with several settings the one of best BLEU."
)
READING = (
    "Each word stands above the moment when the source allowed it to be written: what had been "
    "heard by then is to the left. The short thick line is the end of the source. "
)
APART = (
    "Each test set has its own section: evaluations whose references or utterances differ, or "
    "whose latency has another unit, are neither drawn together nor tested against each other."
)
CLOCKED = "Orange lines lead to the time on the clock, when the word was really there."
STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1a1a1a; --faint: #6b6b6b;
  --rule: #ddd; --heard: #9dc3e0; --write: #0072b2; --clock: #d55e00; --wave: #b5b5b5; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181b; --ink: #e8e8e8; --faint: #a0a0a0;
  --rule: #3a3d42; --heard: #2f5f82; --write: #56b4e9; --clock: #e69f00; --wave: #6b6b6b; } }
body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
  max-width: 66rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--rule); }
h4 { margin: 0.8rem 0 0; font-weight: 600; }
img { max-width: 100%; height: auto; background: #fff; border-radius: 6px; }
figure { margin: 1rem 0; } figcaption, .note { color: var(--faint); font-size: 0.9rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
th, td { padding: 0.25rem 0.6rem; text-align: right; border-bottom: 1px solid var(--rule);
  white-space: nowrap; }
th:nth-child(-n+2), td:nth-child(-n+2), .scores :nth-child(3) { text-align: left; }
tr.control { color: var(--faint); }
article { border: 1px solid var(--rule); border-radius: 6px; padding: 0.3rem 1rem; margin: 1rem 0; }
article p { margin: 0.3rem 0; }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } table { font-size: 7.5pt; }
  th, td { padding: 0.15rem 0.3rem; } article, figure, tr { break-inside: avoid; }
  .timeline { min-width: 0; } .wide { overflow: visible; } }
"""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A test set, and the figure drawn of it; None where there was nothing to draw."""

    comparable: Comparable
    figure: Path | None


def build_page(
    sections: Sequence[Section],
    *,
    latency: Latency = "AL",
    utterances: int = 12,
    samples_of: SamplesOf | None = None,
) -> str:
    """The page as text."""
    everything = [each for section in sections for each in section.comparable.evaluated]
    names = sorted({each.system for each in everything if not each.is_control})
    title = "Report: " + ", ".join(names)
    parts = [_section(s, latency, utterances, samples_of) for s in sections]
    if len(sections) > 1:
        parts.insert(0, f'<p class="note">{APART}</p>')
    return shell(title, "".join(parts))


def shell(title: str, body: str) -> str:
    """A page around its contents."""
    head = (
        '<meta charset="utf-8"/><meta name="viewport" content="width=device-width"/>'
        f"<title>{escape(title)}</title><style>{STYLE}{TIMELINE_STYLE}</style>"
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>'
        f"<body><h1>{escape(title)}</h1>{body}</body></html>\n"
    )


def _section(
    section: Section, latency: Latency, utterances: int, samples_of: SamplesOf | None
) -> str:
    comparable = section.comparable
    parts = [
        f"<h2>Test set: {escape(comparable.name)}</h2>",
        _figure(section, latency),
        _table(comparable),
        _significance(comparable, latency),
        _utterances(comparable, latency, utterances, samples_of),
        *(_pictures(each) for each in comparable.evaluated),
    ]
    return f"<section>{''.join(parts)}</section>"


def _figure(section: Section, latency: Latency) -> str:
    if section.figure is None:
        return '<p class="note">No evaluation has both a latency and a quality to draw.</p>'
    told = f"Quality against {latency}, a line a system; up and to the left is better."
    if section.comparable.offline():
        told += " Dotted: the same system with the whole source first."
    if any(AWARE in each.scores for each in section.comparable.evaluated):
        told += " Dashed: with the time spent computing."
    return f"<figure>{image(section.figure, told)}<figcaption>{escape(told)}</figcaption></figure>"


def _table(comparable: Comparable) -> str:
    """A row an evaluation; how they were scored is below, once for all that agree."""
    ways = [_way(each) for each in comparable.evaluated]
    distinct = list(dict.fromkeys(ways))
    clock = any(AWARE in each.scores for each in comparable.evaluated)
    heads = ["system", "setting", "evaluation", "BLEU", *TIMES, "AP"]
    heads += [*(f"{name}_CA" for name in TIMES), "RTF_CA"] * clock + ["n", "skipped"]
    heads += ["scored"] * (len(distinct) > 1)
    rows = []
    for each, way in zip(comparable.evaluated, ways, strict=True):
        cells = _cells(each, comparable.unit, clock=clock)
        cells += [f"({distinct.index(way) + 1})"] * (len(distinct) > 1)
        kind = ' class="control"' if each.is_control else ""
        rows.append(f"<tr{kind}>{_row('td', cells)}</tr>")
    notes = [
        f"({i}) {way}" if len(distinct) > 1 else way for i, way in enumerate(distinct, start=1)
    ]
    notes.append(
        f"Latencies are in {comparable.unit}; skipped: without a word, so without latency."
    )
    notes += ["_CA: by the clock, with the time spent computing."] * clock
    if any(each.is_control for each in comparable.evaluated):
        notes.append("Grey: a control that hears other audio, and has to be bad.")
    below = "<br/>".join(escape(note) for note in notes)
    return (
        f'<div class="wide"><table class="scores"><thead><tr>{_row("th", heads)}</tr></thead>'
        f'<tbody>{"".join(rows)}</tbody></table></div><p class="note">{below}</p>'
    )


def _cells(each: Evaluated, unit: str, *, clock: bool) -> list[str]:
    digits = 0 if unit == "ms" else 2
    scores, aware = each.scores, each.scores.get(AWARE, {})
    cells = [each.system, each.setting, each.name, _number(scores["BLEU"], 2)]
    cells += [_number(scores[name], digits) for name in TIMES] + [_number(scores["AP"], 3)]
    if clock:
        cells += [_number(aware.get(name), digits) for name in TIMES]
        cells.append(_number(aware.get("RTF"), 3))
    return [*cells, str(scores["n"]), str(scores["skipped"])]


def _significance(comparable: Comparable, latency: Latency) -> str:
    if len({*comparable.streamed(), *comparable.offline()}) < 2:
        return ""
    try:
        pairs = compare(comparable, latency)
    except RecordError as error:
        return f'<h3>Do they differ?</h3><p class="note">Not tested: {escape(error)}.</p>'
    if not pairs:
        said = "Not tested: the two systems have no regime of latency in common."
        return f'<h3>Do they differ?</h3><p class="note">{said}</p>'
    heads = ["where", "metric", "first", "second", "difference", "95 % interval", "p", "n"]
    rows = "".join(f"<tr>{_row('td', cells)}</tr>" for pair in pairs for cells in _tested(pair))
    note = (
        "Second less first, by paired bootstrap (1000 samples of the utterances, the same for "
        f"both). First: {pairs[0].first.system}; second: {pairs[0].second.system}; of each the "
        "evaluation of best BLEU in the regime."
    )
    return (
        f'<h3>Do they differ?</h3><div class="wide"><table><thead><tr>{_row("th", heads)}</tr>'
        f'</thead><tbody>{rows}</tbody></table></div><p class="note">{escape(note)}</p>'
    )


def _tested(pair: Versus) -> Iterable[list[str]]:
    for c in pair.comparisons:
        digits = 2 if c.metric == "BLEU" or pair.first.unit == "words" else 0
        low, high = (_number(edge, digits) for edge in (c.difference.low, c.difference.high))
        values = (c.first, c.second, c.difference.value)
        numbers = [_number(value, digits) for value in values]
        yield [pair.where, c.metric, *numbers, f"{low} to {high}", f"{c.p_value:.3f}", str(c.n)]


def _utterances(
    comparable: Comparable, latency: Latency, count: int, samples_of: SamplesOf | None
) -> str:
    systems = comparable.streamed() or comparable.offline()
    if not systems or count < 1:
        return ""
    shown = [representative(evaluated) for evaluated in systems.values()]
    each = [(one, utterances_of(one)) for one in shown]
    chosen = choose(each[0][1], count, latency)
    articles = "".join(
        _article(highlight.key, highlight.reason, each, samples_of) for highlight in chosen
    )
    clock = any(any(record.elapsed) for one in shown for record in one.records)
    told = RULE.format(latency=latency) + " " + READING + CLOCKED * clock
    return f'<h3>Utterances</h3><p class="note">{escape(told)}</p>{articles}'


def _article(
    key: int,
    reason: str,
    systems: Sequence[tuple[Evaluated, Mapping[int, Utterance]]],
    samples_of: SamplesOf | None,
) -> str:
    first = systems[0][1][key].record
    heard = [samples_of(one, key) for one, _ in systems if samples_of and first.index is not None]
    samples = next((sound for sound in heard if sound is not None), None)
    parts = [f'<article><h4>Utterance {escape(key)}, <span class="note">{reason}</span></h4>']
    until = max(end_of(utterances[key].record) for _, utterances in systems)
    for evaluated, utterances in systems:
        utterance = utterances[key]
        if utterance.record.reference == first.reference:
            unit = find_unit(evaluated.records)
            drawn = draw_timeline(utterance.record, unit, samples=samples, until=until)
            parts.append(f'<p>{_told(evaluated, utterance)}</p><div class="wide">{drawn}</div>')
    if first.reference is not None:
        parts.append(f'<p dir="auto"><b>Reference</b> {escape(first.reference)}</p>')
    if isinstance(first.source, str):
        parts.append(f'<p class="note" dir="auto">Source: {escape(first.source)}</p>')
    return "".join(parts) + "</article>"


def _told(evaluated: Evaluated, utterance: Utterance) -> str:
    """Whose it is, and its own scores."""
    digits, unit = (0, "ms") if evaluated.unit == "ms" else (2, "words")
    scores = [
        f"{name} {_number(utterance.latencies[name], digits)} {unit}"
        for name in TIMES
        if not math.isnan(utterance.latencies.get(name, math.nan))
    ]
    scores += [f"chrF {utterance.chrf:.1f}"] * (not math.isnan(utterance.chrf))
    name = ", ".join(filter(None, [evaluated.system, evaluated.setting]))
    return f'<b>{escape(name)}</b> <span class="note">{escape(" · ".join(scores))}</span>'


def _pictures(each: Evaluated) -> str:
    """Every PNG that lies beside the log."""
    figures = "".join(
        f"<figure>{image(path, path.stem)}<figcaption>{escape(path.stem)}</figcaption></figure>"
        for path in each.pictures
    )
    title = ", ".join(filter(None, [each.system, each.name]))
    return f"<h3>Pictures of {escape(title)}</h3>{figures}" if figures else ""


def image(path: Path, alt: str) -> str:
    """A picture inside the page."""
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<img src="data:image/png;base64,{data}" alt="{escape(alt)}"/>'


def _way(each: Evaluated) -> str:
    signature = each.scores["signature"]
    return f"profile {each.scores['profile']}" + f"; BLEU {signature}" * bool(signature)


def _row(tag: str, cells: Iterable[str]) -> str:
    return "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)


def _number(value: object, digits: int) -> str:
    if not isinstance(value, int | float) or math.isnan(value):
        return "–"
    return f"{value:.{digits}f}"
