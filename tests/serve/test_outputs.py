"""Speech, subtitles and log records of a live translation."""

import json
import time
import wave

import numpy as np
import pytest

from simuljax.eval.logs import record_line
from simuljax.serve.outputs import Speaker, log_record, subtitle_file, subtitles
from simuljax.serve.stream import Word


class Hum:
    """A voice that hums a tenth of a second for every word, faster if asked."""

    rate, name = 8_000, "hum"

    def speak(self, text: str, *, speed: float = 1.0) -> np.ndarray:
        return np.full(round(800 * len(text.split()) / speed), 1000, np.int16)


def test_pieces_come_when_they_are_ready_and_after_each_other(tmp_path):
    speaker = Speaker(Hum(), track=tmp_path / "a.wav", notes=tmp_path / "a.jsonl")
    first, second, third = (
        speaker.say(*piece) for piece in (("one two", 1.0), ("three", 1.05), ("four", 5.0))
    )
    speaker.finish()
    speaker.close()
    assert first.start_s == pytest.approx(1.0, abs=0.05) and first.start_s >= 1.0
    assert second.start_s == pytest.approx(first.end_s, abs=0.002) and second.speed == 1.0
    assert third.start_s == pytest.approx(5.0, abs=0.05)
    with wave.open(str(tmp_path / "a.wav")) as track:
        sound = np.frombuffer(track.readframes(track.getnframes()), np.int16)
    loud = np.flatnonzero(sound) / Hum.rate
    assert loud[0] == pytest.approx(first.start_s, abs=0.002)
    assert len(loud) == 4 * 800
    noted = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [note["text"] for note in noted] == ["one two", "three", "four"]
    assert [note["ready_s"] for note in noted] == [1.0, 1.05, 5.0]
    for note, placed in zip(noted, (first, second, third), strict=True):
        times = pytest.approx((placed.start_s, placed.end_s, placed.speed), abs=0.001)
        assert (note["start_s"], note["end_s"], note["speed"]) == times


def test_time_that_the_voice_takes_counts(tmp_path):
    class Slow(Hum):
        def speak(self, text: str, *, speed: float = 1.0) -> np.ndarray:
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
    assert speaker.end_s == pytest.approx(hurried.end_s, abs=0.001)


def words(text: str, *delays_s: float) -> list[Word]:
    """Words with these delays; the last holds for the rest."""
    texts = text.split()
    delays = [*delays_s, *[delays_s[-1]] * len(texts)][: len(texts)]
    return [
        Word(text=t, delay_ms=1000 * d, elapsed_ms=0) for t, d in zip(texts, delays, strict=True)
    ]


def test_subtitles_break_at_sentences_full_lines_and_gaps():
    assert [text for _, _, text in subtitles(words("It is. Who (now?) says", 1.0))] == [
        "It is.",
        "Who (now?)",
        "says",
    ]
    german = subtitles(words("Das ist z. B. Dr. Kohl. Ja.", 1.0))
    assert [text for _, _, text in german] == ["Das ist z. B. Dr. Kohl.", "Ja."]
    shown = [text for _, _, text in subtitles(words("word " * 40, 1.0))]
    assert shown[0] == "\n".join(["word word word word word word word word"] * 2)
    assert " ".join(shown).split() == ["word"] * 40
    apart = subtitles(words("a b c d", 1.0, 2.9, 3.1, 9.0))
    assert [text for _, _, text in apart] == ["a b", "c", "d"]


def test_a_subtitle_shows_no_word_before_it_was_committed_and_none_overlap():
    times = [times for *times, _ in subtitles(words("a b ac. d ed.", 1.0, 1.5, 2.0, 2.1, 9.0))]
    assert times == [[2.0, 3.0], [3.0, 4.0], [9.0, 10.0]]
    ((*long, _),) = subtitles(words("x" * 34, 5.0))
    assert long == [5.0, 7.0]


def test_the_file_is_subrip():
    assert subtitle_file(words("Grüße. End", 3661.25, 3700.0)) == (
        "1\n01:01:01,250 --> 01:01:02,250\nGrüße.\n\n2\n01:01:40,000 --> 01:01:41,000\nEnd\n"
    )


def test_the_log_record_is_simulevals():
    said = [Word(text=t, delay_ms=d, elapsed_ms=d + 5) for t, d in (("so", 1000.0), ("it", 2000.0))]
    assert json.loads(record_line(log_record(said, "talk.wav", 2.5))) == {
        "index": 0,
        "prediction": "so it",
        "delays": [1000.0, 2000.0],
        "elapsed": [1005.0, 2005.0],
        "prediction_length": 2,
        "reference": None,
        "source": "talk.wav",
        "source_length": 2500.0,
    }
