"""What is said about heads is what was put there."""

import numpy as np
import pytest

from experiments.diagnosing import Seen, correlations, summarise


def seen(speech: np.ndarray, text: np.ndarray | None) -> Seen:
    """Of sources with 10 states."""
    return Seen(
        speech=speech,
        share=speech / 10,
        text_share=text,
        perplexity=np.full(3, 7.0) if text is not None else np.zeros(0),
        decisions=np.array([4, 6, 5]),
    )


def test_columns_are_correlated_one_by_one():
    x = np.random.default_rng(0).normal(size=(200, 3))
    y = np.stack([2 * x[:, 0] + 1, -x[:, 1], np.ones(200)], 1)
    np.testing.assert_allclose([*correlations(x, y)], [1, -1, 0], atol=1e-9)


def test_heads_are_summarised_by_layer():
    speech = np.tile([[1.0, 3.0, 5.0, 9.0]], (6, 1)) + np.arange(6)[:, None] / 10
    found = summarise((8,), [seen(speech[:4], speech[:4] / 5), seen(speech[4:], speech[4:] / 5)], 2)
    assert np.array(found.read_share) == pytest.approx(
        np.array([[0.125, 0.325], [0.525, 0.925]]), rel=1e-6
    )
    assert found.head_spread_ms == pytest.approx(8 * 40)
    assert found.speech_text_correlation == pytest.approx(1)
    assert found.matching_perplexity == 7 and found.columns == 10


def test_without_text_nothing_is_said_about_it():
    found = summarise((8,), [seen(np.ones((3, 4)), None)], 2)
    assert found.speech_text_correlation is None and found.matching_perplexity is None
