"""CAAT: its lattice is the offline pass on each group's states, whatever else is in the batch."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.losses import transducer
from simuljax.models import caat as caat_module
from simuljax.models.encoders import Encoded
from simuljax.models.joint import init_past, source_of
from simuljax.text import BOS
from tests.helpers import models

pytestmark = pytest.mark.slow  # compiles much

LENGTHS, SIZE, LABELS = [11, 4, 8, 0], 12, 5


@pytest.fixture(scope="module")
def model():
    return models.caat()


@pytest.fixture(scope="module")
def variables(model):
    return models.caat_parameters(model)


def source(model, encoded):
    return source_of(encoded, model.speech_decisions(encoded), jnp.int32(1))


def of_lattice(model, targets, encoded):
    return model.lattice(targets, source(model, encoded), train=False)


@pytest.fixture(scope="module")
def lattice_of(model):
    return models.fast(lambda *given: model.apply(given[0], *given[1:], method=of_lattice))


@pytest.fixture(scope="module")
def targets():
    drawn = np.random.default_rng(1).integers(2, models.VOCABULARY, (len(LENGTHS), LABELS))
    return drawn.astype(np.int32)


def test_every_group_is_asked_with_its_own_states(model, variables, lattice_of, targets):
    """And with those before it; the last one of a row is what it hears in all."""
    encoded = models.states(LENGTHS, SIZE)
    lattice = lattice_of(variables, targets, encoded)
    assert lattice.groups.tolist() == [3, 1, 2, 0] and caat_module.BLANK == BOS
    assert np.abs(np.diff(np.asarray(lattice.blank[0]), axis=0)).min(-1).max() > 1e-3  # they differ
    assert lattice.blank.shape == (4, 3, LABELS + 1) and lattice.label.shape == (4, 3, LABELS)
    for b, t, u in [(0, 0, 0), (0, 1, 3), (0, 2, 5), (1, 0, 4), (2, 1, 5)]:
        reach = min((t + 1) * models.CAAT_GROUP, LENGTHS[b])
        states, prefix = np.asarray(encoded.states[b]), targets[b, :u].tolist()
        expected = models.caat_asked(model, variables, states, prefix, reach)
        assert float(lattice.blank[b, t, u]) == pytest.approx(expected[BOS], abs=1e-4)
        if u < LABELS:
            assert float(lattice.label[b, t, u]) == pytest.approx(expected[targets[b, u]], abs=1e-4)


def test_padding_and_company_have_no_influence(variables, lattice_of, targets):
    encoded = models.states(LENGTHS, SIZE)
    loud = np.asarray(encoded.states).copy()
    loud[np.arange(SIZE) >= np.array(LENGTHS)[:, None]] = 99
    loud[1:] = loud[1:][::-1]
    changed = Encoded(states=jnp.asarray(loud), lengths=jnp.array([11, 0, 8, 4]))
    other = targets.copy()
    other[0, 3:] = 7
    before, after = lattice_of(variables, targets, encoded), lattice_of(variables, other, changed)
    np.testing.assert_allclose(after.blank[0, :, :4], before.blank[0, :, :4], atol=1e-5)
    np.testing.assert_allclose(after.label[0, :, :3], before.label[0, :, :3], atol=1e-5)


def test_later_states_have_no_influence(variables, lattice_of, targets):
    encoded = models.states(LENGTHS, SIZE)
    changed = dataclasses.replace(encoded, states=encoded.states.at[:, 4:].mul(-1))
    before, after = (lattice_of(variables, targets, e) for e in (encoded, changed))
    np.testing.assert_allclose(after.blank[:, 0], before.blank[:, 0], atol=1e-5)
    assert np.abs(np.asarray(after.blank - before.blank))[0, 1].min() > 1e-4


def test_the_predictor_goes_on_where_it_was(model, variables, targets):
    """Two targets at a time give what all of them at once give."""

    def steps(model, tokens, states):
        memory, past, logits = model.remember(states, states), init_past(model.config, 4, 6), []
        for n in (0, 2, 4):
            position = jnp.full(4, n)
            x, added = model.predict(tokens[:, n : n + 2], position, past)
            past = jax.tree.map(lambda a, b: a.at[:, :, n : n + 2].set(b), past, added)  # noqa: B023
            logits.append(model.join(x, memory, jnp.array([12, 4, 9, 1])))
        return jnp.concatenate(logits, 1)

    tokens = jnp.pad(jnp.asarray(targets), [(0, 0), (1, 0)], constant_values=BOS)
    states = models.states([12] * 4, SIZE).states
    stepwise = models.fast(lambda *given: model.apply(given[0], *given[1:], method=steps))
    at_once = models.fast(
        lambda *given: model.apply(given[0], *given[1:], method=models.caat_whole)
    )
    expected = at_once(variables, tokens, states, jnp.array([12, 4, 9, 1]))
    np.testing.assert_allclose(stepwise(variables, tokens, states), expected, atol=1e-4)


def test_the_loss_reaches_every_parameter_of_the_decoder(model, variables, targets):
    encoded = models.states(LENGTHS, SIZE)
    lengths = jnp.array([5, 3, 4, 2])

    def loss(variables):
        lattice = model.apply(variables, jnp.asarray(targets), encoded, method=of_lattice)
        nll, delay = transducer(lattice.blank, lattice.label, lattice.groups, lengths)
        return nll.sum() + delay.sum()

    gradient = models.fast(jax.grad(loss))(variables)["params"]["decoder"]
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        assert np.isfinite(leaf).all()
        is_key_bias = [p.key for p in path][-2:] == ["key", "bias"]  # cancels in the softmax
        assert is_key_bias or np.any(leaf), path
