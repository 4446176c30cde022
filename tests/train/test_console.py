"""The line about a run in progress, without a clock."""

import io

import pytest

from simuljax.train.run_log import ConsoleLine, duration, format_line, thousands


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_line_has_everything_that_is_known() -> None:
    known = {"epoch": 2.25, "terms": {"st": 2.9, "dar": 0.31456}, "norm": 1.25, "rate": 2e-3}
    rates = {"frames": 12345.0, "tokens": 678.0, "utilisation": 0.256, "remaining": 3900}
    assert format_line(1200, loss=3.21456, total=5000, **known, **rates) == (
        "step 1200/5000 | epoch 2.25 | loss 3.215 st 2.9 dar 0.3146 | norm 1.25 | lr 2.00e-03 | "
        "12.3k frames/s | 678 tokens/s | use 26% | ETA 1h05m"
    )
    assert format_line(1, loss=float("nan")) == "step 1 | loss nan"
    line = format_line(1, loss=2.0, tokens=0.0, note="compiled in 3s")
    assert line == "step 1 | loss 2 | 0 tokens/s | compiled in 3s"


def test_rates_are_those_of_the_interval() -> None:
    line = ConsoleLine(100, 1000.0, io.StringIO())
    assert line.rates(10, 50.0, frames=1e9, tokens=1e9, flops=1e9) == {}  # compilation
    second = line.rates(20, 52.0, frames=400, tokens=20, flops=500)
    assert second == {"frames": 200, "tokens": 10, "utilisation": 0.25, "remaining": 80 / 5}
    third = line.rates(30, 60.0, frames=400)
    assert third == {"frames": 50, "tokens": 0, "remaining": 70 / (20 / 10)}
    assert line.rates(130, 61.0)["remaining"] == 0


def test_time_spent_aside_is_not_in_the_rates() -> None:
    line = ConsoleLine(30, stream=io.StringIO())
    line.rates(10, 0.0)
    found = line.rates(20, 10.0, frames=40, aside=8.0)
    assert (found["frames"], found["remaining"]) == (20, 10)


def test_no_time_passing_and_no_progress_are_no_error() -> None:
    line = ConsoleLine(100, stream=io.StringIO())
    line.rates(5, 1.0)
    assert line.rates(5, 1.0) == {"frames": 0, "tokens": 0}


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
        console.show(format_line(step, loss=1.0))
    console.show("a note", stays=True)
    console.finish()
    assert stream.getvalue() == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (12.4, "12"), (999.4, "999"), (999.6, "1.00k"), (12345, "12.3k"), (4.56e6, "4.56M")],
)
def test_thousands(number: float, text: str) -> None:
    assert thousands(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0s"), (59.6, "1m00s"), (200, "3m20s"), (3900, "1h05m"), (183600, "2d03h")],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text
