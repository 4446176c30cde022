"""Three threads and their queues: nothing is lost, nothing grows, everything ends."""

import threading
import time

import numpy as np
import pytest

from simuljax.audio import RATE, AudioError
from simuljax.serve.pipeline import Pipeline, TooSlowError, level_db
from tests.serve.live_fakes import Model, Voice, until

SOUND = np.random.default_rng(1).integers(-3000, 3000, 2 * RATE).astype(np.int16)
CHUNK = 800


def speech(samples=SOUND, error=None):
    """Yield sound in small pieces, then perhaps raise."""
    for first in range(0, len(samples), CHUNK):
        yield samples[first : first + CHUNK]
    if error:
        raise error


def endless(closed=None):
    try:
        while True:
            time.sleep(0.001)
            yield SOUND[:CHUNK]
    finally:
        if closed is not None:
            closed.set()


def run(pipeline: Pipeline) -> Pipeline:
    pipeline.start()
    assert pipeline.wait(20), "it hangs"
    return pipeline


def texts(pipeline: Pipeline) -> list[str]:
    return [word.text for word in pipeline.words]


def test_a_slow_model_hears_all_sound_in_order_in_longer_pieces():
    model = Model()
    model.gate.clear()
    pipeline = Pipeline(model, speech())
    pipeline.start()
    until(lambda: pipeline.recorded_s == 2.0)  # the recorder goes on while the model stalls
    model.gate.set()
    assert pipeline.wait(10) and pipeline.error is None
    np.testing.assert_array_equal(model.samples, SOUND)
    assert len(model.chunks) <= 2, "all that waits is to be taken at once"
    assert texts(pipeline) == [*(str(len(piece)) for piece in model.chunks), "end"]


def test_sound_of_a_patient_source_is_heard_when_the_model_takes_it():
    model = Model()
    model.gate.clear()
    pipeline = Pipeline(model, speech(), pace="fast")
    pipeline.start()
    until(lambda: pipeline.backlog == 39 * CHUNK and pipeline.recorded_s > 0)
    assert pipeline.recorded_s == CHUNK / RATE
    model.gate.set()
    assert pipeline.wait(10) and pipeline.recorded_s == 2.0


def test_a_patient_source_is_heard_piece_by_piece_in_bounded_memory():
    model, largest = Model(slow_s=0.005), 0
    pipeline = Pipeline(model, speech(), pace="fast", queue_s=0.2)
    pipeline.start()
    while not pipeline.wait(0.001):
        largest = max(largest, pipeline.backlog)
    assert 2 * CHUNK < largest <= 0.2 * RATE and pipeline.error is None
    np.testing.assert_array_equal(model.samples, SOUND)
    assert [len(piece) for piece in model.chunks] == [CHUNK] * 40  # whatever the speed


def test_a_model_too_far_behind_is_an_error_that_says_how_far_and_words_are_kept():
    model = Model()
    closed = threading.Event()

    def source():
        try:
            yield SOUND[:CHUNK]
            while not model.chunks:  # the first is taken; then the model stalls
                time.sleep(0.001)
            model.gate.clear()
            yield from endless()
        finally:
            closed.set()

    pipeline = Pipeline(model, source(), queue_s=1.0)
    pipeline.start()
    assert closed.wait(10), "the recorder has to stop"
    model.gate.set()
    assert pipeline.wait(10)
    assert isinstance(pipeline.error, TooSlowError)
    assert "1 s behind the speaker" in str(pipeline.error)
    assert "--pace fast" in str(pipeline.error)
    assert texts(pipeline)[0] == str(CHUNK)


def test_a_slow_voice_stalls_nobody_and_says_everything():
    voice = Voice()
    voice.gate.clear()
    pipeline = Pipeline(Model(), speech(), speaker=voice, pace="fast")
    pipeline.start()
    until(lambda: texts(pipeline)[-1:] == ["end"])  # the model goes on while the voice stalls
    assert len(pipeline.words) == 41 and voice.spoken == []
    voice.gate.set()
    assert pipeline.wait(20)
    assert " ".join(text for text, _ in voice.spoken).split() == texts(pipeline)
    assert len(voice.spoken) <= 2, "what waits is to be said at once"
    assert voice.finished


def test_a_piece_is_ready_when_its_sound_was_heard_and_the_model_is_done():
    voice = Voice()
    run(Pipeline(Model(slow_s=0.02), speech(SOUND[: 3 * CHUNK]), speaker=voice, pace="fast"))
    ready = [at for _, at in voice.spoken]  # 4 pieces, or fewer if the voice came late
    assert ready == sorted(ready)
    assert ready[0] >= CHUNK / RATE + 0.02
    assert 3 * CHUNK / RATE + 0.02 <= ready[-1] < 10.0


def test_words_of_a_live_source_have_the_time_on_the_clock():
    """Not the sum of all computation, which went on while the speaker spoke."""

    def speaker():
        for samples in speech(SOUND[: 6 * CHUNK]):
            time.sleep(CHUNK / RATE)
            yield samples

    began, voice = time.perf_counter(), Voice()
    pipeline = run(Pipeline(Model(slow_s=0.03), speaker(), speaker=voice))
    took_ms = (time.perf_counter() - began) * 1000
    elapsed = [word.elapsed_ms for word in pipeline.words]
    assert elapsed == sorted(elapsed) and elapsed[-1] < took_ms
    assert all(word.elapsed_ms >= word.delay_ms + 30 for word in pipeline.words[:-1])
    assert {at * 1000 for _, at in voice.spoken} <= {*elapsed}
    fast = run(Pipeline(Model(slow_s=0.03), speech(SOUND[: 2 * CHUNK]), pace="fast"))
    assert [w.elapsed_ms - w.delay_ms for w in fast.words] == [1, 1, 1], "as the stream has it"


def test_finish_drains_what_was_heard_and_closes_the_source():
    model, closed = Model(slow_s=0.05), threading.Event()
    pipeline = Pipeline(model, endless(closed))
    pipeline.start()
    while len(model.chunks) < 2:
        assert not pipeline.wait(0.01)
    pipeline.finish()
    assert pipeline.wait(10)
    assert closed.wait(5)
    assert len(model.samples) == round(pipeline.recorded_s * RATE)
    assert texts(pipeline)[-1] == "end"


def test_finish_does_not_wait_for_a_source_that_hangs():
    hang = threading.Event()

    def source():
        yield SOUND[:CHUNK]
        hang.wait(30)

    model = Model()
    pipeline = Pipeline(model, source())
    pipeline.start()
    until(lambda: model.chunks)
    pipeline.finish()
    assert pipeline.wait(5)
    assert texts(pipeline) == [str(CHUNK), "end"]
    hang.set()


def test_an_error_of_the_source_comes_after_what_was_heard():
    model, error = Model(slow_s=0.01), AudioError("truncated", "unplugged")
    pipeline = run(Pipeline(model, speech(error=error), speaker=(voice := Voice())))
    np.testing.assert_array_equal(model.samples, SOUND)
    assert pipeline.error is error
    assert texts(pipeline)[-1] == "end"
    assert "end" in voice.spoken[-1][0] and voice.finished


@pytest.mark.parametrize("who", ["recorder", "model", "voice"])
def test_an_unforeseen_error_ends_all_and_words_are_kept(who):
    closed, voice = threading.Event(), Voice(fails=who == "voice")
    model = Model(fails_at=3 if who == "model" else None)
    source = endless(closed) if who != "recorder" else speech(error=RuntimeError("odd"))
    pipeline = run(Pipeline(model, source, speaker=voice))
    assert str(pipeline.error) == ("odd" if who == "recorder" else f"the {who} broke")
    if who == "model":
        assert len(pipeline.words) == 3
    if who != "recorder":
        assert pipeline.words and "end" not in texts(pipeline) and not voice.finished
        assert closed.wait(5)


def test_progress():
    model = Model()
    pipeline = run(Pipeline(model, speech()))
    progress = pipeline.progress()
    assert (progress.recorded_s, progress.settled_s, progress.lag_s) == (2.0, 2.0, 0.0)
    assert progress.pending.startswith("perhaps") and progress.spoken_s is None
    assert progress.level_db == level_db(SOUND[-CHUNK:]) <= progress.loudest_db < -15


@pytest.mark.parametrize(
    ("samples", "db"),
    [(np.full(100, 32767), 0.0), (np.full(100, 3277), -20.0), (np.zeros(9), -100.0), ([], -100.0)],
)
def test_level(samples, db):
    assert level_db(np.asarray(samples, np.int16)) == pytest.approx(db, abs=0.01)


def test_a_chunk_larger_than_the_queue_passes_alone():
    model = Model()
    run(Pipeline(model, speech(), pace="fast", queue_s=0.01))
    np.testing.assert_array_equal(model.samples, SOUND)


def test_after_finish_no_sound_is_taken():
    """A source that waits for room in the queue is let go."""
    model, closed = Model(), threading.Event()
    model.gate.clear()
    pipeline = Pipeline(model, endless(closed), pace="fast", queue_s=0.1)
    pipeline.start()
    until(lambda: pipeline.backlog == 0.1 * RATE)
    pipeline.finish()
    assert closed.wait(5)
    model.gate.set()
    assert pipeline.wait(10)
    taken = len(model.samples)
    assert taken == round(pipeline.recorded_s * RATE)
    assert taken in (2 * CHUNK, 3 * CHUNK)  # with or without the one that the model holds
