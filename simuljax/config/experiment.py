"""An experiment: one frozen document from the corpus to the schedule.

A file under experiments/ defines `EXPERIMENT`, or several by name in `EXPERIMENTS`. The command
line may change any field: `simuljax train FILE [NAME] --training.seed 2`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from simuljax.audio.filterbank import without_fixed
from simuljax.config.data import DataConfig
from simuljax.config.fields import Checked, ConfigError, check, setting
from simuljax.config.json import from_json, read_json, to_json
from simuljax.config.loading import DATA, RUNS, load_module
from simuljax.config.model import ModelConfig
from simuljax.config.training import Cluster, Training
from simuljax.losses import JointObjective

__all__ = ["DATA", "RUNS", "Experiment", "InitFrom", "load_experiments", "read_experiment"]

CONFIG_FILE = "config.json"

ENCODER = ("speech", "shared")
WHISPER_ENCODER = "speech/whisper <- encoder"
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
# Fields, and their values, by the names that earlier versions stored them under.
RENAMED = {"corpus": "data", "begin": "init_from", "training.way": "training.parallelism"}
RENAMED_VALUES = {("model.monotonic.policy", "learnt"): "learned"}
NOT_SETTINGS = ("software",)  # stored beside the settings


@dataclass(frozen=True, kw_only=True)
class InitFrom(Checked):
    """Parameters taken from another run before training starts, or from a file of another project.

    "whisper:FILE" fills the encoders `speech.kind="whisper"` and "streaming_whisper" from a .pt,
    safetensors or ggml file. "fairseq:FILE" takes what fits of a joint, speech or text translator;
    embeddings, which belong to its dictionary, only by a rule that names them.
    A rule is "into <- from", or one name where both are the same; "" is everything. DAR's teacher
    starts as the run itself unless an entry fills it.
    """

    run: Path = setting(help="The run to take them from, whisper:FILE or fairseq:FILE.")
    rules: tuple[str, ...] = setting(("",), help="Which parameters go where.")
    checkpoint: Literal["best", "last", "averaged"] = setting("best", help="Which checkpoint.")
    fills: Literal["params", "teacher"] = setting(
        "params", help="Parameters to fill: the run's own, or those of DAR's teacher."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.whisper is not None and self.rules == ("",):
            object.__setattr__(self, "rules", (WHISPER_ENCODER,))
        if self.whisper is not None and self.fills != "params":
            raise ConfigError(f"{self.run} has no text encoder to fill the {self.fills} with")

    @property
    def whisper(self) -> Path | None:
        """Return the file of Whisper's weights; None for a run."""
        return self._file("whisper")

    @property
    def fairseq(self) -> Path | None:
        """Return the checkpoint of fairseq; None for anything else."""
        return self._file("fairseq")

    def _file(self, project: str) -> Path | None:
        kind, _, path = str(self.run).partition(":")
        return Path(path) if kind == project else None


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A training run. `init_from` may be the text of one `InitFrom.run`."""

    run: Path = setting(help="The directory of the run.")
    data: DataConfig = setting(help="The corpus.")
    model: ModelConfig = setting(help="The network.")
    training: Training = setting(Training(), help="Objective, optimiser and schedule.")
    init_from: tuple[InitFrom, ...] = setting((), help="Runs that give the first parameters.")
    cluster: Cluster = setting(Cluster(), help="Processes of the run; detected by default.")

    def __post_init__(self) -> None:
        if isinstance(self.init_from, str):
            object.__setattr__(self, "init_from", (InitFrom(run=Path(self.init_from)),))
        check(self)
        speech, bank = self.model.speech, self.data.features.filterbank.kind
        if speech and speech.is_whisper and bank != "whisper":
            raise ConfigError(
                f"speech.kind is {speech.kind!r} and data.features.filterbank.kind {bank!r}; that "
                "encoder needs 'whisper'"
            )


def load_experiments(path: Path) -> Mapping[str, Experiment]:
    """Return the experiments of a file by name; a single one has the name ""."""
    module = load_module(path)
    named = getattr(module, "EXPERIMENTS", None)
    alone = getattr(module, "EXPERIMENT", None)
    if isinstance(named, Mapping) and named:
        for name, held in named.items():
            if not isinstance(held, Experiment):
                raise ConfigError(f"{path}: EXPERIMENTS[{name!r}] is {held!r}, not an Experiment")
        return named
    if isinstance(alone, Experiment):
        return {"": alone}
    raise ConfigError(f"{path} defines neither EXPERIMENT nor EXPERIMENTS: see experiments/")


def read_experiment(directory: Path) -> Experiment:
    """Return the experiment that a run directory was trained with, of whatever version."""
    path = directory / CONFIG_FILE
    stored: Any = read_json(path)
    if not isinstance(stored, dict):
        raise ConfigError(f"{path} is damaged: it must hold an object")
    settings = {name: value for name, value in stored.items() if name not in NOT_SETTINGS}
    try:
        current = with_terms(with_new_names(settings))
        return from_json(Experiment, {"run": str(directory)} | current)
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} cannot be used: {error}") from error


def with_new_names(settings: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Return stored settings with the names of fields that they have in this version."""
    renamed = {}
    for name, value in settings.items():
        path = f"{place}{name}"
        value = without_fixed(value) if name == "filterbank" else value
        new = RENAMED.get(path, path).rpartition(".")[2]
        if isinstance(value, dict):
            renamed[new] = with_new_names(value, f"{path}.")
        else:
            known = isinstance(value, str) and (path, value) in RENAMED_VALUES
            renamed[new] = RENAMED_VALUES[path, value] if known else value
    return renamed


def with_terms(settings: dict[str, Any]) -> dict[str, Any]:
    """Return stored settings with the objective as a list of terms.

    Earlier versions stored the weights and options of the joint objective in
    `training.objective.joint`. Runs older than the option `decision_teacher` had "stop".
    """
    training = dict(settings.get("training", {}))
    objective = dict(training.get("objective", {}))
    if "joint" in objective:
        old = {"decision_teacher": "stop"} | objective.pop("joint")
        starts = {n: training.pop(n, 0) for n in ("distil_after", "latency_after")}
        terms = from_json(JointObjective, old, "training.objective.joint").terms(**starts)
        training["objective"] = objective | {"terms": to_json(terms)}
        return {**settings, "training": training}
    return settings
