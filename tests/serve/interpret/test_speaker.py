"""Where and when a piece is said."""

import json
import wave

import numpy as np
import pytest

from simuljax.serve.interpret.speaker import Speaker


class Hum:
    """A voice that hums a tenth of a second for every word, faster if asked."""

    rate, name = 8_000, "hum"

    def speak(self, text: str, *, speed: float = 1.0) -> np.ndarray:
        return np.full(round(800 * len(text.split()) / speed), 1000, np.int16)


def test_pieces_come_when_they_are_ready_and_after_each_other(tmp_path):
    speaker = Speaker(Hum(), track=tmp_path / "a.wav", notes=tmp_path / "a.jsonl")
    first = speaker.say("one two", 1.0)
    second = speaker.say("three", 1.05)
    third = speaker.say("four", 5.0)
    speaker.finish()
    speaker.close()
    assert first.start_s == pytest.approx(1.0, abs=0.05) and first.start_s >= 1.0
    assert second.start_s == pytest.approx(first.end_s, abs=0.002)
    assert third.start_s == pytest.approx(5.0, abs=0.05)
    with wave.open(str(tmp_path / "a.wav")) as track:
        sound = np.frombuffer(track.readframes(track.getnframes()), np.int16)
    loud = np.flatnonzero(sound) / Hum.rate
    assert loud[0] == pytest.approx(first.start_s, abs=0.002)
    assert len(loud) == 4 * 800
    noted = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [note["text"] for note in noted] == ["one two", "three", "four"]
    assert noted[1] == {
        "text": "three",
        "ready_s": 1.05,
        "start_s": second.start_s,
        "end_s": second.end_s,
        "speed": 1.0,
    }


def test_time_that_the_voice_takes_counts(tmp_path):
    class Slow(Hum):
        def speak(self, text: str, *, speed: float = 1.0) -> np.ndarray:
            import time

            time.sleep(0.2)
            return super().speak(text, speed=speed)

    speaker = Speaker(Slow())
    assert speaker.say("one", 1.0).start_s >= 1.2
    assert speaker.say("two", 1.0).start_s >= 1.4, "it was still busy with the first"
    speaker.close()


def test_what_is_late_is_spoken_faster():
    speaker = Speaker(Hum())
    speaker.say("word " * 60, 0.0)  # 6 s of sound
    hurried = speaker.say("word " * 10, 1.0)
    speaker.close()
    assert hurried.speed == 1.25
    assert hurried.end_s - hurried.start_s == pytest.approx(0.8, abs=0.01)
    assert speaker.until_s == pytest.approx(hurried.end_s, abs=0.001)
