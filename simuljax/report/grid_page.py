"""Write the page of a grid: verdicts on its claims, curves, and tables with their sources.

`simuljax ablate` makes the page from the directories of the runs, and `simuljax report FOLDER` from
published results; both give the variants and the runs in the same form.

Make the tables of a grid's page: scores, differences, curves, costs, and their sources.
"""

import math
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from simuljax.eval.curves import frontier
from simuljax.eval.significance import Cache, Comparison, Judgement, corrected, judge
from simuljax.report.collect import Latency
from simuljax.report.figures import Effect, draw_curves, draw_forest, draw_losses
from simuljax.report.page import Figure, Table, differing_fields, number, p_value, render
from simuljax.report.results import PAGE, GridInfo, PublishedRun, read_results
from simuljax.report.variants import (
    Measured,
    Spread,
    Variant,
    at_equal_latency,
    check_same_test,
    compare,
    read_variants,
    share_of_text,
)

ENOUGH = 0.6  # of the best BLEU from text: a weaker baseline supports no verdict
GRAMS_PER_KWH = 400.0  # of CO2 equivalent; the world's mean is a little higher
METRICS = ("BLEU", "AL", "LAAL", "DAL")
HEADS = {
    "mean_share": "source read",
    "head_spread_ms": "first to last head, ms",
    "speech_text_correlation": "speech and text",
    "matching_perplexity": "matching perplexity",
    "columns": "of",
    "mass_lost": "mass lost",
}
NOTES = {
    "scores": "Means over seeds ± the standard deviation of one seed. Seeds that fall into two "
    "groups are listed one by one. Latencies are in milliseconds, those of text in words.",
    "differences": "Variant less baseline in BLEU, with a t-interval over seeds that also counts "
    "the choice of utterances. p (Holm) is corrected for all rows of this table. MDD: the smallest "
    "difference that would be found with the power of the rule. The evaluation is the same, the "
    "latency need not be: see the table at equal latency.",
    "clock": "Milliseconds, on the utterances that were played in real time: by the source, and "
    "with all computation (SimulEval's count).",
    "equal": "No later: for each point of the baseline, the best point of the variant with no "
    "higher latency (Zaidi et al. 2022, table 4). Between: the difference on the straight lines of "
    "both curves, at five latencies that both cover. Area: dominated by the variant's curve, over "
    "the baseline's.",
    "seeds": "As above, for the points of one seed alone.",
    "base": "BLEU with the whole source; the share is of the best from text. A baseline below "
    f"{ENOUGH:.0%} is too weak for a verdict on its variants.",
    "heads": "Expected alignments of the reference, teacher-forced. Source read: the share that a "
    "head has read for a target token. Speech and text: the correlation of where the two branches "
    "read. Perplexity of DAR's matching softmax: near the number of columns, it matches nothing. "
    "Mass lost: of a target's probability, by the closed form.",
    "energy": "The board's own counter, with whatever else ran on it; processors, memory and "
    f"cooling are not counted. {GRAMS_PER_KWH:.0f} g CO2 equivalent per kWh is assumed.",
    "serving": "Latencies are the points of a variant's curve. An offline model serves all of them "
    "with one training; a model that is trained for its latency takes one each (9 times the energy "
    "in Papi et al. 2022). The last column is that factor here.",
    "runs": "`simuljax score FOLDER:RUN/EVALUATION` scores the log of a published run again.",
}


def tables_of(
    grid: GridInfo,
    variants: Sequence[Variant],
    baseline: Variant,
    runs: Sequence[PublishedRun],
    cache: Cache,
) -> list[Table]:
    """Return all tables of numbers that have rows."""
    latency = cast(Latency, grid.latency)
    made = [
        scores_table(variants),
        differences_table(grid, variants, baseline, cache),
        equal_table(variants, baseline, latency),
        seeds_table(variants, baseline, latency),
        base_table(variants),
        clock_table(variants),
        heads_table(runs),
        energy_table(variants),
        serving_table(variants),
        runs_table(variants),
    ]
    return [table for table in made if table.rows]


def scores_table(variants: Sequence[Variant]) -> Table:
    """Return quality and latency of every evaluation of every variant."""
    rows = [
        (each.name, name, str(len(m.by_seed)), *_spreads(m), _cost(each))
        for each in variants
        for name, m in each.evaluations.items()
    ]
    heads = ("variant", "evaluation", "seeds", *METRICS, "training")
    title = "Quality and latency"
    return Table(title=title, heads=heads, rows=tuple(rows), note=NOTES["scores"], left=2)


def _spreads(measured: Measured) -> tuple[str, ...]:
    return tuple(str(measured.spread(name)) for name in METRICS)


def _cost(variant: Variant) -> str:
    parts = [f"{variant.minutes} min"] if variant.minutes else []
    parts += [f"{variant.kilojoules} kJ"] if variant.kilojoules else []
    return ", ".join(parts) or "-"


def differences_table(
    grid: GridInfo, variants: Sequence[Variant], baseline: Variant, cache: Cache
) -> Table:
    """Return every evaluation of every variant against the baseline's."""
    found = [
        (each.name, name, c)
        for each in variants
        for name in each.evaluations
        if (c := compare(each, baseline, name, cache=cache))
    ]
    rows = []
    for (variant, name, _), c in zip(found, corrected([c for _, _, c in found]), strict=True):
        interval = f"{c.difference.low:+.2f} to {c.difference.high:+.2f}"
        numbers = (p_value(c.p_value), p_value(c.adjusted), number(c.detectable(grid.rule), 2))
        points = " ".join(f"{value:+.2f}" for value in c.by_seed)
        value = f"{c.difference.value:+.2f}"
        rows.append((variant, name, value, interval, *numbers, points))
    heads = ("variant", "evaluation", "BLEU", "95 % interval", "p", "p (Holm)", "MDD", "by seed")
    title = f"Differences to {baseline.name}"
    note = NOTES["differences"]
    return Table(title=title, heads=heads, rows=tuple(rows), note=note, left=2)


def equal_table(variants: Sequence[Variant], baseline: Variant, latency: Latency) -> Table:
    """Return curves against the baseline's."""
    rows = []
    for each in variants:
        found = at_equal_latency(each, baseline, latency)
        if found:
            pairs = [(old.latency_ms, old, new) for old, new in found.no_later if new is not None]
            gains = [(at, new.quality - old.quality) for at, old, new in pairs]
            area = number(found.area, 3)
            rows.append((each.name, _differences(gains), _differences(found.between), area))
    heads = ("variant", "no later", "between", "area")
    title = f"At equal {latency}"
    return Table(title=title, heads=heads, rows=tuple(rows), note=NOTES["equal"], left=3)


def seeds_table(variants: Sequence[Variant], baseline: Variant, latency: Latency) -> Table:
    """Return each seed's curve against that of the same seed of the baseline."""
    rows = []
    for each in variants:
        seeds = sorted({*each.seeds} & {*baseline.seeds})
        for seed in seeds if len(seeds) > 1 else []:
            found = at_equal_latency(each.of_seed(seed), baseline.of_seed(seed), latency)
            if found and found.between:
                rows.append((each.name, str(seed), _differences(found.between)))
    heads = ("variant", "seed", "between")
    title = f"At equal {latency}, seed by seed"
    return Table(title=title, heads=heads, rows=tuple(rows), note=NOTES["seeds"], left=3)


def _differences(found: Sequence[tuple[float, float]]) -> str:
    return "; ".join(f"{points:+.1f} at {place:.0f} ms" for place, points in found) or "-"


def base_table(variants: Sequence[Variant]) -> Table:
    """Return BLEU from speech beside BLEU from text, where both were evaluated."""
    rows = []
    for each in variants:
        share = share_of_text(each, variants)
        if not math.isnan(share):
            both = (str(each.whole(branch) or "-") for branch in ("speech", "text"))
            rows.append((each.name, *both, f"{share:.0%}"))
    heads = ("variant", "from speech", "from text", "share")
    return Table(title="Speech and text", heads=heads, rows=tuple(rows), note=NOTES["base"])


def clock_table(variants: Sequence[Variant]) -> Table:
    """Return what computation adds, where it was measured."""
    rows = []
    for each in variants:
        for measured in each.streamed("counted"):
            for name in ("AL", "LAAL"):
                free, took = measured.point(name).latency_ms, measured.computation_ms(name)
                if not math.isnan(took):
                    times = (f"{free:.0f}", f"{free + took:.0f}", f"{took:+.0f}")
                    rows.append((each.name, measured.name, name, *times))
    heads = ("variant", "evaluation", "latency", "by the source", "with computation", "difference")
    return Table(title="In real time", heads=heads, rows=tuple(rows), note=NOTES["clock"], left=2)


def heads_table(runs: Sequence[PublishedRun]) -> Table:
    """Return what the heads do, of every variant that was diagnosed."""
    found: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        if run.diagnosis:
            shares = [share for layer in run.diagnosis["read_share"] for share in layer]
            known = bool(shares) and None not in shares
            mean = math.fsum(shares) / len(shares) if known else None
            found.setdefault(run.variant, []).append({**run.diagnosis, "mean_share": mean})
    rows = [
        (name, *(str(_spread([each.get(head) for each in own])) for head in HEADS))
        for name, own in found.items()
    ]
    heads, title = ("variant", *HEADS.values()), "What the heads do"
    return Table(title=title, heads=heads, rows=tuple(rows), note=NOTES["heads"], folded=True)


def _spread(values: Sequence[float | None]) -> Spread:
    return Spread.of(math.nan if value is None else value for value in values)


def energy_table(variants: Sequence[Variant]) -> Table:
    """Return energy and carbon of a training, where they were measured."""
    rows = []
    for each in variants:
        if each.kilojoules:
            kwh = each.kilojoules.mean / 3600
            grams = f"{kwh * GRAMS_PER_KWH:.0f}"
            rows.append((each.name, f"{each.kilojoules.mean:.0f}", f"{kwh:.3f}", grams))
    heads, note = ("variant", "kJ per training", "kWh", "g CO2e"), NOTES["energy"]
    return Table(title="Energy", heads=heads, rows=tuple(rows), note=note, folded=True)


def serving_table(variants: Sequence[Variant]) -> Table:
    """Return how many latencies the trainings of a variant serve."""
    rows = []
    for each in variants:
        points = len(each.streamed("free"))
        trainings = 1 + len({name.split("/")[0] for name in each.evaluations if "/" in name})
        if points > 1:
            rows.append((each.name, str(points), str(trainings), f"{points / trainings:.1f}"))
    heads = ("variant", "latencies", "trainings", "factor of one training each")
    title, note = "The cost of a curve", NOTES["serving"]
    return Table(title=title, heads=heads, rows=tuple(rows), note=note, folded=True)


def runs_table(variants: Sequence[Variant]) -> Table:
    """Return the runs that every number comes from."""
    rows = [
        (each.name, name, ", ".join(e.run.name if e.run else "-" for e in m.by_seed.values()))
        for each in variants
        for name, m in each.evaluations.items()
    ]
    heads, title = ("variant", "evaluation", "runs"), "Where the numbers come from"
    made = Table(title=title, heads=heads, rows=tuple(rows), note=NOTES["runs"], left=3)
    return replace(made, folded=True)


CURVES = (
    "One line per variant through its Pareto-optimal points. A thin line leads from a mean to each "
    "seed. Up and to the left is better."
)
FOREST = (
    "Differences in BLEU with 95 % intervals over seeds and utterances. Grey: differences that are "
    "too small to be found with these seeds and utterances. Diamonds: the published difference."
)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The claims of a grid with their judgements."""

    judgements: tuple[Judgement, ...]

    def count(self, verdict: str) -> int:
        """Return the number of claims with this verdict."""
        return sum(each.verdict == verdict for each in self.judgements)


def write_published_page(folder: Path, out: Path | None = None) -> Path:
    """Write the page of a folder of published results, there or elsewhere.

    Elsewhere, the figures lie beside it; in the folder of the results they are in the page alone.
    """
    results = read_results(folder)
    if results.grid is None:
        raise ValueError(f"{folder} holds no grid")
    variants = read_variants(folder, results)
    with tempfile.TemporaryDirectory() as place:
        page = write_grid_page(out or Path(place), results.grid, variants, results.runs)
        return page if out else Path(shutil.copy(page, folder / PAGE))


def write_grid_page(
    out: Path,
    grid: GridInfo,
    variants: Sequence[Variant],
    runs: Sequence[PublishedRun],
    more: Sequence[Table] = (),
) -> Path:
    """Draw the figures and write the page; `more` tables come first among the numbers."""
    check_same_test(variants)
    out.mkdir(parents=True, exist_ok=True)
    baseline = next((each for each in variants if each.name == grid.baseline), variants[0])
    latency, cache = cast(Latency, grid.latency), {}
    judged = judge_claims(grid, variants, baseline, cache)
    page = render(
        "grid.html",
        title=grid.title or "Grid",
        facts=_facts(grid, variants, runs),
        verdict=verdict_of(grid, judged),
        claims=claims_table(grid, judged),
        forest=_forest(grid, judged, out),
        curves=_curves(variants, latency, out),
        variants=[table for table in (differing_fields(_configs(grid, runs)),) if table],
        losses=_losses(runs, variants, out),
        tables=[*more, *tables_of(grid, variants, baseline, runs, cache)],
        scripted=False,
    )
    (out / PAGE).write_text(page, "utf-8")
    return out / PAGE


def judge_claims(
    grid: GridInfo, variants: Sequence[Variant], baseline: Variant, cache: Cache
) -> Judged:
    """Judge the claims by the grid's rule; a baseline too weak makes all of them not testable."""
    known = {each.name: each for each in variants}
    comparisons: list[Comparison | None] = []
    for claim in grid.claims:
        own, over = known.get(claim.variant), known.get(claim.over)
        found = compare(own, over, claim.evaluation, cache=cache) if own and over else None
        comparisons.append(found)
    judgements = judge(comparisons, grid.rule)
    if share_of_text(baseline, variants) < ENOUGH:  # False where text was not evaluated
        weak = {"verdict": "not testable here", "reason": "the baseline is too weak"}
        judgements = [replace(each, **weak) if each.comparison else each for each in judgements]
    return Judged(judgements=tuple(judgements))


def verdict_of(grid: GridInfo, judged: Judged) -> list[str]:
    """Say in a sentence what became of the claims."""
    if not grid.claims:
        return []
    names = ("supported", "contradicted", "inconclusive", "not testable here")
    counted = [f"{judged.count(name)} {name}" for name in names if judged.count(name)]
    total = len(grid.claims)
    said = [f"Of {total} {'claim' if total == 1 else 'claims'}: {', '.join(counted)}."]
    for name in ("supported", "contradicted"):
        pairs = zip(grid.claims, judged.judgements, strict=True)
        own = [claim.says for claim, each in pairs if each.verdict == name]
        said += [f"{name.capitalize()}: {'; '.join(own)}."] if own else []
    return said


def claims_table(grid: GridInfo, judged: Judged) -> list[Table]:
    """Return the claims with their differences, intervals and verdicts."""
    rows = []
    for claim, each in zip(grid.claims, judged.judgements, strict=True):
        c, reason = each.comparison, f" ({each.reason})" if each.reason else ""
        here = ("–",) * 4
        if c is not None:
            interval = f"{c.difference.low:+.2f} to {c.difference.high:+.2f}"
            found = number(c.detectable(grid.rule), 2)
            here = (f"{c.difference.value:+.2f}", interval, p_value(c.adjusted), found)
        seeds = str(len(c.by_seed)) if c else "–"
        published = "–" if claim.published is None else f"{claim.published:+.2f}"
        rows.append((claim.says, published, seeds, *here, each.verdict + reason))
    heads = ("claim", "published", "seeds", "here", "95 % interval", "p (Holm)", "MDD", "verdict")
    rule = grid.rule
    note = (
        f"Rule: supported if the difference in BLEU is positive and p (Holm) < {rule.alpha:g}; "
        f"contradicted if a difference of {rule.margin:g} or more is rejected at the same level; "
        f"otherwise inconclusive; not testable with fewer than {rule.seeds} seeds. "
        "MDD: the smallest difference that these seeds and utterances would find with a power "
        f"of {rule.power:.0%}."
    )
    made = Table(title="Claims", heads=heads, rows=tuple(rows), note=note)
    return [made] if rows else []


def _forest(grid: GridInfo, judged: Judged, out: Path) -> Figure | None:
    effects = [
        Effect(
            label=claim.says,
            value=c.difference.value,
            low=c.difference.low,
            high=c.difference.high,
            published=claim.published,
            detectable=c.detectable(grid.rule),
        )
        for claim, each in zip(grid.claims, judged.judgements, strict=True)
        if (c := each.comparison) and len(c.by_seed) > 1
    ]
    return (
        Figure(path=draw_forest(effects, out / "claims.png"), caption=FOREST) if effects else None
    )


def draw_variants(variants: Sequence[Variant], latency: Latency, path: Path) -> Path | None:
    """Draw quality against latency, with computation where it was measured."""
    free = {name: line for each in variants for name, line in each.lines(latency).items()}
    aware = [each.lines(latency, computation="counted") for each in variants]
    clocked = {name: line for each in aware for name, line in each.items()}
    if not free:
        return None
    return draw_curves(free, path, latency=latency, aware=clocked, through=frontier)


def _curves(variants: Sequence[Variant], latency: Latency, out: Path) -> Figure | None:
    drawn = draw_variants(variants, latency, out / "curves.png")
    return Figure(path=drawn, caption=CURVES) if drawn else None


def _losses(runs: Sequence[PublishedRun], variants: Sequence[Variant], out: Path) -> Figure | None:
    caption = f"Loss of all {len(runs)} runs; seeds of a variant share a colour."
    drawn = draw_losses({run.run: run.curves for run in runs}, out / "losses.png")
    return Figure(path=drawn, caption=caption) if drawn and variants else None


def _configs(grid: GridInfo, runs: Sequence[PublishedRun]) -> dict[str, Any]:
    """Return the configuration of every variant, in the order of the grid, without donors."""
    found = {run.variant: run.config for run in reversed(runs) if run.seed is not None}
    order = [*grid.variants, *(name for name in found if name not in grid.variants)]
    return {name: found[name] for name in order if name in found}


def _facts(
    grid: GridInfo, variants: Sequence[Variant], runs: Sequence[PublishedRun]
) -> list[tuple[str, str]]:
    seeds = sorted({seed for each in variants for seed in each.seeds})
    sizes = sorted({run.parameters for run in runs if run.parameters})
    tests = {m.utterances for each in variants for m in each.evaluations.values()}
    spent = [(run.spent or {}).get("training") for run in runs]
    minutes = [each["seconds"] / 60 for each in spent if each]
    return [
        ("variants", f"{', '.join(each.name for each in variants)}; baseline {grid.baseline}"),
        ("seeds", ", ".join(map(str, seeds))),
        ("runs", f"{len(runs)}" + (f", {sum(minutes):.0f} minutes of training" if minutes else "")),
        ("parameters", ", ".join(f"{size / 1e6:.1f} M" for size in sizes)),
        ("utterances", " or ".join(map(str, sorted(tests, reverse=True)))),
        ("trained", grid.date),
        ("command", grid.command),
    ]
