"""Keys: what they change, and that the terminal is as before."""

import os
import termios

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
from simuljax.serve.interpret.keys import after_key
from tests.serve.interpret.terminals import on_terminal, read_until


def after(keys: str, settings: Interpreting) -> Interpreting:
    for key in keys:
        settings = after_key(settings, key)
    return settings


def test_p_goes_round_and_keeps_a_threshold():
    start = Interpreting(policy=Confidence(threshold=0.7))
    seen = [after("p" * times, start).policy for times in range(7)]
    assert seen == [
        Confidence(threshold=0.7),
        Consensus(threshold=0.7),
        AlignAtt(),
        LocalAgreement(),
        Offline(),
        Greedy(),
        Confidence(),
    ]


@pytest.mark.parametrize(
    ("keys", "before", "policy"),
    [
        ("+", Consensus(), Consensus(threshold=0.55)),
        ("=", Consensus(), Consensus(threshold=0.55)),
        ("---", Confidence(), Confidence(threshold=0.35)),
        ("+" * 30, Consensus(), Consensus(threshold=1.0)),
        ("-" * 30, Consensus(), Consensus(threshold=0.0)),
        ("+" * 30 + "-" * 10, Consensus(), Consensus(threshold=0.5)),
        ("-", AlignAtt(), AlignAtt(frames=20)),
        ("-" * 9, AlignAtt(), AlignAtt(frames=0)),
        ("+", LocalAgreement(), LocalAgreement(hypotheses=3)),
        ("-", LocalAgreement(), LocalAgreement()),
        ("+-", Greedy(), Greedy()),
        ("xq\n?", Offline(), Offline()),
    ],
)
def test_plus_and_minus(keys, before, policy):
    assert after(keys, Interpreting(policy=before)).policy == policy


def test_w_is_one_second_or_two():
    assert [after("w" * times, Interpreting()).window_s for times in range(3)] == [1.0, 2.0, 1.0]
    assert after("w", Interpreting(window_s=0.5)).window_s == 1.0


CHILD = """
import sys, time
from simuljax.serve.interpret.keys import Keys
try:
    with Keys() as keys:
        assert keys.there
        print("listening", flush=True)
        pressed = ""
        while "!" not in pressed:
            pressed += keys.pressed()
            time.sleep(.01)
        print("got", pressed, flush=True)
        raise RuntimeError
except RuntimeError:
    print("left", flush=True)
sys.stdin.readline()
"""


@pytest.mark.slow
def test_on_a_terminal_keys_come_without_enter_and_the_terminal_is_restored():
    process, terminal = on_terminal("-c", CHILD)
    modes = termios.tcgetattr(terminal)[3]
    assert modes & termios.ICANON and modes & termios.ECHO
    read_until(terminal, "listening")
    changed = termios.tcgetattr(terminal)[3]
    assert not changed & termios.ICANON and not changed & termios.ECHO
    assert changed & termios.ISIG, "Ctrl-C has to stay a signal"
    os.write(terminal, b"p+w!")
    assert "got p+w!" in read_until(terminal, "left")
    assert termios.tcgetattr(terminal)[3] == modes
    os.write(terminal, b"\n")
    assert process.wait(60) == 0
    os.close(terminal)
