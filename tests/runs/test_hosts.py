"""Two processes of `simuljax train` that differ: both are refused by name, within seconds."""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simuljax.ablate.launchers import simuljax_command
from tests.helpers.grids import REPOSITORY

pytestmark = pytest.mark.slow
WITHIN_S = 40  # from the moment both have met: 20 s are for a slow file system
EXPERIMENT = "tests/clusters/grid.py"


def run_two(folder: Path, commands: list[list[str]], other: dict[str, str], code: int) -> list[str]:
    """Run two commands, the second with other variables; return what each said.

    Both have to end with the code, soon after they have met.
    """
    logs, started = [folder / "0.log", folder / "1.log"], []
    for log, command, own in zip(logs, commands, ({}, other), strict=True):
        known = os.environ | {"PYTHONPATH": str(REPOSITORY)} | own
        with log.open("w") as said:
            both = {"stdout": said, "stderr": subprocess.STDOUT}
            started.append(subprocess.Popen(command, env=known, cwd=REPOSITORY, **both))
    met = None
    while any(process.poll() is None for process in started):
        if met is None and all("as configured" in log.read_text() for log in logs):
            met = time.monotonic()
        assert met is None or time.monotonic() - met < WITHIN_S, logs[0].read_text()
        time.sleep(0.05)
    assert met is not None
    words = [log.read_text() for log in logs]
    assert [process.returncode for process in started] == [code, code], words
    assert not any("stack trace" in said or "Traceback" in said for said in words)
    return words


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]


def test_other_code(corpus, tmp_path, monkeypatch):
    for name in ("simuljax", "data_pipelines", "tests", "docs"):
        shutil.copytree(REPOSITORY / name, tmp_path / "code" / name)
    changed = tmp_path / "code" / "simuljax" / "config" / "training.py"
    changed.write_text(changed.read_text() + "\nTHREE_TIMES_THE_RATE = True\n")
    command = simuljax_command("train", str(REPOSITORY / EXPERIMENT))
    command += ["--run", str(tmp_path / "run"), "--cluster.processes", "2"]
    command += ["--cluster.coordinator", f"127.0.0.1:{free_port()}", "--cluster.index"]
    monkeypatch.setenv("SIMULJAX_DATA", str(corpus.parent))
    other = {"PYTHONPATH": str(tmp_path / "code")}
    for said in run_two(tmp_path, [[*command, index] for index in "01"], other, code=1):
        assert "differ in their code: process 1 has source of simuljax" in said
    assert not (tmp_path / "run" / "config.json").exists()


DIFFERENT = """
import sys
from dataclasses import replace
from pathlib import Path
from simuljax.config.training import Cluster
from simuljax.runs.train import check_hosts
from simuljax.train import cluster
from tests.helpers.experiments import experiment, text_alone

corpus, changed, folder, port, index = sys.argv[1:]
own = text_alone(experiment(Path(corpus), Path(folder) / "run"))
met = Cluster(coordinator=f"127.0.0.1:{port}", processes=2, index=int(index))
print(cluster.join(met), flush=True)
for other in (
    replace(own, training=replace(own.training, seed=1)),
    replace(own, data=replace(own.data, directory=Path(changed))),
    replace(own, run=Path(folder) / "elsewhere"),
    own,
):
    try:
        check_hosts([other if int(index) else own])
    except cluster.ClusterError as error:
        print(error, flush=True)
print("all agree")
"""


def test_another_configuration_corpus_or_directory(corpus, tmp_path):
    shutil.copytree(corpus, tmp_path / "changed")
    table = tmp_path / "changed" / "train.tsv"
    table.write_text(table.read_text().replace("e", "i"))
    given = [str(corpus), str(tmp_path / "changed"), str(tmp_path), str(free_port())]
    commands = [[sys.executable, "-c", DIFFERENT, *given, index] for index in "01"]
    for said in run_two(tmp_path, commands, {}, code=0):
        _, config, table, directory, end = said.splitlines()
        assert "in their configuration: process 1 has training.seed 1, process 0 has 0" in config
        assert "in their corpus: process 1 has split 'train'" in table
        assert "process 1 does not see what process 0 writes into the run directory" in directory
        assert end == "all agree"
