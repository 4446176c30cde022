"""Speakers are on time, or it is told by how much they are not."""

import time

from simuljax.profile.live import Speakers


class Seats:
    """An engine that takes so long for a push."""

    def __init__(self, slow_s: float):
        self.slow_s, self.pushes = slow_s, 0

    def open(self) -> "Seats":
        return self

    def push(self, samples) -> None:
        time.sleep(self.slow_s)
        self.pushes += 1

    def leave(self) -> None:
        pass


def speakers(slow_s: float, streams: int = 4) -> Speakers:
    return Speakers(Seats(slow_s), streams, 40, 20.0)  # pyright: ignore[reportArgumentType]


def test_a_host_that_cannot_push_in_time_is_late_and_grows_later():
    late = speakers(0.03).speak(0.2)  # 4 pushes of 30 ms to 40 ms of sound
    assert 20 <= len(late) <= 21  # what was due is pushed all the same
    assert late[-1] > 20 * 30 - 200 - 1
    assert late[-1] > late[len(late) // 2] > late[0]


def test_what_was_late_before_does_not_count():
    some = speakers(0.03)
    before = some.speak(0.2)
    assert some.speak(0.04)[0] < before[-1] / 2


def test_pushes_that_take_no_time_come_when_they_are_due():
    some = speakers(0.0, streams=2)
    start = time.perf_counter()
    late = some.speak(0.4)
    assert time.perf_counter() - start > 0.3  # not before they are due
    assert min(late) >= 0
