"""Measure how much probability the published closed form of monotonic attention loses.

    python -m experiments.ma2020.closed_form_mass

Hardware: CPU, 10 s. Expected (results/closed_form_mass.json): the mean mass of a target row is 0.20
at 300 source positions and 0.09 at 1500, where the exact recurrence keeps 1.00. Draws
docs/figures/closed_form_mass.png.

Random energies, both methods in float32, no mass preservation. Mass preservation moves the lost
probability to the last source position: the model is trained as if it had waited for the end.
"""

import json
from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure

from simuljax import ops

CASES = {  # title -> target steps, source positions, mean and standard deviation of the energies
    "text, 64 positions": (64, 64, -2.0, 2.0),
    "speech, 300 positions": (40, 300, 0.0, 4.0),
    "speech, 1500 positions": (128, 1500, -1.0, 2.0),
}
PROBLEMS = 64
BLUE, ORANGE = "#0072B2", "#D55E00"
ROOT = Path(__file__).parents[2]


def row_mass(case: tuple[int, int, float, float], method: str) -> np.ndarray:
    """Average the mass of every target row over problems."""
    targets, sources, mean, deviation = case
    energy = mean + deviation * jax.random.normal(jax.random.key(0), (PROBLEMS, targets, sources))
    alpha = ops.expected_alignment(jax.nn.sigmoid(energy), method=method)
    return np.asarray(alpha.sum(-1).mean(0))


def draw(masses: dict[str, dict[str, np.ndarray]]) -> Figure:
    """Draw one panel per case."""
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    for axes, (title, by_method) in zip(
        figure.subplots(1, 3, sharey=True), masses.items(), strict=True
    ):
        for (method, mass), colour in zip(by_method.items(), (BLUE, ORANGE), strict=True):
            axes.plot(np.arange(1, len(mass) + 1), mass, color=colour, lw=2, label=method)
        axes.set(title=title, xlabel="target step", ylim=(0, 1.05))
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("mass of the row")
    figure.axes[0].legend(frameon=False)
    return figure


def main() -> None:
    """Compute the masses, draw them and write the numbers."""
    names = {"exact": "exact", "closed form": "closed_form"}
    masses = {
        title: {name: row_mass(case, method) for name, method in names.items()}
        for title, case in CASES.items()
    }
    draw(masses).savefig(ROOT / "docs/figures/closed_form_mass.png", dpi=150)
    mean = {t: {n: round(float(m.mean()), 3) for n, m in by.items()} for t, by in masses.items()}
    text = json.dumps({"problems": PROBLEMS, "mean_row_mass": mean}, indent=1)
    (ROOT / "experiments/results/closed_form_mass.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
