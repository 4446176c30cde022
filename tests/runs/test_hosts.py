"""`simuljax train` as two processes that differ: all are refused by name, in seconds."""

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from simuljax.ablate.launchers import simuljax_command
from tests.helpers.grids import REPOSITORY, spoken_corpus

pytestmark = pytest.mark.slow
WITHIN_S = 40  # from the moment both have met: 20 s are for a slow file system
EXPERIMENT = "tests/clusters/grid.py"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return spoken_corpus(tmp_path_factory.mktemp("data") / "phrasebook").parent


def two(folder: Path, data: Path, second: dict[str, str], run: str, *options: str) -> list[str]:
    """Train as two processes, the second with other variables or options; return their words."""
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        port = opened.getsockname()[1]
    logs, started = [folder / "0.log", folder / "1.log"], []
    for index, log in enumerate(logs):
        command = simuljax_command("train", str(REPOSITORY / EXPERIMENT))
        command += ["--run", run if index else str(folder / "run"), *(options if index else ())]
        command += ["--cluster.coordinator", f"127.0.0.1:{port}"]
        command += ["--cluster.processes", "2", "--cluster.index", str(index)]
        variables = os.environ | {"SIMULJAX_DATA": str(data), "PYTHONPATH": str(REPOSITORY)}
        with log.open("w") as said:
            both = {"stdout": said, "stderr": subprocess.STDOUT}
            own = variables | (second if index else {})
            started.append(subprocess.Popen(command, env=own, **both))
    met = None
    while any(process.poll() is None for process in started):
        if met is None and all("as configured" in log.read_text() for log in logs):
            met = time.monotonic()
        assert met is None or time.monotonic() - met < WITHIN_S, logs[0].read_text()
        time.sleep(0.05)
    assert met is not None
    print(f"both ended {time.monotonic() - met:.1f} s after they met")
    assert [process.returncode for process in started] == [1, 1]
    words = [log.read_text() for log in logs]
    assert not any("stack trace" in said or "Traceback" in said for said in words)
    return words


def test_another_configuration(tmp_path, data):
    weight = ("--training.objective.terms.mt_nll.weight", "0.2")
    for said in two(tmp_path, data, {}, str(tmp_path / "run"), *weight):
        assert "process 1 has training.objective.terms.mt_nll.weight 0.2" in said
        assert "process 0 has 0.5" in said
    assert not (tmp_path / "run" / "config.json").exists()


def test_other_code(tmp_path, data):
    for name in ("simuljax", "data_pipelines", "tests", "docs"):
        shutil.copytree(REPOSITORY / name, tmp_path / "code" / name)
    changed = tmp_path / "code" / "simuljax" / "config" / "training.py"
    changed.write_text(changed.read_text() + "\nTHREE_TIMES_THE_RATE = True\n")
    other = {"PYTHONPATH": str(tmp_path / "code")}
    for said in two(tmp_path, data, other, str(tmp_path / "run")):
        assert "differ in their code: process 1 has source of simuljax" in said


def test_another_corpus(tmp_path, data):
    shutil.copytree(data, tmp_path / "data")
    table = tmp_path / "data" / "phrasebook" / "train.tsv"
    table.write_text(table.read_text().replace("e", "i"))
    other = {"SIMULJAX_DATA": str(tmp_path / "data")}
    for said in two(tmp_path, data, other, str(tmp_path / "run")):
        assert "differ in their corpus: process 1 has split 'train'" in said


def test_a_run_directory_that_is_not_shared(tmp_path, data):
    for said in two(tmp_path, data, {}, str(tmp_path / "elsewhere")):
        assert "process 1 does not see what process 0 writes into the run directory" in said
