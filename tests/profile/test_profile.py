"""Measurements, their tables and their JSON: decoding, one long stream, real sockets."""

import contextlib
import dataclasses
import json
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import soundfile

from simuljax.audio import RATE
from simuljax.cli.main import main
from simuljax.errors import ChoiceError
from simuljax.profile import decode, serve
from simuljax.profile.decode import DecodeProfile, Speakers
from simuljax.profile.long_stream import cut, measure_minutes, repeated
from simuljax.profile.measure import Traced, count_kernels, environment, measure, origins, table
from simuljax.profile.serve import ServeProfile, run, summary
from simuljax.profile.train import PRESETS
from simuljax.serve.session import Word
from simuljax.train.run import DECODING_FILE
from tests.helpers.experiments import experiment
from tests.serve.web.servers import small_run

MODULE = """HloModule jit_f

%fused (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %add = f32[4]{0} add(%p, %p)
}

ENTRY %main.4 (Arg_0: f32[4]) -> (f32[4], f32[4]) {
  %Arg_0 = f32[4]{0} parameter(0)
  %constant = s32[320]{0} constant({...})
  %call = (f32[4]{0}, f32[4]{0}) custom-call(%constant, %Arg_0), custom_call_target="kernel"
  %get = f32[4]{0} get-tuple-element(%call), index=0
  %loop_fusion = f32[4]{0} fusion(%get), kind=kLoop, calls=%fused
  ROOT %tuple = (f32[4]{0}, f32[4]{0}) tuple(%get, %loop_fusion)
}
"""
TRACED = """
  %fusion.1 = f32[4] fusion(%p), metadata={op_name="jit(f)/jvp(front_end)/fft"}
  %dot.7 = f32[4] custom-call(%p), metadata={op_name="jit(f)/transpose(jvp(decode))/dot"}
  ROOT %copy.2 = f32[4] copy(%p)
"""


def test_measure_and_count_kernels_of_the_entry_only():
    assert count_kernels(MODULE) == 2
    cost = measure(lambda x: jnp.sin(x).sum(), jnp.ones(1000), rounds=2, round_s=0.01)
    assert cost.ms > 0 and cost.compile_s > 0 and cost.kernels >= 1


def test_time_goes_to_the_first_part_whose_pattern_fits():
    times = {"fusion.1": 2.0, "dot.7": 3.0, "copy.2": 0.5}
    traced = Traced(ms=times, kernels=3, origin=origins(TRACED))
    spent = traced.by_part({"front end": "front_end", "decoder": "decode"})
    assert spent == {"front end": 2.0, "decoder": 3.0, "other": 0.5}
    assert traced.report(1)["dearest"] == [
        {"ms": 3.0, "op": "dot.7", "from": "jit(f)/transpose(jvp(decode))/dot"}
    ]


@pytest.mark.slow
def test_profile_alignment_writes_what_it_shows(tmp_path, capsys):
    path, small = tmp_path / "deep" / "alignment.json", ["--sizes", "8x12", "--problems", "2"]
    main(["profile", "alignment", *small, "--json", str(path)])
    report, shown = json.loads(path.read_text()), capsys.readouterr().out
    exact = next(row for row in report["rows"] if row["method"] == "exact")
    assert exact["error"] < 1e-6 and exact["gradient_error"] < 1e-5
    assert "closed_form" in shown and "auto 8x12 method" in shown
    main(["profile", "alignment", *small, "--methods", "exact", "--json"])
    assert json.loads(capsys.readouterr().out)["problems"] == 2


@pytest.mark.slow
def test_profile_train_divides_the_update_into_parts(tmp_path, monkeypatch):
    small = experiment(tmp_path, tmp_path).model
    monkeypatch.setitem(PRESETS, "tiny", lambda: small)
    path, sizes = tmp_path / "train.json", "--frames 60 --targets 5 --sources 5 --vocabulary 20"
    fixed = "--preset tiny --dtype float32 --updates 2 --no-unroll --utterances 4"
    main(["profile", "train", *fixed.split(), *sizes.split(), "--json", str(path)])
    report = json.loads(path.read_text())
    spent = report["parts_ms"]
    assert report["ms"] > 0 and report["compile_s"] > 0 and report["kernels"] > 100
    for name in ("front end", "speech encoder", "text encoder", "decoder", "optimiser", "DAR"):
        assert spent[name] > 0, spent
    assert spent["other"] < 0.3 * sum(spent.values()), spent
    assert sum(spent.values()) == pytest.approx(report["device_ms"])


@pytest.mark.slow
def test_the_command(tmp_path):
    """In a process of its own: JAX passes through states things that checked annotations refuse."""
    path = tmp_path / "decode.json"
    small = "--preset tiny --vocabulary 200 --dtype float32 --seconds 1.5 --no-unroll"
    live = "--batches 3 --live 3 --live-s 2 --json"
    command = [sys.executable, "-m", "simuljax.cli.main", "profile", "decode"]
    command += [*small.split(), *live.split(), str(path)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    report = json.loads(path.read_text())
    (batch,), (spoken,) = report["batches"], report["live"]
    assert batch["streams"] == 3 and batch["step_ms"]["p50"] <= batch["step_ms"]["p99"]
    assert 0 < report["write_ms"]["p50"] < batch["step_ms"]["p99"]
    assert report["kernels"] > 10 and report["write_floor_ms"] > 0
    assert 12 < spoken["reads"] <= 3 * (2 / 0.28 + 1)
    assert "keeps_up" in said and "write_ms p99" in said


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


def test_a_table_has_a_line_per_number_and_per_row():
    minutes = list(measure_minutes(EverySecond(), [np.ones(90 * RATE, np.int16)], RATE))  # pyright: ignore[reportArgumentType]
    report = environment(None) | {"ready_s": 12.3456, "parts_ms": {"decoder": 2.0}}
    lines = table(report | {"minutes": minutes}).splitlines()
    assert lines[1].split() == ["ready_s", "12.35"]
    assert lines[2].split() == ["decoder", "2.00", "ms", "100.0%"]
    heads, *rows = (line.split() for line in lines[4:])
    assert heads[0] == "sound_s" and heads[-1] == "words"
    assert [(row[0], row[-1]) for row in rows] == [("60", "58"), ("30", "32")]


@pytest.mark.slow
def test_the_trace_of_a_run_leaves_the_timed_seconds_out(tmp_path, monkeypatch):
    traced, spoken, speak = [], [], Speakers.speak

    @contextlib.contextmanager
    def trace(directory):
        traced.append(directory)
        yield
        traced.clear()

    def noted(self, seconds):
        spoken.append((seconds, list(traced)))
        return speak(self, seconds)

    monkeypatch.setattr(jax.profiler, "trace", trace)
    monkeypatch.setattr(Speakers, "speak", noted)
    config = DecodeProfile(model=small_run(tmp_path / "small"), seconds=1.0, live_s=1.0)
    report = decode.run(config, tmp_path)
    (live,) = report["live"]
    assert live["reads"] > 2 and live["compiled"] == 0
    assert report["config"]["read_ms"] > 0 and "dtype" not in report["config"], "as it was used"
    with pytest.raises(ValueError, match="batches is for a preset"):
        dataclasses.replace(config, batches=(2,))
    assert spoken == [(2.0, []), (2.0, [str(tmp_path)]), (1.0, [])]
    (tmp_path / "small" / DECODING_FILE).write_text('{"read_ms": 560}')
    with pytest.raises(ChoiceError, match="neither may be shorter than a READ, read_ms 560"):
        decode.run(dataclasses.replace(config, seconds=0.4, live_s=0.4))


@pytest.mark.slow
def test_speakers_of_a_run_are_timed(tmp_path):
    model = small_run(tmp_path / "small")
    report = run(
        ServeProfile(model=model, streams=3, seconds=3.0, warm_up=0.5, utterance=2.0, chunk_ms=60)
    )
    assert report["clients"] == 3 and report["refused"] == 0 and report["words"] > 5
    assert 0 < report["push_to_word_ms"]["p50"] <= report["push_to_word_ms"]["p99"]
    assert 0 < report["stepping"] <= 1 and report["steps_per_s"] > 0
    assert report["first_word_s"] > report["ready_s"] and report["loop_us_per_frame"] > 0


def test_a_preset_is_served_in_the_precision_that_is_recorded(monkeypatch):
    def stop(decoder):
        raise InterruptedError(decoder.model.config.width.dtype)

    monkeypatch.setattr(serve, "random_params", stop)
    for dtype in ("float32", "bfloat16"):
        with pytest.raises(InterruptedError, match=dtype):
            run(ServeProfile(dtype=dtype))


def client(reads: list[float], refused: int = 0) -> dict:
    return {"words": [], "reads": reads, "late": [1.0], "refused": refused, "read_ms": 280.0}


def test_one_keeps_up_if_its_reads_end_in_time():
    found = summary([client([50.0] * 9 + [400.0]), client([300.0] * 9 + [50.0]), client([], 2)])
    assert (found["keep_up"], found["clients"], found["refused"]) == (1, 3, 2)
    assert found["push_to_word_ms"] is None and found["push_to_read_ms"]["p50"] == 175


def test_settings_are_checked_and_their_paths_can_be_json(tmp_path):
    with pytest.raises(ValueError, match="streams is 0"):
        ServeProfile(streams=0)
    stored = json.dumps(environment(ServeProfile(model=tmp_path)))
    assert json.loads(stored)["config"]["model"] == str(tmp_path)
