"""A stream in the middle of its work, written to a file and taken up by another decoder."""

import pickle
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.serve.run_translator import RunTranslator
from simuljax.serve.stream import Stream
from tests.decode import spoken
from tests.decode.small import compilations
from tests.decode.streams import DECODING, SPEECH, sound

LIMITS = {"states": 60, "tokens": 30, "events": 4, "decoding": DECODING}


def speaker() -> RunTranslator:
    """A new one each time; nothing compiled is shared."""
    return spoken.translator(speech=SPEECH)


def store(stream: Stream, path: Path) -> None:
    """Arrays of the device as NumPy's, and the books."""
    leaves = jax.device_get(jax.tree.leaves(stream.rows.state))
    np.savez(path / "state.npz", *leaves)
    (path / "books.pickle").write_bytes(pickle.dumps(stream.session))


def restored(translator: RunTranslator, path: Path) -> Stream:
    stream = translator.stream(**LIMITS)
    tree = jax.tree.structure(stream.rows.state)
    with np.load(path / "state.npz") as stored:
        leaves = [jnp.asarray(stored[name]) for name in stored.files]
    stream.rows.state = jax.device_put(tree.unflatten(leaves), jax.local_devices()[0])
    stream.session = pickle.loads((path / "books.pickle").read_bytes())
    return stream


def told(words) -> list[tuple[str, float]]:
    return [(word.text, word.delay_ms) for word in words]


@pytest.mark.slow
def test_a_stream_goes_on_from_a_file(tmp_path):
    """After every push, by turns in a stream of its own and in some row of an engine."""
    random, first, second = np.random.default_rng(2), speaker(), speaker()
    engine, halves = second.engine(streams=3, **LIMITS), np.zeros(2, int)
    for row in range(3):
        pieces = np.array_split(sound(random, 28_000), 9)
        whole = first.stream(**LIMITS)
        expected = [told(whole.push(piece)) for piece in pieces] + [told(whole.finish())]
        early = first.stream(**LIMITS)
        for turn, piece in enumerate(pieces[:-1]):
            assert told(early.push(piece)) == expected[turn]
            store(early, tmp_path)
            later = restored(second, tmp_path)
            rest = [told(later.push(piece)) for piece in pieces[turn + 1 :]]
            assert [*rest, told(later.finish())] == expected[turn + 1 :]
            assert compilations(later.backend.step) == 2, "one for a row, one for three"
            halves += sum(map(len, expected[: turn + 1])), sum(map(len, expected[turn + 1 :]))
        in_a_row(engine, row, restored(second, tmp_path), pieces[-1:], expected[-2:])
    assert (halves > 30).all(), "nothing on one side of the cut"


def in_a_row(engine, row: int, stream: Stream, pieces, expected) -> None:
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
        found.append(told(seat.words()))
    assert found == expected
    for seat in seats:
        seat.leave()
