"""An update trains on augmented audio, and its bits follow from seed and step."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh

from simuljax.audio import WaveAugment
from simuljax.config.model import SpeechConfig
from simuljax.losses import JointObjective
from simuljax.models.joint import JointModel
from simuljax.models.parameters import initialise
from simuljax.train.step import AXIS, Replicas, TrainState, Update
from tests.train import small
from tests.train.states import assert_same_bits

ALONE = JointObjective(
    distillation=0.0, cross_attentive=0.0, translation=0.0, decision_attentive=0.0
)

SPEECH = SpeechConfig(layers=1, shared=0, channels=16)


@pytest.mark.slow
def test_bits_follow_from_seed_and_step_and_the_loss_falls():
    objective = dataclasses.replace(
        small.objective(**dataclasses.asdict(ALONE)),
        wave_augment=WaveAugment(reverb=0.5, rt60_s=(0.05, 0.1), babble=0.5, noise=0.5, level=0.5),
    )
    update = Update(
        model=JointModel(small.translator(text=None, speech=SPEECH), axis=AXIS),
        objective=objective,
        optimiser=optax.sgd(0.3),
        statistics=small.HEARD.statistics,
    )
    mesh = Mesh(np.array(jax.devices()[:1]), (AXIS,))
    replicas = Replicas(mesh=mesh, parallelism="shard_map")
    step, batch = replicas.wrap(update.whole), replicas.share(small.batch())
    params, statistics = jax.jit(lambda key: initialise(update.model, key))(jax.random.key(0))
    first = TrainState(
        step=jnp.int32(0),
        params=params,
        statistics=statistics,
        optimiser=update.optimiser.init(params),
    )
    weights = small.weights(objective)

    def after(state: TrainState, seed: int = 0):
        return step(replicas.replicate(state), batch, weights, jnp.int32(seed))

    state, report = after(first)
    assert bool(report.finite)
    assert_same_bits(after(first)[0].params, state.params)
    losses = [float(report.loss.total)]
    later = dataclasses.replace(first, step=jnp.int32(1))
    for other in (after(later), after(first, seed=1)):
        assert float(other[1].loss.total) != losses[0]
    for _ in range(5):
        state, report = after(state)
        losses.append(float(report.loss.total))
    assert losses[-1] < losses[0]
