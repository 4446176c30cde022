"""When spoken output begins, ends, and how late its speech is."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simuljax.eval.latency import Piece, SpeechLatency, speech_latency, speech_token_delay


def piece(delay, start, end):
    return Piece(delay_ms=delay, start_ms=start, end_ms=end)


def oracle(pieces):
    """Token by token: the definition of Kano et al. with tokens of 300 ms on both sides."""
    source, total, said, count = [0.0], 0.0, 0, 0
    for delay in dict.fromkeys(p.delay_ms for p in pieces):
        before = len(source) - 1
        while source[-1] < delay:
            source.append(min(source[-1] + 300, delay))
        through = len(source) - 1
        group = []
        for p in (p for p in pieces if p.delay_ms == delay):
            end = p.start_ms
            while end < p.end_ms:
                end = min(end + 300, p.end_ms)
                group.append(end)
        for place, end in enumerate(group, start=said + 1):
            token = min(place - max(0, said - before), through)
            total, count = total + end - source[token], count + 1
        said += len(group)
    return total / count


def test_a_worked_case():
    pieces = [piece(1000, 1200, 1800), piece(2000, 2100, 3000)]
    # source tokens end at 300 600 900 1000 | 1300 1600 1900 2000,
    # those of speech at 1500 1800 | 2400 2700 3000
    expected = ((1500 - 300) + (1800 - 600) + (2400 - 900) + (2700 - 1000) + (3000 - 1300)) / 5
    found = speech_latency(pieces, 2500)
    assert (found.start_offset, found.end_offset) == (1200, 500)
    assert found.token_delay == pytest.approx(expected)


def test_speech_that_ends_before_its_source():
    assert speech_latency([piece(300, 400, 700)], 2000).end_offset == -1300


@st.composite
def spoken(draw):
    pieces, delay, at = [], 0.0, 0.0
    for _ in range(draw(st.integers(1, 6))):
        delay += draw(st.sampled_from([0.0, 500.0, 1000.0, 2000.0]) if pieces else st.just(1000.0))
        start = max(at, delay + draw(st.sampled_from([0.0, 130.0])))
        at = start + draw(st.sampled_from([40.0, 300.0, 750.0, 1333.0]))
        pieces.append(piece(delay, start, at))
    return pieces


@given(spoken())
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
def test_token_by_token_it_is_the_same(pieces):
    assert speech_token_delay(pieces, 9000) == pytest.approx(oracle(pieces))


@given(spoken(), st.sampled_from([100.0, 700.0]))
@settings(max_examples=50, deadline=None, derandomize=True, database=None)
def test_what_is_heard_later_is_later_by_as_much(pieces, wait):
    before = speech_latency(pieces, 9000)
    moved = [piece(p.delay_ms, p.start_ms + wait, p.end_ms + wait) for p in pieces]
    after = speech_latency(moved, 9000)
    assert after.start_offset - before.start_offset == pytest.approx(wait)
    assert after.end_offset - before.end_offset == pytest.approx(wait)
    assert after.token_delay - before.token_delay == pytest.approx(wait)


def test_silence_has_no_latency():
    for nothing in ([], [piece(1000, 1000, 1000)]):
        found = speech_latency(nothing, 2000)
        assert isinstance(found, SpeechLatency)
        assert math.isnan(found.start_offset + found.end_offset + found.token_delay)


@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        ([(0, 0, 900), (0, 800, 1000)], "does not come after"),
        ([(500, 0, 900), (400, 900, 1000)], "does not come after"),
    ],
)
def test_pieces_out_of_order_are_refused(pieces, told):
    with pytest.raises(ValueError, match=told):
        speech_latency([piece(*p) for p in pieces], 2000)


def test_impossible_pieces_are_refused():
    with pytest.raises(ValueError, match="from 5 to 4"):
        piece(0, 5, 4)
    with pytest.raises(ValueError, match="below 0"):
        piece(-1, 5, 6)
    with pytest.raises(ValueError, match="source_length"):
        speech_latency([], 0)
