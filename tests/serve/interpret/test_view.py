"""What the terminal shows, as strings."""

import re

import pytest

from simuljax.serve.interpret import (
    AlignAtt,
    Confidence,
    Consensus,
    Greedy,
    Interpreting,
    LocalAgreement,
    Offline,
)
from simuljax.serve.interpret.pipeline import Progress
from simuljax.serve.interpret.view import (
    DIM,
    HELP,
    PLAIN,
    Shown,
    clipped,
    clock,
    columns,
    live_lines,
    meter,
    policy_text,
    printable,
    wrapped,
)


def progress(hypothesis="", spoken_s=None) -> Progress:
    return Progress(
        heard_s=8.3,
        pushed_s=8.0,
        done_s=6.2,
        level_db=-24.4,
        hypothesis=hypothesis,
        spoken_s=spoken_s,
    )


def shown(rest="", hypothesis="", spoken_s=None, settings=None) -> Shown:
    return Shown(
        rest=rest,
        progress=progress(hypothesis, spoken_s),
        interpreting=settings or Interpreting(),
    )


def test_a_whole_picture():
    assert live_lines(shown("ask not what", "your country can"), 80) == [
        f"ask not what {DIM}your country can{PLAIN}",
        "[######....] -24 dB  0:08  lag 2.1 s  consensus 0.50  window 1 s",
        f"{DIM}{HELP}{PLAIN}",
    ]


def test_with_a_voice_it_says_how_far_it_speaks():
    lines = live_lines(shown(spoken_s=75.4, settings=Interpreting(window_s=2, policy=Greedy())), 80)
    assert lines[:2] == [
        "",
        "[######....] -24 dB  0:08  lag 2.1 s  voice 1:15  greedy  window 2 s",
    ]


def test_everything_fits_into_eighty_columns():
    settings = Interpreting(policy=LocalAgreement())
    line = live_lines(shown(spoken_s=599, settings=settings), 80)[1]
    assert line.endswith("lag 2.1 s  voice 9:59  local-agreement 2  window 1 s")


@pytest.mark.parametrize("width", [4, 10, 31, 200])
@pytest.mark.parametrize("hypothesis", ["", "one", "a long one " * 40, "x" * 99, "你好世界" * 30])
def test_no_line_reaches_the_edge(width, hypothesis):
    rest = "ask not"[: width - 1]
    for line in live_lines(shown(rest, hypothesis), width):
        assert columns(re.sub(r"\x1b\[\dm", "", line)) < width


def test_a_long_hypothesis_is_cut_and_says_so():
    *text, _, _ = live_lines(shown("so", "word " * 100), 21)
    assert text == [
        f"so {DIM}word word word{PLAIN}",
        f"{DIM}word word word word{PLAIN}",
        f"{DIM}word word word word…{PLAIN}",
    ]


def test_a_hypothesis_that_does_not_fit_beside_begins_below():
    assert live_lines(shown("ask not what", "incomprehensible"), 20)[:2] == [
        "ask not what",
        f"{DIM}incomprehensible{PLAIN}",
    ]


@pytest.mark.parametrize(
    ("text", "width", "used", "lines"),
    [
        ("", 5, 0, []),
        ("a b", 5, 0, ["a b"]),
        ("aa bb cc", 5, 0, ["aa bb", "cc"]),
        ("aa bb cc", 5, 3, ["aa", "bb cc"]),
        ("aaa bb", 5, 3, ["", "aaa", "bb"]),
        ("abcdefg h", 3, 0, ["abc", "def", "g h"]),
        ("你好世界", 5, 0, ["你好", "世界"]),
        ("你", 1, 0, ["你"]),  # nothing can be done
    ],
)
def test_wrapping(text, width, used, lines):
    assert wrapped(text, width, used) == lines


def test_wrapping_goes_on_where_it_left_off():
    """Lines that stay are the same, whether words come one by one or all at once."""
    text, rest, full = "the quick brown fox jumps over the lazy dog again", "", []
    for word in text.split():
        *more, rest = wrapped(f"{rest} {word}", 12)
        full += more
    assert [*full, rest] == wrapped(text, 12)


def test_columns_and_clips():
    assert columns("e\u0301") == 1 and columns("你a") == 3
    assert clipped("你好", 3) == "你" and clipped("abc", 3) == "abc" and clipped("abc", 0) == ""


def test_text_cannot_command_the_terminal():
    assert printable("a\x1b[2Jb\nc\u009bd é你") == "a [2Jb c d é你"


@pytest.mark.parametrize(
    ("db", "bar"),
    [(0, "[##########]"), (-30, "[#####.....]"), (-60, "[..........]"), (-100, "[..........]")],
)
def test_meter(db, bar):
    assert meter(db) == bar


def test_clock():
    assert [clock(s) for s in (0, 9.9, 61, 3723)] == ["0:00", "0:09", "1:01", "1:02:03"]


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (Greedy(), "greedy"),
        (Offline(), "offline"),
        (Confidence(threshold=0.9), "confidence 0.90"),
        (Confidence(by="log_probability"), "confidence 0.50 by log-probability"),
        (Consensus(), "consensus 0.50"),
        (AlignAtt(), "align-att 25"),
        (LocalAgreement(), "local-agreement 2"),
    ],
)
def test_policies_have_names(policy, text):
    assert policy_text(policy) == text
