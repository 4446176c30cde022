"""Which terms a batch gives, what each reaches, and a term of an experiment file."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.model import ModelConfig, Monotonic, PreDecision, SpeechConfig, Width
from simuljax.config.training import Objective
from simuljax.losses import JointObjective, combine
from simuljax.models.joint import JointModel
from simuljax.models.parameters import initialise, shapes
from simuljax.train.forward import Variables, forward
from tests.helpers.models import fast
from tests.train import small
from tests.train.overfitting import CAAT
from tests.train.small import ALONE

SPEECH = SpeechConfig(layers=2, shared=1, channels=16, ctc_after=1)
HARD = Monotonic(attention="hard", noise=0.0)  # compiles in the least time
LEARNABLE = PreDecision(kind="learnable")
BATCH = jax.tree.map(jnp.asarray, small.batch())


def sums(model: ModelConfig, objective: JointObjective, params: Any, moments: Any, **given: Any):
    """Of every term of a pass, by default as in validation."""
    given = {"batch": BATCH, "front_end": small.HEARD, "key": None} | given
    variables = Variables(params=params, statistics=moments)
    terms = Objective(terms=objective.terms())
    return forward(JointModel(model), variables, objective=terms, **given).sums


def names(objective: JointObjective, **changes) -> set[str]:
    """The terms of a training pass; nothing is computed."""
    model = small.translator(**changes)
    return set(
        jax.eval_shape(
            lambda *given: sums(model, objective, *given, key=jax.random.key(0)), *shapes(model)
        )
    )


ST, MT = ({f"{b}_{term}" for term in ("nll", "latency", "variance")} for b in ("st", "mt"))


@pytest.mark.parametrize(
    ("objective", "changes", "terms"),
    [
        (JointObjective(), {}, ST | MT | {"kd", "car", "dar"}),
        (JointObjective(), {"text": None, "speech": small.SPEECH}, ST),
        (  # text is left out
            dataclasses.replace(ALONE, ctc=0.3),
            {"speech": SPEECH, "predecision": LEARNABLE},
            ST | {"ctc", "quantity"},
        ),
    ],
)
def test_terms_of_a_model_and_an_objective(objective, changes, terms):
    assert names(objective, **changes) == terms


@pytest.mark.parametrize(
    ("wrong", "message"), [({"ctc": 0.3}, "no CTC head"), ({"transducer": 1.0}, "decoder='caat'")]
)
def test_a_term_that_the_model_cannot_have_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        names(dataclasses.replace(ALONE, **wrong))


@pytest.mark.slow
def test_ctc_and_quantity_reach_the_encoder_and_nothing_above_it():
    model = small.translator(speech=SPEECH, predecision=LEARNABLE, monotonic=HARD)
    random = np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: random.normal(0, 0.3, leaf.shape).astype(leaf.dtype), shapes(model)[0]
    )

    def losses(params):
        found = sums(model, dataclasses.replace(ALONE, ctc=1.0, quantity=1.0), params, {})
        weights = {"ctc": 1.0, "quantity": 1.0, "st_nll": 0.0}
        return [combine({name: found[name]}, weights).total for name in ("ctc", "quantity")]

    @fast
    def gradient(params, slopes):
        return jax.vjp(losses, params)[1](slopes)[0]

    def reached(*slopes: float) -> set[str]:
        found = gradient(params, [jnp.float32(slope) for slope in slopes])
        norms = {part: jax.tree.leaves(tree) for part, tree in found.items()}
        norms |= {f"speech/{part}": jax.tree.leaves(t) for part, t in found["speech"].items()}
        assert all(np.isfinite(leaf).all() for leaves in norms.values() for leaf in leaves)
        return {p for p, leaves in norms.items() if any(np.any(leaf) for leaf in leaves)}

    ctc, quantity = reached(1.0, 0.0), reached(0.0, 1.0)
    assert ctc == {"speech", "speech/subsampling", "speech/below", "speech/ctc"}
    assert {"trigger", "shared", "speech/subsampling"} <= quantity
    assert "decoder" not in quantity


RECURRENT = small.translator(
    width=Width(model=16, hidden=16, heads=1, dropout=0.0),
    speech=SpeechConfig(kind="vgg_blstm", layers=2, shared=0, channels=8, ctc_after=2),
    text=None,
    decoder="lstm",
    monotonic=Monotonic(policy="offline"),
    output="own",
)


@pytest.mark.slow
def test_gradients_reach_everything_of_a_recurrent_translator():
    params, statistics = initialise(JointModel(RECURRENT), jax.random.key(0, impl="rbg"))
    objective = JointObjective(ctc=0.3)

    @fast
    @jax.grad
    def gradient(params, key):
        found = sums(RECURRENT, objective, params, statistics, key=key)
        return combine(found, Objective(terms=objective.terms()).weights()).total

    for path, leaf in jax.tree.leaves_with_path(gradient(params, jax.random.key(1))):
        name = jax.tree_util.keystr(path)
        assert np.isfinite(leaf).all(), name
        assert float(jnp.abs(leaf).max()) > 0, f"nothing reaches {name}"


@pytest.mark.slow
def test_a_row_without_speech_counts_nothing_to_a_transducer():
    """And the delay is divided by tokens, as the likelihood is."""
    sizes = {"target_vocabulary": small.TARGET, "source_vocabulary": small.SOURCE}
    model = dataclasses.replace(CAAT, **sizes)
    objective = dataclasses.replace(ALONE, transducer=1.0, transducer_delay=1.0)
    zeros = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), shapes(model))
    found = fast(lambda *given: sums(model, objective, *given))(*zeros)
    tokens = BATCH.target_length[BATCH.audio_length > 0].sum()
    for name in ("transducer", "transducer_delay", "st_nll"):
        assert float(found[name].denominator) == tokens
        assert np.isfinite(found[name].numerator) and found[name].numerator > 0
