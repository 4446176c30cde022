"""Runs of a grid as jobs, with submitit's own processes in place of a cluster."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simuljax.ablate.launchers import FOLDER, Jobs, check, submit
from simuljax.cli.main import main
from simuljax.config.experiment import ExperimentError
from tests.ablate.small_ablation import FILE, spoken

pytest.importorskip("submitit", reason="needs `pip install 'simuljax[cluster]'`")
LOCAL = Jobs(engine="local", gpus=0, cpus=1, minutes=5)
SAVES = """
import signal, sys, time, pathlib
def save(*_):
    pathlib.Path(sys.argv[1]).write_text("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("begun", flush=True)
time.sleep(60)
"""


def submitted(tmp_path, *command):
    output = tmp_path / "output.log"
    job = submit(LOCAL, [sys.executable, "-c", *command], output, tmp_path, "name")
    return job, output


@pytest.mark.parametrize(("code", "status"), [("print('said')", 0), ("exit(3)", 3)])
def test_a_job_ends_as_its_command_does(tmp_path, code, status):
    job, output = submitted(tmp_path, code)
    assert job.wait() == job.poll() == job.returncode == status
    assert output.read_text() == ("" if status else "said\n")
    assert list((tmp_path / FOLDER).iterdir())


def test_a_cancelled_job_may_save_its_state(tmp_path):
    job, output = submitted(tmp_path, SAVES, str(tmp_path / "state"))
    while not (output.exists() and output.read_text()):
        assert job.poll() is None
        time.sleep(0.05)
    job.terminate()
    job.wait()  # as who was told first: the job, or the command, which ended well
    assert (tmp_path / "state").read_text() == "saved"


def test_what_is_not_there_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ExperimentError, match="no sbatch here"):
        check(Jobs(engine="slurm"))
    with pytest.raises(ExperimentError, match="NAME=VALUE"):
        Jobs(options=("qos",))
    with pytest.raises(SystemExit) as ended:
        main(["ablate", "experiments/zaidi2022/demo_grid.py", "--engine", "slurm"])
    assert ended.value.code == 2
    assert "sbatch" in capsys.readouterr().err


@pytest.mark.slow
def test_a_grid_of_jobs(tmp_path):
    corpus, runs, file = spoken(tmp_path)
    file.write_text(FILE.format(corpus=str(corpus), runs=str(runs)))
    command = [sys.executable, "-m", "simuljax.cli.main", "ablate", str(file), "--workers", "2"]
    asked = ["--engine", "local", "--gpus", "0", "--minutes", "20"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([*command, *asked], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "3 of 3 runs are done" in done.stdout, done.stderr
    assert len(list(runs.glob("*/eval/*/scores.json"))) == 2
    assert len(list((runs / FOLDER).glob("*_submitted.pkl"))) >= 3
