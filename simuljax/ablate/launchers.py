"""Runs of a grid as jobs of a cluster, through submitit or Ray.

    simuljax ablate FILE --workers 8 --engine slurm --partition gpu --minutes 240
    simuljax ablate FILE --workers 8 --engine ray --gpus 0.25

The command waits on the machine that submits, with at most `--workers` jobs in the queue or
running, and ends with the answer; jobs are cancelled when it is told to stop. After one that ran
out of time, the same command goes on from its last checkpoint. Corpus, runs and this installation
have to lie on a file system that all nodes see. The engine `local` does the same with processes, by
submitit; `simuljax/ablate/on_ray.py` is Ray's part.
"""

import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from simuljax.ablate import on_ray
from simuljax.ablate import processes as commands
from simuljax.config.experiment import ExperimentError

FOLDER = "submitted"  # beside the runs: what submitit writes
POLL_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """Where runs are worked on, and what a job asks for."""

    engine: Literal["none", "slurm", "local", "ray"] = "none"
    """none: processes of this machine, which share its devices."""
    minutes: int = 240
    """After which a job is ended."""
    gpus: float = 1
    """Ray also lends a part of one."""
    cpus: int = 8
    memory_gb: float | None = None
    """By default the cluster's."""
    partition: str | None = None
    """Of the cluster; by default its own choice."""
    account: str | None = None
    """That is charged."""
    options: tuple[str, ...] = ()
    """More for sbatch: NAME=VALUE, as in qos=high."""

    def __post_init__(self) -> None:
        for option in self.options:
            if not all(option.partition("=")):
                raise ExperimentError(f"--options {option}: write NAME=VALUE, as in qos=high")
        whole = math.isfinite(self.gpus) and self.gpus >= 0 and self.gpus == int(self.gpus)
        if not whole and not (self.engine == "ray" and 0 < self.gpus < 1):
            raise ExperimentError(
                f"--gpus {self.gpus:g}: a job has whole ones, or a part of one with --engine ray"
            )
        if self.engine == "ray" and (self.partition or self.account or self.options):
            raise ExperimentError("--partition, --account and --options are SLURM's, not Ray's")


class Process(Protocol):
    """What is asked of a process, wherever it runs."""

    returncode: int | None

    def poll(self) -> int | None:
        """Its exit status, once it has ended."""
        ...

    def terminate(self) -> None:
        """Tells it to stop."""
        ...

    def wait(self) -> int:
        """Until it has ended."""
        ...


class Submitted:
    """A job as a process."""

    def __init__(self, job: Any):
        self.job, self.returncode = job, None

    def poll(self) -> int | None:
        """Its exit status, once it has ended; 1 if it was cancelled, or its node is gone."""
        if self.returncode is None and self.job.done():
            self.returncode = 1 if self.job.exception() else self.job.result()
        return self.returncode

    def terminate(self) -> None:
        """Waiting or running."""
        self.job.cancel(check=False)

    def wait(self) -> int:
        """A cancelled job saves its state first."""
        while (code := self.poll()) is None:
            time.sleep(POLL_S)
        return code


def check(jobs: Jobs) -> None:
    """Refuses an engine that is not there, before anything is begun."""
    if jobs.engine == "ray":
        on_ray.ray()
    elif jobs.engine != "none":
        _submitit()
    if jobs.engine == "slurm" and shutil.which("sbatch") is None:
        raise ExperimentError(
            "--engine slurm: there is no sbatch here; run this where jobs can be submitted, "
            "or leave --engine out to work on this machine"
        )


def submit(jobs: Jobs, command: Sequence[str], output: Path, folder: Path, name: str) -> Process:
    """A command as a job whose output is added to a file."""
    if jobs.engine == "ray":
        asked = {"cpus": jobs.cpus, "gpus": jobs.gpus, "memory_gb": jobs.memory_gb}
        return on_ray.submit(command, output, name, minutes=jobs.minutes, **asked)
    executor = _submitit().AutoExecutor(folder=folder / FOLDER, cluster=jobs.engine)
    asked: dict[str, Any] = {
        "name": name,
        "timeout_min": jobs.minutes,
        "cpus_per_task": jobs.cpus,
        "gpus_per_node": int(jobs.gpus),
        "mem_gb": jobs.memory_gb,
        "slurm_partition": jobs.partition,
        "slurm_account": jobs.account,
    }
    more = dict(option.split("=", 1) for option in jobs.options)
    asked |= {"slurm_additional_parameters": more} if more else {}
    executor.update_parameters(**{key: value for key, value in asked.items() if value is not None})
    return Submitted(executor.submit(commands.run, [*command], output.absolute()))


def _submitit() -> Any:
    try:
        import submitit
    except ImportError:
        raise ExperimentError("--engine needs `pip install 'simuljax[cluster]'`") from None
    return submitit
