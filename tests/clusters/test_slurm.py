"""SLURM on two virtual nodes: trained together, cancelled, requeued, preempted, without a node."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from simuljax.ablate.launchers import simuljax_command
from simuljax.train.run import ENDED, load_params
from tests.helpers.grids import environment, spoken_corpus
from tests.train.runs import metrics
from tests.train.states import assert_same_bits

ROOT = Path(__file__).parents[2]
LAUNCH = ROOT / "experiments" / "launch"
DAEMONS = ("slurmctld", "slurmd", "munged", "sbatch")
PATIENCE_S = 600
PLACES = f"{os.environ['PATH']}:/usr/sbin"
ready = os.geteuid() == 0 and all(shutil.which(name, path=PLACES) for name in DAEMONS)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ready, reason=f"local_slurm.sh needs root and {', '.join(DAEMONS)}"),
]


class Slurm:
    """The cluster, and the commands with which users work on it."""

    def __init__(self, folder: Path, corpus: Path) -> None:
        self.folder, self.runs = folder, folder / "runs"
        self.submits_from = folder / "project"  # slurm.sbatch calls .venv/bin/simuljax there
        (self.submits_from / ".venv" / "bin").mkdir(parents=True)
        program = self.submits_from / ".venv" / "bin" / "simuljax"
        program.write_text(f'#!/bin/sh\nexec {" ".join(simuljax_command())} "$@"\n')
        program.chmod(0o755)
        self.variables = environment(
            SLURM_CONF=str(folder / "slurm" / "slurm.conf"),
            SIMULJAX_DATA=str(corpus.parent),
            SIMULJAX_RUNS=str(self.runs),
        )

    def cluster(self, action: str, *more: str) -> None:
        command = [str(LAUNCH / "local_slurm.sh"), action, str(self.folder / "slurm"), *more]
        subprocess.run(command, check=True, timeout=120)

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command, env=self.variables, cwd=self.submits_from, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def submit(self, run: str) -> str:
        """Submits the script of the repository as it is."""
        where = ("--output", str(self.folder / f"{run}.log"))
        script, file = str(LAUNCH / "slurm.sbatch"), str(ROOT / "tests/clusters/grid.py")
        said = self.run("sbatch", *where, script, str(self.runs / run), file)
        return said.split()[-1]

    def state(self, job: str) -> str:
        found = re.search(r"JobState=(\w+)", self.run("scontrol", "show", "job", job))
        assert found is not None
        return found[1]

    def said(self, run: str) -> str:
        path = self.folder / f"{run}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for_steps(self, run: str, more: int = 20) -> None:
        step = last_step(self.said(run)) + more
        self.wait(lambda: last_step(self.said(run)) >= step, run)

    def wait_for_state(self, job: str, run: str, *states: str) -> None:
        self.wait(lambda: self.state(job) in states, run)

    def wait(self, happened, run: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not happened():
            assert time.monotonic() < deadline, self.said(run)[-3000:] + self.run("squeue")
            time.sleep(0.3)


def last_step(said: str) -> int:
    return max(map(int, re.findall(r"^step (\d+)/", said, re.M)), default=0)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory) -> Iterator[Slurm]:
    folder = tmp_path_factory.mktemp("slurm")
    made = Slurm(folder, spoken_corpus(folder / "data" / "phrasebook"))
    made.cluster("up")
    yield made
    made.cluster("down")


@pytest.fixture(scope="module")
def whole(slurm: Slurm) -> Path:
    """Two tasks, not interrupted."""
    job = slurm.submit("whole")
    slurm.wait_for_state(job, "whole", "COMPLETED")
    return slurm.runs / "whole"


def test_two_tasks_train_together(slurm: Slurm, whole: Path) -> None:
    assert (whole / ENDED).exists()
    said = slurm.said("whole")
    assert "process 0 of 2 (SLURM)" in said and "process 1 of 2 (SLURM)" in said
    assert "on 2 x cpu" in said


def test_a_job_resumes_whatever_ends_it(slurm: Slurm, whole: Path) -> None:
    """Cancelled, requeued, preempted, and robbed of a node; then its bits are the same."""
    job = slurm.submit("often")
    slurm.wait_for_steps("often")
    slurm.run("scancel", job)
    slurm.wait_for_state(job, "often", "CANCELLED", "COMPLETED")
    assert "the same command resumes" in slurm.said("often")

    job = slurm.submit("often")
    preempting = ("srun", "--partition", "high", "--nodes", "2", "--exclusive", "true")
    for times, command in ((2, ("scontrol", "requeue", job)), (3, preempting)):
        slurm.wait_for_steps("often")
        slurm.run(*command)
        slurm.wait(lambda: slurm.said("often").count("resumed from update") == times, "often")  # noqa: B023

    slurm.wait_for_steps("often")
    slurm.cluster("kill", "2")
    start = time.monotonic()
    slurm.wait(lambda: "node2" in slurm.run("sinfo", "-h", "-t", "down", "-o", "%N"), "often")
    slurm.wait(lambda: slurm.state(job) != "RUNNING", "often")
    print(f"the node is missed after {time.monotonic() - start:.0f} s")
    slurm.cluster("start", "2")
    slurm.wait_for_state(job, "often", "COMPLETED")
    said = slurm.said("often")
    print(said)
    assert said.count("resumed from update") == 4
    assert (slurm.runs / "often" / ENDED).exists()
    one, other = (load_params(run, "last") for run in (whole, slurm.runs / "often"))
    assert one.steps == other.steps
    assert_same_bits(one.params, other.params)
    lines = [[line["step"] for line in metrics(run)] for run in (whole, slurm.runs / "often")]
    assert lines[0] == lines[1]  # without holes or repeats


def test_a_grid_outlives_a_node(slurm: Slurm) -> None:
    """Two jobs on two nodes; one dies, and SLURM gives its job to the other."""
    command = simuljax_command("ablate", str(ROOT / "tests/clusters/grid.py"))
    command += ["--engine", "slurm", "--gpus", "0", "--cpus", "40", "--minutes", "60"]
    log = slurm.folder / "grid.log"
    with log.open("w") as out:
        grid = subprocess.Popen(
            [*command, "--workers", "2"], env=slurm.variables, stdout=out, stderr=out
        )
    queue = ("squeue", "-h", "-o", "%i %j %T %N %r")
    slurm.wait(lambda: slurm.run(*queue).count("RUNNING node") == 2, "grid")
    print(slurm.run(*queue))
    slurm.cluster("kill", "2")
    slurm.wait(lambda: "node2" in slurm.run("sinfo", "-h", "-t", "down", "-o", "%N"), "grid")
    assert grid.poll() is None
    print(slurm.run(*queue))
    assert "PENDING" in slurm.run(*queue)
    slurm.cluster("start", "2")
    assert grid.wait(PATIENCE_S) == 0, log.read_text()
    print(log.read_text())
    assert (slurm.runs / "summary" / "index.html").exists()
