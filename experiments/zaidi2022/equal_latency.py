"""Compare DAR with KD and with CAR at equal latency, seed by seed: G4 of PROGRAMME.md.

    python -m experiments.zaidi2022.equal_latency

Each point of DAR at lambda > 0 is compared with the straight line between two points of the other
variant that are both within 300 ms: nothing is interpolated over gaps. A seed counts with its mean
difference, and the verdict is a t-interval over seeds. Then, as a description, the other direction:
at each point of the other, DAR's line, over gaps of any width. Last, what AL does not show: how far
seeds differ in it, and how many sentences get no word, which it leaves out.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from scipy import stats

from simuljax.eval.curves import Point, quality_at
from simuljax.report.results import PublishedEvaluation, read_results

RESULTS = Path("experiments/results/zaidi2022-text-rich-curves")
NEAR_MS = 300.0
OTHERS = ("car", "kd")

Curves = dict[tuple[str, int], dict[str, PublishedEvaluation]]  # by variant and seed, by setting


def read() -> Curves:
    """Return the evaluations at lambda > 0."""
    found: Curves = {}
    for each in read_results(RESULTS).evaluations:
        setting = each.setting.split("/")[0]
        if setting.startswith("lambda_") and each.seed is not None:
            found.setdefault((each.variant, each.seed), {})[setting[7:]] = each
    return found


def points(evaluations: Iterable[PublishedEvaluation]) -> list[Point]:
    """Return BLEU against AL."""
    return [
        Point(latency_ms=each.scores["AL"], quality=each.scores["BLEU"]) for each in evaluations
    ]


def differences(
    ours: Sequence[Point], theirs: Sequence[Point], near_ms: float
) -> list[tuple[float, float]]:
    """Return AL and the difference in BLEU at each of our points that has neighbours this near."""
    found = []
    for point in ours:
        near = [each for each in theirs if abs(each.latency_ms - point.latency_ms) <= near_ms]
        other = quality_at(near, point.latency_ms)
        if not math.isnan(other):
            found.append((point.latency_ms, point.quality - other))
    return found


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the 95 % t-interval of a mean, and the least difference found with a power of 80 %."""
    mean, error = statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))
    half, more = (float(stats.t.ppf(p, len(values) - 1)) * error for p in (0.975, 0.8))
    return mean - half, mean + half, half + more


def listed(found: Iterable[tuple[float, float]]) -> str:
    """Return differences with their latency."""
    return ", ".join(f"{value:+.2f} at {al:.0f} ms" for al, value in sorted(found)) or "none"


def main() -> None:
    """Print the comparisons."""
    curves = read()
    seeds = sorted({seed for _, seed in curves})
    for other in OTHERS:
        means = []
        for seed in seeds:
            ours, theirs = (points(curves[name, seed].values()) for name in ("dar", other))
            found = differences(ours, theirs, NEAR_MS)
            back = [(al, -value) for al, value in differences(theirs, ours, math.inf)]
            means += [statistics.fmean(value for _, value in found)] if found else []
            print(
                f"dar - {other}, seed {seed}: {listed(found)}; at {other}'s points {listed(back)}"
            )
        low, high, least = interval(means)
        verdict = "supported" if low > 0 else "contradicted" if high < 0 else "inconclusive"
        mean = statistics.fmean(means)
        print(
            f"dar - {other}: {mean:+.2f} [{low:.2f}, {high:.2f}], {len(means)} seeds: {verdict}; "
            f"detectable from {least:.2f} on\n"
        )
    for name in ("kd", "car", "dar"):
        for weight in curves[name, seeds[0]]:
            runs = [curves[name, seed] for seed in seeds]
            scores = [run[weight].scores for run in runs if weight in run]
            als = [each["AL"] for each in scores]
            silent = sorted(100 * each["skipped"] / each["n"] for each in scores)
            print(
                f"{name} lambda {weight}: AL {min(als):.0f} to {max(als):.0f} ms "
                f"(spread {max(als) - min(als):.0f}, {len(als)} seeds), without a word "
                f"{silent[0]:.1f} to {silent[-1]:.1f} % of the sentences"
            )


if __name__ == "__main__":
    main()
