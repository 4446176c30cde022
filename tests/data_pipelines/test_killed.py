"""Preparations killed at any moment: the next run goes on, and nothing tells that it happened."""

import os
import random
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
from data_pipelines.corpora import Manifest, Phrasebook
from data_pipelines.prepare import Preparation, prepare
from tests.helpers.corpora import shards_of

root, to = Path(sys.argv[1]), Path(sys.argv[2])
phrases = Phrasebook(train=250, valid=25, test=25)
with shards_of(2):
    prepare(Preparation(corpus=Manifest() if root.exists() else phrases), root, to, workers=2)
"""
KILLS, SHARDS = 4, 150


def many_hums(root: Path) -> Path:
    """Work for half a second."""
    write_hums(root, {"train": 37})
    said = {"transcript": "hum", "translation": "Summen"}
    rows = [{"id": f"{n}", "audio": f"train{n % 37}.wav", **said} for n in range(2 * SHARDS)]
    write_rows(root / "train.jsonl", rows)
    return root


def ancestors(pid: int) -> list[int]:
    """The process and those it descends from."""
    found = []
    while pid > 1:
        found.append(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return []
    return found


def descendants(pid: int) -> set[int]:
    everyone = {int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()}
    return {one for one in everyone if pid in ancestors(one)} - {pid}


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def until(condition: Callable[[], object], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.002)
    return bool(condition())


def reports(to: Path) -> set[str]:
    work = to / ".work"
    return {path.name for path in work.glob("*.json") if path.name[0] != "."}


def finished_shards(to: Path) -> dict[str, tuple[int, int]]:
    """Which file, written when, every shard with a report is in."""
    stats = {report: _shard(to, report).stat() for report in reports(to)}
    return {report: (stat.st_ino, stat.st_mtime_ns) for report, stat in stats.items()}


def _shard(to: Path, report: str) -> Path:
    split, number = report.removesuffix(".json").split("-")
    (path,) = to.glob(f"[!.]*-{split}.array_record-{number}-of-*")
    return path


def run_and_kill(root: Path, to: Path, after: int, more: float) -> None:
    """Kills the process, and it alone, when so many more shards are done, and a little later."""
    process = python(PREPARE, root, to)
    wanted = len(reports(to)) + after
    try:
        began = until(lambda: (to / ".work").exists() or process.poll() is not None, 120)
        until(lambda: len(reports(to)) >= wanted or process.poll() is not None, 60)
        time.sleep(more)
        workers = descendants(process.pid)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    process.communicate()
    assert began
    assert until(lambda: not any(map(alive, workers)), 10), "a worker outlived its parent"


@pytest.mark.slow
@pytest.mark.parametrize("corpus", ["hums", "phrases"])
def test_killed_anywhere_it_goes_on(corpus, tmp_path, request):
    if corpus == "phrases":
        request.getfixturevalue("espeak")
    root = many_hums(tmp_path / "hums") if corpus == "hums" else tmp_path / "no root is needed"
    finished(python(PREPARE, root, tmp_path / "whole"))
    seed = random.randrange(10**6)
    print(f"seed {seed}")  # shown when the test fails
    moments, to = random.Random(seed), tmp_path / "killed"
    done: dict[str, tuple[int, int]] = {}
    for _ in range(KILLS):
        run_and_kill(root, to, moments.randrange(SHARDS // KILLS - 5), moments.uniform(0, 0.02))
        now = finished_shards(to)
        assert done.items() <= now.items(), "a finished shard was lost or written again"
        done = now
    assert not (to / "summary.json").exists(), "it was done before the last kill"
    finished(python(PREPARE, root, to))
    assert tree(to) == tree(tmp_path / "whole")
    assert not [name for name in tree(to) if name.startswith(".")] and not (to / ".work").exists()
    for report, which in done.items():
        stat = _shard(to, report).stat()
        assert (stat.st_ino, stat.st_mtime_ns) == which, f"{report} was made again"
    print(f"{len(done)} shards were done before the last kill")


@pytest.mark.slow
def test_killed_while_finishing(tmp_path):
    """After the last shard come tables, metadata, statistics and the summary."""
    root, to = write_hums(tmp_path / "hums", {"train": 12, "test": 4}), tmp_path / "killed"
    finished(python(PREPARE, root, tmp_path / "whole"))
    for moment in ("train.tsv", "dataset_info.json", "statistics.json"):
        process = python(PREPARE, root, to)
        until(lambda m=moment, p=process: (to / m).exists() or p.poll() is not None, 120)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        if (to / "summary.json").exists():
            break
        (to / moment).unlink()  # so that the next run is killed later, not at once
    finished(python(PREPARE, root, to))
    assert tree(to) == tree(tmp_path / "whole")


@pytest.mark.slow
def test_workers_are_there_to_be_killed(tmp_path):
    """What the tests above look for does exist while the work goes on."""
    process = python(PREPARE, many_hums(tmp_path / "hums"), tmp_path / "to")
    try:
        assert until(lambda: len(descendants(process.pid)) >= 3, 120)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


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
