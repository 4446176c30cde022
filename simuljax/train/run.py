"""The directory of a training run: all that is needed to use the model again, or to give it away.

RUN/config.json      the experiment: corpus, model, training
RUN/vocab.*.json     the vocabularies
RUN/features.json    the features, with their statistics
RUN/checkpoints/     parameters; RUN/averaged/ has the mean of those around the best
RUN/ended.json       the last update; absent while a training goes on or was interrupted
RUN/decoding.json    options of `translate` that it has unless told otherwise; may be absent

`simuljax export` copies a run without the state of its optimiser, its parameters as one file in
place of the checkpoints (`simuljax.models.tensor_file`). The copy serves `translate`, `evaluate`,
`report`, teachers and runs that begin with it; its training cannot go on.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from simuljax.audio import FeatureRecord, load_features
from simuljax.audio.features import FILE_NAME as FEATURES_FILE
from simuljax.config.decoding import Decoding
from simuljax.config.experiment import CONFIG_FILE, Experiment, read_experiment
from simuljax.config.fields import ConfigError, differences, read_json, setting, to_json
from simuljax.config.loading import is_reference
from simuljax.config.model import ModelConfig
from simuljax.config.options import from_options
from simuljax.errors import SimuljaxError
from simuljax.models.parameters import path_of, shapes
from simuljax.models.tensor_file import Stored, read_params, write_params
from simuljax.text import Vocabulary, load
from simuljax.text.vocabulary import SOURCE_FILE, TARGET_FILE
from simuljax.train.checkpoint import CHECKPOINTS, CheckpointError, Checkpoints, nearest

AVERAGED = "averaged"
DECODING_FILE = "decoding.json"
ENDED = "ended.json"
PARAMS_FILE = "params.safetensors"  # of an exported run
PACKED_FILE = PARAMS_FILE + ".gz"  # of one in int7
PARTS = ("params", "statistics")  # of a state, which a translator computes with
Which = int | Literal["last", "best", "averaged"]


class RunError(SimuljaxError):
    """A directory that is not a complete run, or not the run that is needed."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run as its files describe it."""

    directory: Path
    config: Experiment
    front_end: FeatureRecord
    source: Vocabulary
    target: Vocabulary
    decoding: Decoding = setting(Decoding(), help="How it streams unless told otherwise.")

    @property
    def model(self) -> ModelConfig:
        return self.config.model


def open_run(directory: Path | str) -> Run:
    """Read all but the parameters; check that the files belong together."""
    directory = Path(directory)
    if not (directory / CONFIG_FILE).exists():
        lacks = f"is no run (there is no {CONFIG_FILE})" if directory.exists() else "does not exist"
        raise RunError(f"{directory} {lacks}: give the directory that `simuljax train` wrote")
    try:
        config = read_experiment(directory)
    except ConfigError as error:
        raise RunError(str(error)) from error
    run = Run(
        directory=directory,
        config=config,
        source=load(directory / SOURCE_FILE),
        target=load(directory / TARGET_FILE),
        front_end=load_features(directory / FEATURES_FILE),
        decoding=read_decoding(directory / DECODING_FILE),
    )
    check_belongs(run)
    return run


def read_decoding(path: Path) -> Decoding:
    """Return the decoding that a file has the options of; the usual one without a file."""
    if not path.exists():
        return Decoding()
    try:
        held = read_json(path)
        if not isinstance(held, dict):
            raise TypeError(f"it must hold an object, not {held!r:.60}")
        if is_reference(str(held.get("policy"))):  # a run of somebody else must not run its code
            raise TypeError(f"policy is {held['policy']!r:.100}; choose your own with --policy")
        return from_options(Decoding, held)
    except (ConfigError, TypeError, ValueError) as error:
        raise RunError(f"{path} cannot be used: {error}") from error


def check_belongs(run: Run) -> None:
    """Refuse vocabularies and features that are not those of the model."""
    pairs = (
        (SOURCE_FILE, "pieces", run.source.size, run.model.source_vocabulary),
        (TARGET_FILE, "pieces", run.target.size, run.model.target_vocabulary),
        (FEATURES_FILE, "dimensions", run.front_end.features.dims, run.model.features),
    )
    for name, what, found, wanted in pairs:
        if found != wanted:
            raise RunError(
                f"{run.directory / name} has {found} {what} and the model was trained with "
                f"{wanted}: it is from another run; put the right one back"
            )
    trained_on = run.config.data.features
    other = differences(to_json(trained_on), to_json(run.front_end.features))
    if other:
        raise RunError(
            f"{run.directory / FEATURES_FILE} is of other features than the model was trained on "
            f"({'; '.join(other)}): it is from another run; put the right one back"
        )


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """Parameters and statistics of a run, and the steps they come from."""

    params: Any
    statistics: Any  # BatchNorm's; {} without one
    steps: tuple[int, ...]


def load_checkpoint(run: Run, which: Which = "best") -> Loaded:
    """Return the parameters of a checkpoint, which must be those of the model."""
    loaded = load_params(run.directory, which)
    wanted = shapes(run.model)
    for name, held, shape in zip(PARTS, (loaded.params, loaded.statistics), wanted, strict=True):
        found, own = (jax.tree.map(lambda leaf: tuple(leaf.shape), tree) for tree in (held, shape))
        if found != own:
            raise RunError(
                f"the {name} in {run.directory} are not those of the model in its {CONFIG_FILE}: "
                "one of them is from another run"
            )
    return loaded


def load_params(run: Path, which: Which = "best") -> Loaded:
    """Return the parameters of a run: the last, best or averaged ones, or those of a step.

    An export has one set of them, the last and the best. Parameters stored in another type become
    float32. The model need not be known. A damaged checkpoint causes a warning, and the next one is
    taken; if a step was asked for, it is an error that names other steps.
    """
    averaged = which == "averaged"
    if exported := find_params(run):
        if which not in ("best", "last"):
            raise CheckpointError(f"{run} is an export, with one set of parameters: not {which!r}")
        state, steps = read_params(exported)
        return Loaded(**{part: state.get(part, {}) for part in PARTS}, steps=steps)
    checkpoints = Checkpoints(run / (AVERAGED if averaged else CHECKPOINTS))
    step = checkpoints.whole("last" if which == "averaged" else which)
    if step is None:
        hint = ": `--training.average N` has one written when the training ends" if averaged else ""
        raise CheckpointError(f"{checkpoints.directory} holds no checkpoint{hint}.")

    def widen(leaf: jax.Array) -> jax.Array:
        return leaf.astype(jnp.float32) if leaf.dtype == jnp.bfloat16 else leaf

    found = checkpoints.read(step, PARTS)
    origin = found.extra.get("steps", [step]) if averaged else [step]
    return Loaded(**jax.tree.map(widen, found.state), steps=tuple(origin))


def find_params(run: Path) -> Path | None:
    """Return the file of an exported run's parameters; None for a run with checkpoints."""
    return next((f for name in (PARAMS_FILE, PACKED_FILE) if (f := run / name).exists()), None)


def average_around_best(run: Path, n: int) -> tuple[int, ...]:
    """Write the average of the n checkpoints around the best of a run's phase; return their steps.

    `load_params(run, "averaged")` finds it. A run that was never validated has none.
    """
    checkpoints = Checkpoints(run / CHECKPOINTS)
    checkpoints.whole("best")  # says which are damaged; the average is of the others
    best = checkpoints.best()
    if best is None:
        return ()
    steps = nearest(checkpoints.scored(), best, n)
    written = Checkpoints(run / AVERAGED, keep_last=1, keep_best=0)
    written.discard_after(best - 1)
    written.save(best, average(checkpoints, steps), {"steps": steps})  # the same on all hosts
    written.close()
    return tuple(steps)


def average(checkpoints: Checkpoints, steps: Sequence[int]) -> dict[str, Any]:
    """Return the mean of parameters and statistics over steps, summed in float64.

    Their dtypes are kept. Integers have no mean, so they have to be equal in all.
    """

    def mean(path: tuple, *leaves: np.ndarray) -> np.ndarray:
        first = leaves[0]
        if jnp.issubdtype(first.dtype, jnp.floating):
            total = sum((leaf.astype(np.float64) for leaf in leaves), np.float64(0)) / len(leaves)
            return total.astype(first.dtype)
        if not all(np.array_equal(leaf, first) for leaf in leaves):
            raise ValueError(
                f"{path_of(path)!r} holds integers that differ among the checkpoints: no average."
            )
        return first

    states = [jax.device_get(checkpoints.read(step, PARTS).state) for step in steps]
    return jax.tree_util.tree_map_with_path(mean, *states)


COPIED = (CONFIG_FILE, FEATURES_FILE, SOURCE_FILE, TARGET_FILE, DECODING_FILE, ENDED)


@dataclass(frozen=True, kw_only=True)
class Export:
    """The parameters to export, and where to."""

    run: Annotated[Path, tyro.conf.Positional]
    """The directory of a run."""
    to: Path
    """A directory that is not there yet, or empty."""
    checkpoint: Literal["best", "last", "averaged"] = "best"
    dtype: Stored = "float32"
    """Type of the stored parameters, which load as float32: bfloat16 has half the size, int8 with a
    scale for each output channel a quarter, int7, which is packed, a fifth."""


def export(chosen: Export) -> Path:
    """Write the new run and return its directory; a run that cannot be written whole is removed."""
    run = open_run(chosen.run)
    loaded = load_checkpoint(run, chosen.checkpoint)
    chosen.to.mkdir(parents=True, exist_ok=True)
    file = PACKED_FILE if chosen.dtype == "int7" else PARAMS_FILE
    try:
        for name in COPIED:
            if (run.directory / name).exists():
                shutil.copy(run.directory / name, chosen.to / name)
        state = {"params": loaded.params, "statistics": loaded.statistics}
        write_params(chosen.to / file, state, loaded.steps, chosen.dtype)
    except BaseException:
        for name in (*COPIED, file):
            (chosen.to / name).unlink(missing_ok=True)
        raise
    return chosen.to


def describe(directory: Path) -> str:
    """Return where the export is, and its size."""
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    return f"{directory}: {size / 2**20:.1f} MiB"
