"""A full disk is one sentence, and the same command succeeds once there is room."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.corpora import write_hums
from tests.written_runs import write_run

ISOLATED = ["unshare", "--user", "--map-root-user", "--mount"]
POSSIBLE = (
    shutil.which("unshare")
    and not subprocess.run(
        [*ISOLATED, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True
    ).returncode
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not POSSIBLE, reason="needs user namespaces, to mount a small disk"),
]
# The command on a disk of $1 KiB, then the same again on a large one; $0 is the disk.
TWICE = """
mount -t tmpfs -o size="$1"k none "$0" && shift
"$@"; echo "first $?" >&2
ls -A "$0/to" >&2
mount -o remount,size=64m "$0"
"$@"; echo "second $?" >&2
"""


def run_twice(disk: Path, kilobytes: int, *args: object) -> str:
    """Run a command on a disk that is too small, then on one that is not; return its errors."""
    disk.mkdir()
    program = [sys.executable, "-m", "simuljax.cli.main", *map(str, args)]
    line = [*ISOLATED, "bash", "-c", TWICE, str(disk), str(kilobytes), *program]
    environment = os.environ | {"TQDM_DISABLE": "1"}
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300).stderr


def test_prepare_on_a_full_disk(tmp_path):
    """It holds the records, and not what is written after them."""
    hums, disk = write_hums(tmp_path / "hums", {"train": 12}), tmp_path / "disk"
    options = ("--from", hums, "--to", disk / "to", "--workers", 1)
    said = run_twice(disk, 136, "prepare", "manifest", *options)
    assert "simuljax: the disk: No space left on device\nfirst 1\n" in said
    assert said.endswith("second 0\n") and "Traceback" not in said


def test_export_on_a_full_disk(tmp_path):
    run, disk = write_run(tmp_path / "run"), tmp_path / "disk"
    said = run_twice(disk, 20, "export", run, "--to", disk / "to")
    assert "No space left on device\nfirst 1\nsecond 0\n" in said and "Traceback" not in said
