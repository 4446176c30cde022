"""What an experiment file says: one frozen document from the corpus to the schedule.

A file under experiments/ defines `EXPERIMENT`, or several by name in `EXPERIMENTS`. The command
line may change any field: `simuljax train FILE [ROW] --training.seed 2`.
"""

import importlib.util
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Literal

from data_pipelines.feeding import Corpus
from simuljax.errors import SimuljaxError
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


class ExperimentError(SimuljaxError):
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


def load_module(path: Path) -> ModuleType:
    """An experiment file, executed."""
    if not path.is_file():
        raise ExperimentError(f"{path} is not there: give the path of an experiment file")
    spec = importlib.util.spec_from_file_location(f"experiment_{path.stem}", path)
    if spec is None or spec.loader is None or b"\0" in path.read_bytes():
        raise ExperimentError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses of the file look themselves up there
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:  # of the file, or of one that it imports
        where = f"{error.filename or path}, line {error.lineno or 1}"
        raise ExperimentError(f"{where}: {error.msg}: correct the file") from None
    except (OSError, ValueError):
        raise
    except Exception as error:  # a field, a module or a name that there is not
        said = f"{type(error).__name__}: {error}"
        raise ExperimentError(f"{said}, at {place_of(error, path)}: correct it") from error
    return module


def place_of(error: Exception, path: Path) -> str:
    """The line of the file that went wrong and, where it called others, theirs."""
    steps = traceback.extract_tb(error.__traceback__)
    steps = [step for step in steps if not step.filename.startswith("<")]  # Python's own
    inside = [i for i, step in enumerate(steps) if Path(step.filename).resolve() == path.resolve()]
    told = [steps[i] for i in dict.fromkeys([inside[-1] if inside else -1, len(steps) - 1])]
    return ", in ".join(f"{Path(step.filename).name}, line {step.lineno}" for step in told)


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
