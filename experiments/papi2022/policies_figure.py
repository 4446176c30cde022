"""The figure and the table of results/policies: an offline Conformer under every policy; rivals.

    python -m experiments.papi2022.policies_figure --to docs/figures/policies.png

Seconds on a laptop, from the logs that lie in experiments/results. The table is printed. Models
that were trained for one latency each are one line.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from simuljax.ablate.summary import draw
from simuljax.report.ablation import Row, Setting
from simuljax.report.collect import FAMILY, Evaluated, gather

RESULTS = Path(__file__).parents[1] / "results"
POLICIES, GRID = RESULTS / "policies", RESULTS / "ablation-multi30k"
SYSTEMS = {
    "Conformer": [POLICIES / "conformer"],
    "CAAT": [POLICIES / "caat_16"],
    "cascade": [POLICIES / "recogniser"],
    "MMA, KD": sorted(GRID.glob("kd_lambda_*-seed0-*")),
    "MMA, KD + CAR + DAR": [
        *sorted(GRID.glob("again/dar_lambda_0.1-seed0-*")),
        *sorted(GRID.glob("dar_lambda_0.[24]-seed0-*")),
    ],
}


@dataclass(frozen=True, kw_only=True)
class Picture:
    """To which file."""

    to: Path = Path("policies.png")


def run(config: Picture) -> None:
    """Draws the figure, prints the table."""
    rows = [row(name, runs) for name, runs in SYSTEMS.items()]
    print(table(rows))
    print(f"wrote {draw(rows, 'LAAL', config.to)}")


def row(name: str, runs: Sequence[Path]) -> Row:
    """Evaluations on all of the corpus' test set, and what was played of it."""
    settings = [
        Setting(name=f"{weight(each)}{each.name}", by_seed={0: each})
        for each in gather(runs, "test")
        if is_shown(each.told)
    ]
    return Row(name=name, settings={setting.name: setting for setting in settings})


def is_shown(told: Mapping[str, Any]) -> bool:
    """Not of other voices, of a part without a clock, or by a single layer's attention."""
    part = told.get("first") and told["mode"] != "live"
    return not (part or told.get("layer") or told.get("corpus"))


def weight(each: Evaluated) -> str:
    """On latency, where the run was trained with one."""
    found = FAMILY.match(each.run.name) if each.run else None
    return f"lambda {found['value']}: " if found else ""


def table(rows: Sequence[Row]) -> str:
    """BLEU and LAAL of every setting, and what computation adds to LAAL where it was played."""
    lines = ["| system | | BLEU | LAAL, ms | computation, ms |", "|---|---|---|---|---|"]
    for each in rows:
        for setting in each.streamed("free"):
            point = setting.point("LAAL")
            name = setting.name.removeprefix("test-speech-").replace("test-speech-", "")
            cells = (each.name, name, f"{point.quality:.1f}", f"{point.latency_ms:,.0f}")
            clocked = filter(setting.decides_like, each.streamed("counted"))
            took = "".join(f"+{played.took_ms('LAAL'):.0f}" for played in clocked)
            lines.append("| " + " | ".join((*cells, took)) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    run(tyro.cli(Picture))
