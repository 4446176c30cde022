"""What an experiment file says: one frozen document from the corpus to the schedule.

A file under experiments/ defines `EXPERIMENT`, or several by name in `EXPERIMENTS`. The command
line may change any field: `simuljax train FILE [ROW] --training.seed 2`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from data_pipelines.feeding import Corpus
from simuljax.config.fields import ConfigError
from simuljax.config.loading import load_module
from simuljax.models import config
from simuljax.train.cluster import Cluster
from simuljax.train.training import Training

# Where experiments look for corpora and put runs, unless the command line says otherwise.
DATA = Path(os.environ.get("SIMULJAX_DATA", "data"))
RUNS = Path(os.environ.get("SIMULJAX_RUNS", "runs"))

ENCODER = ("speech", "shared")
# An offline translator of text has its encoder to itself, and one attention, from which both the
# decisions and the soft attention of a monotonic decoder start.
OFFLINE_TEXT = (
    "text/embedding",
    "text/norm",
    "shared <- text/stack",
    "decoder",
    "decoder/layer/cross/decide_query <- decoder/layer/cross/heads/query",
    "decoder/layer/cross/decide_key <- decoder/layer/cross/heads/key",
)


class ExperimentError(ConfigError):
    """An experiment that cannot be run as it stands."""


@dataclass(frozen=True, kw_only=True)
class Begin:
    """Parameters that are taken from another run before training begins.

    A rule is "into <- from", or one name where both are the same; "" is everything.
    """

    run: Path
    rules: tuple[str, ...] = ("",)
    checkpoint: Literal["best", "last", "averaged"] = "best"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A training run."""

    run: Path
    corpus: Corpus
    model: config.Translator
    training: Training
    begin: tuple[Begin, ...] = ()
    cluster: Cluster = field(default_factory=Cluster)


def load_experiments(path: Path) -> Mapping[str, Experiment]:
    """The experiments of a file by name; a single one has no name ("")."""
    module = load_module(path)
    named = getattr(module, "EXPERIMENTS", None)
    alone = getattr(module, "EXPERIMENT", None)
    if isinstance(named, Mapping) and named:
        return named
    if isinstance(alone, Experiment):
        return {"": alone}
    raise ExperimentError(f"{path} defines neither EXPERIMENT nor EXPERIMENTS: see experiments/")
