"""The line about a run in progress, without a clock."""

import io

import pytest

from simuljax.train.run_log import ConsoleLine, Progress, Rates, duration, format_line, thousands


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_says_everything_it_knows() -> None:
    progress = Progress(
        step=1200,
        epoch=2.25,
        loss=3.21456,
        terms={"st": 2.9, "dar": 0.31456},
        gradient_norm=1.25,
        learning_rate=2e-3,
    )
    rates = Rates(frames=12345.0, tokens=678.0, utilisation=0.256, remaining=3900)
    assert format_line(progress, rates, total_steps=5000) == (
        "step 1200/5000 | epoch 2.25 | loss 3.215 st 2.9 dar 0.3146 | norm 1.25 | lr 2.00e-03 | "
        "12.3k frames/s | 678 tokens/s | use 26% | ETA 1h05m"
    )


def test_leaves_out_what_it_does_not_know() -> None:
    progress = Progress(step=1, loss=float("nan"))
    assert format_line(progress, Rates()) == "step 1 | loss nan"
    assert "0 tokens/s" in format_line(progress, Rates(tokens=0.0))


def test_rates_are_those_of_the_interval() -> None:
    line = ConsoleLine(total_steps=100, peak_flops=1000.0, stream=io.StringIO())
    assert line.rates(10, 50.0, frames=1e9, tokens=1e9, flops=1e9) == Rates()  # compilation
    second = line.rates(20, 52.0, frames=400, tokens=20, flops=500)
    assert second == Rates(frames=200, tokens=10, utilisation=0.25, remaining=80 / 5)
    third = line.rates(30, 60.0, frames=400)
    assert third == Rates(frames=50, remaining=70 / (20 / 10))
    assert line.rates(130, 61.0).remaining == 0


def test_time_spent_aside_is_not_in_the_rates() -> None:
    line = ConsoleLine(total_steps=30, stream=io.StringIO())
    line.rates(10, 0.0)
    assert line.rates(20, 10.0, frames=40, aside=8.0) == Rates(frames=20, remaining=10)


def test_a_note_comes_last() -> None:
    progress = Progress(step=1, loss=2.0, note="compiled in 3s")
    assert format_line(progress, Rates()) == "step 1 | loss 2 | compiled in 3s"


def test_no_time_passing_and_no_progress_are_no_error() -> None:
    line = ConsoleLine(total_steps=100, stream=io.StringIO())
    line.rates(5, 1.0)
    assert line.rates(5, 1.0, frames=0) == Rates(frames=0)


def test_a_log_gets_a_line_each() -> None:
    log = io.StringIO()
    console = ConsoleLine(stream=log)
    for step in (1, 2):
        console.show(Progress(step=step, loss=1.0), now=float(step))
    console.finish()
    assert log.getvalue() == "step 1 | loss 1\nstep 2 | loss 1\n"


def test_a_terminal_gets_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "12")
    terminal = Terminal()
    console = ConsoleLine(stream=terminal)
    for step in (1, 2):
        console.show(Progress(step=step, loss=1.0), now=float(step))
    console.finish()
    assert terminal.getvalue() == "\rstep 1 | lo\x1b[K\rstep 2 | lo\x1b[K\n"


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
