"""What is said about heads is what was put there."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.fields import from_json, read_json, write_json
from simuljax.losses import Branch
from simuljax.models.parameters import initialise
from simuljax.nn.layers import STATISTICS
from simuljax.runs.alignment import hard_decisions
from simuljax.runs.diagnosis import (
    FILE,
    Diagnosis,
    _where_heads_read,
    correlations,
    mass_lost,
    summarise,
)
from tests.train import small
from tests.train.test_word_masks import WORDS, waiting


def seen(delays: np.ndarray, text: np.ndarray | None) -> dict[str, np.ndarray]:
    """Of sources with 10 states."""
    values = {"delays": delays, "share": delays / 10, "decisions": np.array([4, 6, 5])}
    values["mass_lost"] = np.full(2, 0.25)
    return values if text is None else values | {"text_share": text, "perplexity": np.full(3, 7.0)}


def test_columns_are_correlated_one_by_one():
    x = np.random.default_rng(0).normal(size=(200, 3))
    y = np.stack([2 * x[:, 0] + 1, -x[:, 1], np.ones(200)], 1)
    np.testing.assert_allclose([*correlations(x, y)], [1, -1, 0], atol=1e-9)


def test_heads_are_summarised_by_layer():
    speech = np.tile([[1.0, 3.0, 5.0, 9.0]], (6, 1)) + np.arange(6)[:, None] / 10
    found = summarise(
        (8,), [seen(speech[:4], speech[:4] / 5), seen(speech[4:], speech[4:] / 5)], 2, 2
    )
    assert np.array(found.read_share) == pytest.approx(
        np.array([[0.125, 0.325], [0.525, 0.925]]), rel=1e-6
    )
    assert found.head_spread_ms == pytest.approx(8 * 40)
    assert found.speech_text_correlation == pytest.approx(1)
    assert found.matching_perplexity == 7 and found.columns == 10
    assert found.mass_lost == 0.25


def test_without_text_nothing_is_said_about_it():
    found = summarise((8,), [seen(np.ones((3, 4)), None)], 2, 2)
    assert found.speech_text_correlation is None and found.matching_perplexity is None


@pytest.mark.parametrize("targets", [0, 3], ids=["no target", "a model that has diverged"])
def test_no_number_is_written_and_read_as_none(tmp_path, targets):
    """JSON has no NaN: what was found and what is read later are the same."""
    lost = np.full((targets, 4), np.nan)
    names = ("delays", "share", "text_share", "perplexity", "decisions", "mass_lost")
    found = summarise((8,), [dict.fromkeys(names, lost)], 2, 2)
    assert found == Diagnosis(
        steps=(8,),
        read_share=((None, None), (None, None)),
        head_spread_ms=None,
        speech_text_correlation=None,
        matching_perplexity=None,
        columns=None,
    )
    write_json(tmp_path / FILE, found)
    assert from_json(Diagnosis, read_json(tmp_path / FILE)) == found


def test_one_head_that_has_diverged_leaves_the_others(tmp_path):
    speech = np.ones((3, 4))
    speech[0, 3] = np.nan
    found = summarise((8,), [seen(speech, speech / 10)], 2, 2)
    assert found.read_share == ((pytest.approx(0.1),) * 2, (pytest.approx(0.1), None))
    assert found.head_spread_ms is None and found.speech_text_correlation is None
    assert found.columns == 10
    write_json(tmp_path / FILE, found)
    assert from_json(Diagnosis, read_json(tmp_path / FILE)) == found


def test_the_closed_form_alone_loses_mass():
    energy = np.random.default_rng(0).normal(2.0, 1.0, (1, 2, 2, 24, 200)).astype(np.float32)
    speech = Branch(
        logits=jnp.zeros((2, 24, 1)),
        target_length=jnp.array([24, 24]),
        state_length=jnp.array([200, 200]),
        delays=jnp.zeros((2, 2, 24)),
        energies=jnp.asarray(energy),
        decision_length=jnp.array([200, 150]),
    )
    assert np.max(mass_lost(speech, "auto")) < 1e-5
    lost = np.asarray(mass_lost(speech, "closed_form"))
    assert lost.shape == (2, 24) and lost[:, -1].min() > 0.1 and lost[:, 0].max() < 1e-3


@pytest.mark.parametrize("mean", [-2.0, 0.0, 2.0])
def test_hard_decisions(mean):
    energy = np.random.default_rng(3).normal(mean, 1.5, (5, 7, 9)).round(1)  # some are 0: accepted
    found = hard_decisions(energy)
    for head in range(5):
        stands = 0
        for target in range(7):
            while stands < 8 and energy[head, target, stands] < 0:
                stands += 1
            assert found[head, target] == stands


def test_a_model_that_counts_words_is_diagnosed():
    model = waiting(2)
    params, statistics = jax.eval_shape(lambda: initialise(model, jax.random.key(0)))
    variables = {"params": params, STATISTICS: statistics}
    where = functools.partial(_where_heads_read, model, small.objective())
    found = jax.eval_shape(where, variables, small.HEARD, WORDS, small.batch())
    assert {name: found[name].shape[0] for name in ("delays", "states")} == {
        "delays": 4,
        "states": 4,
    }
