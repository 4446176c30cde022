"""The profile of decoding: steps, tokens, and streams in real time."""

import json
import subprocess
import sys
import time

import pytest

from simuljax.profile.decode import DecodeProfile, Speakers, build, character_vocabulary, line


def test_an_utterance_and_a_vocabulary_fit():
    decoder = build(DecodeProfile(preset="tiny", seconds=3.0))
    speech = decoder.model.config.speech
    assert decoder.limits.states >= 3000 / 40
    assert speech is not None and speech.kind == "streaming"
    assert character_vocabulary(500).size == 500


@pytest.mark.slow
def test_the_command(tmp_path):
    """In a process of its own: JAX passes through states things that checked annotations refuse."""
    path = tmp_path / "decode.json"
    small = ["--preset", "tiny", "--vocabulary", "200", "--dtype", "float32", "--seconds", "1.5"]
    live = ["--no-unroll", "--batches", "1", "4", "--live", "3", "--live-s", "2"]
    command = [sys.executable, "-m", "simuljax.cli.main", "profile", "decode", *small, *live]
    command += ["--json", str(path)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    report = json.loads(path.read_text())
    one, four = report["batches"]
    assert (one["streams"], four["streams"]) == (1, 4)
    assert one["step_ms"]["p50"] <= one["step_ms"]["p99"]
    assert 0 < report["write_ms"]["p50"] < one["step_ms"]["p99"]
    assert report["kernels"] > 10 and report["write_floor_ms"] > 0
    (spoken,) = report["live"]
    assert 12 < spoken["reads"] <= 3 * (2 / 0.28 + 1)
    assert line(spoken) in said


class SlowEngine:
    """An engine whose pushes take some time."""

    def __init__(self, slow_s: float):
        self.slow_s = slow_s

    def open(self) -> "SlowEngine":
        return self

    def push(self, samples) -> None:
        time.sleep(self.slow_s)

    def leave(self) -> None:
        pass


def speakers(slow_s: float, streams: int = 4) -> Speakers:
    return Speakers(SlowEngine(slow_s), streams, 40, 20.0)  # pyright: ignore[reportArgumentType]


def test_a_host_that_cannot_push_in_time_is_late_and_grows_later():
    some = speakers(0.03)
    late = some.speak(0.2)  # 4 pushes of 30 ms to 40 ms of sound
    assert 20 <= len(late) <= 21  # what was due is pushed all the same
    assert late[-1] > 20 * 30 - 200 - 1
    assert late[-1] > late[len(late) // 2] > late[0]
    assert some.speak(0.04)[0] < late[-1] / 2  # what was late before does not count


def test_pushes_that_take_no_time_come_when_they_are_due():
    start = time.perf_counter()
    late = speakers(0.0, streams=2).speak(0.4)
    assert time.perf_counter() - start > 0.3  # not before they are due
    assert min(late) >= 0
