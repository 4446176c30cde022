"""An hour as one stream: what is measured would show memory that grows, lag and loops."""

import itertools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import soundfile

from experiments.dugan2023.long_listening import (
    Minute,
    Played,
    listen,
    nobody,
    playlist,
    resident_mb,
)
from experiments.dugan2023.long_stream import (
    Chosen,
    growths_mb,
    lags_s,
    repeated,
    run,
    spoken,
    tell,
    tell_nobody,
    write,
    written,
)
from experiments.dugan2023.recordings import read_recordings
from simuljax.audio import RATE, AudioError
from simuljax.config.fields import ConfigError
from simuljax.decode.policies import Greedy, Offline
from simuljax.serve.session import Word
from simuljax.serve.stream import Stream
from simuljax.serve.whisper import Guards, WhisperSession, WhisperStreaming
from simuljax.serve.whisper.guards import levels, silent_samples
from tests.serve.live_fakes import Model
from tests.serve.whisper.made import hypothesis
from tests.serve.whisper.test_guards import syllables

ROOT = Path(__file__).parents[2]
TINY = ROOT / ".." / "shared" / "data" / "weights" / "whisper-tiny"
MINUTE = Minute(
    sound_s=60.0,
    spent_s=30.0,
    resident_mb=1000.0,
    arrays_mb=150.0,
    programs=0,
    open_s=8.0,
    behind_s=1.0,
    quiet_s=4.0,
    words=(),
)


class Writes:
    """A backend whose model is a function of the buffer's seconds."""

    def __init__(self, model, settings):
        self.model, self.settings = model, settings

    def open(self):
        return WhisperSession(self.settings)

    def rows(self, streams):
        return self

    def step(self, reads):
        return {row: self.model(len(window.samples) / RATE) for row, window in reads.items()}


def heard(model, settings, seconds=70.0):
    return listen(Stream(Writes(model, settings)), [syllables(seconds)], 0.5, lambda _: None)


def words(*texts, every_ms=1000.0):
    return tuple(
        Word(text=text, delay_ms=every_ms * (i + 1), elapsed_ms=0) for i, text in enumerate(texts)
    )


@pytest.fixture
def folder(tmp_path):
    """Two seconds with words and times, and three without times."""
    random = np.random.default_rng(0)
    for name, seconds in (("a.wav", 2), ("b.wav", 3)):
        sound = random.integers(-3000, 3000, seconds * RATE).astype(np.int16)
        soundfile.write(tmp_path / name, sound, RATE)
    lines = [
        "file\tlanguage\treference\tends",
        "a.wav\ten\tOne, uh two.\t0.5 1.0 1.5",
        "b.wav\ten\tThree\t",
    ]
    (tmp_path / "manifest.tsv").write_text("\n".join(lines))
    return tmp_path


def test_every_minute_is_measured():
    told, model = [], Model()
    kept = jnp.ones(1_000_000)
    sound = [np.ones(seconds * RATE, np.int16) for seconds in (100, 3, 47)]
    minutes = listen(model, sound, 10.0, told.append)
    assert [minute.sound_s for minute in minutes] == [60, 63, 27]  # a minute ends with a chunk
    assert sum(told) == 150 and len(model.samples) == 150 * RATE
    assert [len(minute.words) for minute in minutes] == [6, 7, 3 + 1]
    assert minutes[-1].text.endswith(" end")
    assert all(minute.open_s == minute.quiet_s == 10 for minute in minutes)
    assert all(minute.arrays_mb >= kept.nbytes / 1e6 for minute in minutes)


def test_a_minute_ends_at_its_end_and_finishing_begins_none():
    minutes = listen(Model(), [np.ones(120 * RATE, np.int16)], 0.5, lambda _: None)
    assert [minute.sound_s for minute in minutes] == [60, 60]
    assert [len(minute.words) for minute in minutes] == [120, 121]


def test_who_computes_longer_than_the_sound_falls_behind():
    sound = [np.ones(RATE // 5, np.int16)]
    (slow,) = listen(Model(slow_s=0.04), sound, 0.02, lambda _: None)
    (fast,) = listen(Model(slow_s=0.001), sound, 0.02, lambda _: None)
    assert slow.computed >= 2 and slow.behind_s >= 10 * 0.04 - 9 * 0.02
    assert fast.behind_s < slow.behind_s


def test_memory_that_is_kept_is_seen():
    before = resident_mb()
    kept = np.ones(20_000_000)
    assert resident_mb() - before > 0.9 * kept.nbytes / 1e6


def test_growth_is_told_apart_from_new_programs():
    rising = [replace(MINUTE, resident_mb=100.0 * i) for i in range(10)]
    rising += [replace(MINUTE, resident_mb=900.0 + 2 * i) for i in range(1, 6)]
    rising += [replace(MINUTE, resident_mb=1000.0, programs=3)]
    assert growths_mb(rising, "none") == [2] * 5
    assert growths_mb(rising, "new") == [90]
    told = "\n".join(tell(rising, []))
    assert "5 minutes without a new program: median +2.000 MB, at most +2.00 MB" in told
    assert "1 minutes with 3 new programs: +90.0 MB together" in told


def test_programs_are_counted():
    """Every shape is a program; the same shape again is none."""

    class Compiles(Model):
        def push(self, samples):
            jax.block_until_ready(jax.jit(lambda x: x * 2 + 1)(np.ones(7 + len(self.chunks) % 2)))
            return super().push(samples)

    add = jax.jit(lambda x: x * 2 + 1)

    class Same(Model):
        def push(self, samples):
            add(np.ones(len(samples)))
            return super().push(samples)

    sound = [np.ones(120 * RATE, np.int16)]
    same = listen(Same(), sound, 20.0, lambda _: None)
    assert [minute.programs for minute in same] == [1, 0]
    assert [m.programs > 1 for m in listen(Compiles(), sound, 20.0, lambda _: None)] == [True] * 2


def test_open_sound_has_a_bound_though_nothing_is_ever_committed():
    """The buffer is full before a policy that waits for the end lets it go."""
    model = lambda seconds: hypothesis(*(f"word{k}" for k in range(int(seconds))))  # noqa: E731
    minutes = heard(model, WhisperStreaming(policy=Offline(), most_s=6.0))
    assert [round(minute.sound_s) for minute in minutes] == [60, 10]
    assert 5.0 <= max(minute.open_s for minute in minutes) <= 6.0 + 1.0


def test_a_loop_would_be_seen():
    """A model that always writes the same: guards hold it back, and without them it is counted."""
    model = lambda seconds: hypothesis("thank you very much", seconds=seconds)  # noqa: E731
    off = Guards(compression=None, echo_words=None)
    looping = heard(model, WhisperStreaming(policy=Greedy(), guards=off))
    held = heard(model, WhisperStreaming(policy=Greedy()))
    assert repeated(written(looping).words)[4].times == 70
    assert repeated(written(held).words)[4].times == 1


def in_a_row(text, size):
    """The most equal phrases one after the other."""
    phrases = [tuple(text[i : i + size]) for i in range(len(text) - size + 1)]
    most = 0
    for i in range(len(phrases)):
        same = itertools.takewhile(
            lambda k, i=i: phrases[k] == phrases[i], range(i, len(phrases), size)
        )
        most = max(most, len(list(same)))
    return most


def test_phrases_in_a_row():
    random = np.random.default_rng(0)
    for _ in range(100):
        text = list(random.choice(["a", "b"], random.integers(0, 40)))
        found = repeated(text)
        assert [found[n].times for n in range(1, 7)] == [in_a_row(text, n) for n in range(1, 7)]
    two = repeated(["so", *("we", "go") * 3, "on"])[2]
    assert (two.phrase, two.times) == ("we go", 3)


def test_recordings_begin_again(folder):
    recordings = read_recordings(folder)
    played = playlist(recordings, 9 / 60)
    assert [one.recording.file.name for one in played] == ["a.wav", "b.wav", "a.wav", "b.wav"]
    assert [one.start_ms for one in played] == [0, 2000, 5000, 7000]
    assert len(playlist(recordings, 5 / 60)) == 2
    assert "2 recordings, 2 of them heard again" in tell([MINUTE], played)[0]
    assert "2 recordings in" in tell([MINUTE], played[:2])[0]
    soundfile.write(folder / "a.wav", np.zeros(0, np.int16), RATE)
    with pytest.raises(AudioError, match=r"a.wav has 0.000 s"):
        playlist(recordings[:1], 1)


def test_lag_is_against_the_time_in_the_stream(folder):
    played = playlist(read_recordings(folder), 7 / 60)
    reference = spoken(played)
    assert reference.words == ("one", "two", "three", "one", "two")
    np.testing.assert_array_equal(reference.times_ms, [500, 1500, np.nan, 5500, 6500])
    said = replace(MINUTE, words=words("One", "too", "three", "[one", "two]", every_ms=2000.0))
    late = lags_s(reference, written([said]))
    np.testing.assert_allclose(late, [[0.5, 1.5], [5.5, 2.5], [6.5, 3.5]])
    assert "WER 20.0 % of 5" in "\n".join(tell([said], played))


def test_sounds_of_nobody(folder):
    sounds = dict(nobody(read_recordings(folder), 0.25))
    assert all(sound.dtype == np.int16 and len(sound) == 15 * RATE for sound in sounds.values())
    kept = {name: silent_samples(sound, Guards()) for name, sound in sounds.items()}
    assert kept["silence"] == kept["white"] == kept["pink"] == 15 * RATE
    assert kept["syllables"] < RATE
    for name in ("white", "pink", "syllables", "voices"):
        loud = np.mean(10 ** (levels(sounds[name]) / 10))
        assert 10 * np.log10(loud) == pytest.approx(-30, abs=0.2), name
    assert "2 words" in tell_nobody("pink", [MINUTE, replace(MINUTE, words=words("thank", "you"))])


def test_results_are_written(folder):
    chosen = Chosen(folder=folder, model=Path("tiny.bin"), to=folder / "made" / "hour")
    speech = [replace(MINUTE, words=words("one", "two", "three"))] * 3
    played = [Played(recording=r, start_ms=0, length_ms=0) for r in read_recordings(folder)]
    lines = write(chosen, played, {"speech": speech, "silence": [MINUTE]})
    text = (folder / "made" / "hour.txt").read_text()
    assert text.startswith("$ python -m experiments.dugan2023.long_stream") and lines[-1] in text
    assert str(folder) not in text
    made = json.loads((folder / "made" / "hour.json").read_text())
    assert [row["text"] for row in made["minutes"]["speech"]] == ["one two three"] * 3
    assert made["minutes"]["silence"][0]["resident_mb"] == 1000
    assert (folder / "made" / "hour.png").stat().st_size > 10_000


def test_what_cannot_be_is_refused(folder):
    given: dict[str, Any] = {"folder": folder, "model": Path("x"), "to": folder / "to"}
    with pytest.raises(ConfigError, match="no policy 'gready'; there are confidence"):
        Chosen(**given, policy="gready")
    with pytest.raises(ConfigError, match="--chunk 0: minutes of speech are above 0"):
        Chosen(**given, chunk=0)
    manifest = folder / "manifest.tsv"
    manifest.write_text(manifest.read_text().replace("b.wav\ten", "b.wav\tde"))
    with pytest.raises(ConfigError, match=r"one language, not in \['de', 'en'\]"):
        run(Chosen(**given))


@pytest.mark.slow
def test_the_command_on_real_speech(tmp_path):
    if not (TINY / "ggml-tiny.bin").exists():
        pytest.skip("Whisper tiny is not among the shared data (weights/whisper-tiny)")
    (tmp_path / "jfk.flac").write_bytes((TINY / "jfk.flac").read_bytes())
    said = (
        "And so my fellow Americans ask not what your country can do for you "
        "ask what you can do for your country"
    )
    (tmp_path / "manifest.tsv").write_text(f"file\tlanguage\treference\njfk.flac\ten\t{said}\n")
    line = [
        sys.executable,
        "-m",
        "experiments.dugan2023.long_stream",
        tmp_path,
        "--to",
        tmp_path / "hour",
    ]
    line += ["--model", TINY / "ggml-tiny.bin", "--minutes", "0.35", "--nobody", "0.1"]
    done = subprocess.run(
        [*map(str, line), "--padding", "short"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "0.4 min of 1 recordings, 1 of them heard again in one stream" in done.stdout
    assert "silence      0.1 min: 0 words" in done.stdout
    assert "100% of 22 s of sound" in done.stderr
    text = (tmp_path / "hour.txt").read_text()
    wrong = float(text.split("WER ")[1].split(" %")[0])
    assert wrong < 25 and done.stdout.strip() in text
