"""The scores of interpreters as one table, laid out as the paper's, and one figure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from experiments.interpreting import Cell
from simuljax.eval.pictures import new_figure, save_figure

Clock = Literal["source", "computation"]
Lagging = Literal["simuleval-1.1", "off-by-one"]
Published = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]
MARKERS = "os^Dvx"
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
        timed = self.transcribes and not math.isnan(self.scores["lag"])
        name = "lag" if timed else "AL" if lagging == "simuleval-1.1" else "AL_off_by_one"
        return scores.get(name, math.nan) / 1000


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
        "## Every cell\n",
        _every_number(cells, lagging),
    ]
    known = [] if first.transcribes else [language for language in minutes if language in published]
    parts += [_published(language, published[language]) for language in known]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts), encoding="utf-8")


def draw(cells: Sequence[Scored], path: Path, *, lagging: Lagging) -> Path:
    """Quality against latency, a panel for each language."""
    languages = list(dict.fromkeys(c.cell.language for c in cells))
    rows = list(dict.fromkeys(c.cell.row for c in cells))
    windows = list(dict.fromkeys(c.cell.interpreting.window_s for c in cells))
    figure = new_figure(1.5 + 4.5 * len(languages), 4.2)
    for place, language in enumerate(languages):
        axes = figure.add_subplot(1, len(languages), place + 1)
        for c in (c for c in cells if c.cell.language == language):
            row, window = c.cell.row, c.cell.interpreting.window_s
            axes.plot(
                c.late(lagging, _clock(cells)),
                c.quality,
                linestyle="none",
                color=COLOURS[rows.index(row) % len(COLOURS)],
                marker=MARKERS[windows.index(window) % len(MARKERS)],
                label=f"{row}, {window:g} s",
            )
        quality = "WER (%), lower is better" if cells[0].transcribes else "BLEU"
        axes.set(title=language, xlabel=f"{_late(cells)} (s), lower is sooner", ylabel=quality)
    figure.axes[-1].legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)
    return save_figure(figure, path)


def _clock(cells: Sequence[Scored]) -> Clock:
    """The one that all cells have: times of two clocks are not compared."""
    return "computation" if all("computation_aware" in c.scores for c in cells) else "source"


def _late(cells: Sequence[Scored]) -> str:
    name = "lag" if cells[0].transcribes else "AL"
    return name + "_CA" * (_clock(cells) == "computation")


def _as_in_the_paper(cells: Sequence[Scored], lagging: Lagging) -> str:
    columns = list(dict.fromkeys((c.cell.language, c.cell.interpreting.window_s) for c in cells))
    rows = list(dict.fromkeys(c.cell.row for c in cells))
    by_place = {(c.cell.row, c.cell.language, c.cell.interpreting.window_s): c for c in cells}

    def shown(row: str, column: tuple[str, float]) -> str:
        found = by_place.get((row, *column))
        if found is None:
            return ""
        return f"{found.quality:.1f} ({_number(found.late(lagging, _clock(cells)), 1)})"

    head = ["policy", *(f"{language} {window:g} s" for language, window in columns)]
    return _markdown(head, [[row, *(shown(row, column) for column in columns)] for row in rows])


def _every_number(cells: Sequence[Scored], lagging: Lagging) -> str:
    first = cells[0]
    late = "lag" if first.transcribes else "AL"
    columns: dict[str, Callable[[Scored], str]] = {
        "language": lambda c: c.cell.language,
        "window": lambda c: f"{c.cell.interpreting.window_s:g} s",
        "policy": lambda c: c.cell.row,
        "WER" if first.transcribes else "BLEU": lambda c: _number(c.quality),
        late: lambda c: _number(c.late(lagging, "source")),
        f"{late}_CA": lambda c: _number(c.late(lagging, "computation")),
        "LAAL": lambda c: _number(c.scores["LAAL"] / 1000),
        "said nothing": lambda c: f"{c.scores['skipped']}/{c.scores['n']}",
    }
    spoken = ("start_offset", "end_offset", "token_delay")
    if any("speech_start_offset" in c.scores.get("computation_aware", {}) for c in cells):
        columns |= {f"speech {name.replace('_', ' ')}": _spoken(name) for name in spoken}
    return _markdown([*columns], [[column(c) for column in columns.values()] for c in cells])


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


def _lagging_told(first: Scored, lagging: Lagging) -> str:
    if first.transcribes and not math.isnan(first.scores["lag"]):
        return "Lag: of the words that are right, the mean of (written - spoken)."
    return f"AL: {lagging}. BLEU: {first.scores['signature']}."


def _minutes(scored: Scored) -> float:
    return scored.scores["source_minutes"]


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _number(value: float, digits: int = 2) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"
