"""One line about a run in progress: rewritten on a terminal, one below the other in a log."""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TextIO


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a run stands."""

    step: int
    loss: float
    terms: Mapping[str, float] = field(default_factory=dict)
    gradient_norm: float | None = None
    learning_rate: float | None = None
    epoch: float | None = None
    note: str | None = None  # what happened besides


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Speed of training; None where it is not known yet."""

    frames: float | None = None  # a second
    tokens: float | None = None  # a second
    utilisation: float | None = None  # of the devices' peak, 0..1
    remaining: float | None = None  # seconds


class ConsoleLine:
    """Shows a line per interval, with rates from the time between two of them.

    Rates need a line before: the first shows none. Seconds that were spent aside, as in compiling,
    are left out of them, and count for the time left.
    """

    def __init__(
        self,
        *,
        total_steps: int | None = None,
        peak_flops: float | None = None,
        stream: TextIO | None = None,
    ) -> None:
        self.total_steps = total_steps
        self.peak_flops = peak_flops  # of all devices, a second
        self.stream = stream or sys.stderr
        self._first: tuple[int, float] | None = None
        self._last_time = 0.0

    def show(
        self,
        progress: Progress,
        now: float,
        *,
        frames: float | None = None,
        tokens: float | None = None,
        flops: float | None = None,
        aside: float = 0.0,
    ) -> str:
        """Write the line; all other numbers are those since the line before."""
        rates = self.rates(
            progress.step, now, frames=frames, tokens=tokens, flops=flops, aside=aside
        )
        line = format_line(progress, rates, total_steps=self.total_steps)
        if self.stream.isatty():
            width = shutil.get_terminal_size().columns
            self.stream.write(f"\r{line[: width - 1]}\x1b[K")
        else:
            self.stream.write(f"{line}\n")
        self.stream.flush()
        return line

    def rates(
        self,
        step: int,
        now: float,
        *,
        frames: float | None = None,
        tokens: float | None = None,
        flops: float | None = None,
        aside: float = 0.0,
    ) -> Rates:
        """Return the rates of the interval that ends now, and the time left."""
        if self._first is None:
            self._first, self._last_time = (step, now), now
            return Rates()
        seconds = max(now - self._last_time - aside, 1e-9)
        first, start = self._first
        self._last_time = now
        pace = (step - first) / max(now - start, 1e-9)
        known = self.total_steps is not None and pace > 0
        return Rates(
            frames=None if frames is None else frames / seconds,
            tokens=None if tokens is None else tokens / seconds,
            utilisation=flops / seconds / self.peak_flops if flops and self.peak_flops else None,
            remaining=max(0, (self.total_steps or 0) - step) / pace if known else None,
        )

    def note(self, text: str) -> None:
        """Write a line that stays, above the one that is rewritten."""
        self.stream.write(f"\r{text}\x1b[K\n" if self.stream.isatty() else f"{text}\n")
        self.stream.flush()

    def finish(self) -> None:
        """End the line."""
        if self.stream.isatty():
            self.stream.write("\n")
            self.stream.flush()


def format_line(progress: Progress, rates: Rates, *, total_steps: int | None = None) -> str:
    """Return `step 1200/5000 | epoch 2.3 | loss 3.21 st 2.9 dar 0.3 | norm 1.2 | ...`."""
    of = "" if total_steps is None else f"/{total_steps}"
    terms = "".join(f" {name} {value:.4g}" for name, value in progress.terms.items())
    optional = [
        ("epoch {:.2f}", progress.epoch),
        (f"loss {{:.4g}}{terms}", progress.loss),
        ("norm {:.3g}", progress.gradient_norm),
        ("lr {:.2e}", progress.learning_rate),
        ("{} frames/s", None if rates.frames is None else thousands(rates.frames)),
        ("{} tokens/s", None if rates.tokens is None else thousands(rates.tokens)),
        ("use {:.0%}", rates.utilisation),
        ("ETA {}", None if rates.remaining is None else duration(rates.remaining)),
        ("{}", progress.note),
    ]
    shown = [form.format(value) for form, value in optional if value is not None]
    return " | ".join([f"step {progress.step}{of}", *shown])


def thousands(number: float) -> str:
    """Return a number as 950, 12.3k or 4.56M."""
    power = 0
    while abs(number) >= 999.5 and power < 4:
        number, power = number / 1000, power + 1
    digits = 0 if number >= 99.95 or power == 0 else 1 if number >= 9.995 else 2
    return f"{number:.{digits}f}{('', 'k', 'M', 'G', 'T')[power]}"


def duration(seconds: float) -> str:
    """Return seconds as 12s, 3m20s, 1h05m or 2d03h."""
    whole = round(seconds)
    for large, small, unit, below in ((86400, 3600, "d", "h"), (3600, 60, "h", "m")):
        if whole >= large:
            return f"{whole // large}{unit}{whole % large // small:02d}{below}"
    return f"{whole // 60}m{whole % 60:02d}s" if whole >= 60 else f"{whole}s"
