"""Notice when minimising DAR makes it grow: its target, made by the same decoder, runs away."""

import sys
from collections.abc import Mapping
from pathlib import Path

GROWN = 2.0  # times its lowest value


class DecisionWatch:
    """Follow DAR and the mean energies of both branches from one line of metrics to the next."""

    def __init__(self, run: Path) -> None:
        self._run, self._warned = run, False
        self._last: Mapping[str, float] | None = None
        self._lowest: Mapping[str, float] | None = None  # the line with the lowest DAR

    def note(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return {"dar_effect_ratio": r}, or {} where it is not defined; warn once of a runaway.

        r = (change of mt_energy) / (change of st_energy) since the line before: how far the updates
        between the two moved text energies, DAR's target, for each unit that they moved those of
        speech. At 1 or more speech never catches up. Of lines about different batches it is noisy.
        """
        if "mt_energy" not in values:
            return {}
        ratio = {} if self._last is None else _effect_ratio(values, self._last)
        self._last = dict(values)
        self._warn(self._last)
        return ratio

    def _warn(self, values: Mapping[str, float]) -> None:
        """Say so if DAR counts and is far above its lowest value."""
        if self._warned or not values.get("weighted_dar"):
            return
        if self._lowest is None or values["dar"] < self._lowest["dar"]:
            self._lowest = values
        lowest = self._lowest["dar"]
        if values["dar"] <= GROWN * lowest:
            return
        self._warned = True
        moved = _effect_ratio(values, self._lowest).get("dar_effect_ratio", float("nan"))
        print(
            f"{self._run}: DAR runs away: it is {values['dar']:.2f} and was {lowest:.2f}; since "
            f"then text energies moved {moved:.2f} times as far as speech energies (means "
            f"{values['mt_energy']:.2f} and {values['st_energy']:.2f}). decision_teacher='flow' or "
            "'frozen' holds the target",
            file=sys.stderr,
        )


def _effect_ratio(now: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    speech, text = (float(now[name] - before[name]) for name in ("st_energy", "mt_energy"))
    return {"dar_effect_ratio": text / speech} if speech else {}
