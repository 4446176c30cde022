"""The record of a run: a JSON object a line in metrics.jsonl, and TensorBoard beside it if asked.

A line is {"step", "time", "split", "values"}. A value that is not finite is null, since JSON knows
no NaN, and "note" says what it was. The record goes on where a checkpoint left off: lines that are
later than the step resumed from are removed, so that no step stands in it twice.
"""

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from simuljax.errors import import_extra

FILE = "metrics.jsonl"


class MetricsWriter:
    """Appends to a run's record; a line is written whole and at once."""

    def __init__(
        self,
        run_dir: str | Path,
        *,
        resume_from: int | None = None,
        tensorboard: Literal["off", "on"] = "off",
    ) -> None:
        run = Path(run_dir)
        run.mkdir(parents=True, exist_ok=True)
        self._board = open_tensorboard(run, resume_from) if tensorboard == "on" else None
        repair(run / FILE, math.inf if resume_from is None else resume_from)
        self._file = (run / FILE).open("ab", buffering=0)

    def write(
        self,
        step: int,
        values: Mapping[str, Any],
        *,
        split: str = "train",
        now: float | None = None,
    ) -> None:
        """Write one line; the values are numbers or arrays of one number."""
        numbers = {name: float(value) for name, value in values.items()}
        line = record(step, numbers, split, time.time() if now is None else now)
        whole = (json.dumps(line, allow_nan=False) + "\n").encode()
        if self._file.write(whole) != len(whole):
            raise OSError(f"A line of {self._file.name} was cut short: is the disk full?")
        if self._board is not None:
            for name, number in numbers.items():
                self._board.add_scalar(f"{split}/{name}", number, step, walltime=line["time"])

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._board is not None:
            self._board.close()


def read_metrics(run_dir: str | Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics, without one that is still being written."""
    path = Path(run_dir) / FILE
    return [line for line, _ in complete_lines(path)] if path.exists() else []


def record(step: int, numbers: Mapping[str, float], split: str, now: float) -> dict[str, Any]:
    """Return the object of a line."""
    values = {name: x if math.isfinite(x) else None for name, x in numbers.items()}
    odd = [f"{name} is {x}" for name, x in numbers.items() if not math.isfinite(x)]
    line = {"step": int(step), "time": round(now, 3), "split": split, "values": values}
    return line | ({"note": ", ".join(odd)} if odd else {})


def complete_lines(path: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield objects and bytes of complete lines; only the last may be broken off."""
    lines = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        try:
            held = json.loads(line)
            held["step"]
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                return
            raise ValueError(
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


def open_tensorboard(run: Path, resume_from: int | None) -> Any:
    """Return a writer of TensorBoard's event files."""
    SummaryWriter = import_extra("tensorboardX", "tensorboard").SummaryWriter
    purge = None if resume_from is None else resume_from + 1
    return SummaryWriter(str(run / "tensorboard"), purge_step=purge)
