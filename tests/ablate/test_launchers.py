"""Start processes and jobs: submitit's local engine and a local Ray stand for clusters."""

import gc
import os
import subprocess
import sys
import threading
import time
from _thread import interrupt_main
from collections.abc import Iterator
from pathlib import Path

import pytest
import submitit  # noqa: F401 (closes the handlers of logging: not while their output is captured)

from simuljax.ablate import launchers
from simuljax.ablate.launchers import FOLDER, Jobs, Process, SubmititJob, run_command, start
from simuljax.cli.ablate import check
from simuljax.cli.main import main
from simuljax.errors import ChoiceError, MissingExtraError

SUBMITIT = Jobs(engine="local", gpus=0, cpus=1, minutes=5)
RAY = Jobs(engine="ray", gpus=0, cpus=1, minutes=5)
SAVES = """
import pathlib, signal, sys, time
def save(*_):
    print("saving", flush=True)
    time.sleep(1.5)
    pathlib.Path(sys.argv[1]).write_text("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("begun", flush=True)
time.sleep(60)
"""
DEAF = SAVES.replace("SIGTERM, save", "SIGTERM, signal.SIG_IGN")


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """Hypothesis hooks into the collector, and an interrupt there would be lost."""
    gc.disable()
    yield
    gc.enable()


def interrupt(output: Path, *words: str) -> None:
    """Interrupt the job whenever its command has printed the next of these words."""
    for word in words:
        while not (output.exists() and word in output.read_text()):
            time.sleep(0.02)
        interrupt_main()


def run_and_interrupt(tmp_path: Path, code: str, *words: str) -> None:
    output = tmp_path / "output.log"
    thread = threading.Thread(target=interrupt, args=(output, *words), daemon=True)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run_command([sys.executable, "-c", code, str(tmp_path / "state")], output, limit_s=300.0)
    thread.join()


def test_interrupted_command_saves_its_state_or_is_killed(tmp_path, monkeypatch):
    run_and_interrupt(tmp_path, SAVES, "begun", "saving")
    assert (tmp_path / "state").read_text() == "saved"
    (tmp_path / "output.log").unlink()
    monkeypatch.setattr(launchers, "SAVING_S", 0.2)
    began = time.monotonic()
    run_and_interrupt(tmp_path, DEAF, "begun")
    assert time.monotonic() - began < 30


def test_packages_in_the_working_directory_are_not_imported(tmp_path):
    """Neither a folder `experiments` nor a file `jax.py` there is ours."""
    for name in ("experiments", "simuljax"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit(f'imported {__file__}')")
    done = subprocess.run(
        launchers.simuljax_command("--version"),
        cwd=tmp_path,
        env=os.environ | launchers.environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stdout.startswith("simuljax "), done.stderr


def started(tmp_path: Path, jobs: Jobs, *command: str) -> tuple[Process, Path]:
    output = tmp_path / "run" / "output.log"
    output.parent.mkdir(exist_ok=True)
    return start(jobs, [sys.executable, "-c", *command], output, "name", shared=False), output


def check_status(tmp_path: Path, jobs: Jobs) -> None:
    for code, status in (("exit(3)", 3), ("print('said')", 0)):
        job, output = started(tmp_path, jobs, code)
        assert job.wait() == job.poll() == job.returncode == status
    assert output.read_text() == "said\n"


def check_cancelling(tmp_path: Path, jobs: Jobs) -> int:
    (tmp_path / "run" / "output.log").unlink()
    job, output = started(tmp_path, jobs, SAVES, str(tmp_path / "state"))
    while not (output.exists() and output.read_text()):
        assert job.poll() is None
        time.sleep(0.05)
    job.terminate()
    status = job.wait()
    assert (tmp_path / "state").read_text() == "saved"
    return status


@pytest.mark.slow
def test_submitit_job_has_the_status_of_its_command_and_saves_when_cancelled(tmp_path):
    pytest.importorskip("submitit", reason="needs `pip install 'simuljax[cluster]'`")
    check_status(tmp_path, SUBMITIT)
    assert list((tmp_path / FOLDER).iterdir())
    check_cancelling(tmp_path, SUBMITIT)


QUEUE = """#!/bin/sh
case $(cat {folder}/queue) in
    running) echo RUNNING ;;
    away) echo "Unable to contact slurm controller" >&2; exit 1 ;;
    unknown) echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1 ;;
esac
"""


def test_job_that_leaves_the_queue_without_a_result_has_failed(tmp_path, monkeypatch, capsys):
    """Without accounting, nobody else tells. Neither one look nor a lost controller is enough."""

    class Job:
        job_id = "7"

        def done(self) -> bool:
            return False

    (tmp_path / "squeue").write_text(QUEUE.format(folder=tmp_path))
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(launchers, "QUEUE_S", 0.0)
    job, found = SubmititJob(Job(), "slurm"), []
    for state in ("running", "unknown", "running", "away", "away", "done", "unknown"):
        (tmp_path / "queue").write_text(state)
        found.append(job.poll())
    assert found == [None] * 6 + [1]
    assert "job 7 left the queue" in capsys.readouterr().err


@pytest.mark.slow
def test_ray_task_is_like_a_process_here_with_a_time_limit(tmp_path, monkeypatch):
    """The status, variables and directory are those of its command; it saves when cancelled."""
    library = pytest.importorskip("ray", reason="needs `pip install 'simuljax[ray]'`")
    monkeypatch.setenv("SIMULJAX_RUNS", "elsewhere")
    monkeypatch.chdir(tmp_path)
    library.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
    try:
        check_status(tmp_path, RAY)
        code = "import os; print(os.getcwd(), os.environ['SIMULJAX_RUNS'])"
        job, output = started(tmp_path, RAY, code)
        assert job.wait() == 0
        assert output.read_text().split() == [str(tmp_path), "elsewhere"]
        assert check_cancelling(tmp_path, RAY) == 1
        short = Jobs(engine="ray", gpus=0, cpus=1, minutes=0)
        job, output = started(tmp_path, short, "import time; time.sleep(60)")
        assert job.wait() == 1 and "--minutes" in output.read_text()
    finally:
        library.shutdown()


def test_engine_that_is_not_installed_is_rejected(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ChoiceError, match="sbatch"):
        check(Jobs(engine="slurm"))
    with pytest.raises(SystemExit) as ended:
        main(["ablate", "experiments/zaidi2022/demo_grid.py", "--engine", "slurm"])
    assert ended.value.code == 2
    assert "sbatch" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"simuljax\[ray\]"):
        check(Jobs(engine="ray"))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"options": ("qos",)}, "NAME=VALUE"),
        ({"engine": "ray", "partition": "gpu"}, "--partition"),
        *(({"engine": "ray", "gpus": gpus}, "--gpus") for gpus in (1.5, -1, float("nan"))),
        ({"engine": "slurm", "gpus": 0.5}, "--gpus 0.5"),
    ],
)
def test_impossible_requests_are_rejected(options, name):
    with pytest.raises(ChoiceError, match=name):
        Jobs(**options)
