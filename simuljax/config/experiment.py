"""An experiment: one frozen document from the corpus to the schedule.

A file under experiments/ defines `EXPERIMENT`, or several by name in `EXPERIMENTS`. The command
line may change any field: `simuljax train FILE [NAME] --training.seed 2`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from simuljax.audio.features import Features
from simuljax.audio.filterbank import without_fixed
from simuljax.config.fields import (
    Checked,
    ConfigError,
    check,
    from_json,
    read_json,
    setting,
    to_json,
)
from simuljax.config.loading import load_module
from simuljax.config.model import ModelConfig
from simuljax.config.training import Cluster, Training
from simuljax.losses import JointObjective
from simuljax.text.vocabulary import VocabularyConfig

# Where experiments look for corpora and put runs, unless the command line says otherwise.
DATA = Path(os.environ.get("SIMULJAX_DATA", "data"))
RUNS = Path(os.environ.get("SIMULJAX_RUNS", "runs"))
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
NOT_SETTINGS = ("software", "training.objective.features")  # stored by some version


@dataclass(frozen=True, kw_only=True)
class Budget(Checked):
    """The size of one global batch, padding included, over all hosts and devices.

    The number of rows is a multiple of `row_multiple`, so that it divides among devices. Leave it
    alone when the number of devices changes: a resumed run then sees the very same batches.
    """

    frames: int = setting(
        40_000, help="Frames of 10 ms over all devices; text-only batches ignore it.", low=1
    )
    tokens: int = setting(40_000, help="Tokens of the longer text side.", low=1)
    row_multiple: int = setting(8, help="Divisor of the number of rows.", low=1)
    shapes: int = setting(8, help="Static shapes; each one compiles once.", low=1)


@dataclass(frozen=True, kw_only=True)
class Joining(Checked):
    """Training recordings of several utterances, with pauses and silence; by default one each.

    Utterances are grouped at random, by the seed of the order of batches; each is in one recording.
    A negative lead or trail cuts the beginning or the end, a quarter of the utterance at most.
    """

    utterances: int = setting(1, help="Utterances to a recording at most; drawn from 1 on.", low=1)
    seconds: float = setting(
        20.0, help="Length that utterances are joined up to.", above=0, unit="s"
    )
    pause_s: tuple[float, float] = setting(
        (0.2, 1.0), help="Silence between utterances.", low=0, high=60, unit="s"
    )
    lead_s: tuple[float, float] = setting(
        (0.0, 0.0), help="Silence before the first; below 0: cut.", low=-5, high=60, unit="s"
    )
    trail_s: tuple[float, float] = setting(
        (0.0, 0.0), help="Silence after the last; below 0: cut.", low=-5, high=60, unit="s"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in vars(self).items():
            if isinstance(value, tuple) and value != tuple(sorted(value)):
                raise ConfigError(f"Joining.{name} is {value}; the lower number comes first")

    @property
    def active(self) -> bool:
        """Return True if a recording can differ from an utterance."""
        return self.utterances > 1 or any((*self.lead_s, *self.trail_s))


@dataclass(frozen=True, kw_only=True)
class DataConfig(Checked):
    """A prepared corpus, and how a run sees it."""

    directory: Path = setting(help="The prepared corpus.")
    train: str = setting("train", help="Split to train on.")
    valid: str = setting("valid", help="Split to validate on.")
    task: Literal["translation", "transcription"] = setting(
        "translation", help="Transcription has the transcript as its target."
    )
    source: VocabularyConfig = setting(VocabularyConfig(), help="Vocabulary of transcripts.")
    target: VocabularyConfig = setting(VocabularyConfig(), help="Vocabulary of targets.")
    vocabularies_of: Path | None = setting(None, help="A run whose vocabularies are used instead.")
    features: Features = setting(Features(), help="Features of speech.")
    budget: Budget = setting(Budget(), help="Size of a batch.")
    joining: Joining = setting(Joining(), help="Training recordings of several utterances.")
    text: Path | None = setting(None, help="A corpus of text, for the text branch.")
    text_per_speech: float = setting(1.0, help="Batches of text to a batch of speech.", above=0)
    held: Literal["disk", "device"] = setting(
        "disk", help="Where examples are kept; device works with one device only."
    )

    def tables(self) -> dict[str, tuple[Path, str]]:
        """Return the corpora and splits that are trained on, by use."""
        used = {"train": (self.directory, self.train), "valid": (self.directory, self.valid)}
        return used if self.text is None else used | {"text": (self.text, self.train)}


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

    def trains_like(self, other: "Experiment") -> bool:
        """Return True if one compiled update and the same batches serve both.

        Seeds, weights of losses and first parameters may differ.
        """
        one, two = (
            replace(e, run=Path(), init_from=(), training=e.training.without_seed_and_weights())
            for e in (self, other)
        )
        return one == two


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
    try:
        current = with_terms(with_new_names(stored))
        return from_json(Experiment, {"run": str(directory)} | current)
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} cannot be used: {error}") from error


def with_new_names(settings: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Return stored settings with the names of fields that they have in this version."""
    renamed = {}
    for name, value in settings.items():
        path = f"{place}{name}"
        if path in NOT_SETTINGS:
            continue
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
