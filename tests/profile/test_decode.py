"""The profile of decoding measures what it says: so many tokens, so many streams, real time."""

import json
import subprocess
import sys

import pytest

from simuljax.profile.decode import DecodeProfile, build
from simuljax.profile.live import line, meaningless


def test_a_vocabulary_of_any_size():
    assert meaningless(500).size == 500


def test_an_utterance_fits():
    decoder = build(DecodeProfile(preset="tiny", seconds=3.0))
    assert decoder.limits.states >= 3000 / 40
    speech = decoder.model.config.speech
    assert speech is not None and speech.kind == "streaming"


@pytest.mark.slow
def test_the_command(tmp_path):
    """In a process of its own: JAX passes through states things that checked annotations refuse."""
    path = tmp_path / "decode.json"
    small = ["--preset", "tiny", "--vocabulary", "200", "--dtype", "float32", "--seconds", "3"]
    live = ["--batches", "1", "4", "--live", "3", "--live-s", "3", "--json", str(path)]
    command = [sys.executable, "-m", "simuljax.cli.main", "profile", "decode", *small, *live]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    report = json.loads(path.read_text())
    one, four = report["batches"]
    assert (one["streams"], four["streams"]) == (1, 4)
    assert one["step_ms"]["p50"] <= one["step_ms"]["p99"]
    assert 0 < report["write_ms"]["p50"] < one["step_ms"]["p99"]
    assert report["kernels"] > 10 and report["write_floor_ms"] > 0
    (spoken,) = report["live"]
    assert 20 < spoken["reads"] <= 3 * (3 / 0.28 + 1)
    assert line(spoken) in said
