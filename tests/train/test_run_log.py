"""The record of a run and the line about it: whole lines, no step twice, nothing lost to a kill."""

import importlib.util
import io
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

from simuljax.audio.filterbank import SHIFT
from simuljax.losses import Loss
from simuljax.train.run_log import (
    FILE,
    ConsoleLine,
    MetricsWriter,
    Work,
    describe_update,
    duration,
    thousands,
)
from simuljax.train.step import Report
from tests.train.runs import metrics


def written(run: Path, steps: range, **resume: Any) -> list[int]:
    """The steps that are there after writing these."""
    writer = MetricsWriter(run, **resume)
    for step in steps:
        writer.write(step, {"loss": step / 10})
    writer.close()
    return [line["step"] for line in metrics(run)]


def test_reads_what_was_written(tmp_path: Path) -> None:
    run = tmp_path / "new" / "run"
    writer = MetricsWriter(run)
    writer.write(3, {"loss": jnp.float32(0.5), "rate": 2})
    writer.write(3, {"bleu": 20.5}, split="dev")
    lines = metrics(run)  # while it is open: nothing is held back
    assert all(abs(time.time() - line.pop("time")) < 60 for line in lines)
    assert lines == [
        {"step": 3, "split": "train", "values": {"loss": 0.5, "rate": 2.0}},
        {"step": 3, "split": "dev", "values": {"bleu": 20.5}},
    ]
    writer.write(4, {"loss": float("nan"), "norm": jnp.inf, "lr": 0.1})
    writer.close()
    line = json.loads((run / FILE).read_text().splitlines()[2], parse_constant=pytest.fail)
    assert line["values"] == {"loss": None, "norm": None, "lr": 0.1}
    assert line["note"] == "loss is nan, norm is inf"


@pytest.mark.parametrize("cut", (1, 37))
def test_a_line_broken_off_is_dropped(tmp_path: Path, cut: int) -> None:
    written(tmp_path, range(3))
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[:-cut])
    assert [line["step"] for line in metrics(tmp_path)] == [0, 1]
    assert written(tmp_path, range(2, 4)) == [0, 1, 2, 3]
    first_two = b"".join(whole.splitlines(keepends=True)[:2])
    assert (tmp_path / FILE).read_bytes().startswith(first_two)


def test_resuming_removes_what_is_later_and_opening_nothing(tmp_path: Path) -> None:
    written(tmp_path, range(6))
    before = (tmp_path / FILE).read_bytes()
    assert written(tmp_path, range(0)) == [*range(6)]
    assert (tmp_path / FILE).read_bytes() == before
    assert written(tmp_path, range(4, 5), resume_from=3) == [0, 1, 2, 3, 4]
    assert [p.name for p in tmp_path.iterdir()] == [FILE]


def test_damage_in_the_middle_is_named(tmp_path: Path) -> None:
    written(tmp_path, range(3))
    lines = (tmp_path / FILE).read_text().splitlines()
    (tmp_path / FILE).write_text("\n".join([lines[0], "{oops", lines[2]]) + "\n")
    with pytest.raises(ValueError, match=rf"{FILE}:2 is not a line"):
        metrics(tmp_path)


def test_tensorboard_is_written_or_asked_for(tmp_path: Path) -> None:
    if importlib.util.find_spec("tensorboardX") is None:
        with pytest.raises(ImportError, match=r"pip install 'simuljax\[tensorboard\]'"):
            MetricsWriter(tmp_path, tensorboard="on")
    else:
        writer = MetricsWriter(tmp_path, tensorboard="on")
        writer.write(1, {"loss": 1.0})
        writer.close()
        assert list((tmp_path / "tensorboard").iterdir())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_line_has_everything_that_is_known() -> None:
    terms = {"st": jnp.float32(2.9), "dar": jnp.float32(0.31456)}
    loss = Loss(total=jnp.float32(3.21456), terms=terms, weighted={})
    shared = {"logged": {}, "gradient_norm": jnp.float32(1.25), "finite": jnp.array(True)}
    shared["learning_rate"] = jnp.float32(2e-3)
    rates = {"frames": 12345.0, "tokens": 678.0, "utilisation": 0.256, "remaining": 3900}
    assert " | ".join(describe_update(Report(loss=loss, **shared), 2e-3, rates)) == (
        "loss 3.215 st 2.9 dar 0.3146 | norm 1.25 | lr 2.00e-03 | "
        "12.3k frames/s | 678 tokens/s | use 26% | ETA 1h05m"
    )
    report = Report(loss=replace(loss, total=jnp.float32(jnp.nan), terms={}), **shared)
    line = " | ".join(describe_update(report, 0.5, {"frames": 0.0, "tokens": 0.0}, "compiled"))
    assert line == "loss nan | norm 1.25 | lr 5.00e-01 | 0 frames/s | 0 tokens/s | compiled"


def work(frames: int = 0, tokens: int = 0, **spent: float) -> Work:
    return Work(samples=[[frames * SHIFT]], tokens=[[tokens]], **spent)


def test_rates_are_those_of_the_interval_without_time_spent_aside() -> None:
    line = ConsoleLine(100, 1000.0, io.StringIO())
    assert line.rates(10, 50.0, work(10**9, 10**9, flops=1e9)) == {}  # compilation
    second = line.rates(20, 54.0, work(400, 20, flops=500.0, aside_s=2.0))
    assert second == {"frames": 200, "tokens": 10, "utilisation": 0.25, "remaining": 80 / 2.5}
    third = line.rates(30, 60.0, work(300))
    assert third == {"frames": 50, "tokens": 0, "remaining": 70 / 2}
    assert line.rates(130, 61.0, work())["remaining"] == 0
    still = ConsoleLine(100, stream=io.StringIO())
    still.rates(5, 1.0, work())
    assert still.rates(5, 1.0, work()) == {"frames": 0, "tokens": 0}  # no progress, no error


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        (io.StringIO(), "step 1 | loss 1\nstep 2 | loss 1\na note\n"),
        (Terminal(), "\rstep 1 | lo\x1b[K\rstep 2 | lo\x1b[K\ra note\x1b[K\n\n"),
    ],
)
def test_a_log_gets_lines_and_a_terminal_one(monkeypatch, stream, text) -> None:
    monkeypatch.setenv("COLUMNS", "12")
    console = ConsoleLine(stream=stream)
    for step in (1, 2):
        console.show(f"step {step} | loss 1")
    console.show("a note", stays=True)
    console.finish()
    assert stream.getvalue() == text


def test_numbers_for_people() -> None:
    numbers = {0: "0", 12.4: "12", 999.4: "999", 999.6: "1.00k", 12345: "12.3k", 4.56e6: "4.56M"}
    assert {number: thousands(number) for number in numbers} == numbers
    times = {0.4: "0s", 59.6: "1m00s", 200: "3m20s", 3900: "1h05m", 183600: "2d03h"}
    assert {seconds: duration(seconds) for seconds in times} == times
