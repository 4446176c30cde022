"""Measure `simuljax profile start-up`: the CPU time of quick commands, beside `import jax`."""

import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simuljax.eval.logs import Record, write_records
from simuljax.profile.measure import check_positive

IMPORT_JAX = "import jax"


@dataclass(frozen=True, kw_only=True)
class StartUpProfile:
    """CPU time of commands that do little, as a ratio to `import jax`."""

    repeats: int = 5
    """Times that each is started; the median counts."""

    def __post_init__(self) -> None:
        """Reject a number of repeats that is not positive."""
        check_positive(self)


def run(config: StartUpProfile) -> dict[str, Any]:
    """Start every command in turn, so that a busy machine slows all of them alike."""
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "instances.log"
        record = Record(prediction="a b c d", delays=(1.0,) * 4, source_length=9.0, reference="a b")
        write_records(log, [record] * 20)
        simuljax = [sys.executable, "-P", "-m", "simuljax.cli.main"]
        commands = {
            IMPORT_JAX: [sys.executable, "-c", IMPORT_JAX],
            "simuljax --version": [*simuljax, "--version"],
            "simuljax --help": [*simuljax, "--help"],
            "simuljax score LOG": [*simuljax, "score", str(log)],
        }
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(config.repeats):
            for name, command in commands.items():
                seconds[name].append(cpu_seconds(command))
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    rows = [
        {"command": name, "cpu_s": median, "ratio": median / medians[IMPORT_JAX]}
        for name, median in medians.items()
    ]
    return {"repeats": config.repeats, "rows": rows}


def cpu_seconds(command: Sequence[str]) -> float:
    """Return the user and system time of a child process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def table(report: dict[str, Any]) -> str:
    """Lay the report out as text."""
    lines = [f"{'CPU time':22}{'seconds':>9}{'x import jax':>15}"]
    for row in report["rows"]:
        lines.append(f"{row['command']:22}{row['cpu_s']:9.2f}{row['ratio']:15.2f}")
    return "\n".join(lines)
