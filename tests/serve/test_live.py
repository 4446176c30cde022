"""A run directory from disk to words, whole or live; sound that is unusual, wrong or missing."""

import itertools
import json

import numpy as np
import pytest
import soundfile

import simuljax
from simuljax.audio import AudioError, as_int16
from simuljax.serve.run_translator import Streaming
from simuljax.text import VocabularyConfig, learn
from simuljax.text.vocabulary import TARGET_FILE
from simuljax.train.run import RunError, open_run
from tests.helpers import models
from tests.helpers.streams import TEXT, push_all, timed
from tests.serve.web.servers import READ, small_run
from tests.written_runs import write_run


@pytest.fixture(scope="module")
def streaming(tmp_path_factory) -> simuljax.Translator:
    """A run of a random translator, whose words mean nothing."""
    return simuljax.load(small_run(tmp_path_factory.mktemp("runs") / "streaming"))


def noise(seconds: float, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    loud = np.repeat(random.uniform(0.0, 0.5, int(seconds * 20) + 1), 800)[: int(seconds * 16_000)]
    return (random.normal(size=len(loud)) * loud).clip(-1, 1).astype(np.float32)


@pytest.mark.slow
def test_a_file_and_its_samples_say_the_same(streaming, tmp_path):
    sound = noise(0.9, 1)
    soundfile.write(tmp_path / "sound.wav", sound, 16_000, subtype="FLOAT")
    assert streaming.translate(sound) == streaming.translate(tmp_path / "sound.wav") != ""
    with pytest.raises(AudioError, match="no such file"):
        streaming.translate(tmp_path / "nothing.wav")


@pytest.mark.slow
def test_speech_may_go_on_for_many_sentences(streaming):
    stream = streaming.stream(sentences="many", states=30, tokens=12)  # at most 1.2 s
    words, held, session = [], [], stream.session
    for piece in np.array_split(noise(12.0, 9), 31):
        words += stream.push(piece)
        held.append(len(session.sentence) + len(session.again) + len(session.waiting))
    words += stream.finish()
    assert max(held) < 30 * 640 + READ
    assert max(word.delay_ms for word in words) > 11_000, "it fell silent after a sentence"
    assert [w.delay_ms for w in words] == sorted(w.delay_ms for w in words)
    assert models.compilations(stream.backend.step) == 1  # pyright: ignore[reportAttributeAccessIssue]


def test_settings_are_named_and_others_refused(streaming):
    assert streaming.backend(read_ms=240).open().read == 240 * 16
    assert streaming.backend(threshold=0.3) is not streaming.backend() is streaming.backend()
    with pytest.raises(TypeError, match="'threshold'"):
        streaming.stream(treshold=0.3)
    for setting, fact in (
        ({"read_ms": 100.5}, "read_ms is 100.5; it must be a whole number"),
        ({"sentences": "x"}, "sentences is .x.; it must be one of"),
        ({"policy": "wait-k"}, "policy is 'wait-k'; it must be a Policy"),
    ):
        with pytest.raises(ValueError, match=fact):
            Streaming.of(setting)
    taken = Streaming.of({"read_ms": np.int64(280), "threshold": np.float32(0.25)})
    assert taken.decoding.read_ms == 280


def test_a_text_model_refuses_speech(tmp_path):
    alone = simuljax.load(write_run(tmp_path / "run", speech=None))
    with pytest.raises(RunError, match="translate_text"):
        alone.translate(noise(0.2, 1))


def test_a_directory_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(RunError, match="is no run"):
        simuljax.load(tmp_path)


def test_another_rate_is_heard_as_the_file_is(streaming):
    random = np.random.default_rng(3)
    sound = random.uniform(-0.3, 0.3, 30_000).astype(np.float32)
    stream, cuts = streaming.stream(rate=44_100), np.unique(random.integers(1, len(sound), 20))
    words = push_all(stream, np.split(sound, cuts))
    even = push_all(streaming.stream(), [as_int16(sound, 44_100)])
    assert [word.text for word in words] == [word.text for word in even]
    assert words[-1].delay_ms == pytest.approx(30_000 / 44.1)


def test_files_of_another_run_are_refused(tmp_path):
    run = write_run(tmp_path / "run")
    path = run / "features.json"
    record = json.loads(path.read_text())
    assert open_run(run).front_end.features.dims == record["features"]["filterbank"]["bins"]
    record["features"]["filterbank"] |= {"kind": "whisper"}
    path.write_text(json.dumps(record))
    with pytest.raises(RunError, match=r"features\.json .*kind was 'kaldi' and is 'whisper'"):
        open_run(run)
    learn(TEXT, VocabularyConfig(kind="characters", size=30)).save(run / TARGET_FILE)
    with pytest.raises(RunError, match=r"vocab\.target\.json has \d+ pieces .* trained with"):
        open_run(run)


def said(stream, *pieces) -> list[tuple[str, float]]:
    words = timed(push_all(stream, pieces))
    assert all(np.isfinite(delay_ms) and text for text, delay_ms in words)
    return words


QUIET = np.zeros(16_000, np.float32)
SOUNDS = {
    "digital silence": QUIET,
    "silence, then speech": np.concatenate([QUIET, noise(0.8, 1)]),
    "clipped": np.sign(noise(1.0, 2)),
    "all at 1": np.ones(16_000, np.float32),
    "stops in a word": noise(0.731, 4),
    "less than a frame": noise(0.02, 5),
    "one sample": noise(1 / 16_000, 6),
}


@pytest.mark.parametrize("name", SOUNDS)
def test_any_sound_is_translated_to_the_end(streaming, name):
    """The same whether it comes as floats or int16, whole or in pieces."""
    samples = SOUNDS[name]
    whole = said(streaming.stream(), samples)
    as_int16 = np.clip(np.rint(samples * 32768), -32768, 32767).astype(np.int16)
    pieces = np.array_split(as_int16, 7)
    again = said(streaming.stream(), *pieces)
    assert [text for text, _ in whole] == [text for text, _ in again]
    end = len(samples) / 16
    assert {at for _, at in whole} <= {end} and all(at <= end for _, at in again)
    assert whole or len(samples) < 400, "nothing at all was said"


def test_what_is_no_sound_is_refused_and_nothing_of_it_taken(streaming):
    """Whatever is refused at a time, the words and their delays are those of the rest."""
    good = np.array_split(noise(1.0, 7), 5)
    bad = [
        (np.array([0.1, np.nan], np.float32), "not finite"),
        (np.append(noise(0.3, 8), np.inf), "not finite"),
        (np.append(noise(0.3, 8), -np.inf), "not finite"),
        (np.zeros(100, np.int32), "int32"),
        (np.zeros(100, np.uint8), "uint8"),
        ([1, 2, 3], "int64"),
        (np.zeros((2, 100), np.float32), "one channel"),
        (np.zeros((100, 1), np.int16), "one channel"),
        (np.float32(0.5), "one channel"),
        (32767 * noise(0.3, 8), "scale them"),
    ]
    expected, stream, words = said(streaming.stream(), *good), streaming.stream(), []
    refusals = itertools.cycle(bad)
    for piece in good:
        for samples, reason in itertools.islice(refusals, 4):
            with pytest.raises(AudioError, match=reason):
                stream.push(samples)
        words += stream.push(piece)
    assert timed(words + stream.finish()) == expected != []


def test_all_that_is_mono_and_in_scale_is_taken(streaming):
    """As int16 to which all of these are rounded, so exactly alike; it may be overwritten then."""
    samples = np.rint(noise(0.9, 9) * 32768).clip(-32768, 32767) / 32768
    wide = np.repeat(samples, 3).astype(np.float32)
    ways = [samples, (samples * 32768).astype(np.int16), samples.tolist(), wide[::3]]
    found = [said(streaming.stream(), given) for given in (*ways, samples[::-1].copy()[::-1])]
    assert all(words == found[0] != [] for words in found), found
    pieces, stream, words = np.array_split(samples, 11), streaming.stream(), []
    expected, buffer = said(streaming.stream(), *pieces), np.zeros(2_000, np.float32)
    for piece in pieces:  # a microphone fills the same array again and again
        buffer[: len(piece)] = piece
        words += stream.push(buffer[: len(piece)])
        buffer[:] = np.nan
    assert timed(words + stream.finish()) == expected != []


@pytest.mark.parametrize("seconds", [0.6, 0.0])
def test_after_the_end(streaming, seconds):
    stream = streaming.stream()
    assert bool(said(stream, [], noise(seconds, 11))) == bool(seconds)
    assert stream.finish() == [] and stream.finish() == []
    with pytest.raises(ValueError, match="begin another"):
        stream.push(noise(0.1, 11))
