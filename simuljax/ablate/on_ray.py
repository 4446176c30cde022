"""Commands as tasks of Ray: of the cluster that RAY_ADDRESS names, or that this machine is part of.

Where there is none, Ray begins one on this machine alone. A job may ask for a part of a GPU
(`--gpus 0.25`): so many then share it, and each takes the memory that it needs. Corpus, runs and
this installation have to lie where every node sees them.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simuljax.ablate import processes as commands
from simuljax.config.experiment import ExperimentError

HEARD_S = 5.0  # after which a cancelled task that is not over is told again
# What the command sees of the environment here; all else is the node's.
CARRIED = ("SIMULJAX_", "XLA_", "JAX_", "TF_", "HF_")


class Task:
    """A task as a process."""

    def __init__(self, reference: Any, name: str):
        self.reference, self.name = reference, name
        self.returncode: int | None = None
        self.cancelled = False

    def poll(self) -> int | None:
        """Its exit status, once it has ended."""
        return self._ended(timeout=0.0)

    def terminate(self) -> None:
        """Waiting or running."""
        self.cancelled = True
        ray().cancel(self.reference)

    def wait(self) -> int:
        """A cancelled task, which does not always hear it, has its command save its state first."""
        while (code := self._ended(timeout=HEARD_S if self.cancelled else None)) is None:
            ray().cancel(self.reference)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        ray_ = ray()
        if self.returncode is None and ray_.wait([self.reference], timeout=timeout)[0]:
            try:
                self.returncode = ray_.get(self.reference)
            except Exception as why:  # cancelled, its node is gone, or nothing is known of it
                print(f"{self.name}: {why}", file=sys.stderr, flush=True)
                self.returncode = 1
        return self.returncode


def submit(
    command: Sequence[str],
    output: Path,
    name: str,
    *,
    cpus: float,
    gpus: float,
    memory_gb: float | None,
    minutes: int,
) -> Task:
    """A command as a task whose output is added to a file."""
    connect(cpus, gpus)
    memory = {} if memory_gb is None else {"memory": int(memory_gb * 2**30)}
    asked = {"num_cpus": cpus, "num_gpus": gpus, **memory}
    task = ray().remote(commands.run).options(name=name, max_retries=0, **asked)
    carried = {key: value for key, value in os.environ.items() if key.startswith(CARRIED)}
    if 0 < gpus < 1:
        carried = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} | carried
    given = {"where": Path.cwd(), "carried": carried, "limit_s": 60.0 * minutes}
    return Task(task.remote([*command], output.absolute(), **given), name)


def connect(cpus: float, gpus: float) -> None:
    """Once; says so where a job would wait for more than there is."""
    ray_ = ray()
    if ray_.is_initialized():
        return
    ray_.init(log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    there = [ray_.cluster_resources().get(kind, 0.0) for kind in ("CPU", "GPU")]
    if there[0] < cpus or there[1] < gpus:
        print(
            f"Ray has {there[0]:g} CPUs and {there[1]:g} GPUs, and a job asks for {cpus:g} and "
            f"{gpus:g}: it waits until they are there (--cpus, --gpus)",
            file=sys.stderr,
        )


def ray() -> Any:
    """The library, if it is here."""
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise ExperimentError("--engine ray needs `pip install 'simuljax[ray]'`") from None
