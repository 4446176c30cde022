"""Lines between threads: order, bounds, ends."""

import threading
import time

import pytest

from simuljax.serve.interpret.waiting import BehindError, Waiting, WhenFull


def line(most=10, when_full: WhenFull = "refuse") -> Waiting[str]:
    return Waiting[str](most=most, measure=len, when_full=when_full)


def later(work) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_first_in_first_out_one_or_all():
    waiting = line()
    for text in ("a", "bb", "ccc"):
        assert waiting.put(text)
    assert waiting.size == 6
    assert waiting.take("one") == ["a"]
    assert waiting.size == 5
    assert waiting.take() == ["bb", "ccc"]
    assert waiting.size == 0


def test_at_the_bound_who_cannot_wait_is_refused_and_nothing_is_lost():
    waiting = line(most=5)
    waiting.put("aaa")
    waiting.put("bb")
    with pytest.raises(BehindError, match="5 of at most 5"):
        waiting.put("c")
    assert waiting.take() == ["aaa", "bb"]
    assert waiting.put("c")


def test_at_the_bound_who_can_wait_waits():
    waiting = line(most=5, when_full="wait")
    waiting.put("aaaa")
    thread = later(lambda: waiting.put("bb"))
    thread.join(0.1)
    assert thread.is_alive() and waiting.size == 4
    assert waiting.take() == ["aaaa"]
    thread.join(5)
    assert waiting.take() == ["bb"]


def test_what_is_larger_than_the_line_passes_alone():
    waiting = line(most=2)
    assert waiting.put("aaaa")
    assert waiting.take() == ["aaaa"]


def test_after_the_end_what_waits_is_taken_and_nothing_comes_in():
    waiting = line()
    waiting.put("a")
    waiting.close()
    assert not waiting.put("b")
    assert waiting.take() == ["a"]
    assert waiting.take() == [] == waiting.take("one")


def test_abandoned_nothing_is_left():
    waiting = line()
    waiting.put("a")
    waiting.abandon()
    assert waiting.take() == [] and waiting.size == 0


@pytest.mark.parametrize("end", [Waiting.close, Waiting.abandon])
@pytest.mark.parametrize("waits_for", ["sound", "room"])
def test_an_end_wakes_whoever_waits(end, waits_for):
    waiting = line(most=2, when_full="wait")
    if waits_for == "room":
        waiting.put("aa")
    answers = []
    work = waiting.take if waits_for == "sound" else lambda: waiting.put("b")
    thread = later(lambda: answers.append(work()))
    time.sleep(0.05)
    assert thread.is_alive()
    end(waiting)
    thread.join(5)
    assert answers == [[] if waits_for == "sound" else False]
