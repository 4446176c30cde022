"""Many streams in one engine, from one thread and from many: nobody gets another's words."""

import random as chance
import threading
import time

import numpy as np
import pytest

from simuljax.serve.engine import Behind, Engine, EngineFull, EngineStream
from simuljax.serve.run_translator import RunTranslator
from tests.helpers import streams
from tests.helpers.models import compilations
from tests.helpers.streams import DECODING, SPEECH

LIMITS = {"states": 60, "tokens": 30, "events": 4, "decoding": DECODING}
Told = list[tuple[str, float]]
COUNT, ROWS = 60, 24


@pytest.fixture(scope="module")
def speaker() -> RunTranslator:
    return streams.translator(speech=SPEECH)


@pytest.fixture(scope="module")
def material() -> streams.Material:
    return streams.material(4, COUNT, 28_800)


@pytest.fixture(scope="module")
def alone(speaker, material) -> list[Told]:
    """Each recording in a stream that has the device to itself."""
    return [
        streams.listened(speaker.stream(**LIMITS), recording, cuts).words
        for recording, cuts in zip(material.recordings, material.cuts, strict=True)
    ]


@pytest.fixture(scope="module")
def engine(speaker) -> Engine:
    return speaker.engine(streams=8, waiting_ms=2_000, **LIMITS)


class Speaker:
    """One who pushes his pieces at his own pace, and may leave in the middle."""

    def __init__(
        self, seat: EngineStream, recording: np.ndarray, cuts: list[int], random: chance.Random
    ):
        self.seat, self.random = seat, random
        self.pieces = np.split(recording, np.cumsum(cuts)[:-1])
        self.pace, self.pauses = random.choice([1, 10, 100]), random.random()
        self.leaves = random.randrange(len(cuts)) if random.random() < 0.2 else None
        self.told: Told = []
        self.done = self.left = False

    def turn(self) -> None:
        """Some pieces, or a pause; then what has been said so far."""
        if self.random.random() > self.pauses:
            for _ in range(self.pace):
                self.push()
        self.told += [(word.text, word.delay_ms) for word in self.seat.words()]
        self.done = self.left or self.seat.done

    def push(self) -> None:
        if self.left or self.seat.done:
            return
        if self.leaves is not None and len(self.pieces) <= self.leaves:
            self.seat.leave()
            self.left = True
        elif self.pieces:
            self.seat.push(self.pieces.pop(0))
        else:
            self.seat.finish()


@pytest.mark.slow
def test_many_streams_get_what_each_gets_alone(speaker, material, alone):
    """More than there are rows, which come, pause, hurry and leave by chance."""
    engine, random = speaker.engine(streams=ROWS, **LIMITS), chance.Random(5)
    waiting, seated, everybody, most = list(range(COUNT)), {}, {}, 0
    while waiting or seated:
        while waiting and engine.free and random.random() < 0.97:
            who = waiting.pop()
            given = (engine.open(), material.recordings[who], material.cuts[who], random)
            seated[who] = everybody[who] = Speaker(*given)
        for speaks in seated.values():
            speaks.turn()
        most = max(most, len(seated))
        engine.step()
        seated = {who: speaks for who, speaks in seated.items() if not speaks.done}
    left = [who for who, speaks in everybody.items() if speaks.left]
    for who, speaks in everybody.items():
        expected = alone[who][: len(speaks.told)] if speaks.left else alone[who]
        assert speaks.told == expected
    assert 4 < len(left) < 20 and most >= ROWS
    early = sum(
        at < len(material.recordings[who]) / 16 for who in everybody for _, at in alone[who]
    )
    assert sum(map(len, alone)) > 120 and early > 40
    assert compilations(engine.backend.step) == 2, "of one stream, and of many"
    assert len(engine.free) == ROWS


def speak(engine: Engine, material, who: int, random: chance.Random) -> tuple[bool, Told]:
    """A stream from a thread of its own: whether it stayed to the end, and what it was told."""
    while True:
        try:
            seat = engine.open()
            break
        except EngineFull:
            time.sleep(0.002)
    leaves = random.random() < 0.3
    pieces = np.split(material.recordings[who], np.cumsum(material.cuts[who])[:-1])
    pieces = pieces[: random.randrange(len(pieces))] if leaves else pieces
    for piece in pieces:
        patient = random.random() < 0.7
        try:
            seat.push(piece, timeout=60 if patient else 0)
        except Behind:
            seat.push(piece, timeout=60)
    if leaves:
        told = seat.words()
        seat.leave()
        return False, [(word.text, word.delay_ms) for word in told]
    seat.finish()
    return True, [(word.text, word.delay_ms) for word in seat]


@pytest.mark.slow
def test_16_threads_with_several_streams_each(engine, material, alone):
    results: dict[int, tuple[bool, Told]] = {}

    def run(name: int) -> None:
        random = chance.Random(name)
        for who in range(name, COUNT, 16):
            results[who] = speak(engine, material, who, random)

    with engine:
        threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
    assert len(results) == COUNT, "somebody waits for ever, or was refused"
    for who, (stayed, told) in results.items():
        assert told == (alone[who] if stayed else alone[who][: len(told)]), who
    assert 8 < sum(not stayed for stayed, _ in results.values()) < 32
    assert len(engine.free) == len(engine.streams) and not engine.ready
