"""Draw the figures of docs/results/zaidi2022.md from the published results.

    python -m experiments.zaidi2022.figures [--to docs/figures]

A further figure of that page, table_3.png, is `claims.png` of
`simuljax report experiments/results/zaidi2022-text-rich-table_3 --out page`.
"""

from collections.abc import Mapping
from pathlib import Path

import tyro

from simuljax.report.figures import BLUE, GREY, ORANGE, new_figure, save_figure
from simuljax.report.results import read_results

RESULTS = Path("experiments/results")
Arm = tuple[str, str, str]  # label, colour, marker
FORMS = {
    "kd": ("KD, no DAR", GREY, "-"),
    "stop": ("stop (paper)", ORANGE, "-"),
    "flow": ("flow", BLUE, "-"),
    "without_car": ("flow, without CAR", "#56b4e9", ":"),
    "averaged": ("averaged teacher", "#cc79a7", "-"),
    "frozen": ("frozen teacher", "#009e73", "-"),
}
POINTS = 5  # of source read that the gate allows beyond KD
LAMBDAS = {"": 0.0} | {f"lambda_{weight:g}": weight for weight in (0.01, 0.03, 0.1, 0.2)}
KD, CAR = ("KD", BLUE, "o"), ("KD + CAR", "#009e73", "^")
DAR = ("KD + CAR + DAR (flow)", ORANGE, "s")


def dar_forms(to: Path) -> Path:
    """Draw DAR on dev and the share of the source read, over training, with the gate."""
    figure = new_figure(10.5, 3.9)
    left, right = figure.subplots(1, 2)
    ends = []
    runs = [
        run for run in read_results(RESULTS / "zaidi2022-dar_forms").runs if run.variant in FORMS
    ]
    for run in sorted(runs, key=lambda run: list(FORMS).index(run.variant)):
        valid = run.curves["valid"]
        name, colour, style = FORMS[run.variant]
        look = {"color": colour, "linestyle": style, "marker": "o", "markersize": 3.5}
        read = [100 * (share or 0) for share in valid["st_read"]]
        left.plot(valid["step"], valid["dar_paper"], **look)
        right.plot(valid["step"], read, label=name if run.seed == 0 else None, **look)
        if run.variant == "kd":
            ends.append(read[-1])
    gate = sum(ends) / len(ends) + POINTS
    right.axhline(gate, color=GREY, linestyle="--", linewidth=1, label="gate: end below")
    left.set(xlabel="updates", ylabel="DAR loss on dev (log scale)", yscale="log")
    ticks = [0.5, 1, 2, 5, 10, 20]
    left.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    right.set(xlabel="updates", ylabel="source read when a word is written, %", ylim=(75, 100))
    right.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return save_figure(figure, to / "dar_forms.png")


def curves(grid: str, arms: Mapping[str, Arm], path: Path) -> Path:
    """Draw BLEU against AL, a panel for each seed."""
    points: dict[tuple[str, int], dict[float, tuple[float, float]]] = {}
    for each in read_results(RESULTS / grid).evaluations:
        weight = each.setting.split("/")[0] if "/" in each.setting else ""
        if weight in LAMBDAS and each.seed is not None:
            own = points.setdefault((each.variant, each.seed), {})
            own[LAMBDAS[weight]] = (each.scores["AL"] / 1000, each.scores["BLEU"])
    seeds = sorted({seed for _, seed in points})
    figure = new_figure(10.5, 3.9)
    panels = figure.subplots(1, len(seeds), sharex=True, sharey=True)
    for axes, seed in zip(panels, seeds, strict=True):
        for variant, (name, colour, marker) in arms.items():
            own = dict(sorted(points[variant, seed].items()))
            first = own.pop(0.0)  # without the epochs that have a latency weight
            axes.plot(*first, color=colour, marker=marker, fillstyle="none")
            axes.plot(*zip(*own.values(), strict=True), color=colour, marker=marker, label=name)
        axes.set(title=f"seed {seed}", xlabel="AL, s", xlim=(0.3, None))
    panels[0].set_ylabel("BLEU")
    weights = sorted({weight for own in points.values() for weight in own if weight}, reverse=True)
    along = ", ".join(f"{weight:g}" for weight in weights)
    keys = {"title": f"left to right: lambda {along}; hollow: lambda 0, fewer epochs"}
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, frameon=False, loc="outside lower center", ncols=len(arms), **keys)
    return save_figure(figure, path)


def main(to: Path = Path("docs/figures")) -> None:
    """Write the figures."""
    print(dar_forms(to))
    print(curves("zaidi2022-latency_weight", {"kd": KD, "flow": DAR}, to / "latency_weight.png"))
    arms = {"kd": KD, "car": CAR, "dar": DAR}
    print(curves("zaidi2022-text-rich-curves", arms, to / "text_rich.png"))


if __name__ == "__main__":
    tyro.cli(main)
