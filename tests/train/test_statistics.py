"""BatchNorm's statistics go through the loop: learnt, validated with, saved, and found again."""

from pathlib import Path

import jax
import numpy as np
import pytest

from simuljax.config.model import SpeechConfig
from simuljax.config.training import Objective, Optimiser, Training
from simuljax.losses import JointObjective
from simuljax.train import transfer
from simuljax.train.loop import Data, TrainingRun, fit
from tests.train import small


@pytest.mark.slow
def test_a_model_with_batch_norm_trains_and_comes_back(tmp_path: Path):
    speech = SpeechConfig(kind="s_transformer", layers=1, shared=0, distance_penalty=True)
    model = small.translator(speech=speech, text=None)
    alone = JointObjective(
        distillation=0.0, cross_attentive=0.0, translation=0.0, decision_attentive=0.0
    )
    batches = [small.batch(rows=8, seed=seed) for seed in range(2)]
    training = Training(
        updates=4,
        validate_every=2,
        log_every=1,
        objective=Objective(terms=alone.terms()),
        optimiser=Optimiser(learning_rate=1e-2, warmup=1),
    )
    data = Data(
        train=small.Cycle(batches),
        valid=lambda: batches[:1],
        steps_per_epoch=2,
        front_end=small.HEARD,
    )
    state = fit([TrainingRun(tmp_path, training)], model, data)
    learnt = jax.tree.leaves(state.statistics)
    assert learnt and all(np.isfinite(leaf).all() for leaf in learnt)
    assert any(np.abs(leaf).max() not in (0, 1) for leaf in learnt), "they are as at the start"
    saved = jax.tree.leaves(transfer.load(tmp_path, "last").statistics)
    for one, other in zip(learnt, saved, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
