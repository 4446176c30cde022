"""Write the page of a grid: verdicts on its claims, curves, and tables with their sources.

`simuljax ablate` makes the page from the directories of the runs, and `simuljax report FOLDER` from
published results; both give the variants and the runs in the same form.
"""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from simuljax.eval.curves import frontier
from simuljax.eval.resampling import Cache
from simuljax.eval.significance import Comparison, Judgement, judge
from simuljax.report.collect import Latency
from simuljax.report.figures import Effect, draw_curves, draw_forest, draw_losses
from simuljax.report.grid_tables import ENOUGH, tables_of
from simuljax.report.page import Figure, Table, differing_fields, number, p_value, render
from simuljax.report.results import PAGE, GridInfo, PublishedRun, read_results
from simuljax.report.variants import (
    Variant,
    check_same_test,
    compare,
    read_variants,
    share_of_text,
)

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
        title=grid.title or "Ablation",
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
        own, over = known.get(claim.row), known.get(claim.over)
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
