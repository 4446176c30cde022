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

from simuljax import ops
from simuljax.report.figures import new_figure, save_figure

CASES = {  # title -> target steps, source positions, mean and standard deviation of the energies
    "text, 64 positions": (64, 64, -2.0, 2.0),
    "speech, 300 positions": (40, 300, 0.0, 4.0),
    "speech, 1500 positions": (128, 1500, -1.0, 2.0),
}
METHODS = {"exact": "#0072B2", "closed_form": "#D55E00"}  # and their colours
PROBLEMS = 64
ROOT = Path(__file__).parents[2]


def main() -> None:
    """Compute the mean mass of every target row, draw it and write the numbers."""
    figure, mean = new_figure(10, 3.2), {}
    panels = figure.subplots(1, 3, sharey=True)
    for axes, (title, (targets, sources, middle, deviation)) in zip(
        panels, CASES.items(), strict=True
    ):
        noise = jax.random.normal(jax.random.key(0), (PROBLEMS, targets, sources))
        p = jax.nn.sigmoid(middle + deviation * noise)
        mean[title] = {}
        for method, colour in METHODS.items():
            mass = np.asarray(ops.expected_alignment(p, method=method).sum(-1).mean(0))
            label = method.replace("_", " ")
            axes.plot(np.arange(1, targets + 1), mass, color=colour, lw=2, label=label)
            mean[title][label] = round(float(mass.mean()), 3)
        axes.set(title=title, xlabel="target step", ylim=(0, 1.05))
    panels[0].set_ylabel("mass of the row")
    panels[0].legend(frameon=False)
    save_figure(figure, ROOT / "docs/figures/closed_form_mass.png")
    text = json.dumps({"problems": PROBLEMS, "mean_row_mass": mean}, indent=1)
    (ROOT / "experiments/results/closed_form_mass.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
