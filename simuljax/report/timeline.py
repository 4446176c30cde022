"""One utterance as a drawing for a web page: what was written when, above what was being said.

Words stand over the moment when the source allowed them (their delay), in as many lanes as they
need; what is written later stands lower, so that the words read as a text does.
Below the axis is the waveform, or the words of a source that is text. Where there is a clock, an
orange line leads from a word's delay to the time when it was really there. The drawing is SVG
without colours of its own: they are in `STYLE`, for a light and a dark page.
"""

import html
import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

import numpy as np

from simuljax.eval.logs import Record, Unit

WIDTH, MARGIN, TAIL = 960, 12, 170  # of a row; to the right of its end there is room for words
LANE, CLOCK, SCALE, WAVE = 19, 26, 22, 44  # heights
LETTER, WIDE = 7.9, 14.0  # pixels to a letter, an upper estimate for most fonts, and to a Han one
STRETCH = 15  # seconds, or words, to a row
ROWS = 8  # more are not drawn
PIECES = 5  # of what is written at once; more is counted
COLUMNS = 400  # of a waveform
STYLE = """
.timeline { width: 100%; min-width: 40rem; height: auto; display: block; font-size: 14px; }
.timeline text { fill: var(--ink); font-family: system-ui, sans-serif;
  paint-order: stroke; stroke: var(--paper); stroke-width: 4px; }
.timeline .scale text { fill: var(--faint); font-size: 11px; text-anchor: middle; }
.timeline .scale line, .timeline .scale path { stroke: var(--faint); fill: none; }
.timeline .heard { fill: var(--heard); }
.timeline .lead { stroke: var(--write); stroke-width: 1.2; }
.timeline .clock { stroke: var(--clock); stroke-width: 1.4; }
.timeline .wave { fill: var(--wave); }
"""
# What XML does not know: control characters, halves of a letter, two that are none.
_BAD = (*range(9), 11, 12, *range(14, 32), 127, *range(0xD800, 0xE000), 0xFFFE, 0xFFFF)
_REPLACED = dict.fromkeys(_BAD, "\ufffd")


@dataclass(frozen=True, kw_only=True)
class Burst:
    """Words that were written at once, or as many of them as stand in a lane."""

    words: tuple[str, ...]
    delay: float
    elapsed: tuple[float, ...]  # a time a word, or nothing
    x: float
    lane: int = 0

    @property
    def text(self) -> str:
        """With spaces, unless it is Chinese or the like."""
        return ("" if all(map(_is_wide, "".join(self.words))) else " ").join(self.words)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A stretch of the source that is drawn from margin to margin."""

    start: float
    end: float
    length: float  # of the source
    unit: float  # 1000 ms, or one word
    is_last: bool

    def x(self, time: float) -> float:
        """Where a time stands."""
        room = WIDTH - MARGIN - TAIL
        return round(MARGIN + room * (time - self.start) / (self.end - self.start), 1)


def escape(text: object) -> str:
    """Text as it may stand in a page: no markup, and no character that XML does not know."""
    return html.escape(str(text).translate(_REPLACED), quote=True)


def tokens_of(record: Record, unit: Unit) -> list[str]:
    """What the delays are of: words, or characters without spaces."""
    words = record.prediction.split()
    return words if unit == "word" else [*"".join(words)]


def draw_timeline(
    record: Record,
    unit: Unit = "word",
    *,
    samples: np.ndarray | None = None,
    rate: int = 16000,
    until: float = 0.0,
) -> str:
    """The rows of the drawing, an `<svg>` each; a sentence where there is nothing to draw.

    Args:
        record: The utterance.
        unit: What its delays are of.
        samples: Its sound, mono.
        rate: Of the sound.
        until: Where the axis ends, if not with the record: for two that are held side by side.
    """
    words = tokens_of(record, unit)
    if len(words) != len(record.delays):
        counted = f"{len(words)} words and {len(record.delays)} delays"
        return f"<p>The log has {counted} here, so nobody knows what was written when.</p>"
    rows = rows_of(record, until)
    drawn = "".join(_draw_row(row, record, words, samples, rate) for row in rows[:ROWS])
    if len(rows) > ROWS:
        kept, whole = (f"{row.end / row.unit:.0f}" for row in (rows[ROWS - 1], rows[-1]))
        kind = "words" if record.has_text_source else "seconds"
        drawn += f"<p>The first {kept} of {whole} {kind}.</p>"
    return drawn if words else f"{drawn}<p>Nothing was written.</p>"


def rows_of(record: Record, until: float = 0.0) -> list[Row]:
    """Rows of equal length that hold the source and all that was written."""
    unit = 1.0 if record.has_text_source else 1000.0
    end = max(end_of(record), until, unit / 10)
    count = math.ceil(end / (STRETCH * unit))
    edges = np.linspace(0, end, count + 1).tolist()
    length = record.source_length
    return [
        Row(start=a, end=b, length=length, unit=unit, is_last=b == edges[-1])
        for a, b in pairwise(edges)
    ]


def end_of(record: Record) -> float:
    """Of the source, or of what was written if that is later."""
    return max([record.source_length, *record.delays, *record.elapsed])


def bursts_of(row: Row, record: Record, words: Sequence[str]) -> list[Burst]:
    """What was written in this row, each in its lane."""
    inside = [
        (word, delay, clock)
        for word, delay, clock in zip(words, record.delays, _clock(record), strict=True)
        if row.start <= delay < row.end or (row.is_last and delay == row.end)
    ]
    bursts: list[Burst] = []
    for delay, group in groupby(inside, key=lambda written: written[1]):
        pieces = [*_wrapped(delay, [*group], row.x(delay))]
        rest = sum(len(piece.words) for piece in pieces[PIECES:])
        more = (f"… and {rest} more",)
        bursts += pieces[:PIECES]
        bursts += [replace(piece, words=more) for piece in pieces[PIECES : PIECES + 1]]
    return _in_lanes(bursts)


def _clock(record: Record) -> Sequence[float | None]:
    whole = any(record.elapsed) and len(record.elapsed) == len(record.delays)
    return record.elapsed if whole else [None] * len(record.delays)


def _wrapped(
    delay: float, written: Sequence[tuple[str, float, float | None]], x: float
) -> Iterator[Burst]:
    """The words in as few pieces as there is room for."""
    begin = 0
    for end in range(1, len(written) + 1):
        here = written[begin : end + 1]
        if end < len(written) and x + _width(" ".join(word for word, _, _ in here)) < WIDTH:
            continue
        piece = written[begin:end]
        times = tuple(time for _, _, time in piece if time is not None)
        yield Burst(words=tuple(word for word, _, _ in piece), delay=delay, elapsed=times, x=x)
        begin = end


def _in_lanes(bursts: Sequence[Burst]) -> list[Burst]:
    """From the last to the first, each in the lowest lane where it ends before what is there."""
    free: list[float] = []  # up to where each lane is free
    placed = []
    for burst in reversed(bursts):
        ends = burst.x + _width(burst.text) + 8
        lane = next((i for i, begins in enumerate(free) if ends <= begins), len(free))
        free[lane : lane + 1] = [burst.x]
        placed.append(replace(burst, lane=lane))
    return placed[::-1]


def _draw_row(
    row: Row, record: Record, words: Sequence[str], samples: np.ndarray | None, rate: int
) -> str:
    bursts = bursts_of(row, record, words)
    lanes = 1 + max((burst.lane for burst in bursts), default=0)
    axis = lanes * LANE + 8 + (CLOCK if any(_clock(record)) else 0)
    below = _source_words(row, record, axis) if record.has_text_source else ""
    if samples is not None:
        below = _waveform(row, np.asarray(samples), rate, axis + SCALE)
    height = axis + SCALE + (WAVE if below else 0)
    leads = "".join(_lead(burst, axis) for burst in bursts)
    clock = "".join(_clock_lines(row, burst, axis) for burst in bursts)
    texts = "".join(_text(row, burst, axis) for burst in bursts)
    return (
        f'<svg class="timeline" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(record.prediction)}">'
        f"{_scale(row, axis)}{below}{leads}{clock}{texts}</svg>"
    )


def _scale(row: Row, axis: int) -> str:
    """What had been heard, as a band on the axis; ticks, and where the source ends."""
    heard = row.x(min(row.length, row.end)) - MARGIN
    band = f'<rect class="heard" x="{MARGIN}" y="{axis}" width="{heard:.1f}" height="5"/>'
    band = band if heard > 0 else ""
    ticks = []
    step = _step(row)
    first = math.ceil(row.start / step - 1e-9)
    for i in range(first, math.floor(row.end / step + 1e-9) + 1):
        x = row.x(i * step)
        name = f"{i * step / row.unit:g}"
        label = f'<text x="{x}" y="{axis + 18}">{name}</text>' if row.unit > 1 else ""
        ticks.append(f'<line x1="{x}" x2="{x}" y1="{axis}" y2="{axis + 7}"/>{label}')
    if row.start < row.length <= row.end:
        x = row.x(row.length)
        ticks.append(f'<path d="M{x} {axis - 6}v13" stroke-width="2"/>')
    return f'{band}<g class="scale">{"".join(ticks)}</g>'


def _step(row: Row) -> float:
    """Between ticks: the least round number that leaves room for what is written there."""
    pixels = (WIDTH - MARGIN - TAIL) / (row.end - row.start)
    sizes = (1.0,) if row.unit == 1 else (0.1, 0.2, 0.5, 1.0)
    return next((s * row.unit for s in sizes if s * row.unit * pixels >= 44), sizes[-1] * row.unit)


def _lead(burst: Burst, axis: int) -> str:
    top = axis - (burst.lane + 1) * LANE - _raised(burst)
    return f'<line class="lead" x1="{burst.x}" x2="{burst.x}" y1="{axis}" y2="{top + 4}"/>'


def _clock_lines(row: Row, burst: Burst, axis: int) -> str:
    """From the delay on the axis to the time on the clock, above it, if that is in sight."""
    ends = sorted({row.x(time) for time in burst.elapsed})
    path = "".join(f"M{burst.x} {axis}L{x} {axis - CLOCK + 4}v4" for x in ends if x < WIDTH)
    return f'<path class="clock" fill="none" d="{path}"/>' if path else ""


def _text(row: Row, burst: Burst, axis: int) -> str:
    y = axis - burst.lane * LANE - 8 - _raised(burst)
    told = f"{_time(row, burst.delay)} heard"
    if burst.elapsed:
        told += f", there at {_time(row, burst.elapsed[-1])}"
    title = f"<title>{escape(told)}: {escape(burst.text)}</title>"
    return f'<text x="{burst.x + 4}" y="{y}">{title}{escape(burst.text)}</text>'


def _raised(burst: Burst) -> int:
    return CLOCK if burst.elapsed else 0


def _time(row: Row, time: float) -> str:
    return f"{time / 1000:.2f} s" if row.unit > 1 else f"{time:g} words"


def _source_words(row: Row, record: Record, axis: int) -> str:
    """Each below the stretch in which it is read; two lines, in turn."""
    words, drawn = str(record.source).split(), []
    for i in range(math.ceil(row.start), min(len(words), math.ceil(row.end))):
        y = axis + 22 + 17 * (i % 2)
        drawn.append(f'<text x="{row.x(i + 0.5)}" y="{y}">{escape(words[i])}</text>')
    return f'<g class="scale">{"".join(drawn)}</g>'


def _waveform(row: Row, samples: np.ndarray, rate: int, top: int) -> str:
    """The extremes of every short stretch, as one shape."""
    if samples.ndim != 1:
        raise ValueError(f"samples must be mono, not of shape {samples.shape}")
    loudest = float(np.abs(samples.astype(np.float64)).max(initial=0)) or 1.0
    edges = np.linspace(row.start, row.end, COLUMNS + 1)
    places = np.clip((edges * rate / 1000).astype(int), 0, len(samples))
    middle = top + WAVE / 2
    upper, lower = [], []
    for time, begin, end in zip(edges.tolist(), places, places[1:], strict=False):
        if begin < end:
            piece, x = samples[begin:end], row.x(time)
            upper.append(f"{x:g} {middle - (WAVE / 2 - 2) * float(piece.max()) / loudest:.1f}")
            lower.append(f"{x:g} {middle - (WAVE / 2 - 2) * float(piece.min()) / loudest:.1f}")
    outline = " ".join([*upper, *reversed(lower)])
    return f'<polygon class="wave" points="{outline}"/>' if outline else ""


def _width(text: str) -> float:
    return sum(WIDE if _is_wide(char) else LETTER for char in text)


def _is_wide(char: str) -> bool:
    return unicodedata.east_asian_width(char) in "WF"
