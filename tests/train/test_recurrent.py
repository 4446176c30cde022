"""The VGG-BLSTM translator through the objective and the updates that all translators have."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.model import ModelConfig, Monotonic, SpeechConfig, Width
from simuljax.config.training import Objective
from simuljax.losses import JointObjective, combine
from simuljax.models.joint import JointModel
from simuljax.models.parameters import initialise
from simuljax.train.objective import Variables, forward
from tests.train import tones
from tests.train.overfitting import SPEECH_ALONE, compiling_quickly, driver_of, look, weights_of

pytestmark = pytest.mark.slow  # compiles much


def translator(dropout: float = 0.0, **changes) -> ModelConfig:
    return ModelConfig(
        source_vocabulary=tones.VOCABULARY,
        target_vocabulary=tones.VOCABULARY,
        width=Width(model=32, hidden=32, heads=1, dropout=dropout),
        speech=SpeechConfig(kind="vgg_blstm", layers=2, shared=0, channels=8, **changes),
        text=None,
        decoder="lstm",
        decoder_layers=2,
        monotonic=Monotonic(policy="offline"),
        output="own",
    )


def test_gradients_reach_everything():
    model = JointModel(translator(dropout=0.2, ctc_after=2))
    params, statistics = initialise(model, jax.random.key(0, impl="rbg"))
    batch = tones.utterances(4, seed=1)
    objective = Objective(terms=JointObjective(ctc=0.3).terms())
    heard, assigned = tones.heard_in(batch).statistics, objective.weights()

    def loss(params, batch):
        variables = Variables(params=params, statistics=statistics)
        done = forward(model, variables, batch, heard, objective, jax.random.key(1))
        return combine(done.sums, assigned).total

    quick = {"xla_backend_optimization_level": "0"}
    run = jax.jit(jax.grad(loss), compiler_options=quick)
    gradient = run(params, jax.tree.map(jnp.asarray, batch))
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        name = jax.tree_util.keystr(path)
        assert np.isfinite(leaf).all(), name
        assert float(jnp.abs(leaf).max()) > 0, f"nothing reaches {name}"


def test_4_utterances_are_learnt_by_heart():
    batch = tones.utterances(4, seed=1)
    driver = driver_of(translator(), SPEECH_ALONE, batch)
    with compiling_quickly():
        state, weights = driver.first(), weights_of(driver)
        before = look(driver, state, batch, ("st",))
        for _ in range(220):
            state, _ = driver.update(state, [batch], weights)
        after = look(driver, state, batch, ("st",))
    assert before.accuracy["st"] < 0.5
    assert after.is_enough, after
