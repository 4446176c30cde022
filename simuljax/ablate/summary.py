"""The answer of an ablation: its rows gathered from their runs, as a page, a table and a figure."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from simuljax.ablate.grid import Ablation, Planned, evaluations_of
from simuljax.ablate.scheduler import state_of
from simuljax.ablate.worker import GRAMS_PER_KWH, SPENT, is_trained, lacking
from simuljax.config.fields import ConfigError
from simuljax.config.json import read_json
from simuljax.eval.curves import frontier
from simuljax.eval.significance import Interval
from simuljax.report.ablation import Row, Setting, Spread, compare, same_test, share_of_text
from simuljax.report.ablation_page import ENOUGH, Table, markdown, page, tables
from simuljax.report.collect import Evaluated, Latency, gather
from simuljax.report.figures import draw_curves
from simuljax.runs.evaluate import SCORES
from simuljax.runs.heads import Diagnosis, diagnosed

HEADS = {
    "mean_share": "source read",
    "head_spread_ms": "first to last head, ms",
    "speech_text_correlation": "speech and text",
    "matching_perplexity": "matching perplexity",
    "columns": "of",
    "mass_lost": "mass lost",
}
LOOKED = (
    "Expected alignments of the reference, teacher-forced. Source read: the share of it that a "
    "head has read for a target. Speech and text: the correlation of where the two branches read. "
    "Perplexity of DAR's matching softmax; near the number of columns that it chooses from, it "
    "matches nothing. Mass lost: of a target's probability, by the closed form."
)
HELD = (
    "Differences in BLEU. A claim held, or its opposite did, if the interval of the paired "
    "bootstrap over seeds and utterances leaves out 0; otherwise this experiment leaves it open."
)
NO_BASE = (
    " The baseline is too far behind what text gives (below), so there is no base for a verdict."
)
SERVED = (
    "Latencies are the points of a row's curve. An offline model serves all of them with one "
    "training, one that is trained for its latency takes a training each: 9 times the energy and "
    "the carbon in Papi et al. 2022. The last column is that factor here."
)
JOULES = "joules"


def write_answer(ablation: Ablation, runs: list[Planned], command: str) -> Path:
    """Writes page, table and figure beside the runs; gives the page."""
    rows = [row_of(ablation, runs, name) for name in ablation.table]
    rows = [row for row in rows if row.settings]
    if not rows:
        raise ConfigError(f"{ablation.runs}: no evaluation of this grid has come to its end")
    same_test(rows)
    (baseline,) = [row for row in rows if row.name == ablation.baseline] or [rows[0]]
    latency = ablation.latency
    made = [
        *claims_table(ablation, rows, baseline),
        *absent_table(ablation, runs),
        *tables(rows, baseline, latency),
        *heads_table(ablation, runs),
        *energy_table(rows),
        *serving_table(rows),
    ]
    out, title = ablation.runs / ablation.answer, ablation.title or "Ablation"
    out.mkdir(parents=True, exist_ok=True)
    figure = draw(rows, latency, out / "curves.png")
    (out / "README.md").write_text(markdown(title, made, command, figure), "utf-8")
    (out / "index.html").write_text(page(title, made, command, figure), "utf-8")
    return out / "index.html"


def draw(rows: Sequence[Row], latency: Latency, path: Path) -> Path | None:
    """Quality against latency, with computation where somebody looked at the clock.

    A line goes through what no sooner point beats, as comparisons at equal latency do.
    """
    free = {name: line for row in rows for name, line in row.lines(latency).items()}
    aware = [row.lines(latency, computation="counted") for row in rows]
    clocked = {name: line for each in aware for name, line in each.items()}
    return (
        draw_curves(free, path, latency=latency, aware=clocked, through=frontier) if free else None
    )


def claims_table(ablation: Ablation, rows: list[Row], baseline: Row) -> list[Table]:
    """What papers say, and whether it held."""
    known, body = {row.name: row for row in rows}, []
    baseless = share_of_text(baseline, rows) < ENOUGH  # not if text was not asked
    for claim in ablation.claims:
        row, over = known.get(claim.row), known.get(claim.over)
        pairs = compare(row, over, settings=(claim.evaluation,)) if row and over else []
        here = _judged(pairs[0].bootstrap.difference) if pairs else ("-", "-", "not run")
        here = (*here[:-1], "no base") if pairs and baseless else here
        body.append((claim.says, _points(claim.published), *here))
    heads = ("claim", "published", "here", "95 %", "did it hold?")
    note = HELD + NO_BASE if baseless else HELD
    return [Table(title="Claims", heads=heads, rows=tuple(body), note=note)] if body else []


def _judged(found: Interval) -> tuple[str, str, str]:
    verdict = "held" if found.low > 0 else "the opposite" if found.high < 0 else "open"
    return _points(found.value), f"[{found.low:+.2f}, {found.high:+.2f}]", verdict


def absent_table(ablation: Ablation, runs: list[Planned]) -> list[Table]:
    """What the grid asks for and nobody has run, or not to its end."""
    absent: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        if run.seed is not None and state_of(run, ablation) != "done":
            absent.setdefault((run.row, _lacking(run, ablation)), []).append(str(run.seed))
    body = tuple((row, ", ".join(seeds), ways) for (row, ways), seeds in absent.items())
    heads = ("row", "seeds", "evaluations")
    return [Table(title="Not run", heads=heads, rows=body)] if body else []


def _lacking(run: Planned, ablation: Ablation) -> str:
    """Which evaluations have no result."""
    left = lacking(run, ablation)
    partly = is_trained(run) and len(left) < len(evaluations_of(run, ablation))
    return ", ".join(way.folder.name for way in left) if partly else "all"


def _points(difference: float | None) -> str:
    return "-" if difference is None else f"{difference:+.2f}"


def row_of(ablation: Ablation, runs: list[Planned], name: str) -> Row:
    """A row of the table with all that continues it, as far as it has been evaluated."""
    settings: dict[str, dict[int, Evaluated]] = {}
    spent = []
    for row in (name, *ablation.curves.get(name, ())):
        for run in [run for run in runs if run.row == row and run.seed is not None]:
            spent += spent_of(run) if row == name else []
            for way, each in evaluated(run, ablation).items():
                label = "/".join(filter(None, [row.removeprefix(name).strip("_"), way]))
                settings.setdefault(label, {})[run.seed or 0] = each
    joules = [each[JOULES] for each in spent if each[JOULES] is not None]
    return Row(
        name=name,
        settings={k: Setting(name=k, by_seed=v) for k, v in settings.items()},
        minutes=Spread.of(each["seconds"] / 60 for each in spent) if spent else None,
        kilojoules=Spread.of(each / 1000 for each in joules) if joules else None,
    )


def evaluated(run: Planned, ablation: Ablation) -> dict[str, Evaluated]:
    """What this grid asks for, by what it calls it; none, if the run has not come so far.

    These are the names of folders, but for cascades: there a folder names the run that follows, and
    the grid its row.
    """
    directory = run.experiment.run
    done = {scores.parent.name for scores in directory.glob(f"eval/*/{SCORES}")}
    if not done:
        return {}
    rows = {need.experiment.run: Path(need.row) for need in run.needs}
    asked = {
        way.folder.name: replace(way, then=way.then and rows.get(way.then, way.then)).folder.name
        for way in evaluations_of(run, ablation)
        if way.folder.name in done
    }
    return {asked[each.name]: each for each in gather([directory]) if each.name in asked}


def spent_of(run: Planned) -> list[dict[str, Any]]:
    """What training it took."""
    path = run.experiment.run / SPENT
    spent = read_json(path).get("training") if path.exists() else None
    return [spent] if spent else []  # one that was killed at the wrong moment has not noted it


def heads_table(ablation: Ablation, runs: list[Planned]) -> list[Table]:
    """What the heads do, of every row that was looked at."""
    body = []
    for row in ablation.seeded:
        mine = [run for run in runs if run.row == row]
        found = [d for run in mine if (d := diagnosed(run.experiment.run))]
        if found:
            body.append((row, *(str(_spread(found, name)) for name in HEADS)))
    if not body:
        return []
    return [
        Table(title="What the heads do", heads=("row", *HEADS.values()), rows=(*body,), note=LOOKED)
    ]


def _spread(found: list[Diagnosis], name: str) -> Spread:
    values = [getattr(each, name) for each in found]
    return Spread.of(math.nan if value is None else value for value in values)


def energy_table(rows: list[Row]) -> list[Table]:
    """Energy and carbon of a training, where something counted them."""
    known = [(row.name, row.kilojoules) for row in rows if row.kilojoules]
    if not known:
        return []
    body = [
        (name, f"{kj.mean:.0f}", f"{kj.mean / 3600:.3f}", f"{kj.mean / 3600 * GRAMS_PER_KWH:.0f}")
        for name, kj in known
    ]
    return [
        Table(
            title="Energy",
            heads=("row", "kJ a training", "kWh", "g CO2e"),
            rows=tuple(body),
            note="The board's own counter, whatever else ran on it included; processors, memory "
            f"and cooling are not counted. {GRAMS_PER_KWH:.0f} g CO2 equivalent a kWh is assumed.",
        )
    ]


def serving_table(rows: list[Row]) -> list[Table]:
    """How many latencies the trainings of a row serve: the argument for offline models."""
    body = []
    for row in rows:
        points = len(row.streamed("free"))
        later = {name.split("/")[0] for name in row.settings if "/" in name}
        trainings = 1 + len(later)
        if points > 1:
            body.append((row.name, str(points), str(trainings), f"{points / trainings:.1f}"))
    heads = ("row", "latencies", "trainings", "at a training each, times as much")
    made = Table(title="What a curve costs", heads=heads, rows=tuple(body), note=SERVED)
    return [made] if body else []
