"""A run to give away: all that using it takes, without the state of its optimiser.

    simuljax export runs/zaidi-multi30k/dar --to dar --dtype bfloat16

The result is a run like any other to `translate`, `evaluate`, `report`, teachers, agents, and runs
that begin with it. It cannot be trained on as if nothing had happened.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from simuljax.audio.statistics import FILE_NAME as FEATURES_FILE
from simuljax.serve.run import CONFIG_FILE, learnt, open_run
from simuljax.text.vocabulary import SOURCE_FILE, TARGET_FILE
from simuljax.train.average import Loaded
from simuljax.train.checkpoint import CHECKPOINTS, Checkpoints
from simuljax.train.training_run import ENDED

FILES = (CONFIG_FILE, FEATURES_FILE, SOURCE_FILE, TARGET_FILE, ENDED)


@dataclass(frozen=True, kw_only=True)
class Export:
    """The parameters to export, and where to."""

    run: Annotated[Path, tyro.conf.Positional]
    """The directory of a run."""
    to: Path
    """A directory that is not there yet, or empty."""
    checkpoint: Literal["best", "last", "averaged"] = "best"
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the stored parameters; bfloat16 halves them, and they load as float32."""


def export(chosen: Export) -> Path:
    """Writes the new run; gives its directory. Files appear before parameters do."""
    run = open_run(chosen.run)
    loaded = learnt(run, chosen.checkpoint)
    chosen.to.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        if (run.directory / name).exists():
            shutil.copy(run.directory / name, chosen.to / name)
    checkpoints = Checkpoints(chosen.to / CHECKPOINTS, keep_last=1, keep_best=0)
    state = {"params": kept_as(loaded, chosen.dtype), "statistics": loaded.statistics}
    checkpoints.save(max(loaded.steps), state, {"steps": list(loaded.steps)})
    checkpoints.close()
    return chosen.to


def kept_as(loaded: Loaded, dtype: str) -> object:
    """Return the parameters in a type; statistics of BatchNorm are few, and stay as they are."""
    return jax.tree.map(lambda leaf: np.asarray(leaf).astype(jnp.dtype(dtype)), loaded.params)


def describe(directory: Path) -> str:
    """Return where the export is, and its size."""
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    return f"{directory}: {size / 2**20:.1f} MiB"
