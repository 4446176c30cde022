"""Many streams in one engine, from one thread and from many: nobody gets another's words."""

import pickle
import random as chance
import threading
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.serve.engine import Behind, Engine, EngineFull, EngineStream
from simuljax.serve.run_translator import RunTranslator
from tests.helpers import streams
from tests.helpers.models import compilations
from tests.helpers.streams import DECODING, SPEECH, sound

LIMITS = {"states": 60, "tokens": 30, "events": 4, "decoding": DECODING}
Told = list[tuple[str, float]]


@pytest.fixture(scope="module")
def speaker() -> RunTranslator:
    return streams.translator(speech=SPEECH)


@pytest.fixture(scope="module")
def material() -> streams.Material:
    return streams.material(4, 150, 28_800)


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
def test_64_streams_get_what_each_gets_alone(speaker, material, alone):
    """150 of them in 64 rows, which come, pause, hurry and leave by chance."""
    engine, random = speaker.engine(streams=64, **LIMITS), chance.Random(5)
    waiting, seated, everybody, most = list(range(150)), {}, {}, 0
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
    assert 10 < len(left) < 50 and most >= 64
    early = sum(
        at < len(material.recordings[who]) / 16 for who in everybody for _, at in alone[who]
    )
    assert sum(map(len, alone)) > 300 and early > 100
    assert compilations(engine.backend.step) == 2, "of one stream, and of 64"
    assert len(engine.free) == 64


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
        for who in range(name, 150, 16):
            results[who] = speak(engine, material, who, random)

    with engine:
        threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
    assert len(results) == 150, "somebody waits for ever, or was refused"
    for who, (stayed, told) in results.items():
        assert told == (alone[who] if stayed else alone[who][: len(told)]), who
    assert 20 < sum(not stayed for stayed, _ in results.values()) < 80
    assert len(engine.free) == len(engine.streams) and not engine.ready


def new_speaker() -> RunTranslator:
    """A new one each time; nothing compiled is shared."""
    return streams.translator(speech=SPEECH)


def store(stream: Any, path: Path) -> None:
    """Arrays of the device as NumPy's, and the books."""
    leaves = jax.device_get(jax.tree.leaves(stream.rows.state))
    np.savez(path / "state.npz", *leaves)
    (path / "books.pickle").write_bytes(pickle.dumps(stream.session))


def restored(translator: RunTranslator, path: Path) -> Any:
    stream: Any = translator.stream(**LIMITS)
    tree = jax.tree.structure(stream.rows.state)
    with np.load(path / "state.npz") as stored:
        leaves = [jnp.asarray(stored[name]) for name in stored.files]
    stream.rows.state = jax.device_put(tree.unflatten(leaves), jax.local_devices()[0])
    stream.session = pickle.loads((path / "books.pickle").read_bytes())
    return stream


def timed(words) -> list[tuple[str, float]]:
    return [(word.text, word.delay_ms) for word in words]


@pytest.mark.slow
def test_a_stream_goes_on_from_a_file(tmp_path):
    """After every push, by turns in a stream of its own and in some row of an engine."""
    random, first, second = np.random.default_rng(2), new_speaker(), new_speaker()
    engine, halves = second.engine(streams=3, **LIMITS), np.zeros(2, int)
    for row in range(3):
        pieces = np.array_split(sound(random, 28_000), 9)
        whole = first.stream(**LIMITS)
        expected = [timed(whole.push(piece)) for piece in pieces] + [timed(whole.finish())]
        early = first.stream(**LIMITS)
        for turn, piece in enumerate(pieces[:-1]):
            assert timed(early.push(piece)) == expected[turn]
            store(early, tmp_path)
            later = restored(second, tmp_path)
            rest = [timed(later.push(piece)) for piece in pieces[turn + 1 :]]
            assert [*rest, timed(later.finish())] == expected[turn + 1 :]
            assert compilations(later.backend.step) == 2, "one for a row, one for three"
            halves += sum(map(len, expected[: turn + 1])), sum(map(len, expected[turn + 1 :]))
        in_a_row(engine, row, restored(second, tmp_path), pieces[-1:], expected[-2:])
    assert (halves > 30).all(), "nothing on one side of the cut"


def in_a_row(engine, row: int, stream: Any, pieces, expected) -> None:
    """The rest of a stream, moved into a row of an engine."""
    seats = [engine.open() for _ in range(3)]
    seat = next(seat for seat in seats if seat.row == row)
    seat.session = stream.session
    rows = engine.rows
    rows.state = rows.backend.put(rows.state, np.int32(row), stream.rows.state)
    found = []
    for piece in [*pieces, None]:
        seat.finish() if piece is None else seat.push(piece)
        while engine.step():
            pass
        found.append(timed(seat.words()))
    assert found == expected
    for seat in seats:
        seat.leave()
