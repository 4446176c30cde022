"""Three threads: nothing is lost, nothing grows, everything ends."""

import dataclasses
import threading
import time

import numpy as np
import pytest

from simuljax.audio import RATE, AudioError
from simuljax.serve.interpret import Greedy, Interpreting
from simuljax.serve.interpret.pipeline import Pipeline, level_db
from simuljax.serve.interpret.waiting import BehindError
from tests.serve.interpret.pretended import Model, Voice

SOUND = np.random.default_rng(1).integers(-3000, 3000, 2 * RATE).astype(np.int16)
PIECE = 800


def spoken(samples=SOUND, error=None):
    """Sound in small pieces, then perhaps an error."""
    for first in range(0, len(samples), PIECE):
        yield samples[first : first + PIECE]
    if error:
        raise error


def endless(closed=None):
    try:
        while True:
            time.sleep(0.001)
            yield SOUND[:PIECE]
    finally:
        if closed is not None:
            closed.set()


def run(pipeline: Pipeline) -> Pipeline:
    pipeline.start()
    assert pipeline.wait(20), "it hangs"
    return pipeline


def until(happens, seconds=10.0) -> None:
    end = time.perf_counter() + seconds
    while not happens():
        assert time.perf_counter() < end, "it never happens"
        time.sleep(0.001)


def texts(pipeline: Pipeline) -> list[str]:
    return [word.text for word in pipeline.words]


def test_a_slow_model_hears_all_sound_in_order_in_longer_pieces():
    model = Model()
    model.gate.clear()
    pipeline = Pipeline(model, spoken())
    pipeline.start()
    until(lambda: pipeline.heard_s == 2.0)  # the recorder goes on while the model stalls
    model.gate.set()
    assert pipeline.wait(10) and pipeline.error is None
    np.testing.assert_array_equal(model.samples, SOUND)
    assert len(model.heard) <= 2, "all that waits is to be taken at once"
    assert texts(pipeline) == [*(str(len(piece)) for piece in model.heard), "end"]


def test_a_patient_source_is_heard_piece_by_piece_whatever_the_speed():
    model = Model(slow_s=0.005)
    pipeline = run(Pipeline(model, spoken(), pace="fast"))
    np.testing.assert_array_equal(model.samples, SOUND)
    assert [len(piece) for piece in model.heard] == [PIECE] * 40
    assert pipeline.error is None


def test_sound_of_a_patient_source_is_heard_when_the_model_takes_it():
    model = Model()
    model.gate.clear()
    pipeline = Pipeline(model, spoken(), pace="fast")
    pipeline.start()
    until(lambda: pipeline.sound.size == 39 * PIECE and pipeline.heard_s > 0)
    assert pipeline.heard_s == PIECE / RATE
    model.gate.set()
    assert pipeline.wait(10) and pipeline.heard_s == 2.0


def test_memory_is_bounded_for_a_patient_source():
    model, largest = Model(slow_s=0.005), 0
    pipeline = Pipeline(model, spoken(), pace="fast", most_s=0.2)
    pipeline.start()
    while not pipeline.wait(0.001):
        largest = max(largest, pipeline.sound.size)
    assert 2 * PIECE < largest <= 0.2 * RATE
    np.testing.assert_array_equal(model.samples, SOUND)


def test_a_model_too_far_behind_is_an_error_that_says_how_far_and_words_are_kept():
    model = Model()
    closed = threading.Event()

    def source():
        try:
            yield SOUND[:PIECE]
            while not model.heard:  # the first is heard; then the model stalls
                time.sleep(0.001)
            model.gate.clear()
            yield from endless()
        finally:
            closed.set()

    pipeline = Pipeline(model, source(), most_s=1.0)
    pipeline.start()
    assert closed.wait(10), "the recorder has to stop"
    model.gate.set()
    assert pipeline.wait(10)
    assert isinstance(pipeline.error, BehindError)
    assert "1 s behind the speaker" in str(pipeline.error)
    assert "--pace fast" in str(pipeline.error)
    assert texts(pipeline)[0] == str(PIECE)


def test_a_slow_voice_stalls_nobody_and_says_everything():
    voice = Voice()
    voice.gate.clear()
    pipeline = Pipeline(Model(), spoken(), speaker=voice, pace="fast")
    pipeline.start()
    until(lambda: texts(pipeline)[-1:] == ["end"])  # the model goes on while the voice stalls
    assert len(pipeline.words) == 41 and voice.said == []
    voice.gate.set()
    assert pipeline.wait(20)
    assert " ".join(text for text, _ in voice.said).split() == texts(pipeline)
    assert len(voice.said) <= 2, "what waits is to be said at once"
    assert voice.finished


def test_a_piece_is_ready_when_its_sound_was_heard_and_the_model_is_done():
    voice = Voice()
    run(Pipeline(Model(slow_s=0.02), spoken(SOUND[: 3 * PIECE]), speaker=voice, pace="fast"))
    ready = [at for _, at in voice.said]  # 4 pieces, or fewer if the voice came late
    assert ready == sorted(ready)
    assert ready[0] >= PIECE / RATE + 0.02
    assert 3 * PIECE / RATE + 0.02 <= ready[-1] < 10.0


def test_finish_drains_what_was_heard_and_closes_the_source():
    model, closed = Model(slow_s=0.05), threading.Event()
    pipeline = Pipeline(model, endless(closed))
    pipeline.start()
    while len(model.heard) < 2:
        assert not pipeline.wait(0.01)
    pipeline.finish()
    assert pipeline.wait(10)
    assert closed.wait(5)
    assert len(model.samples) == round(pipeline.heard_s * RATE)
    assert texts(pipeline)[-1] == "end"


def test_finish_does_not_wait_for_a_source_that_hangs():
    hang = threading.Event()

    def source():
        yield SOUND[:PIECE]
        hang.wait(30)

    model = Model()
    pipeline = Pipeline(model, source())
    pipeline.start()
    until(lambda: model.heard)
    pipeline.finish()
    assert pipeline.wait(5)
    assert texts(pipeline) == [str(PIECE), "end"]
    hang.set()


def test_an_error_of_the_source_comes_after_what_was_heard():
    model, error = Model(slow_s=0.01), AudioError("truncated", "unplugged")
    pipeline = run(Pipeline(model, spoken(error=error), speaker=(voice := Voice())))
    np.testing.assert_array_equal(model.samples, SOUND)
    assert pipeline.error is error
    assert texts(pipeline)[-1] == "end"
    assert "end" in voice.said[-1][0] and voice.finished


def test_an_unforeseen_error_in_the_recorder_ends_all():
    pipeline = run(Pipeline(Model(), spoken(error=RuntimeError("odd")), speaker=Voice()))
    assert isinstance(pipeline.error, RuntimeError)


def test_an_error_of_the_model_ends_all_and_words_are_kept():
    closed = threading.Event()
    pipeline = run(Pipeline(Model(fails_at=3), endless(closed), speaker=Voice()))
    assert str(pipeline.error) == "the model broke"
    assert len(pipeline.words) == 3
    assert closed.wait(5)


def test_an_error_of_the_voice_ends_all_and_words_are_kept():
    closed = threading.Event()
    voice = Voice(fails=True)
    pipeline = run(Pipeline(Model(), endless(closed), speaker=voice))
    assert str(pipeline.error) == "the voice broke"
    assert pipeline.words and not voice.finished
    assert "end" not in texts(pipeline)
    assert closed.wait(5)


def test_settings_change_before_the_next_push():
    model = Model()
    pipeline = Pipeline(model, endless())
    pipeline.start()
    settings = dataclasses.replace(Interpreting(), policy=Greedy())
    pipeline.change(settings)
    until(lambda: model.changes)
    pipeline.finish()
    assert pipeline.wait(10)
    assert model.changes == [settings]


def test_progress_tells_what_was_heard_and_done():
    model = Model()
    pipeline = run(Pipeline(model, spoken()))
    progress = pipeline.progress()
    assert (progress.heard_s, progress.pushed_s, progress.done_s) == (2.0, 2.0, 2.0)
    assert progress.hypothesis.startswith("perhaps") and progress.spoken_s is None
    assert progress.level_db == level_db(SOUND[-PIECE:])


@pytest.mark.parametrize(
    ("samples", "db"),
    [(np.full(100, 32767), 0.0), (np.full(100, 3277), -20.0), (np.zeros(9), -100.0), ([], -100.0)],
)
def test_level(samples, db):
    assert level_db(np.asarray(samples, np.int16)) == pytest.approx(db, abs=0.01)
