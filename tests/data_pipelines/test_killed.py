"""A preparation that is killed or interrupted ends its workers; the next run finishes the work.

`tests/faults` kills at random moments.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.corpora import REPOSITORY, finished, python, tree, write_hums, write_rows

PREPARE = """
import sys
from pathlib import Path
from data_pipelines.corpora import Manifest
from data_pipelines.prepare import Preparation, prepare
from tests.helpers.corpora import shards_of

with shards_of(2):
    prepare(Preparation(corpus=Manifest()), Path(sys.argv[1]), Path(sys.argv[2]), workers=2)
"""


def many_hums(root: Path) -> Path:
    """Work for half a second."""
    write_hums(root, {"train": 37})
    said = {"transcript": "hum", "translation": "Summen"}
    rows = [{"id": f"{n}", "audio": f"train{n % 37}.wav", **said} for n in range(300)]
    write_rows(root / "train.jsonl", rows)
    return root


def state(pid: int) -> list[str]:
    """State, parent and more of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def descendants(pid: int) -> set[int]:
    everyone = {int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()}
    parents = {one: int(found[1]) for one in everyone if (found := state(one))}
    known = {pid}
    while more := {one for one, parent in parents.items() if parent in known} - known:
        known |= more
    return known - {pid}


def alive(pid: int) -> bool:
    return bool(found := state(pid)) and found[0] not in "ZX"


def until(condition: Callable[[], object], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not condition():
        time.sleep(0.002)
    return bool(condition())


@pytest.mark.slow
def test_a_killed_preparation_ends_its_workers_and_goes_on(tmp_path):
    root, to = many_hums(tmp_path / "hums"), tmp_path / "killed"
    finished(python(PREPARE, root, tmp_path / "whole"))
    process = python(PREPARE, root, to)
    assert until(lambda: len([*to.glob(".work/train*.json")]) > 20, 120)
    workers = descendants(process.pid)
    process.kill()
    process.communicate()
    assert len(workers) >= 3 and not (to / "summary.json").exists()
    assert until(lambda: not any(map(alive, workers)), 10), "a worker outlived its parent"
    finished(python(PREPARE, root, to))
    assert tree(to) == tree(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("wait_s", [0.0, 0.5, 3.0])  # imports in the children, then work
def test_an_interrupt_is_one_line_and_ends_the_workers(tmp_path, wait_s):
    to = tmp_path / "to"
    options = ["--from", many_hums(tmp_path / "hums"), "--to", to, "--workers", 2]
    command = [sys.executable, "-m", "simuljax.cli.main", "prepare", "manifest", *map(str, options)]
    process = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env=os.environ | {"TQDM_DISABLE": "1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert until(lambda: (to / ".work" / "fingerprint").exists(), 120)
    time.sleep(wait_s)
    workers = descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (128 + signal.SIGINT, "simuljax: interrupted\n")
    assert until(lambda: not any(map(alive, workers)), 10)
