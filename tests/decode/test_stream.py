"""The streaming step: pieces of any size give what a pass from scratch on the same sound gives."""

import itertools

import jax
import numpy as np
import pytest

from simuljax.audio import Features
from simuljax.decode.stream import StreamingDecoder, StreamLimits
from tests.decode.test_caat import MOST, utterances
from tests.helpers.streams import Streams, cut, moved


@pytest.fixture(scope="module")
def streams():
    return Streams()


@pytest.fixture(scope="module")
def example(streams):
    """Recordings, how they are cut, what is written, and the states of all steps."""
    sounds, pieces = utterances(streams, 1)
    return sounds, pieces, *streams.run(sounds, pieces)


def test_how_the_sound_is_cut_changes_only_when_a_token_is_written(streams, example):
    sounds, _, found, _ = example
    random = np.random.default_rng(8)
    other, _ = streams.run(sounds, [cut(random, len(s), streams.size) for s in sounds])
    assert [row[::2] for row in found] == [row[::2] for row in other]
    assert [row[1] for row in found] != [row[1] for row in other]


def test_later_sound_changes_nothing_before_it(streams, example):
    sounds, pieces, found, _ = example
    noise = np.random.default_rng(2).normal(scale=0.3, size=MOST).astype(np.float32)
    changed = [np.where(np.arange(len(s)) < 5_500, s, noise[: len(s)]) for s in sounds]
    other, _ = streams.run(changed, pieces)
    early = [[sum(n <= 5_500 for n in row[1]) for row in rows] for rows in (found, other)]
    assert early[0] == early[1] and sum(early[0]) > 3
    for n, a, b in zip(early[0], found, other, strict=True):
        assert a[0][:n] == b[0][:n]
    assert found != other


def test_a_stream_can_move_to_another_row(streams, example):
    sounds, pieces, found, _ = example
    rows, old, new = moved(streams, sounds, pieces)
    assert [a + b for a, b in zip(rows[0], rows[5], strict=True)] == found[0]
    assert rows[0][0] and rows[5][0]
    for one, other in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True):
        np.testing.assert_array_equal(one, other)


def check(streams, seed, history, reads=10):
    sounds, pieces = utterances(streams, seed)
    found, _ = streams.run(sounds, pieces)
    assert found == streams.expected(sounds, pieces, history=history, size=MOST)
    assert len({(b, n) for b, row in enumerate(found) for n in row[1]}) >= reads, "too few READs"
    assert streams.compilations == 1
    return found


def test_random_pieces_decide_as_a_pass_from_scratch(streams):
    """Among these is one where an upper layer must judge anew what it rejected before a READ."""
    check(streams, 1, "recomputed", reads=15)


def test_a_read_leaves_everything_but_pointers(streams, example):
    """And these never move back."""
    *_, states = example
    reads = 0
    for before, after in itertools.pairwise(states):
        old, new = before.prefix, after.prefix
        assert (new.pointer >= old.pointer).all()
        assert (new.pointer <= after.source.known.progress.count[:, None]).all()
        if (new.position == old.position).all():
            reads += 1
            same = [p.replace(pointer=0, finished=0) for p in (old, new)]
            jax.tree.map(np.testing.assert_array_equal, *same)
    assert reads > 3 and np.any(states[-1].prefix.pointer)


def test_company_has_no_influence(streams, example):
    sounds, pieces, found, _ = example
    for row in (0, 5):
        alone = [s if b == row else s[:0] for b, s in enumerate(sounds)]
        silent = [p if b == row else [0] * len(p) for b, p in enumerate(pieces)]
        assert streams.run(alone, silent)[0][row] == found[row]
    assert streams.compilations == 1


def test_what_is_no_number_is_silence(streams, example):
    sounds, pieces, *_ = example
    holes = [np.arange(len(s)) % 7_000 < 900 for s in sounds]
    broken, silent = (
        [np.where(hole, x, s) for hole, s in zip(holes, sounds, strict=True)] for x in (np.nan, 0)
    )
    assert streams.run(broken, pieces)[0] == streams.run(silent, pieces)[0]


def test_nothing_is_heard_after_the_end_or_without_room(streams):
    random = np.random.default_rng(9)
    sounds = [random.normal(size=64_000).astype(np.float32) for _ in range(streams.batch)]
    states, rows = [streams.start()], [([], [], []) for _ in sounds]
    for turn in range(40):  # row 0 ends by itself, row 1 has no more room after 60 states
        starts = np.full(streams.batch, turn * streams.size)
        length = np.where(np.arange(streams.batch) < 2, streams.size, 0)
        ended = (np.arange(streams.batch) == 0) & (turn == 12)
        streams.turn(states, rows, streams.chunk(sounds, starts, length, ended))
    heard = states[-1].source.known.progress
    assert heard.lengths.tolist() == [32, 60] + [0] * 6 and heard.ended.tolist()[:2] == [True] * 2
    assert states[-1].prefix.finished.tolist() == [True, True] + [False] * 6
    assert states[-1].samples[0] == 13 * streams.size and rows[0][0]
    jax.tree.map(np.testing.assert_array_equal, states[-1].prefix, states[-2].prefix)


def test_mistakes_are_named(streams):
    with pytest.raises(ValueError, match="takes 6 features and these are 80"):
        StreamingDecoder(model=streams.decoder.model, features=Features())
    with pytest.raises(ValueError, match="events is 0"):
        StreamLimits(events=0)
    with pytest.raises(ValueError, match="decides at words"):
        Streams(kind="words").start()
