"""SimulEval itself drives the agents; without it there is a clear word about that."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import soundfile

import simuljax
from simuljax.audio import as_int16, extract, normalise
from simuljax.config.decoding import Decoding
from simuljax.config.model import Monotonic
from simuljax.decode.policies import WaitK
from simuljax.decode.reencoding import simulate_speech, simulate_text
from simuljax.serve.bundled import BESIDE, CLIP, DEFAULT
from simuljax.text import EOS, WordStream
from simuljax.text.words import read_by_words
from tests.helpers.streams import push_all
from tests.serve.test_live import noise, write_run

ROOT = Path(__file__).parents[2]
HERE = importlib.util.find_spec("simuleval") is not None
needs_simuleval = pytest.mark.skipif(not HERE, reason="needs simuleval==1.1.4")
READ_MS = 240
TEXTS = ["a b c d e f g", "k", "b a d", "e f g h i j k a b c d e"]


@pytest.mark.skipif(HERE, reason="SimulEval is installed")
def test_without_simuleval_the_import_says_what_to_install():
    with pytest.raises(ImportError, match=r"pip install simuleval==1\.1\.4"):
        importlib.import_module("simuljax.serve.agent")


def test_sound_survives_the_way_through_simuleval(tmp_path):
    """Which reads floats and hands them on as a Python list."""
    every = np.arange(-32768, 32768).astype(np.int16)
    soundfile.write(tmp_path / "every.wav", every, 16_000, subtype="PCM_16")
    samples, _ = soundfile.read(tmp_path / "every.wav", dtype="float32")
    np.testing.assert_array_equal(as_int16(np.asarray(samples.tolist()), 16_000), every)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "run")


def words_of(translator, tokens, delays):
    """Words and delays, as `simuljax evaluate` notes them."""
    stream, words, times = WordStream.begin(translator.run.target), [], []
    for token, delay in zip(tokens, delays, strict=True):
        stream, new = stream.push([int(token)] if token != EOS else [])
        words, times = words + new, times + [float(delay)] * len(new)
    rest = stream.finish()
    return " ".join(words + rest), times + [float(d) for d in delays[-1:] for _ in rest]


def driven(folder: Path, sources: list[str], *args: str) -> list[dict]:
    """The log of SimulEval's own command."""
    (folder / "sources.txt").write_text("\n".join(sources) + "\n")
    (folder / "targets.txt").write_text("a b c\n" * len(sources))
    command = ["-m", "simuleval.cli", *args, "--output", str(folder / "out")]
    files = ["--source", str(folder / "sources.txt"), "--target", str(folder / "targets.txt")]
    given = [sys.executable, *command, *files, "--no-progress-bar"]
    done = subprocess.run(given, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = (folder / "out" / "instances.log").read_text().splitlines()
    return [json.loads(line) for line in lines]


def pairs(log: list[dict]) -> list[tuple[str, list[float]]]:
    return [(entry["prediction"], entry["delays"]) for entry in log]


@needs_simuleval
@pytest.mark.slow
def test_simuleval_gets_what_is_simulated_of_speech(run, tmp_path):
    translator, seconds = simuljax.load(run), (1.9, 0.1, 1.0, 0.5, 3.1)
    sounds = [(noise(s, i) * 32767).astype(np.int16) for i, s in enumerate(seconds)]
    front_end, wanted, names = translator.run.front_end, [], []
    for i, sound in enumerate(sounds):
        names.append(str(tmp_path / f"{i}.wav"))
        soundfile.write(names[-1], sound, 16_000, subtype="PCM_16")
        features = normalise(extract(sound[None], front_end.features), front_end.statistics)
        done = simulate_speech(
            translator.network, translator.variables, features, jnp.array([len(sound)]),
            decoding=Decoding(k=3, read_ms=READ_MS), filterbank=front_end.features.filterbank,
        )  # fmt: skip
        count = int(done.lengths[0])
        wanted.append(words_of(translator, done.tokens[0, :count], done.delays[0, :count]))
    agent = ["--agent", "simuljax/serve/agent.py", "--agent-class", "agents.SpeechAgent"]
    settings = ["--run", str(run), "--k", "3", "--read-ms", str(READ_MS), "--stammer-times", "0"]
    log = driven(tmp_path, names, *agent, *settings, "--source-segment-size", str(READ_MS))
    assert pairs(log) == wanted
    early = [d for entry in log for d in entry["delays"] if d < entry["source_length"]]
    assert len(set(early)) > 2, "nothing was written before the end: this shows little"
    for entry in log:
        assert all(np.array(entry["elapsed"]) > entry["delays"])


WAIT_2 = Decoding(policy=WaitK(k=2, convention="stacl"), force_finish=True)


@needs_simuleval
@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "decoding", "given"),
    [
        (None, Decoding(k=4), "--k 4"),
        ("offline", WAIT_2, "--force-finish --policy wait-k --k 2 --convention stacl"),
    ],
)
def test_simuleval_gets_what_is_simulated_of_text(tmp_path, policy, decoding, given):
    model: dict[str, Any] = {"monotonic": Monotonic(policy=policy)} if policy else {}
    run = write_run(tmp_path / "run", **model)
    translator = simuljax.load(run)
    source, wanted = read_by_words(translator.run.source, TEXTS), []
    how = {"decoding": decoding, "words": translator.words}
    read = (source.tokens, source.lengths, source.units)
    done = simulate_text(translator.network, translator.variables, *read, **how)
    for row, words in enumerate(source.words):
        count = int(done.lengths[row])
        delays = np.minimum(done.delays[row, :count], words)
        wanted.append(words_of(translator, done.tokens[row, :count], delays))
    agent = ["--agent-class", "simuljax.serve.agent.TextAgent", "--run", str(run)]
    log = driven(tmp_path, TEXTS, *agent, *given.split(), "--stammer-times", "0")
    assert pairs(log) == wanted
    early = [d for entry in log for d in entry["delays"] if d < entry["source_length"]]
    assert early, "nothing was written before the end: this shows little"


@needs_simuleval
@pytest.mark.slow
def test_simuleval_gets_the_words_of_a_cascade_that_begins_with_whisper(tmp_path):
    sound, rate = soundfile.read(BESIDE / DEFAULT / CLIP, dtype="int16")
    soundfile.write(tmp_path / "clip.wav", sound, rate, subtype="PCM_16")
    pieces = [sound[start : start + rate // 2] for start in range(0, len(sound), rate // 2)]
    words = push_all(simuljax.load("en-de").stream(), pieces)
    agent = "--agent-class simuljax.serve.agent.SpeechAgent --run en-de --source-segment-size 500"
    (entry,) = driven(tmp_path, [str(tmp_path / "clip.wav")], *agent.split())
    assert entry["prediction"] == " ".join(word.text for word in words)


@needs_simuleval
@pytest.mark.slow
def test_a_setting_that_an_agent_does_not_know_is_refused(run, tmp_path):
    agent = f"--agent-class simuljax.serve.agent.TextAgent --run {run} --read-ms 280"
    with pytest.raises(AssertionError, match="unrecognized arguments: --read-ms"):
        driven(tmp_path, TEXTS, *agent.split())
