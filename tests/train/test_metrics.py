"""The record of a run: whole lines, no step twice, nothing lost to NaN or a kill."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import pytest

from simuljax.train.run_log import FILE, MetricsWriter, read_metrics

ROOT = Path(__file__).parents[2]


def written(run: Path, steps: range) -> None:
    writer = MetricsWriter(run)
    for step in steps:
        writer.write(step, {"loss": step / 10})
    writer.close()


def test_reads_what_was_written(tmp_path: Path) -> None:
    run = tmp_path / "new" / "run"
    writer = MetricsWriter(run)
    writer.write(3, {"loss": jnp.float32(0.5), "rate": 2})
    writer.write(3, {"bleu": 20.5}, split="dev")
    lines = read_metrics(run)  # while it is open: nothing is held back
    assert all(abs(time.time() - line.pop("time")) < 60 for line in lines)
    assert lines == [
        {"step": 3, "split": "train", "values": {"loss": 0.5, "rate": 2.0}},
        {"step": 3, "split": "dev", "values": {"bleu": 20.5}},
    ]
    writer.close()
    assert read_metrics(tmp_path / "elsewhere") == []


def test_what_is_not_finite_is_null_and_noted(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path)
    writer.write(1, {"loss": float("nan"), "norm": jnp.inf, "lr": 0.1})
    writer.close()
    line = json.loads((tmp_path / FILE).read_text(), parse_constant=pytest.fail)
    assert line["values"] == {"loss": None, "norm": None, "lr": 0.1}
    assert line["note"] == "loss is nan, norm is inf"


@pytest.mark.parametrize("cut", (1, 2, 17, 37))
def test_a_line_broken_off_is_dropped(tmp_path: Path, cut: int) -> None:
    written(tmp_path, range(3))
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[:-cut])
    assert [line["step"] for line in read_metrics(tmp_path)] == [0, 1]
    written(tmp_path, range(2, 4))
    assert [line["step"] for line in read_metrics(tmp_path)] == [0, 1, 2, 3]
    first_two = b"".join(whole.splitlines(keepends=True)[:2])
    assert (tmp_path / FILE).read_bytes().startswith(first_two)


def test_resuming_removes_what_is_later(tmp_path: Path) -> None:
    written(tmp_path, range(6))
    writer = MetricsWriter(tmp_path, resume_from=3)
    writer.write(4, {"loss": 9.0})
    writer.close()
    lines = read_metrics(tmp_path)
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4]
    assert lines[-1]["values"] == {"loss": 9.0}
    assert [p.name for p in tmp_path.iterdir()] == [FILE]


def test_opening_without_resuming_keeps_everything(tmp_path: Path) -> None:
    written(tmp_path, range(4))
    before = (tmp_path / FILE).read_bytes()
    MetricsWriter(tmp_path).close()
    assert (tmp_path / FILE).read_bytes() == before


def test_damage_in_the_middle_is_named(tmp_path: Path) -> None:
    written(tmp_path, range(3))
    lines = (tmp_path / FILE).read_text().splitlines()
    (tmp_path / FILE).write_text("\n".join([lines[0], "{oops", lines[2]]) + "\n")
    with pytest.raises(ValueError, match=rf"{FILE}:2 is not a line"):
        read_metrics(tmp_path)


def test_survives_a_kill(tmp_path: Path) -> None:
    code = (
        "import itertools, pathlib, sys; from simuljax.train.run_log import MetricsWriter\n"
        "w = MetricsWriter(pathlib.Path(sys.argv[1]))\n"
        "for i in itertools.count(): w.write(i, {'loss': 0.1}); print(i, flush=True)"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    for line in run.stdout:
        if int(line) == 200:
            break
    os.kill(run.pid, signal.SIGKILL)
    run.communicate()
    steps = [line["step"] for line in read_metrics(tmp_path)]
    assert steps == list(range(len(steps))) and len(steps) > 200


def test_tensorboard_is_written_or_asked_for(tmp_path: Path) -> None:
    if importlib.util.find_spec("tensorboardX") is None:
        with pytest.raises(ImportError, match=r"pip install 'simuljax\[tensorboard\]'"):
            MetricsWriter(tmp_path, tensorboard="on")
    else:
        writer = MetricsWriter(tmp_path, tensorboard="on")
        writer.write(1, {"loss": 1.0})
        writer.close()
        assert list((tmp_path / "tensorboard").iterdir())
