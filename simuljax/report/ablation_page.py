"""An ablation as a page and as Markdown: the same tables, each number with where it comes from."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from simuljax.report.ablation import (
    Against,
    AtEqualLatency,
    Row,
    Setting,
    at_equal_latency,
    compare,
    share_of_text,
)
from simuljax.report.collect import Latency
from simuljax.report.page import image, shell
from simuljax.report.timeline import escape

SIGNIFICANT = 0.05
ENOUGH = 0.6  # of a text branch's BLEU: with less, a baseline is no base for conclusions
TESTS = (
    "Differences to the baseline in BLEU, means over seeds: interval and p of a bootstrap (Koehn "
    "2004) that draws utterances and seeds, p of Student's test on sentence BLEU, an utterance's "
    "mean over seeds. Of few seeds, such intervals are still too narrow. The evaluation is the "
    "same, the latency need not be: at equal latency, see below."
)
BASE = (
    "BLEU with the whole source there; the share is of the best from text. Where the baseline's is "
    f"below {ENOUGH:.0%}, it does not translate well enough to conclude anything from its rows."
)
CAPTION = (
    "A line a row, through what no sooner point beats, and from each of its points, a mean, thin "
    "ones to the seeds; up and to the left is better."
)
BY_SEED = "As above, of a seed's own points: a mean of seeds can be where none of them is."
CLOCKED = (
    "Milliseconds, on the utterances that were played, one after the other with the clock running: "
    "by what had been heard, and with everything that was computed until then (SimulEval's count)."
)
EQUAL = (
    "No later: for each point of the baseline, the best point of the row whose latency is not "
    "above it (Zaidi et al. 2022, table 4). Between: the difference on the straight lines of both "
    "curves, at five latencies where both are known. Area: what the row's curve dominates, over "
    "what the baseline's does."
)


@dataclass(frozen=True, kw_only=True)
class Table:
    """Heads, rows of cells, and what is to be known about them."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def markdown(self) -> str:
        """As Markdown has tables."""
        lines = [self.heads, tuple("---" for _ in self.heads), *self.rows]
        table = "\n".join("| " + " | ".join(_pipe(cell) for cell in line) + " |" for line in lines)
        return f"### {self.title}\n\n{table}\n" + (f"\n{self.note}\n" if self.note else "")

    def html(self) -> str:
        """As a page has them."""
        heads = "".join(f"<th>{escape(head)}</th>" for head in self.heads)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows
        )
        note = f'<p class="note">{escape(self.note)}</p>' if self.note else ""
        table = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
        return f'<h2>{escape(self.title)}</h2><div class="wide">{table}</div>{note}'


def tables(rows: Sequence[Row], baseline: Row, latency: Latency = "AL") -> list[Table]:
    """All that can be said about these rows in numbers."""
    against = [each for row in rows for each in compare(row, baseline)]
    equal = [found for row in rows if (found := at_equal_latency(row, baseline, latency))]
    made = [
        base_table(rows),
        scores_table(rows),
        clock_table(rows),
        difference_table(against),
        equal_table(equal, latency),
        seeds_table(rows, baseline, latency),
        runs_table(rows),
    ]
    return [table for table in made if table.rows]


def base_table(rows: Sequence[Row]) -> Table:
    """How much of what text gives is left from speech, where both were asked."""
    body = []
    for row in rows:
        share = share_of_text(row, rows)
        if not math.isnan(share):
            body.append((row.name, *_whole(row), f"{share:.0%}"))
    heads = ("row", "from speech", "from text", "share")
    return Table(title="Speech and text", heads=heads, rows=tuple(body), note=BASE)


def _whole(row: Row) -> tuple[str, str]:
    heard, read = row.whole("speech"), row.whole("text")
    return str(heard or "-"), str(read or "-")


def clock_table(rows: Sequence[Row]) -> Table:
    """What computation adds, where somebody looked at the clock."""
    body = []
    for row in rows:
        for setting in row.streamed("counted"):
            for name in ("AL", "LAAL"):
                free, took = setting.point(name).latency_ms, setting.took_ms(name)
                if not math.isnan(took):
                    times = (f"{free:.0f}", f"{free + took:.0f}", f"{took:+.0f}")
                    body.append((row.name, setting.name, name, *times))
    heads = ("row", "evaluation", "latency", "heard", "with computation", "difference")
    return Table(title="With the clock running", heads=heads, rows=tuple(body), note=CLOCKED)


def scores_table(rows: Sequence[Row]) -> Table:
    """Quality and latency of every setting of every row."""
    names = ("BLEU", "AL", "LAAL", "DAL")
    body = [
        (row.name, name, str(len(setting.by_seed)), *_spreads(setting, names), _cost(row))
        for row in rows
        for name, setting in row.settings.items()
    ]
    return Table(
        title="Quality and latency",
        heads=("row", "evaluation", "seeds", *names, "training"),
        rows=tuple(body),
        note="Means over seeds ± the standard deviation of a seed. Latencies are in "
        "milliseconds, those of text in words.",
    )


def _spreads(setting: Setting, names: Sequence[str]) -> Iterator[str]:
    return (str(setting.spread(name)) for name in names)


def difference_table(against: Sequence[Against]) -> Table:
    """Each setting against the same of the baseline."""
    body = []
    for each in against:
        found = each.bootstrap
        interval = f"[{found.difference.low:+.2f}, {found.difference.high:+.2f}]"
        sure = "yes" if max(found.p_value, each.t_test.p_value) < SIGNIFICANT else "no"
        numbers = (f"{found.difference.value:+.2f}", interval)
        tests = (f"{found.p_value:.3f}", f"{each.t_test.p_value:.3f}", sure)
        body.append((each.row, each.setting, *numbers, *tests))
    heads = ("row", "evaluation", "BLEU - baseline", "95 %", "p bootstrap", "p t-test")
    both = f"both below {SIGNIFICANT:g}"
    return Table(title="Against the baseline", heads=(*heads, both), rows=tuple(body), note=TESTS)


def equal_table(equal: Sequence[AtEqualLatency], latency: Latency) -> Table:
    """Curves against the baseline's."""
    body = []
    for found in equal:
        gains = [
            (old.latency_ms, new.quality - old.quality)
            for old, new in found.no_later
            if new is not None
        ]
        area = "-" if math.isnan(found.area) else f"{found.area:.3f}"
        body.append((found.row, _differences(gains), _differences(found.between), area))
    return Table(
        title=f"At equal {latency}",
        heads=("row", "no later", "between", "area"),
        rows=tuple(body),
        note=EQUAL,
    )


def seeds_table(rows: Sequence[Row], baseline: Row, latency: Latency) -> Table:
    """Each seed's curve against that of the same seed of the baseline, where there are several."""
    body = []
    for row in rows:
        seeds = sorted({*row.seeds} & {*baseline.seeds})
        for seed in seeds if len(seeds) > 1 else []:
            found = at_equal_latency(row.of_seed(seed), baseline.of_seed(seed), latency)
            if found and found.between:
                body.append((row.name, str(seed), _differences(found.between)))
    return Table(
        title=f"At equal {latency}, seed by seed",
        heads=("row", "seed", "between"),
        rows=tuple(body),
        note=BY_SEED,
    )


def _differences(found: Sequence[tuple[float, float]]) -> str:
    """(Latency, difference in quality), as a cell has them."""
    return "; ".join(f"{points:+.1f} at {place:.0f} ms" for place, points in found) or "-"


def runs_table(rows: Sequence[Row]) -> Table:
    """Where every number comes from."""
    body = [
        (row.name, name, ", ".join(e.run.name if e.run else "-" for e in setting.by_seed.values()))
        for row in rows
        for name, setting in row.settings.items()
    ]
    return Table(
        title="Where the numbers come from",
        heads=("row", "evaluation", "runs"),
        rows=tuple(body),
        note="A run is a directory beside this page or its folder. `simuljax score "
        "RUN/eval/EVALUATION` gives the scores of each again; of a cascade, the folder also has "
        "the address of the run that follows.",
    )


def markdown(title: str, made: Sequence[Table], command: str, figure: Path | None) -> str:
    """The whole as Markdown, the figure beside it."""
    parts = [f"# {title}", f"    {command}"]
    if figure is not None:
        parts += [f"![Quality against latency, a line a row]({figure.name})", CAPTION]
    return "\n\n".join([*parts, *(table.markdown() for table in made)])


def page(title: str, made: Sequence[Table], command: str, figure: Path | None) -> str:
    """The whole as one HTML file."""
    parts = [f'<p class="note"><code>{escape(command)}</code></p>']
    if figure is not None:
        drawn = image(figure, CAPTION)
        parts.append(f"<figure>{drawn}<figcaption>{CAPTION}</figcaption></figure>")
    return shell(title, "".join([*parts, *(table.html() for table in made)]))


def _cost(row: Row) -> str:
    told = [f"{row.minutes} min"] if row.minutes else []
    told += [f"{row.kilojoules} kJ"] if row.kilojoules else []
    return ", ".join(told) or "-"


def _pipe(cell: str) -> str:
    return cell.replace("|", "\\|")
