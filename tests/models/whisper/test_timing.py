"""Paths, medians and punctuation, each against a slower way to the same."""

import numpy as np
import pytest
import scipy.ndimage

from simuljax.models.whisper.timing import (
    TimedWord,
    alignment_matrix,
    cheapest_path,
    median_filter,
    with_punctuation,
)

RANDOM = np.random.default_rng(0)


def slow_path(cost):
    """Dynamic programming cell by cell."""
    rows, columns = cost.shape
    best = {(-1, -1): (0.0, [])}

    def at(i, j):
        return best.get((i, j), (np.inf, []))

    for i in range(rows):
        for j in range(columns):
            both, down, right = at(i - 1, j - 1), at(i - 1, j), at(i, j - 1)
            before = right
            if both[0] < down[0] and both[0] < right[0]:
                before = both
            elif down[0] < both[0] and down[0] < right[0]:
                before = down
            best[i, j] = (before[0] + cost[i, j], [*before[1], (i, j)])
    return best[rows - 1, columns - 1]


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (5, 1), (4, 9), (9, 4), (12, 12)])
def test_the_cheapest_path(shape):
    for draw in (RANDOM.normal(size=shape), RANDOM.integers(0, 3, shape).astype(float)):
        total, path = slow_path(draw)
        rows, columns = cheapest_path(draw)
        assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == path
        assert draw[rows, columns].sum() == pytest.approx(total)


def test_the_path_follows_a_diagonal_of_speech():
    cost = np.ones((3, 30))
    for row, (start, end) in enumerate([(0, 8), (8, 21), (21, 30)]):
        cost[row, start:end] = -1
    rows, columns = cheapest_path(cost)
    assert [int(columns[rows == row][0]) for row in range(3)] == [0, 8, 21]


def test_medians():
    x = RANDOM.normal(size=(2, 3, 40))
    expected = scipy.ndimage.median_filter(x, size=(1, 1, 7), mode="mirror")
    np.testing.assert_allclose(median_filter(x), expected)
    np.testing.assert_array_equal(median_filter(x[..., :3]), x[..., :3])


def test_what_every_token_looks_at_counts_for_nothing():
    energies = np.zeros((1, 4, 60))
    energies[:, :, 30:40] = 5
    for token in range(4):
        energies[:, token, 7 * token : 7 * token + 7] = 4
    matrix = alignment_matrix(energies)
    assert (matrix[:, 3:24].argmax(0) == (np.arange(3, 24) // 7)).mean() > 0.8
    assert np.ptp(matrix[:, 33:37]) < 1e-9


def word(text, start, end):
    return TimedWord(text=text, tokens=(len(text),), start=start, end=end, probability=0.5)


def test_punctuation_joins_its_word():
    texts = [" He", " said", ",", ' "', "yes", "!", '"', " -", "ok", " (", "so", ")", "."]
    words = [word(text, k, k + 1.0) for k, text in enumerate(texts)]
    joined = with_punctuation(words)
    assert [w.text for w in joined] == [" He", " said,", ' "yes!"', " -ok", " (so)."]
    assert [i for w in joined for i in w.tokens] == [len(text) for text in texts]
    assert (joined[1].start, joined[1].end) == (1, 2.0)
    assert (joined[2].start, joined[2].end) == (4, 5.0)


def test_a_lone_mark_stays():
    assert with_punctuation([word(".", 0, 1)]) == [word(".", 0, 1)]
    assert with_punctuation([]) == []
