"""The log of a run: metrics, the console line, a warning if DAR runs away.

Only the primary process writes.
"""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from simuljax.losses import Loss, TermSum, combine
from simuljax.train.cluster import is_primary
from simuljax.train.console import ConsoleLine, Progress
from simuljax.train.flops import peak_flops
from simuljax.train.metrics import MetricsWriter
from simuljax.train.step import Report, Validation

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
        """Warn if DAR counts, is far above its lowest value, and text energies fell meanwhile.

        Energies that rise are heads that learn to write earlier, as under a latency loss.
        """
        if self._warned or not values.get("weighted_dar"):
            return
        if self._lowest is None or values["dar"] < self._lowest["dar"]:
            self._lowest = values
        lowest = self._lowest["dar"]
        fell = values["mt_energy"] < self._lowest["mt_energy"]
        if values["dar"] <= GROWN * lowest or not fell:
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


FRAME = 160  # samples in 10 ms


@dataclass(kw_only=True)
class Work:
    """Work done since the last line, by this process.

    Lengths are added up when the line is written: a batch may be on a device, which would have to
    be waited for.
    """

    samples: list[Any] = field(default_factory=list)  # [rows] each
    tokens: list[Any] = field(default_factory=list)
    flops: float = 0.0  # on all devices
    aside_s: float = 0.0  # seconds spent on other things: compiling, validating, saving


class RunLog:
    """The files and the line; silent on every process but the primary."""

    def __init__(
        self,
        run: Path,
        *,
        resume_from: int,
        last: int,
        updates_per_epoch: float,
        tensorboard: Literal["off", "on"],
        console: bool = True,
    ) -> None:
        self.work, self._updates_per_epoch = Work(), updates_per_epoch
        self._metrics = self._console = None
        self._runaway = {split: DecisionWatch(run) for split in ("train", "valid")}
        if is_primary():
            peak = peak_flops(jax.devices()[0].device_kind)
            self._metrics = MetricsWriter(run, resume_from=resume_from, tensorboard=tensorboard)
            if console:
                self._console = ConsoleLine(
                    total_steps=last, peak_flops=peak and peak * jax.device_count()
                )

    @property
    def wants_flops(self) -> bool:
        """Return True if FLOPs are shown."""
        return self._console is not None and self._console.peak_flops is not None

    def update(self, step: int, report: Report, rate: float) -> None:
        """Write the numbers of an update to the files."""
        if self._metrics is not None:
            loss: Loss = report.loss
            values = {
                "loss": loss.total,
                **loss.terms,
                **{f"weighted_{name}": value for name, value in loss.weighted.items()},
                **means(report.logged),
                "gradient_norm": report.gradient_norm,
                "learning_rate": rate,
            }
            self._metrics.write(step, values | self._runaway["train"].note(values))

    def line(self, step: int, report: Report, rate: float, note: str | None = None) -> None:
        """Show the numbers of an update, with the rates since the line before."""
        done, self.work = self.work, Work()
        if self._console is None:
            return
        progress = Progress(
            step=step,
            loss=float(report.loss.total),
            terms={name: float(value) for name, value in report.loss.terms.items()},
            gradient_norm=float(report.gradient_norm),
            learning_rate=rate,
            epoch=step / self._updates_per_epoch,
            note=note,
        )
        hosts = jax.process_count()
        self._console.show(
            progress,
            time.time(),
            frames=_total(done.samples) // FRAME * hosts,
            tokens=_total(done.tokens) * hosts,
            flops=done.flops,
            aside=done.aside_s,
        )

    def validation(self, step: int, seen: Validation) -> dict[str, float]:
        """Write the terms of a validation to the files; return them on every process."""
        terms = combine(seen.sums, dict.fromkeys(seen.sums, 1.0)).terms
        values = {name: float(value) for name, value in terms.items()} | means(seen.logged)
        values |= self._runaway["valid"].note(values)
        if self._metrics is not None:
            self._metrics.write(step, values, split="valid")
        return values

    def note(self, text: str) -> None:
        """Print a line that stays above the one that is rewritten."""
        if self._console is not None:
            self._console.note(text)

    def close(self) -> None:
        """Close the files and end the console line."""
        if self._metrics is not None:
            self._metrics.close()
        if self._console is not None:
            self._console.finish()


def _total(lengths: list[Any]) -> int:
    return sum(int(np.sum(each)) for each in jax.device_get(lengths))


def means(logged: Mapping[str, TermSum]) -> dict[str, float]:
    """Divide every sum by its count."""
    return {name: float(s.numerator) / max(1.0, float(s.denominator)) for name, s in logged.items()}
