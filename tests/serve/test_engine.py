"""Streams in company write what they write alone, whoever comes, goes, pauses or hurries."""

import threading
import time

import numpy as np
import pytest

from simuljax.audio import AudioError
from simuljax.config.decoding import Decoding
from simuljax.profile.measure import counted_programs
from simuljax.serve.engine import Behind, Engine, EngineFull
from simuljax.serve.run_translator import IncrementalBackend
from simuljax.serve.session import ReadSession
from simuljax.text import WordStream
from tests.helpers.streams import VOCABULARY, Streams, timed

ROWS, READ = 4, 1600
BLANK = WordStream.begin(VOCABULARY)


def open_session() -> ReadSession:
    return ReadSession(BLANK, read=READ, most=60 * 640, decoding=Decoding(sentences="one"))


@pytest.fixture(scope="module")
def streams():
    return Streams(batch=ROWS, samples=READ, target_vocabulary=VOCABULARY.size)


def backend(streams: Streams) -> IncrementalBackend:
    return IncrementalBackend(streams.decoder, streams.params, open_session)


@pytest.fixture(scope="module")
def engine(streams):
    return Engine(backend(streams), streams=ROWS, waiting_ms=1000)


def sound(seed: int, seconds: float | None = None) -> np.ndarray:
    random = np.random.default_rng(seed)
    count = int((seconds or random.uniform(0.2, 2.0)) * 16_000)
    loud = np.repeat(random.uniform(0.0, 0.3, count // 800 + 1), 800)[:count]
    return (random.normal(size=count) * loud).clip(-1, 1).astype(np.float32)


def drain(engine: Engine) -> None:
    while engine.step():
        pass


def alone(engine: Engine, recording: np.ndarray) -> list[tuple[str, float]]:
    """READ for READ, with nobody else there."""
    seat = engine.open()
    for first in range(0, len(recording), READ):
        seat.push(recording[first : first + READ])
        drain(engine)
    seat.finish()
    drain(engine)
    assert seat.done
    return timed(seat.words())


def test_newcomers_wait_for_no_compiler(streams):
    """However many begin at once, also in the steps by which a server measures itself."""
    made = backend(streams)
    made.compile(ROWS)
    with counted_programs() as programs:
        fresh = Engine(made, streams=ROWS, waiting_ms=1000)
        for count in range(1, ROWS + 1):
            seats = [fresh.open() for _ in range(count)]
            for seat in seats:
                seat.push(np.zeros(READ, np.float32))
            assert fresh.step() == count
            for seat in seats:
                seat.leave()
    assert programs == []


def test_company_comes_and_goes(engine):
    """More streams than rows, each at its own pace; a row is taken over when it is free.

    Every fifth speaker leaves in the middle, and was told the beginning.
    """
    random = np.random.default_rng(1)
    recordings = [sound(seed) for seed in range(14)]
    expected = [alone(engine, recording) for recording in recordings]
    assert sum(len(words) for words in expected) > 20
    assert len({delay for words in expected for _, delay in words}) > 10
    waiting, seated = list(range(len(recordings))), {}
    said: dict[int, list[tuple[str, float]]] = {name: [] for name in waiting}
    while waiting or seated:
        while waiting and len(seated) < ROWS and random.random() < 0.5:
            seated[waiting[0]] = (engine.open(), 0)
            waiting.pop(0)
        for name, (seat, place) in list(seated.items()):
            if random.random() < 0.3:
                continue  # pauses
            if name % 5 == 2 and place > len(recordings[name]) / 2:
                seat.leave()
                del seated[name]
                continue
            piece = recordings[name][place : place + READ]
            seat.push(piece) if len(piece) else seat.finish()
            seated[name] = (seat, place + len(piece))
        engine.step()
        for name, (seat, _) in list(seated.items()):
            said[name] += timed(seat.words())
            if seat.done:
                del seated[name]
    left = range(2, len(recordings), 5)
    for name, words in said.items():
        assert words == (expected[name][: len(words)] if name in left else expected[name])
    assert any(0 < len(said[name]) < len(expected[name]) for name in left)
    assert engine.backend.step._cache_size() == 1 and len(engine.free) == ROWS


def test_a_full_engine_refuses_and_a_slow_one_holds_back(engine):
    seats = [engine.open() for _ in range(ROWS)]
    with pytest.raises(EngineFull, match=f"all {ROWS}"):
        engine.open()
    seats[0].push(sound(1, 0.9))
    with pytest.raises(Behind, match="900 ms of sound wait"):
        seats[0].push(sound(2, 0.2))
    engine.step()
    seats[0].push(sound(2, 0.2))
    with pytest.raises(ValueError, match="push less at a time"):
        seats[1].push(sound(2, 1.2))
    with pytest.raises(AudioError, match="not finite"):
        seats[1].push(np.array([np.nan]))
    for seat in seats:
        seat.leave()
    assert len(engine.free) == ROWS


def test_threads_push_and_wait_for_words(engine):
    """More of them than rows; nobody is patient before he is told to be, and some leave."""
    names = range(3 * ROWS)
    recordings = [sound(30 + name, 1.5) for name in names]
    expected = [[text for text, _ in alone(engine, recording)] for recording in recordings]
    said: dict[int, list[str]] = {}

    def speak(name: int) -> None:
        while True:
            try:
                seat = engine.open()
                break
            except EngineFull:
                time.sleep(0.002)
        for piece in np.array_split(recordings[name], 23)[: 14 if name % 3 == 1 else None]:
            try:
                seat.push(piece)
            except Behind:
                seat.push(piece, timeout=60)
        if name % 3 == 1:
            said[name] = [word.text for word in seat.words()]
            seat.leave()
        else:
            seat.finish()
            said[name] = [word.text for word in seat]

    with engine:
        threads = [threading.Thread(target=speak, args=(name,), daemon=True) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert len(said) == len(names), "somebody waits for ever, or was refused"
    for name, words in said.items():
        assert words == (expected[name][: len(words)] if name % 3 == 1 else expected[name])
    assert len(engine.free) == ROWS and not engine.ready
    assert all(late >= 0 for late in engine.latencies_ms)


def test_a_failure_reaches_those_who_wait(streams, monkeypatch):
    engine = Engine(backend(streams), streams=ROWS)
    monkeypatch.setattr(engine.rows, "step", lambda reads: 1 / 0)
    monkeypatch.setattr(threading, "excepthook", lambda args: None)  # it is raised there too
    with engine:
        seat = engine.open()
        seat.push(sound(1, 0.3))
        with pytest.raises(RuntimeError, match="has stopped"):
            list(seat)


def test_a_word_says_when_it_was_there(engine):
    early = []
    for seed in range(4):
        seat = engine.open()
        seat.offer((sound(seed, 0.8) * 32767).astype("<i2").tobytes())
        if seed % 2:
            seat.offer(None)  # the end came then too, though no step has taken it
        time.sleep(0.2)
        drain(engine)
        early += seat.words()
        seat.leave()
    assert early and all(word.delay_ms == 800 and word.elapsed_ms >= 1000 for word in early)


def test_sound_that_is_being_taken_still_waits(engine, monkeypatch):
    """Else a client could send more in the meantime, and more than may wait."""
    seat, seen = engine.open(), []
    push = seat.session.push_pcm

    def watched(pieces):
        seen.append(seat.waiting_ms)
        push(pieces)

    monkeypatch.setattr(seat.session, "push_pcm", watched)
    seat.offer(bytes(32_000))
    engine.take_offered()
    assert [*seen, seat.waiting_ms] == [1000, 1000]
    seat.leave()


def test_words_of_one_who_left_reach_nobody(engine, monkeypatch):
    """His row is taken over while the device still works on what he said."""
    first, newcomers, advance = engine.open(), [], engine.rows.step

    def meanwhile(reads):
        events = advance(reads)
        if events[first.row].finished:
            first.leave()
            while engine.free:
                newcomers.append(engine.open())
        return events

    first.push(sound(0, 0.9))
    first.finish()
    monkeypatch.setattr(engine.rows, "step", meanwhile)
    drain(engine)
    heard = [seat.words() for seat in newcomers]
    over = [seat.done for seat in newcomers]
    for seat in newcomers:
        seat.leave()
    assert first.row in {seat.row for seat in newcomers}
    assert heard == [[]] * len(newcomers) and not any(over)


def test_a_closed_engine_leaves_nobody_waiting(engine):
    """Neither who waits for words already, nor who comes later."""
    errors: list[str] = []

    def wait() -> None:
        try:
            list(seat)
        except RuntimeError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(2)]
    with engine:
        seat = engine.open()
        seat.push(sound(0, 0.01))  # less than a READ: there is nothing to do
        threads[0].start()
        time.sleep(0.1)
    threads[1].start()
    for thread in threads:
        thread.join(2)
    hung = any(thread.is_alive() for thread in threads)
    with engine.changed:  # lets them go, if they hang
        seat.session.finished = True
        engine.changed.notify_all()
    seat.leave()
    assert not hung
    assert len(errors) == 2 and all("closed" in error for error in errors)
