"""The scores of interpreters as one table, laid out as the paper's, and one figure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from experiments.dugan2023.interpreting import Cell
from simuljax.eval import read_records
from simuljax.eval.logs import NAME as LOG
from simuljax.report.figures import new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Clock = Literal["source", "computation"]
Lagging = Literal["simuleval-1.1", "off-by-one"]
Published = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]
MARKERS = "os^Dvx"
UNKNOWN = "-"
PATIENT = "offline"  # the row that waits for the end
COLOURS = (
    "#0072b2",
    "#56b4e9",
    "#d55e00",
    "#e69f00",
    "#000000",
    "#999999",
    "#009e73",
    "#cc79a7",
)


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A cell and what it got."""

    cell: Cell
    scores: Mapping[str, Any]

    @property
    def transcribes(self) -> bool:
        """Whether it writes what was said, and not what that means."""
        return self.cell.interpreting.task == "transcribe"

    @property
    def quality(self) -> float:
        """BLEU, or WER."""
        return self.scores["WER" if self.transcribes else "BLEU"]

    def late(self, lagging: Lagging, clock: Clock) -> float:
        """AL, or of transcripts the lag, in seconds; NaN if there was no such clock."""
        scores = self.scores if clock == "source" else self.scores.get("computation_aware", {})
        name = "lag" if _has_lag(self) else "AL" if lagging == "simuleval-1.1" else "AL_off_by_one"
        return scores.get(name, math.nan) / 1000

    @property
    def timed(self) -> int:
        """Recordings that were played by the clock."""
        return self.scores.get("computation_aware", {}).get("n", 0)

    @property
    def computing(self) -> float:
        """By how many ms words are later by the clock than by the sound heard; their mean."""
        records = [record for log in self.cell.runs for record in read_records(log)]
        late = [e - d for r in records for e, d in zip(r.elapsed, r.delays, strict=True)]
        return math.fsum(late) / len(late) if late else math.nan

    @property
    def length(self) -> float:
        """Words written for each word of the reference."""
        records = read_records(self.cell.folder / LOG)
        words = sum(len(record.prediction.split()) for record in records)
        return words / sum(len((record.reference or "").split()) for record in records)


def write_table(
    cells: Sequence[Scored], path: Path, *, lagging: Lagging, published: Published
) -> None:
    """The table as in the paper, then every number, then what the paper has of these languages."""
    first = cells[0]
    minutes = {c.cell.language: _minutes(c) for c in cells}
    told = ", ".join(
        f"{language}: {len(c.cell.recordings)} recordings, {minutes[language]:.1f} min"
        for language, c in {c.cell.language: c for c in cells}.items()
    )
    quality = "WER" if first.transcribes else "BLEU"
    parts = [
        f"# {quality} ({_late(cells)} in seconds)\n\n{told}. {_lagging_told(first, lagging)}\n",
        _as_in_the_paper(cells, lagging),
        f"## Every cell\n\n{_columns_told(cells)}\n",
        _every_number(cells, lagging),
    ]
    known = [] if first.transcribes else [language for language in minutes if language in published]
    parts += [_published(language, published[language]) for language in known]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts), encoding="utf-8")


def draw(cells: Sequence[Scored], path: Path, *, lagging: Lagging) -> Path:
    """Quality against latency, a panel for each language."""
    languages = list(dict.fromkeys(c.cell.language for c in cells))
    figure = new_figure(1.5 + 4.5 * len(languages), 4.2)
    for place, language in enumerate(languages):
        axes = figure.add_subplot(1, len(languages), place + 1)
        _panel(axes, cells, language, lagging)
        quality = "WER (%), lower is better" if cells[0].transcribes else "BLEU"
        axes.set(title=language, xlabel=f"{_late(cells)} (s), lower is sooner", ylabel=quality)
    _legend(figure.axes[-1], cells)
    return save_figure(figure, path)


def _panel(axes: "Axes", cells: Sequence[Scored], language: str, lagging: Lagging) -> None:
    """A line for each policy, through its windows; what waits for the end would squeeze them."""
    rows, windows = _rows(cells), _windows(cells)
    for row in rows:
        points = [c for c in cells if (c.cell.language, c.cell.row) == (language, row)]
        late = [c.late(lagging, _clock(cells)) for c in points]
        if row == PATIENT and len(rows) > 1 and points:
            _line(axes, points[0].quality, f"{row}, {late[0]:.1f} s", cells[0].transcribes)
            continue
        axes.plot(late, [c.quality for c in points], color=_colour(row, rows), linewidth=0.8)
        for c, x in zip(points, late, strict=True):
            marker = MARKERS[windows.index(c.cell.interpreting.window_s) % len(MARKERS)]
            axes.plot(x, c.quality, color=_colour(row, rows), marker=marker, linestyle="none")


def _line(axes: "Axes", quality: float, text: str, transcribes: bool) -> None:
    """Its text is where no points are: hasty is bad."""
    axes.axhline(quality, color="#999999", linestyle="--", linewidth=1, zorder=0)
    x, side = (0.99, "right") if transcribes else (0.01, "left")
    place = axes.get_yaxis_transform()
    axes.text(x, quality, text, transform=place, ha=side, va="bottom", fontsize=8, color="#666666")


def _legend(axes: "Axes", cells: Sequence[Scored]) -> None:
    """Colours are policies, and markers are windows."""
    rows, windows = _rows(cells), _windows(cells)
    for row in rows:
        dashed = row == PATIENT and len(rows) > 1
        line, colour = ("--", "#999999") if dashed else ("-", _colour(row, rows))
        axes.plot([], [], line, color=colour, label=row)
    for marker, window in zip(MARKERS, windows, strict=False):
        axes.plot([], [], marker, color="#666666", label=f"window {window:g} s")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)


def _rows(cells: Sequence[Scored]) -> list[str]:
    return list(dict.fromkeys(c.cell.row for c in cells))


def _windows(cells: Sequence[Scored]) -> list[float]:
    return list(dict.fromkeys(c.cell.interpreting.window_s for c in cells))


def _colour(row: str, rows: Sequence[str]) -> str:
    return COLOURS[rows.index(row) % len(COLOURS)]


def _clock(cells: Sequence[Scored]) -> Clock:
    """The clock, if all was played by it: times of two clocks, or of other recordings, differ."""
    return "computation" if all(c.timed == c.scores["n"] for c in cells) else "source"


def _late(cells: Sequence[Scored]) -> str:
    name = "lag" if cells[0].transcribes else "AL"
    return name + "_CA" * (_clock(cells) == "computation")


def _as_in_the_paper(cells: Sequence[Scored], lagging: Lagging) -> str:
    columns = list(dict.fromkeys((c.cell.language, c.cell.interpreting.window_s) for c in cells))
    by_place = {(c.cell.row, c.cell.language, c.cell.interpreting.window_s): c for c in cells}

    def shown(row: str, column: tuple[str, float]) -> str:
        found = by_place.get((row, *column))
        if found is None:
            return ""
        return f"{found.quality:.1f} ({_number(found.late(lagging, _clock(cells)), 1)})"

    head = ["policy", *(f"{language} {window:g} s" for language, window in columns)]
    return _markdown(
        head, [[row, *(shown(row, column) for column in columns)] for row in _rows(cells)]
    )


def _every_number(cells: Sequence[Scored], lagging: Lagging) -> str:
    """From hasty to patient; a column in which nothing is known is left out."""
    first = cells[0]
    late = "lag" if first.transcribes else "AL"
    timed = max(c.timed for c in cells)
    of = "" if _clock(cells) == "computation" else f" of {timed}"
    columns: dict[str, Callable[[Scored], str]] = {
        "language": lambda c: c.cell.language,
        "window": lambda c: f"{c.cell.interpreting.window_s:g} s",
        "policy": lambda c: c.cell.row,
        "WER" if first.transcribes else "BLEU": lambda c: _number(c.quality),
        "length": lambda c: _number(c.length),
        late: lambda c: _number(c.late(lagging, "source")),
        "LAAL": lambda c: _number(math.nan if _has_lag(c) else c.scores["LAAL"] / 1000),
        f"{late}_CA{of}": lambda c: _number(c.late(lagging, "computation")),
        "computing ms": lambda c: _number(c.computing, 0),
        "said nothing": lambda c: f"{c.scores['skipped']}/{c.scores['n']}",
    }
    spoken = ("start_offset", "end_offset", "token_delay")
    columns |= {f"speech {name.replace('_', ' ')}": _spoken(name) for name in spoken}
    lines = [[column(c) for column in columns.values()] for c in _from_hasty(cells, lagging)]
    known = [i for i in range(len(columns)) if any(line[i] != UNKNOWN for line in lines)]
    return _markdown([[*columns][i] for i in known], [[line[i] for i in known] for line in lines])


def _from_hasty(cells: Sequence[Scored], lagging: Lagging) -> list[Scored]:
    languages = list(dict.fromkeys(c.cell.language for c in cells))

    def place(c: Scored) -> tuple[int, float, float]:
        window = c.cell.interpreting.window_s
        return languages.index(c.cell.language), window, c.late(lagging, "source")

    return sorted(cells, key=place)


def _has_lag(scored: Scored) -> bool:
    return scored.transcribes and not math.isnan(scored.scores["lag"])


def _spoken(name: str) -> Callable[[Scored], str]:
    def shown(scored: Scored) -> str:
        clocked = scored.scores.get("computation_aware", {})
        return _number(clocked.get(f"speech_{name}", math.nan) / 1000)

    return shown


def _published(language: str, rows: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    head = ["policy", *(f"{language} {window} s" for window in (1, 2))]
    cells = [[row, *(f"{bleu} ({late})" for bleu, late in two)] for row, two in rows.items()]
    title = f"## Dugan et al. 2023, {language}: Whisper medium on CoVoST 2, BLEU (AL_CA)\n"
    return f"{title}\n{_markdown(head, cells)}"


def _columns_told(cells: Sequence[Scored]) -> str:
    told = "length: words written for each word of the reference."
    timed = max(c.timed for c in cells)
    if timed:
        told += f" By the clock the first {timed} were played, one at a time; computing: by how"
        told += " much their words are later by it than by the sound heard."
    return told


def _lagging_told(first: Scored, lagging: Lagging) -> str:
    if _has_lag(first):
        return "Lag: of the words that are right, the mean of (written - spoken)."
    return f"AL: {lagging}. BLEU: {first.scores['signature']}."


def _minutes(scored: Scored) -> float:
    return scored.scores["source_minutes"]


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _number(value: float, digits: int = 2) -> str:
    return UNKNOWN if math.isnan(value) else f"{value:.{digits}f}"
