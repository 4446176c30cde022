"""Which terms a batch gives, and that each reaches the parameters it is about."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.model import Monotonic, PreDecision, SpeechConfig
from simuljax.config.training import Objective
from simuljax.losses import JointObjective, combine
from simuljax.models.joint import JointModel
from simuljax.models.parameters import initialise
from simuljax.train.objective import Variables, forward
from tests.train import small

ALONE = JointObjective(
    distillation=0.0, cross_attentive=0.0, translation=0.0, decision_attentive=0.0
)
SPEECH = SpeechConfig(layers=2, shared=1, channels=16, ctc_after=1)


def names(objective: JointObjective, **changes) -> set[str]:
    """The terms of a training pass; nothing is computed."""
    model, batch = JointModel(small.translator(**changes)), jax.tree.map(jnp.asarray, small.batch())

    def run(key):
        params, statistics = initialise(model, key)
        variables = Variables(params=params, statistics=statistics)
        given = Objective(terms=objective.terms())
        return forward(model, variables, batch, small.HEARD.statistics, given, key).sums

    return set(jax.eval_shape(run, jax.random.key(0)))


BRANCH = {"nll", "latency", "variance"}
ST, MT = ({f"{branch}_{term}" for term in BRANCH} for branch in ("st", "mt"))


def test_all_terms_of_the_joint_objective():
    assert names(JointObjective()) == ST | MT | {"kd", "car", "dar"}


def test_a_text_branch_that_nothing_asks_for_is_left_out():
    assert names(ALONE) == ST
    assert names(dataclasses.replace(ALONE, ctc=0.3), speech=SPEECH) == ST | {"ctc"}


def test_one_branch_alone():
    assert names(JointObjective(), speech=None) == MT
    assert names(JointObjective(), text=None, speech=SpeechConfig(
        layers=1, shared=0, channels=16)) == ST  # fmt: skip


def test_learnt_decision_points_have_a_quantity():
    learnable = PreDecision(kind="learnable")
    assert "quantity" in names(ALONE, predecision=learnable)


def test_ctc_without_a_head_is_refused():
    with pytest.raises(ValueError, match="no CTC head"):
        names(dataclasses.replace(ALONE, ctc=0.3))


def test_ctc_and_quantity_reach_the_encoder_and_nothing_above_it():
    model = JointModel(
        small.translator(
            speech=SPEECH, predecision=PreDecision(kind="learnable"), monotonic=Monotonic(noise=0.0)
        )
    )
    params, _ = initialise(model, jax.random.key(0, impl="rbg"))
    batch = jax.tree.map(jnp.asarray, small.batch())
    objective = Objective(terms=dataclasses.replace(ALONE, ctc=1.0).terms())

    def losses(params):
        variables = Variables(params=params, statistics={})
        sums = forward(model, variables, batch, small.HEARD.statistics, objective, None).sums
        weights = {"ctc": 1.0, "quantity": 1.0, "st_nll": 0.0}
        return [combine({name: sums[name]}, weights).total for name in ("ctc", "quantity")]

    @jax.jit
    def gradients(params):
        """One pass forward, and one back for each loss."""
        pull = jax.vjp(losses, params)[1]
        return [pull([jnp.float32(n == m) for m in range(2)])[0] for n in range(2)]

    def reached(gradient) -> set[str]:
        norms = {part: jax.tree.leaves(tree) for part, tree in gradient.items()}
        norms |= {f"speech/{part}": jax.tree.leaves(t) for part, t in gradient["speech"].items()}
        for leaves in norms.values():
            assert all(np.isfinite(leaf).all() for leaf in leaves)
        return {p for p, leaves in norms.items() if any(float(jnp.abs(x).max()) for x in leaves)}

    ctc, quantity = map(reached, gradients(params))
    assert ctc == {"speech", "speech/subsampling", "speech/below", "speech/ctc"}
    assert {"trigger", "shared", "speech/subsampling"} <= quantity
    assert "decoder" not in quantity
