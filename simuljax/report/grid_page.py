"""Write the page of a grid: verdicts on its claims, curves, and tables with their sources.

`simuljax ablate` makes the page from the directories of the runs, and `simuljax report FOLDER` from
published results.
"""

import functools
import math
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from simuljax.eval.curves import frontier
from simuljax.eval.significance import Cache, Comparison, Judgement, Rule, corrected, judge
from simuljax.report.collect import Evaluated, read_published
from simuljax.report.figures import Effect, draw_curves, draw_forest, draw_losses
from simuljax.report.page import (
    Figure,
    Table,
    differing_fields,
    make_table,
    number,
    p_value,
    render,
)
from simuljax.report.results import (
    PAGE,
    GridInfo,
    Latency,
    PublishedEvaluation,
    PublishedRun,
    Results,
    read_results,
)
from simuljax.report.variants import (
    Measured,
    Spread,
    Variant,
    at_equal_latency,
    check_same_test,
    compare,
    list_test_sets,
    share_of_text,
)

ENOUGH = 0.6  # of the best BLEU from text: a weaker baseline supports no verdict
GRAMS_PER_KWH = 400.0  # of CO2 equivalent; the world's mean is a little higher
METRICS = ("BLEU", "AL", "LAAL", "DAL")
HEADS = ("mean_share", "head_spread_ms", "speech_text_correlation", "matching_perplexity")
HEADS += ("columns", "mass_lost")
CURVES = (
    "One line per variant through its Pareto-optimal points. A thin line leads from a mean to each "
    "seed. Up and to the left is better."
)
FOREST = (
    "Differences in BLEU with 95 % intervals over seeds and utterances. Grey: differences that are "
    "too small to be found with these seeds and utterances. Diamonds: the published difference."
)


def write_published_page(folder: Path, out: Path | None = None) -> Path:
    """Write the page of a folder of published results, there or elsewhere.

    Elsewhere, the figures lie beside it; in the folder of the results they are in the page alone.
    """
    results = read_results(folder)
    variants = read_variants(results, functools.partial(read_published, folder))
    with tempfile.TemporaryDirectory() as place:
        page = write_grid_page(out or Path(place), results, variants)
        return page if out else Path(shutil.copy(page, folder / PAGE))


def read_variants(
    results: Results, read: Callable[[PublishedEvaluation], Evaluated]
) -> list[Variant]:
    """Return the variants of a grid's results."""
    order = results.grid.variants if results.grid else ()
    found: dict[str, dict[str, dict[int, Evaluated]]] = {name: {} for name in order}
    for each in results.evaluations:
        own = found.setdefault(each.variant, {}).setdefault(each.setting, {})
        own[each.seed or 0] = read(each)
    variants = []
    for name, evaluations in found.items():
        measured = {k: Measured(name=k, by_seed=seeds) for k, seeds in evaluations.items()}
        variants += [Variant(name=name, evaluations=measured)] if measured else []
    return variants


def write_grid_page(
    out: Path, results: Results, variants: Sequence[Variant], more: Sequence[Table] = ()
) -> Path:
    """Draw the figures and write the page; `more` tables come first among the numbers."""
    grid, runs = results.grid, results.runs
    assert grid is not None, "these results are of no grid"
    check_same_test(variants)
    out.mkdir(parents=True, exist_ok=True)
    baseline = next((each for each in variants if each.name == grid.baseline), variants[0])
    cache: Cache = {}
    judged = judge_claims(grid, variants, baseline, cache)
    found = {run.variant: run.config for run in reversed(runs) if run.seed is not None}
    order = [name for name in dict.fromkeys([*grid.variants, *found]) if name in found]
    losses = draw_losses({run.run: run.curves for run in runs}, out / "losses.png")
    page = render(
        "grid.html",
        title=grid.title or "Grid",
        facts=_facts(grid, variants, runs),
        verdict=_verdict(grid, judged),
        claims=_claims_table(grid, judged),
        forest=Figure.of(_draw_claims(grid, judged, out / "claims.png"), FOREST),
        curves=_draw_variants(grid, variants, out),
        variants=differing_fields({name: found[name] for name in order}),
        losses=Figure.of(
            losses, f"Loss of all {len(runs)} runs; seeds of a variant share a colour."
        ),
        tables=[*more, *tables_of(grid, variants, baseline, runs, cache)],
    )
    (out / PAGE).write_text(page, "utf-8")
    return out / PAGE


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


def judge_claims(
    grid: GridInfo, variants: Sequence[Variant], baseline: Variant, cache: Cache
) -> list[Judgement]:
    """Judge the claims by the grid's rule; a baseline too weak makes all of them not testable."""
    known = {each.name: each for each in [*continued(variants), *variants]}
    comparisons: list[Comparison | None] = []
    for claim in grid.claims:
        own, over = known.get(claim.variant), known.get(claim.over)
        comparisons.append(compare(own, over, claim.evaluation, cache) if own and over else None)
    judged = judge(comparisons, grid.rule, [claim.published for claim in grid.claims])
    if share_of_text(baseline, variants) < ENOUGH:  # False where text was not evaluated
        weak = {"verdict": "not testable here", "reason": "the baseline is too weak"}
        judged = [replace(each, **weak) if each.comparison else each for each in judged]
    return judged


def continued(variants: Sequence[Variant]) -> list[Variant]:
    """Return the variants that continue others, whose pages have their evaluations."""
    found: dict[str, dict[str, Measured]] = {}
    for each in variants:
        for name, measured in each.evaluations.items():
            later, _, own = name.rpartition("/")
            for variant in (later, f"{each.name}_{later}") if later else ():
                found.setdefault(variant, {})[own] = measured
    return [Variant(name=name, evaluations=own) for name, own in found.items()]


def _verdict(grid: GridInfo, judged: Sequence[Judgement]) -> list[str]:
    """Say in a sentence what became of the claims."""
    if not grid.claims:
        return []
    claims = {
        verdict: [
            claim.says
            for claim, each in zip(grid.claims, judged, strict=True)
            if each.verdict == verdict
        ]
        for verdict in ("supported", "contradicted", "inconclusive", "not testable here")
    }
    total, counted = len(judged), [f"{len(own)} {name}" for name, own in claims.items() if own]
    named = [name for name in ("supported", "contradicted") if claims[name]]
    return [
        f"Of {total} {'claim' if total == 1 else 'claims'}: {', '.join(counted)}.",
        *(f"{name.capitalize()}: {'; '.join(claims[name])}." for name in named),
    ]


def _claims_table(grid: GridInfo, judged: Sequence[Judgement]) -> Table:
    """Return the claims with their differences, intervals and verdicts."""
    rows = []
    for claim, each in zip(grid.claims, judged, strict=True):
        c, reason = each.comparison, f" ({each.reason})" if each.reason else ""
        here = ("–",) * 5
        if c is not None:
            value, interval, _, *rest = _difference(c, grid.rule)
            here = (str(len(c.by_seed)), value, interval, *rest)
        published = "–" if claim.published is None else f"{claim.published:+.2f}"
        rows.append((claim.says, published, *here, each.verdict + reason))
    margin = grid.rule.margin
    least = "the published difference" if margin is None else f"a difference of {margin:g}"
    excluded = f", or if {least} is above MDD and rejected at the same level"
    excluded = "" if margin == 0 else excluded  # a difference of 0 is never above MDD
    return make_table("claims", rows, rule=grid.rule, excluded=excluded)


def _difference(c: Comparison, rule: Rule) -> tuple[str, ...]:
    """Return the difference, its interval, p, p (Holm) and the smallest that would be found."""
    found = c.difference
    interval = f"{found.low:+.2f} to {found.high:+.2f}"
    chances = (p_value(c.p_value), p_value(c.adjusted), number(c.detectable(rule), 2))
    return (f"{found.value:+.2f}", interval, *chances)


def _draw_claims(grid: GridInfo, judged: Sequence[Judgement], path: Path) -> Path | None:
    effects = [
        Effect(
            label=claim.says,
            value=c.difference.value,
            low=c.difference.low,
            high=c.difference.high,
            published=claim.published,
            detectable=c.detectable(grid.rule),
        )
        for claim, each in zip(grid.claims, judged, strict=True)
        if (c := each.comparison) and len(c.by_seed) > 1
    ]
    return draw_forest(effects, path) if effects else None


def _draw_variants(grid: GridInfo, variants: Sequence[Variant], out: Path) -> list[Figure | None]:
    """Draw quality against latency on every test set, with computation where it was measured."""
    latency, figures = grid.latency, []
    for i, where in enumerate(list_test_sets(variants)):
        free, clocked = {}, {}
        for each in (variant.on(where) for variant in variants):
            free |= each.lines(latency)
            clocked |= each.lines(latency, clock=True)
        path = out / f"curves{f'-{i}' if i else ''}.png"
        drawn: dict[str, Any] = {"latency": latency, "aware": clocked, "through": frontier}
        caption = f"Test set: {where}. {CURVES}" if where else CURVES
        figures.append(Figure.of(draw_curves(free, path, **drawn) if free else None, caption))
    return figures


def tables_of(
    grid: GridInfo,
    variants: Sequence[Variant],
    baseline: Variant,
    runs: Sequence[PublishedRun],
    cache: Cache,
) -> list[Table]:
    """Return all tables of numbers that have rows."""
    made = [_scores_table(variants, runs), _differences_table(grid, variants, baseline, cache)]
    for where in list_test_sets(variants):
        here, base = [each.on(where) for each in variants], baseline.on(where)
        made += _equal_latency_tables(here, base, grid.latency, f" on {where}" if where else "")
    made += [
        _text_table(variants),
        _clock_table(variants),
        _heads_table(runs),
        _energy_table(runs),
        _serving_table(variants),
        _runs_table(variants),
    ]
    return [table for table in made if table.rows]


def _scores_table(variants: Sequence[Variant], runs: Sequence[PublishedRun]) -> Table:
    """Return quality and latency of every evaluation of every variant, and its runs' trainings."""
    rows = []
    for each in variants:
        for name, measured in each.evaluations.items():
            spreads = (str(measured.spread(metric)) for metric in METRICS)
            own = {e.run.name for e in measured.by_seed.values() if e.run}
            minutes, kilojoules = _costs([run for run in runs if run.run in own])
            cost = [f"{minutes} min"] * bool(minutes) + [f"{kilojoules} kJ"] * bool(kilojoules)
            seeds = str(len(measured.by_seed))
            rows.append((each.name, name, seeds, *spreads, ", ".join(cost) or "-"))
    return make_table("scores", rows)


def _costs(runs: Sequence[PublishedRun]) -> tuple[Spread | None, Spread | None]:
    """Return minutes and kilojoules of trainings; a run that was killed may not have written them.

    Joules are None where the device does not count them.
    """
    spent = [found for run in runs if (found := (run.spent or {}).get("training"))]
    minutes = [each["seconds"] / 60 for each in spent]
    joules = [each["joules"] for each in spent if each["joules"] is not None]
    return (
        Spread.of(minutes) if minutes else None,
        Spread.of(each / 1000 for each in joules) if joules else None,
    )


def _differences_table(
    grid: GridInfo, variants: Sequence[Variant], baseline: Variant, cache: Cache
) -> Table:
    """Return every evaluation of every variant against the baseline's."""
    found = [
        (each.name, name, c)
        for each in variants
        for name in each.evaluations
        if (c := compare(each, baseline, name, cache))
    ]
    rows = []
    for (variant, name, _), c in zip(found, corrected([c for _, _, c in found]), strict=True):
        points = " ".join(f"{value:+.2f}" for value in c.by_seed)
        rows.append((variant, name, *_difference(c, grid.rule), points))
    return make_table("differences", rows, baseline=baseline.name, power=grid.rule.power)


def _equal_latency_tables(
    variants: Sequence[Variant], baseline: Variant, latency: Latency, on: str
) -> list[Table]:
    """Compare curves with the baseline's: of the means, and each seed's with the same seed's."""
    means, seeds = [], []
    for each in variants:
        if found := at_equal_latency(each, baseline, latency):
            both = (_points_at(found.no_later), _points_at(found.between))
            means.append((each.name, ", ".join(map(str, found.seeds)), *both))
        shared = sorted({*each.seeds} & {*baseline.seeds})
        for seed in shared if len(shared) > 1 else []:
            alone = each.of_seeds([seed]), baseline.of_seeds([seed])
            found = at_equal_latency(*alone, latency)
            if found and found.between:
                seeds.append((each.name, str(seed), _points_at(found.between)))
    values = {"latency": latency, "on": on}
    return [make_table("equal", means, **values), make_table("equal_by_seed", seeds, **values)]


def _points_at(found: Sequence[tuple[float, float]]) -> str:
    return "; ".join(f"{points:+.1f} at {place:.0f} ms" for place, points in found) or "-"


def _text_table(variants: Sequence[Variant]) -> Table:
    """Return BLEU from speech beside BLEU from text, where both were evaluated."""
    rows = []
    for each in variants:
        share = share_of_text(each, variants)
        if not math.isnan(share):
            both = (str(each.whole(branch) or "-") for branch in ("speech", "text"))
            rows.append((each.name, *both, f"{share:.0%}"))
    return make_table("base", rows, enough=ENOUGH)


def _clock_table(variants: Sequence[Variant]) -> Table:
    """Return what computation adds, where it was measured."""
    rows = []
    for each in variants:
        for measured in each.streamed(clock=True):
            for name in ("AL", "LAAL"):
                free, took = measured.point(name).latency_ms, measured.computation_ms(name)
                if not math.isnan(took):
                    times = (f"{free:.0f}", f"{free + took:.0f}", f"{took:+.0f}")
                    rows.append((each.name, measured.name, name, *times))
    return make_table("clock", rows)


def _heads_table(runs: Sequence[PublishedRun]) -> Table:
    """Return what the heads do, of every variant that was diagnosed."""
    found: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        if run.diagnosis:
            shares = [share for layer in run.diagnosis["read_share"] for share in layer]
            known = bool(shares) and None not in shares
            mean = math.fsum(shares) / len(shares) if known else None
            found.setdefault(run.variant, []).append({**run.diagnosis, "mean_share": mean})
    rows = []
    for name, own in found.items():
        columns = ([each.get(head) for each in own] for head in HEADS)
        spreads = (Spread.of(math.nan if v is None else v for v in column) for column in columns)
        rows.append((name, *map(str, spreads)))
    return make_table("heads", rows)


def _energy_table(runs: Sequence[PublishedRun]) -> Table:
    """Return energy and carbon of a training, where they were measured."""
    rows = []
    for name in dict.fromkeys(run.variant for run in runs):
        _, kilojoules = _costs([run for run in runs if run.variant == name])
        if kilojoules:
            kwh = kilojoules.mean / 3600
            grams = f"{kwh * GRAMS_PER_KWH:.0f}"
            rows.append((name, f"{kilojoules.mean:.0f}", f"{kwh:.3f}", grams))
    return make_table("energy", rows, grams=GRAMS_PER_KWH)


def _serving_table(variants: Sequence[Variant]) -> Table:
    """Return how many latencies the trainings of a variant serve."""
    rows = []
    for each in variants:
        sets = list_test_sets([each])
        points = max((len(each.on(where).streamed()) for where in sets), default=0)
        trainings = 1 + len({name.split("/")[0] for name in each.evaluations if "/" in name})
        if points > 1:
            rows.append((each.name, str(points), str(trainings), f"{points / trainings:.1f}"))
    return make_table("serving", rows)


def _runs_table(variants: Sequence[Variant]) -> Table:
    """Return the runs that every number comes from."""
    rows = [
        (each.name, name, ", ".join(e.run.name if e.run else "-" for e in m.by_seed.values()))
        for each in variants
        for name, m in each.evaluations.items()
    ]
    return make_table("runs", rows)
