"""CAAT: its lattice is the offline pass on each group's states, whatever else is in the batch."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.losses import transducer
from simuljax.models import caat as caat_module
from simuljax.models.joint import source_of
from simuljax.text import BOS
from tests.helpers import models

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quickly")]  # compiles much

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
    return model.decoder.lattice(targets, source(model, encoded), train=False)


@pytest.fixture(scope="module")
def targets():
    drawn = np.random.default_rng(1).integers(2, models.VOCABULARY, (len(LENGTHS), LABELS))
    return drawn.astype(np.int32)


def test_every_group_is_asked_with_its_own_states(model, variables, targets):
    """And with those before it, and with the targets before; the last group hears all of a row.

    Neither padding nor company has an influence: each row is asked alone, and padding is loud.
    """
    encoded = models.states(LENGTHS, SIZE)
    padding = np.arange(SIZE) >= np.array(LENGTHS)[:, None]
    loud = dataclasses.replace(encoded, states=encoded.states + 99.0 * padding[..., None])
    lattice_of = models.fast(lambda *given: model.apply(given[0], *given[1:], method=of_lattice))
    lattice = lattice_of(variables, targets, loud)
    assert lattice.groups.tolist() == [3, 1, 2, 0] and caat_module.BLANK == BOS
    assert np.abs(np.diff(np.asarray(lattice.blank[0]), axis=0)).min(-1).max() > 1e-3  # they differ
    assert lattice.blank.shape == (4, 3, LABELS + 1) and lattice.label.shape == (4, 3, LABELS)
    for b, t, u in [(0, 0, 0), (0, 0, 3), (0, 1, 3), (0, 2, 5), (1, 0, 4), (2, 0, 2), (2, 1, 5)]:
        reach = min((t + 1) * models.CAAT_GROUP, LENGTHS[b])
        states, prefix = np.asarray(encoded.states[b]), targets[b, :u].tolist()
        expected = models.caat_asked(model, variables, states, prefix, reach)
        assert float(lattice.blank[b, t, u]) == pytest.approx(expected[BOS], abs=1e-4)
        if u < LABELS:
            assert float(lattice.label[b, t, u]) == pytest.approx(expected[targets[b, u]], abs=1e-4)


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
