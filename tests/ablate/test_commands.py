"""A command that a job runs may save its state before the job ends."""

import gc
import sys
import threading
import time
from _thread import interrupt_main
from collections.abc import Iterator
from pathlib import Path

import pytest

from simuljax.ablate import processes as commands

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
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("begun", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def uncollected() -> Iterator[None]:
    """Hypothesis listens to the collector: an interrupt that falls into that would be lost."""
    gc.disable()
    yield
    gc.enable()


def interrupt(output: Path, *words: str) -> None:
    """Tells the job to stop whenever its command has said the next of these."""
    for word in words:
        while not (output.exists() and word in output.read_text()):
            time.sleep(0.02)
        interrupt_main()


def run_and_interrupt(tmp_path: Path, code: str, *words: str) -> None:
    output = tmp_path / "output.log"
    told = threading.Thread(target=interrupt, args=(output, *words), daemon=True)
    told.start()
    with pytest.raises(KeyboardInterrupt):
        commands.run([sys.executable, "-c", code, str(tmp_path / "state")], output, limit_s=300.0)
    told.join()


@pytest.mark.parametrize("words", [("begun",), ("begun", "saving")], ids=["once", "twice"])
def test_who_is_told_to_stop_waits_for_what_is_saved(tmp_path, words):
    run_and_interrupt(tmp_path, SAVES, *words)
    assert (tmp_path / "state").read_text() == "saved"


def test_who_does_not_stop_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "SAVING_S", 0.2)
    began = time.monotonic()
    run_and_interrupt(tmp_path, DEAF, "begun")
    assert time.monotonic() - began < 30
