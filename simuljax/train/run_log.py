"""The log of a run: metrics, the console line, a warning if DAR runs away.

Only the primary process writes. metrics.jsonl has one line {"step", "time", "split", "values"} per
record; a value that is not finite is null, and "note" says what it was. It goes on where a
checkpoint left off: lines after the step resumed from are removed, so that no step is there twice.
"""

import json
import math
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO

import jax
import numpy as np

from simuljax.audio.filterbank import SHIFT
from simuljax.errors import SimuljaxError, import_extra
from simuljax.losses.objective import TermSum, combine
from simuljax.parsing import parse_json
from simuljax.train.cluster import is_primary
from simuljax.train.flops import peak_flops
from simuljax.train.forward import Forward
from simuljax.train.step import Report

FILE = "metrics.jsonl"
GROWN = 2.0  # times its first value, DAR has run away


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
        self.work, self._last, self._updates_per_epoch = Work(), last, updates_per_epoch
        self._metrics = self._console = self.peak_flops = None
        self._runaway = {split: DecisionWatch(run) for split in ("train", "valid")}
        if is_primary():
            self._metrics = MetricsWriter(run, resume_from=resume_from, tensorboard=tensorboard)
            for line, _ in complete_lines(run / FILE):
                if None not in line["values"].values():
                    self._runaway[line["split"]].note(line["values"])
            if console:
                peak = peak_flops(jax.devices()[0].device_kind)
                self.peak_flops = peak and peak * jax.device_count()
                self._console = ConsoleLine(last, self.peak_flops)

    def update(self, step: int, report: Report, rate: float) -> None:
        """Write the numbers of an update to the files."""
        if self._metrics is not None:
            loss = report.loss
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
        if self._console is not None:
            rates = self._console.rates(step, time.time(), done) if done.samples else {}
            progress = f"step {step}/{self._last} | epoch {step / self._updates_per_epoch:.2f}"
            self._console.show(" | ".join([progress, *describe_update(report, rate, rates, note)]))

    def validation(self, step: int, sums: Forward) -> dict[str, float]:
        """Write the terms of a validation to the files; return them on every process."""
        terms = combine(sums.sums, dict.fromkeys(sums.sums, 1.0)).terms
        values = {name: float(value) for name, value in terms.items()} | means(sums.logged)
        values |= self._runaway["valid"].note(values)
        if self._metrics is not None:
            self._metrics.write(step, values, split="valid")
        return values

    def note(self, text: str) -> None:
        """Print a line that stays above the one that is rewritten."""
        if self._console is not None:
            self._console.show(text, stays=True)

    def report_for(self, other: "RunLog") -> None:
        """Go on with the line of another log that has ended, and with what it has counted."""
        if other is not self:
            self._console, other._console = other._console, None
            self.peak_flops, self.work = other.peak_flops, other.work

    def close(self) -> None:
        """Close the files and end the console line."""
        if self._metrics is not None:
            self._metrics.close()
        if self._console is not None:
            self._console.finish()


def means(logged: Mapping[str, TermSum]) -> dict[str, float]:
    """Divide every sum by its count."""
    return {name: float(s.numerator) / max(1.0, float(s.denominator)) for name, s in logged.items()}


class MetricsWriter:
    """Appends to a run's record; a line is written whole and at once."""

    def __init__(
        self,
        run: Path,
        *,
        resume_from: int | None = None,
        tensorboard: Literal["off", "on"] = "off",
    ) -> None:
        run.mkdir(parents=True, exist_ok=True)
        self._board = None
        if tensorboard == "on":
            writer = import_extra("tensorboardX", "tensorboard").SummaryWriter
            purge = None if resume_from is None else resume_from + 1
            self._board = writer(str(run / "tensorboard"), purge_step=purge)
        repair(run / FILE, math.inf if resume_from is None else resume_from)
        self._file = (run / FILE).open("ab", buffering=0)

    def write(self, step: int, values: Mapping[str, Any], *, split: str = "train") -> None:
        """Write one line; the values are numbers or arrays of one number."""
        numbers = {name: float(value) for name, value in values.items()}
        odd = [f"{name} is {x}" for name, x in numbers.items() if not math.isfinite(x)]
        line: dict[str, Any] = {
            "step": int(step),
            "time": round(time.time(), 3),
            "split": split,
            "values": {name: x if math.isfinite(x) else None for name, x in numbers.items()},
        }
        whole = json.dumps(line | ({"note": ", ".join(odd)} if odd else {}), allow_nan=False)
        if self._file.write(f"{whole}\n".encode()) != len(whole.encode()) + 1:
            raise OSError(f"A line of {self._file.name} was cut short: is the disk full?")
        if self._board is not None:
            for name, number in numbers.items():
                self._board.add_scalar(f"{split}/{name}", number, step, walltime=line["time"])

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def complete_lines(path: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield objects and bytes of complete lines; only the last may be broken off."""
    lines = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        try:
            held = parse_json(line)
            float(held["step"] + 0)  # a number, not a text
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            if number == len(lines):
                return
            raise SimuljaxError(
                f"{path}:{number} is not a line of metrics ({error}). Remove that line."
            ) from error
        if line.endswith(b"\n"):
            yield held, line


def repair(path: Path, last: float) -> None:
    """Drop a line that a kill broke off, and all lines after step `last`."""
    if not path.exists():
        return
    whole = b"".join(line for held, line in complete_lines(path) if held["step"] <= last)
    if whole == path.read_bytes():
        return
    beside = path.with_suffix(".tmp")
    with beside.open("wb") as file:
        file.write(whole)
        os.fsync(file.fileno())
    beside.replace(path)


def _total(lengths: list[Any]) -> int:
    return sum(int(np.sum(each)) for each in jax.device_get(lengths))


class ConsoleLine:
    """Shows a line per interval: rewritten on a terminal, one below the other in a log."""

    def __init__(
        self,
        total_steps: int = 0,
        peak_flops: float | None = None,  # of all devices, a second
        stream: TextIO | None = None,
    ) -> None:
        self.total_steps, self.peak_flops = total_steps, peak_flops
        self.stream = stream or sys.stderr
        self._first: tuple[int, float] | None = None
        self._last_time = 0.0

    def rates(self, step: int, now: float, work: Work) -> dict[str, float]:
        """Return those of the interval that ends now; the first interval has none.

        Seconds that were spent aside are left out of them, and count for the time left.
        """
        if self._first is None:
            self._first, self._last_time = (step, now), now
            return {}
        seconds = max(now - self._last_time - work.aside_s, 1e-9)
        first, start = self._first
        self._last_time = now
        pace, hosts = (step - first) / max(now - start, 1e-9), jax.process_count()
        frames, tokens = _total(work.samples) // SHIFT * hosts, _total(work.tokens) * hosts
        found = {"frames": frames / seconds, "tokens": tokens / seconds}
        if work.flops and self.peak_flops:
            found["utilisation"] = work.flops / seconds / self.peak_flops
        if pace > 0:
            found["remaining"] = max(0, self.total_steps - step) / pace
        return found

    def show(self, line: str, *, stays: bool = False) -> None:
        """Write a line, or one that stays above it."""
        if not self.stream.isatty():
            self.stream.write(f"{line}\n")
        elif stays:
            self.stream.write(f"\r{line}\x1b[K\n")
        else:
            self.stream.write(f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K")
        self.stream.flush()

    def finish(self) -> None:
        if self.stream.isatty():
            self.stream.write("\n")
            self.stream.flush()


def describe_update(
    report: Report, rate: float, rates: Mapping[str, float], note: str | None = None
) -> Iterator[str]:
    """Yield `loss 3.21 st 2.9 dar 0.3`, `norm 1.2`, `lr 2.00e-03`, ... as far as they are known."""
    terms = "".join(f" {name} {value:.4g}" for name, value in report.loss.terms.items())
    yield f"loss {report.loss.total:.4g}{terms}"
    yield f"norm {report.gradient_norm:.3g}"
    yield f"lr {rate:.2e}"
    if rates:
        yield f"{thousands(rates['frames'])} frames/s"
        yield f"{thousands(rates['tokens'])} tokens/s"
    if "utilisation" in rates:
        yield f"use {rates['utilisation']:.0%}"
    if "remaining" in rates:
        yield f"ETA {duration(rates['remaining'])}"
    if note:
        yield note


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


class DecisionWatch:
    """Follow DAR and the mean energies of both branches from one line of metrics to the next."""

    def __init__(self, run: Path) -> None:
        self._run, self._warned = run, False
        self._last: Mapping[str, float] | None = None
        self._first: Mapping[str, float] | None = None  # the first line in which DAR counts

    def note(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return {"dar_effect_ratio": r}, or {} where it is not defined; warn once of a runaway.

        r = (change of mt_energy) / (change of st_energy) since the line before: how far the updates
        between the two moved text energies, DAR's target, for each unit that they moved those of
        speech. At 1 or more speech never catches up. Of lines about different batches it is noisy.
        """
        if "mt_energy" not in values:
            return {}
        last, self._last = self._last, dict(values)
        if values.get("weighted_dar") and not self._warned:
            self._first = self._first or self._last
            self._warn(self._last, self._first)
        ratio = None if last is None else _effect_ratio(values, last)
        return {} if ratio is None else {"dar_effect_ratio": ratio}

    def _warn(self, now: Mapping[str, float], first: Mapping[str, float]) -> None:
        """Warn if DAR is far above its first value, and text energies fell meanwhile.

        Energies that rise are heads that learn to write earlier, as under a latency loss.
        """
        if now["dar"] <= GROWN * first["dar"] or now["mt_energy"] >= first["mt_energy"]:
            return
        self._warned = True
        print(
            f"{self._run}: DAR runs away: it is {now['dar']:.2f} and was {first['dar']:.2f}; since "
            f"then text energies moved {_effect_ratio(now, first) or math.nan:.2f} times as far as "
            f"speech energies (means {now['mt_energy']:.2f} and {now['st_energy']:.2f}). "
            "decision_teacher='flow' or 'frozen' holds the target",
            file=sys.stderr,
        )


def _effect_ratio(now: Mapping[str, float], before: Mapping[str, float]) -> float | None:
    speech, text = (float(now[name] - before[name]) for name in ("st_energy", "mt_energy"))
    return text / speech if speech else None
