"""Draw one utterance as SVG for a web page: the words over the time at which they were committed.

Words stand over their delay, in as many lanes as they need; words committed later stand lower, so
that they read as a text does. Below the axis is the waveform, or the words of a text source. An
orange line leads from a word's delay to its time on the clock, where that was measured. The SVG is
`templates/timeline.svg`; its colours are in `templates/base.html`.
"""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

import numpy as np
from markupsafe import Markup

from simuljax.eval.logs import Record, Unit, units_in
from simuljax.eval.spacing import join_words
from simuljax.report.page import render

WIDTH, MARGIN, TAIL = 960, 12, 170  # of a row; its tail has room for the last words
LANE, CLOCK, SCALE, WAVE = 19, 26, 22, 44  # heights
LETTER, WIDE = 7.9, 14.0  # pixels of a letter, an upper estimate for most fonts, and of a Han one
STRETCH = 15  # seconds or words per row
ROWS = 8  # drawn at most
PIECES = 5  # lanes for the words of one moment; the rest is counted
COLUMNS = 400  # of a waveform
RATE = 16000  # samples a second


@dataclass(frozen=True, kw_only=True)
class Burst:
    """Words committed at the same moment, or as many of them as fit into a lane."""

    words: tuple[str, ...]
    delay: float
    elapsed: tuple[float, ...]  # one time per word, or none
    x: float
    lane: int = 0

    @property
    def text(self) -> str:
        return join_words(self.words)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A stretch of the source, drawn from margin to margin."""

    start: float
    end: float
    unit: float  # 1000 ms, or one word
    is_last: bool

    def x(self, time: float) -> float:
        room = WIDTH - MARGIN - TAIL
        return round(MARGIN + room * (time - self.start) / (self.end - self.start), 1)


def draw_timeline(
    record: Record,
    unit: Unit = "word",
    *,
    samples: np.ndarray | None = None,
    until: float = 0.0,
) -> Markup:
    """Return one `<svg>` per row, or a sentence where there is nothing to draw.

    Args:
        record: The utterance.
        unit: The unit of its delays.
        samples: Its speech, mono at 16 kHz.
        until: The end of the axis if it is later than the record, for two side by side.
    """
    words = units_in(record.prediction, unit)
    if len(words) != len(record.delays):
        counted = f"{len(words)} words and {len(record.delays)} delays"
        return Markup(f"<p>The log has {counted} here: words and delays cannot be matched.</p>")
    rows = rows_of(record, until)
    drawn = "".join(_draw_row(row, record, words, samples) for row in rows[:ROWS])
    if len(rows) > ROWS:
        kept, whole = (f"{row.end / row.unit:.0f}" for row in (rows[ROWS - 1], rows[-1]))
        kind = "words" if record.has_text_source else "seconds"
        drawn += f"<p>The first {kept} of {whole} {kind}.</p>"
    return Markup(drawn if words else f"{drawn}<p>Nothing was written.</p>")


def commits_of(record: Record, unit: Unit = "word") -> list[tuple[float, str, str]]:
    """Return (seconds, delay as text, words) of every moment at which words were committed."""
    words = units_in(record.prediction, unit)
    if len(words) != len(record.delays):
        return []
    scale, name = (1.0, "words") if record.has_text_source else (1000.0, "s")
    moments = groupby(zip(record.delays, words, strict=True), key=lambda pair: pair[0])
    return [
        (
            delay / scale,
            f"{delay / scale:.{0 if scale == 1 else 1}f} {name}",
            join_words(w for _, w in group),
        )
        for delay, group in moments
    ]


def rows_of(record: Record, until: float = 0.0) -> list[Row]:
    """Return rows of equal length that hold the source and all words."""
    unit = 1.0 if record.has_text_source else 1000.0
    end = max(end_of(record), until, unit / 10)
    count = math.ceil(end / (STRETCH * unit))
    edges = np.linspace(0, end, count + 1).tolist()
    return [Row(start=a, end=b, unit=unit, is_last=b == edges[-1]) for a, b in pairwise(edges)]


def end_of(record: Record) -> float:
    """Return the end of the source, or of the last word if that is later."""
    return max([record.source_length, *record.delays, *record.elapsed])


def bursts_of(row: Row, record: Record, words: Sequence[str]) -> list[Burst]:
    """Return the words of this row, each burst in its lane."""
    inside = [
        (word, delay, clock)
        for word, delay, clock in zip(words, record.delays, _clock(record), strict=True)
        if row.start <= delay < row.end or (row.is_last and delay == row.end)
    ]
    bursts: list[Burst] = []
    for delay, group in groupby(inside, key=lambda written: written[1]):
        pieces = _wrap([*group], delay, row.x(delay))
        bursts += pieces[:PIECES]
        if rest := pieces[PIECES:]:
            more = sum(len(piece.words) for piece in rest)
            bursts.append(replace(rest[0], words=(f"… and {more} more",)))
    return _in_lanes(bursts)


def _clock(record: Record) -> Sequence[float | None]:
    whole = any(record.elapsed) and len(record.elapsed) == len(record.delays)
    return record.elapsed if whole else [None] * len(record.delays)


def _wrap(
    written: Sequence[tuple[str, float, float | None]], delay: float, x: float
) -> list[Burst]:
    """Split the words of a moment into as few pieces as fit beside each other."""
    bursts: list[Burst] = []
    for word, _, time in written:
        times = () if time is None else (time,)
        last = bursts[-1] if bursts else None
        if last and x + _width(join_words([*last.words, word])) < WIDTH:
            bursts[-1] = replace(last, words=(*last.words, word), elapsed=last.elapsed + times)
        else:
            bursts.append(Burst(words=(word,), delay=delay, elapsed=times, x=x))
    return bursts


def _in_lanes(bursts: Sequence[Burst]) -> list[Burst]:
    """Place bursts, the last first, in the lowest lane where each ends before the next begins."""
    free: list[float] = []  # up to where each lane is free
    placed = []
    for burst in reversed(bursts):
        ends = burst.x + _width(burst.text) + 8
        lane = next((i for i, begins in enumerate(free) if ends <= begins), len(free))
        free[lane : lane + 1] = [burst.x]
        placed.append(replace(burst, lane=lane))
    return placed[::-1]


def _draw_row(row: Row, record: Record, words: Sequence[str], samples: np.ndarray | None) -> str:
    bursts, length = bursts_of(row, record, words), record.source_length
    lanes = 1 + max((burst.lane for burst in bursts), default=0)
    axis = lanes * LANE + 8 + (CLOCK if any(_clock(record)) else 0)
    wave = _waveform(row, np.asarray(samples), axis + SCALE) if samples is not None else ""
    spoken = _source_words(row, record, axis) if record.has_text_source and not wave else []
    return render(
        "timeline.svg",
        width=WIDTH,
        height=axis + SCALE + (WAVE if wave or record.has_text_source else 0),
        margin=MARGIN,
        lane=LANE,
        axis=axis,
        label=record.prediction,
        band=row.x(min(length, row.end)) - MARGIN,  # the source
        ticks=_ticks(row),
        end=row.x(length) if row.start < length <= row.end else None,
        wave=wave,
        spoken=spoken,
        bursts=[_drawn(row, burst, axis) for burst in bursts],
    )


def _ticks(row: Row) -> list[tuple[float, str]]:
    """Return places and labels at the least round distance that leaves room for the labels."""
    pixels = (WIDTH - MARGIN - TAIL) / (row.end - row.start)
    sizes = (1.0,) if row.unit == 1 else (0.1, 0.2, 0.5, 1.0)
    roomy = [size * row.unit for size in sizes if size * row.unit * pixels >= 44]
    step = roomy[0] if roomy else sizes[-1] * row.unit
    first = math.ceil(row.start / step - 1e-9)
    return [
        (row.x(i * step), f"{i * step / row.unit:g}" + " s" * (i == first) if row.unit > 1 else "")
        for i in range(first, math.floor(row.end / step + 1e-9) + 1)
    ]


def _drawn(row: Row, burst: Burst, axis: int) -> tuple[Burst, int, str, str, str]:
    """Return a burst with its height, its lines to the clock, and its times in words and seconds.

    A line leads from the delay on the axis to the time on the clock above, if that is in view.
    """
    ends = sorted({row.x(time) for time in burst.elapsed})
    clock = "".join(f"M{burst.x} {axis}L{x} {axis - CLOCK + 4}v4" for x in ends if x < WIDTH)
    when = f"after {_time(row, burst.delay)}"
    if burst.elapsed:
        when += f", on the clock at {_time(row, burst.elapsed[-1])}"
    at = f"{burst.delay / 1000:g}" if row.unit > 1 else ""
    return burst, burst.lane * LANE + (CLOCK if burst.elapsed else 0), clock, when, at


def _time(row: Row, time: float) -> str:
    return f"{time / 1000:.2f} s" if row.unit > 1 else f"{time:g} words"


def _source_words(row: Row, record: Record, axis: int) -> list[tuple[float, int, str]]:
    """Return each word with its place below the stretch in which it is read, on two lines."""
    words = str(record.source).split()
    here = range(math.ceil(row.start), min(len(words), math.ceil(row.end)))
    return [(row.x(i + 0.5), axis + 22 + 17 * (i % 2), words[i]) for i in here]


def _waveform(row: Row, samples: np.ndarray, top: int) -> str:
    """Return the outline of the extremes of every short stretch."""
    if samples.ndim != 1:
        raise ValueError(f"samples must be mono, not of shape {samples.shape}")
    loudest = float(np.abs(samples.astype(np.float64)).max(initial=0)) or 1.0
    edges = np.linspace(row.start, row.end, COLUMNS + 1)
    places = np.clip((edges * RATE / 1000).astype(int), 0, len(samples))
    middle, scale = top + WAVE / 2, (WAVE / 2 - 2) / loudest
    upper, lower = [], []
    for time, begin, end in zip(edges.tolist(), places, places[1:], strict=False):
        if begin < end:
            piece, x = samples[begin:end], row.x(time)
            upper.append(f"{x:g} {middle - scale * float(piece.max()):.1f}")
            lower.append(f"{x:g} {middle - scale * float(piece.min()):.1f}")
    return " ".join([*upper, *reversed(lower)])


def _width(text: str) -> float:
    return sum(WIDE if unicodedata.east_asian_width(c) in "WF" else LETTER for c in text)
