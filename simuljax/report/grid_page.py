"""Write the page of a grid: verdicts on its claims, curves, and tables with their sources.

`simuljax ablate` makes the page from the directories of the runs, and `simuljax report FOLDER` from
published results; both give the variants and the runs in the same form.
"""

import math
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from simuljax.eval.curves import frontier
from simuljax.eval.significance import Cache, Comparison, Judgement, Rule, corrected, judge
from simuljax.report.collect import Latency
from simuljax.report.figures import Effect, draw_curves, draw_forest, draw_losses
from simuljax.report.page import Figure, Table, differing_fields, number, p_value, render
from simuljax.report.results import PAGE, GridInfo, PublishedRun, read_results
from simuljax.report.variants import (
    Spread,
    Variant,
    at_equal_latency,
    check_same_test,
    compare,
    list_test_sets,
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
    cache: Cache = {}
    judged = judge_claims(grid, variants, baseline, cache)
    found = {run.variant: run.config for run in reversed(runs) if run.seed is not None}
    order = [name for name in dict.fromkeys([*grid.variants, *found]) if name in found]
    losses = draw_losses({run.run: run.curves for run in runs}, out / "losses.png")
    page = render(
        "grid.html",
        title=grid.title or "Grid",
        facts=_facts(grid, variants, runs),
        verdict=verdict_of(grid, judged),
        claims=claims_table(grid, judged),
        forest=Figure.of(_draw_claims(grid, judged, out / "claims.png"), FOREST),
        curves=[
            Figure.of(_draw_variants(grid, [v.on(where) for v in variants], path), caption)
            for where, path, caption in _figures(variants, out)
        ],
        variants=differing_fields({name: found[name] for name in order}),
        losses=Figure.of(
            losses if variants else None,
            f"Loss of all {len(runs)} runs; seeds of a variant share a colour.",
        ),
        tables=[*more, *tables_of(grid, variants, baseline, runs, cache)],
        scripted=False,
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
    known = {each.name: each for each in variants}
    comparisons: list[Comparison | None] = []
    for claim in grid.claims:
        own, over = known.get(claim.variant), known.get(claim.over)
        found = compare(own, over, claim.evaluation, cache=cache) if own and over else None
        comparisons.append(found)
    judged = judge(comparisons, grid.rule)
    if share_of_text(baseline, variants) < ENOUGH:  # False where text was not evaluated
        weak = {"verdict": "not testable here", "reason": "the baseline is too weak"}
        judged = [replace(each, **weak) if each.comparison else each for each in judged]
    return judged


def verdict_of(grid: GridInfo, judged: Sequence[Judgement]) -> list[str]:
    """Say in a sentence what became of the claims."""
    if not grid.claims:
        return []
    by_verdict = {"supported": [], "contradicted": [], "inconclusive": [], "not testable here": []}
    for claim, each in zip(grid.claims, judged, strict=True):
        by_verdict[each.verdict].append(claim.says)
    total, counted = len(judged), [f"{len(own)} {name}" for name, own in by_verdict.items() if own]
    named = [name for name in ("supported", "contradicted") if by_verdict[name]]
    return [
        f"Of {total} {'claim' if total == 1 else 'claims'}: {', '.join(counted)}.",
        *(f"{name.capitalize()}: {'; '.join(by_verdict[name])}." for name in named),
    ]


def claims_table(grid: GridInfo, judged: Sequence[Judgement]) -> Table:
    """Return the claims with their differences, intervals and verdicts."""
    rows, rule = [], grid.rule
    for claim, each in zip(grid.claims, judged, strict=True):
        c, reason = each.comparison, f" ({each.reason})" if each.reason else ""
        here = ("–",) * 5
        if c is not None:
            value, interval, _, *rest = _difference(c, rule)
            here = (str(len(c.by_seed)), value, interval, *rest)
        published = "–" if claim.published is None else f"{claim.published:+.2f}"
        rows.append((claim.says, published, *here, each.verdict + reason))
    heads = ("claim", "published", "seeds", "here", "95 % interval", "p (Holm)", "MDD", "verdict")
    note = (
        f"Rule: supported if the difference in BLEU is positive and p (Holm) < {rule.alpha:g}; "
        f"contradicted if a difference of {rule.margin:g} or more is rejected at the same level; "
        f"otherwise inconclusive; not testable with fewer than {rule.seeds} seeds. "
        "MDD: the smallest difference that these seeds and utterances would find with a power "
        f"of {rule.power:.0%}."
    )
    return Table("Claims", heads, rows, note)


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


def _figures(variants: Sequence[Variant], out: Path) -> list[tuple[str, Path, str]]:
    """Return every test set with the file and the caption of its figure."""
    return [
        (
            where,
            out / f"curves{f'-{i}' if i else ''}.png",
            f"Test set: {where}. {CURVES}" if where else CURVES,
        )
        for i, where in enumerate(list_test_sets(variants))
    ]


def _draw_variants(grid: GridInfo, variants: Sequence[Variant], path: Path) -> Path | None:
    """Draw quality against latency, with computation where it was measured."""
    latency = cast(Latency, grid.latency)
    free, clocked = {}, {}
    for each in variants:
        free |= each.lines(latency)
        clocked |= each.lines(latency, computation="counted")
    return (
        draw_curves(free, path, latency=latency, aware=clocked, through=frontier) if free else None
    )


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
        *(
            make([each.on(where) for each in variants], baseline.on(where), latency, where)
            for where in list_test_sets(variants)
            for make in (equal_table, seeds_table)
        ),
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
    rows = []
    for each in variants:
        cost = [f"{each.minutes} min"] * bool(each.minutes)
        cost += [f"{each.kilojoules} kJ"] * bool(each.kilojoules)
        for name, measured in each.evaluations.items():
            spreads = (str(measured.spread(metric)) for metric in METRICS)
            seeds = str(len(measured.by_seed))
            rows.append((each.name, name, seeds, *spreads, ", ".join(cost) or "-"))
    heads = ("variant", "evaluation", "seeds", *METRICS, "training")
    note = (
        "Means over seeds ± the standard deviation of one seed. Seeds that fall into two groups "
        "are listed one by one. Latencies are in milliseconds, those of text in words."
    )
    return Table("Quality and latency", heads, rows, note, left=2)


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
        points = " ".join(f"{value:+.2f}" for value in c.by_seed)
        rows.append((variant, name, *_difference(c, grid.rule), points))
    heads = ("variant", "evaluation", "BLEU", "95 % interval", "p", "p (Holm)", "MDD", "by seed")
    note = (
        "Variant less baseline in BLEU, with a t-interval over seeds that also counts the choice "
        "of utterances; with one seed, of utterances alone. p (Holm) is corrected for all rows of "
        "this table. MDD: the smallest difference that would be found with a probability of "
        f"{grid.rule.power:.0%}. The evaluation is the same, the latency need not be: see the "
        "table at equal latency."
    )
    return Table(f"Differences to {baseline.name}", heads, rows, note, left=2)


def equal_table(
    variants: Sequence[Variant], baseline: Variant, latency: Latency, where: str
) -> Table:
    """Return curves against the baseline's."""
    rows = []
    for each in variants:
        found = at_equal_latency(each, baseline, latency)
        if found:
            pairs = [(old, new) for old, new in found.no_later if new is not None]
            gains = [(old.latency_ms, new.quality - old.quality) for old, new in pairs]
            area = number(found.area, 3)
            rows.append((each.name, _differences(gains), _differences(found.between), area))
    note = (
        "No later: for each point of the baseline, the best point of the variant with no higher "
        "latency (Zaidi et al. 2022, table 4). Between: the difference on the straight lines of "
        "both curves, at five latencies that both cover. Area: of the plane that the variant's "
        "curve dominates, divided by that of the baseline's."
    )
    title = " on ".join(filter(None, [f"At equal {latency}", where]))
    return Table(title, ("variant", "no later", "between", "area"), rows, note, left=3)


def seeds_table(
    variants: Sequence[Variant], baseline: Variant, latency: Latency, where: str
) -> Table:
    """Return each seed's curve against that of the same seed of the baseline."""
    rows = []
    for each in variants:
        seeds = sorted({*each.seeds} & {*baseline.seeds})
        for seed in seeds if len(seeds) > 1 else []:
            found = at_equal_latency(each.of_seed(seed), baseline.of_seed(seed), latency)
            if found and found.between:
                rows.append((each.name, str(seed), _differences(found.between)))
    title = " on ".join(filter(None, [f"At equal {latency}, seed by seed", where]))
    note = "As above, for the points of one seed alone."
    return Table(title, ("variant", "seed", "between"), rows, note, left=3)


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
    note = (
        "BLEU with the whole source; the share is of the best from text. A baseline below "
        f"{ENOUGH:.0%} is too weak for a verdict on its variants."
    )
    return Table("Speech and text", ("variant", "from speech", "from text", "share"), rows, note)


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
    note = (
        "Milliseconds, on the utterances that were played in real time: by the source, and with "
        "all computation (SimulEval's count)."
    )
    return Table("In real time", heads, rows, note, left=2)


def heads_table(runs: Sequence[PublishedRun]) -> Table:
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
    note = (
        "Expected alignments of the reference, teacher-forced. Source read: the share that a head "
        "has read for a target token. Speech and text: the correlation of where the two branches "
        "read. Perplexity of DAR's matching softmax: near the number of columns, it matches "
        "nothing. Mass lost: of a target's probability, by the closed form."
    )
    return Table("What the heads do", ("variant", *HEADS.values()), rows, note, folded=True)


def energy_table(variants: Sequence[Variant]) -> Table:
    """Return energy and carbon of a training, where they were measured."""
    rows = []
    for each in variants:
        if each.kilojoules:
            kwh = each.kilojoules.mean / 3600
            grams = f"{kwh * GRAMS_PER_KWH:.0f}"
            rows.append((each.name, f"{each.kilojoules.mean:.0f}", f"{kwh:.3f}", grams))
    note = (
        "The board's own counter, with whatever else ran on it; processors, memory and cooling are "
        f"not counted. {GRAMS_PER_KWH:.0f} g CO2 equivalent per kWh is assumed."
    )
    heads = ("variant", "kJ per training", "kWh", "g CO2e")
    return Table("Energy", heads, rows, note, folded=True)


def serving_table(variants: Sequence[Variant]) -> Table:
    """Return how many latencies the trainings of a variant serve."""
    rows = []
    for each in variants:
        sets = list_test_sets([each])
        points = max((len(each.on(where).streamed("free")) for where in sets), default=0)
        trainings = 1 + len({name.split("/")[0] for name in each.evaluations if "/" in name})
        if points > 1:
            rows.append((each.name, str(points), str(trainings), f"{points / trainings:.1f}"))
    note = (
        "Latencies are the points of a variant's curve. An offline model serves all of them with "
        "one training; a model that is trained for its latency takes one each (9 times the energy "
        "in Papi et al. 2022). The last column is that factor here."
    )
    heads = ("variant", "latencies", "trainings", "factor of one training each")
    return Table("The cost of a curve", heads, rows, note, folded=True)


def runs_table(variants: Sequence[Variant]) -> Table:
    """Return the runs that every number comes from."""
    rows = [
        (each.name, name, ", ".join(e.run.name if e.run else "-" for e in m.by_seed.values()))
        for each in variants
        for name, m in each.evaluations.items()
    ]
    note = (
        "`simuljax score RUNS/RUN/eval/EVALUATION` scores a log again; once published, `simuljax "
        "score experiments/results/NAME:RUN/EVALUATION`."
    )
    heads, title = ("variant", "evaluation", "runs"), "Where the numbers come from"
    return Table(title, heads, rows, note, left=3, folded=True)
