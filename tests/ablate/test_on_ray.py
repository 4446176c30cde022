"""Runs of a grid as tasks of Ray, on a Ray that this machine starts for itself."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simuljax.ablate.launchers import Jobs, check, submit
from simuljax.config.experiment import ExperimentError
from tests.ablate.small_ablation import FILE, spoken
from tests.ablate.test_submitting import SAVES

JOBS = Jobs(engine="ray", gpus=0, cpus=1, minutes=5)


@pytest.fixture(scope="module")
def ray():
    library = pytest.importorskip("ray", reason="needs `pip install 'simuljax[ray]'`")
    library.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
    yield library
    library.shutdown()


def submitted(tmp_path, *command, jobs: Jobs = JOBS):
    output = tmp_path / "output.log"
    return submit(jobs, [sys.executable, "-c", *command], output, tmp_path, "name"), output


def until_said(job, output):
    while not (output.exists() and output.read_text()):
        assert job.poll() is None
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("code", "status"), [("print('said')", 0), ("exit(3)", 3)])
def test_a_task_ends_as_its_command_does(ray, tmp_path, code, status):
    job, output = submitted(tmp_path, code)
    assert job.wait() == job.poll() == job.returncode == status
    assert output.read_text() == ("" if status else "said\n")


@pytest.mark.slow
def test_a_cancelled_task_may_save_its_state(ray, tmp_path):
    job, output = submitted(tmp_path, SAVES, str(tmp_path / "state"))
    until_said(job, output)
    job.terminate()
    assert job.wait() == 1
    assert (tmp_path / "state").read_text() == "saved"


@pytest.mark.slow
def test_a_task_is_ended_when_its_time_is_over(ray, tmp_path):
    short = Jobs(engine="ray", gpus=0, cpus=1, minutes=0)
    job, output = submitted(tmp_path, "import time; time.sleep(60)", jobs=short)
    assert job.wait() == 1
    assert "--minutes" in output.read_text()


@pytest.mark.slow
def test_a_command_sees_settings_and_the_directory(ray, tmp_path, monkeypatch):
    monkeypatch.setenv("SIMULJAX_RUNS", "elsewhere")
    monkeypatch.chdir(tmp_path)
    job, output = submitted(tmp_path, "import os; print(os.getcwd(), os.environ['SIMULJAX_RUNS'])")
    assert job.wait() == 0
    assert output.read_text().split() == [str(tmp_path), "elsewhere"]


@pytest.mark.slow
def test_a_grid_of_tasks(tmp_path):
    pytest.importorskip("ray", reason="needs `pip install 'simuljax[ray]'`")
    corpus, runs, file = spoken(tmp_path)
    file.write_text(FILE.format(corpus=str(corpus), runs=str(runs)))
    command = [sys.executable, "-m", "simuljax.cli.main", "ablate", str(file), "--workers", "2"]
    asked = ["--engine", "ray", "--gpus", "0", "--cpus", "1", "--minutes", "20"]
    places = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))}
    done = subprocess.run([*command, *asked], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "3 of 3 runs are done" in done.stdout, done.stderr
    assert len(list(runs.glob("*/eval/*/scores.json"))) == 2


def test_what_cannot_be_asked_of_it_is_refused(monkeypatch):
    with pytest.raises(ExperimentError, match="SLURM's, not Ray's"):
        Jobs(engine="ray", partition="gpu")
    for gpus in (1.5, -1, float("nan")):
        with pytest.raises(ExperimentError, match="a job has whole ones"):
            Jobs(engine="ray", gpus=gpus)
    with pytest.raises(ExperimentError, match="a job has whole ones"):
        Jobs(engine="slurm", gpus=0.5)
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    with pytest.raises(ExperimentError, match=r"simuljax\[ray\]"):
        check(Jobs(engine="ray"))
