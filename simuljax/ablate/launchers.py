"""Start the processes of a grid: on this machine, or as jobs of a cluster by submitit or Ray.

    simuljax ablate FILE --workers 8 --engine slurm --partition gpu --minutes 240
    simuljax ablate FILE --workers 8 --engine ray --gpus 0.25

The command waits on the machine that submits, with at most `--workers` jobs queued or running, and
cancels them when it is stopped. After a job that ran out of time, the same command resumes from the
last checkpoint. Corpus, runs and this installation must be on a file system that all nodes see. The
engine `local` runs jobs as processes through submitit. Ray uses the cluster of RAY_ADDRESS, or
starts one on this machine; a Ray job may use part of a GPU.
"""

import math
import os
import site
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import simuljax
from simuljax.errors import ChoiceError, import_extra

FOLDER = "submitted"  # beside the runs: submitit's files
SAVING_S = 300.0  # for a command to save its state after SIGTERM
POLL_S = 2.0
QUEUE_S = 15.0  # between looks at SLURM's queue
CANCEL_AGAIN_S = 5.0  # Ray may miss the cancellation of a task
# The variables that a Ray job takes from here; the others are the node's.
CARRIED = ("SIMULJAX_", "XLA_", "JAX_", "TF_", "HF_")
NO_PREALLOCATION = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # for processes that share a GPU


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """Choose where runs are worked on, and what a job requests."""

    engine: Literal["none", "slurm", "local", "ray"] = "none"
    """none: processes of this machine, which share its devices."""
    minutes: int = 240
    """Time limit of a job."""
    gpus: float = 1
    """GPUs of a job; Ray also accepts a part of one."""
    cpus: int = 8
    """CPU cores of a job."""
    partition: str | None = None
    """Partition of SLURM; by default the cluster's."""
    options: tuple[str, ...] = ()
    """More options for sbatch: NAME=VALUE, such as account=us mem=64G qos=high."""

    def __post_init__(self) -> None:
        for option in self.options:
            if not all(option.partition("=")):
                raise ChoiceError(f"--options {option}: write NAME=VALUE, as in qos=high")
        whole = math.isfinite(self.gpus) and self.gpus >= 0 and self.gpus == int(self.gpus)
        if not whole and not (self.engine == "ray" and 0 < self.gpus < 1):
            raise ChoiceError(
                f"--gpus {self.gpus:g}: must be a whole number; --engine ray also takes 0 to 1"
            )
        if self.engine == "ray" and (self.partition or self.options):
            raise ChoiceError("--partition and --options need --engine slurm")


def simuljax_command(*args: str) -> list[str]:
    """Return a command line that runs simuljax in a process of its own.

    -P keeps the working directory off the import path: a folder named `experiments` or `simuljax`
    there would hide the packages of that name.
    """
    return [sys.executable, "-P", "-m", "simuljax.cli.main", *args]


def environment() -> dict[str, str]:
    """Return the variables with which a child process imports the same simuljax."""
    root = str(Path(simuljax.__file__).parents[1])
    known = os.environ.get("PYTHONPATH", "")
    if root in site.getsitepackages() or root in known.split(os.pathsep):
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, [root, known]))}


def start(
    jobs: Jobs, command: Sequence[str], output: Path, name: str, *, shared: bool
) -> "Process":
    """Start a command whose output is appended to a file; `shared` GPUs are not preallocated."""
    if jobs.engine == "ray":
        return _start_ray(jobs, command, output, name)
    if jobs.engine != "none":
        return _start_submitit(jobs, command, output, name)
    given = (NO_PREALLOCATION if shared else {}) | os.environ | environment()
    with output.open("a") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=given)


def run_command(
    command: Sequence[str],
    output: Path,
    *,
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
    limit_s: float | None = None,
) -> int:
    """Run a command inside a job and return its exit status.

    A job that gets SIGTERM passes it on, and waits while the command saves its state.
    """
    with output.open("a") as file:
        process = subprocess.Popen(
            command,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=os.environ | dict(variables or {}),
        )
        try:
            return process.wait(limit_s)
        except BaseException as error:
            _stop(process)
            if limit_s is not None and isinstance(error, subprocess.TimeoutExpired):
                file.write(f"ended after {limit_s / 60:g} minutes (--minutes)\n")
                return 1
            raise


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Tell a process to stop and wait while it saves, through further interrupts."""
    process.terminate()
    deadline = time.monotonic() + SAVING_S
    while process.poll() is None:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except KeyboardInterrupt:
            continue
        except subprocess.TimeoutExpired:
            process.kill()


class SubmititJob:
    """A job of submitit with the methods of `subprocess.Popen` that a grid needs.

    submitit asks sacct about a job that leaves no result, which clusters without accounting do not
    have; so the queue of SLURM is looked at too.
    """

    def __init__(self, job: Any, engine: str):
        self.job, self.engine, self.returncode = job, engine, None
        self.looked_s, self.missing = time.monotonic(), 0

    def poll(self) -> int | None:
        """Return the exit status once it has ended; 1 if it was cancelled or its node is gone."""
        if self.returncode is None and self.job.done():
            self.returncode = 1 if self.job.exception() else self.job.result()
        if self.returncode is None and self._has_left():
            print(f"job {self.job.job_id} left the queue without a result", file=sys.stderr)
            self.returncode = 1
        return self.returncode

    def _has_left(self) -> bool:
        """Return True if SLURM's queue lacks the job for the second time."""
        if self.engine != "slurm" or time.monotonic() - self.looked_s < QUEUE_S:
            return False
        self.looked_s = time.monotonic()
        command = ["squeue", "--noheader", "--jobs", str(self.job.job_id), "--format", "%T"]
        queue = subprocess.run(command, capture_output=True, text=True)
        unknown = "Invalid job id" in queue.stderr
        gone = unknown or (queue.returncode == 0 and not queue.stdout.strip())
        self.missing = self.missing + 1 if gone else 0
        return self.missing > 1

    def terminate(self) -> None:
        """Cancel the job, queued or running."""
        self.job.cancel(check=False)

    def wait(self) -> int:
        """Wait for the end; a cancelled job saves its state first."""
        while (code := self.poll()) is None:
            time.sleep(POLL_S)
        return code


def _start_submitit(jobs: Jobs, command: Sequence[str], output: Path, name: str) -> SubmititJob:
    folder = output.parents[1] / FOLDER
    submitit = import_extra("submitit", "cluster")
    executor = submitit.AutoExecutor(folder=folder, cluster=jobs.engine)
    given: dict[str, Any] = {
        "name": name,
        "timeout_min": jobs.minutes,
        "cpus_per_task": jobs.cpus,
        "gpus_per_node": int(jobs.gpus),
    }
    given |= {"slurm_partition": jobs.partition} if jobs.partition else {}
    more = dict(option.split("=", 1) for option in jobs.options)
    given |= {"slurm_additional_parameters": more} if more else {}
    executor.update_parameters(**given)
    try:
        job = executor.submit(run_command, [*command], output.absolute(), variables=environment())
    except RuntimeError as error:  # submitit's FailedJobError
        raise ChoiceError(f"--engine {jobs.engine} refused the job {name}: {error}") from error
    return SubmititJob(job, jobs.engine)


class RayTask:
    """A task of Ray, likewise."""

    def __init__(self, ray: Any, reference: Any, name: str):
        self.ray, self.reference, self.name = ray, reference, name
        self.returncode: int | None = None
        self.cancelled = False

    def poll(self, timeout: float | None = 0.0) -> int | None:
        """Return the exit status once it has ended; wait for it until the timeout."""
        if self.returncode is None and self.ray.wait([self.reference], timeout=timeout)[0]:
            try:
                self.returncode = self.ray.get(self.reference)
            except Exception as error:  # cancelled, or its node is gone
                print(f"{self.name}: {error}", file=sys.stderr, flush=True)
                self.returncode = 1
        return self.returncode

    def terminate(self) -> None:
        """Cancel the task, queued or running."""
        self.cancelled = True
        self.ray.cancel(self.reference)

    def wait(self) -> int:
        """Wait for the end; a cancelled task saves its state first."""
        while (code := self.poll(CANCEL_AGAIN_S if self.cancelled else None)) is None:
            self.ray.cancel(self.reference)
        return code


def _start_ray(jobs: Jobs, command: Sequence[str], output: Path, name: str) -> RayTask:
    ray = import_extra("ray", "ray")
    _connect(ray, jobs)
    task = ray.remote(run_command)
    task = task.options(name=name, max_retries=0, num_cpus=jobs.cpus, num_gpus=jobs.gpus)
    variables = {key: value for key, value in os.environ.items() if key.startswith(CARRIED)}
    variables = (NO_PREALLOCATION if 0 < jobs.gpus < 1 else {}) | variables | environment()
    given = {"folder": Path.cwd(), "variables": variables, "limit_s": 60.0 * jobs.minutes}
    return RayTask(ray, task.remote([*command], output.absolute(), **given), name)


def _connect(ray: Any, jobs: Jobs) -> None:
    """Connect to Ray once; warn if a job requests more than the cluster has."""
    if ray.is_initialized():
        return
    ray.init(log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    found = [ray.cluster_resources().get(kind, 0.0) for kind in ("CPU", "GPU")]
    if found[0] < jobs.cpus or found[1] < jobs.gpus:
        print(
            f"Ray has {found[0]:g} CPUs and {found[1]:g} GPUs; a job requests {jobs.cpus:g} and "
            f"{jobs.gpus:g} and waits until they are there (--cpus, --gpus)",
            file=sys.stderr,
        )


Process = subprocess.Popen[bytes] | SubmititJob | RayTask
