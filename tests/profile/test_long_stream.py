"""Profile one long stream: minutes, open sound, quiet time, loops."""

import numpy as np
import soundfile

from simuljax.audio import RATE
from simuljax.profile import long_stream
from simuljax.profile.long_stream import cut, measure_minutes, repeated
from simuljax.serve.stream import Word


class EverySecond:
    """A stream that writes a word for every second of sound, two seconds late."""

    def __init__(self) -> None:
        self.pushed, self.said = 0, 0

    @property
    def settled_s(self) -> float:
        return max(0.0, self.pushed / RATE - 2)

    def push(self, samples: np.ndarray) -> list[Word]:
        self.pushed += len(samples)
        return self._words(int(self.settled_s))

    def finish(self) -> list[Word]:
        return self._words(self.pushed // RATE)

    def _words(self, until: int) -> list[Word]:
        new, self.said = range(self.said, until), until
        return [Word(text=str(i), delay_ms=0.0, elapsed_ms=0.0) for i in new]


def test_every_minute_is_measured():
    sound = [np.ones(seconds * RATE, np.int16) for seconds in (100, 3, 47)]
    minutes = list(measure_minutes(EverySecond(), sound, 10 * RATE))  # pyright: ignore[reportArgumentType]
    assert [minute["sound_s"] for minute in minutes] == [60.0, 63.0, 27.0]
    assert [word for minute in minutes for word in minute["words"]] == [*map(str, range(150))]
    assert all(0 < minute["resident_mb"] < 1e5 for minute in minutes)
    assert max(minute["open_s"] for minute in minutes) == 12.0, "two seconds and the chunk"
    assert all(minute["quiet_s"] <= 10 for minute in minutes)


def test_recordings_are_cut_at_the_limit(tmp_path):
    soundfile.write(tmp_path / "one.wav", np.ones(3 * RATE, np.int16), RATE)
    parts = cut([tmp_path / "one.wav"] * 9, 7.0)
    assert [len(part) / RATE for part in parts] == [3.0, 3.0, 1.0]


def test_loops_are_found():
    words = [*"abababcc"]
    assert repeated(words, 1) == ("c", 2)
    assert repeated(words, 2) == ("a b", 3)
    assert repeated([], 1) == ("", 0)


def test_table_has_a_line_per_minute():
    minutes = list(measure_minutes(EverySecond(), [np.ones(90 * RATE, np.int16)], RATE))  # pyright: ignore[reportArgumentType]
    report = {"minutes": minutes, "repeated": {1: ("so", 3), 2: ("", 1)}}
    lines = long_stream.table(report).splitlines()
    assert len(lines) == 4 and "3 times in a row: 'so'" in lines[-1]
