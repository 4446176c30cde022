"""A small translator of text that is trained on clusters."""

from dataclasses import replace

from simuljax.config.experiment import DATA, RUNS
from simuljax.config.model import Monotonic
from tests.helpers.experiments import experiment

SMALL = experiment(DATA / "phrasebook", RUNS / "small")
EXPERIMENT = replace(
    SMALL,
    data=replace(SMALL.data, budget=replace(SMALL.data.budget, tokens=500)),
    model=replace(SMALL.model, speech=None, monotonic=Monotonic(policy="offline")),
    training=replace(SMALL.training, updates=300, log_every=10, validate_every=50),
)
