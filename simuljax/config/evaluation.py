"""An evaluation: a trained run on a split of a corpus, and how it is decoded."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

from simuljax.config.decoding import Branch, Decoding
from simuljax.config.experiment import RUNS
from simuljax.config.fields import ConfigError, setting
from simuljax.config.options import from_options, given_options, label_of, options_in
from simuljax.errors import unknown

Mode = Literal["streamed", "offline", "live"]


@dataclass(frozen=True, kw_only=True)
class Evaluation(Decoding):
    """A trained run on a split, and how it is decoded."""

    run: Path = setting(help="The directory of a trained run, or a Whisper file.")
    split: str = setting("test", help="Split of the corpus.")
    corpus: Path | None = setting(
        None,
        help="A prepared corpus, by default the run's own; for Whisper, also a manifest's folder.",
        label="on-{}",
    )
    name: str | None = setting(
        None, help="Name of the results under RUN/eval/; by default made from the settings."
    )
    branch: Branch = setting("speech", help="Branch of the model.")
    mode: Mode = setting(
        "streamed", help="live: one utterance at a time, in real time, with the computing time."
    )
    checkpoint: Literal["best", "last", "averaged"] = setting(
        "best", help="Which checkpoint.", label="{}"
    )
    then: Path | None = setting(
        None,
        help="A run whose text branch translates the transcripts of this one: a cascade.",
        label="then-{}",
    )
    then_k: int | None = setting(
        None, help="Lag of wait-k of that run, in words.", label="then-k{}", low=1
    )
    then_threshold: float = setting(
        0.5, help="Threshold of that run.", label="then-p{:g}", above=0, below=1
    )
    task: Literal["translate", "transcribe"] | None = setting(
        None,
        help="Task of a Whisper model; by default translate, with --then transcribe.",
        label="{}",
    )
    language: str | None = setting(
        None, help="Spoken language, for a Whisper model; by default it is detected.", label="{}"
    )
    audio: Literal["own", "other"] = setting(
        "own",
        help="other plays the neighbour's audio: a control that must ruin the score.",
        label="{}-audio",
    )
    first: int | None = setting(
        None, help="Utterances from the start of the split; by default all.", label="first{}", low=1
    )
    joined: int | None = setting(
        None,
        help="Join so many utterances to one recording, and score it by segments (StreamLAAL).",
        label="joined{}",
        low=1,
    )
    joined_pause_ms: int = setting(
        600, help="Silence after each of them.", label="{}ms-apart", low=0, unit="ms"
    )
    repeats: int = setting(3, help="Passes with --mode live; its scores are means.", low=1)
    frames: int = setting(100_000, help="Frames in a batch.", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name is not None and Path(self.name).name != self.name:
            raise ConfigError(f"name is {self.name!r}; it must be a folder name without / or ..")

    @classmethod
    def of(cls, **options: Any) -> "Evaluation":
        """Return an evaluation from options by their flat names: policy="wait-k", k=3."""
        return from_options(cls, options)

    def but(self, **options: Any) -> "Evaluation":
        """Return the evaluation with some options changed."""
        return from_options(Evaluation, given_options(self) | options)

    @property
    def label(self) -> str:
        """Return every setting that is not the default."""
        return label_of(self)

    @property
    def results(self) -> Path:
        """Return the directory that results are stored under: the run, or one beside the runs."""
        return RUNS / self.run.stem if self.run.is_file() else self.run

    @property
    def folder(self) -> Path:
        """Return where the results go."""
        parts = [self.split, self.branch, self.mode, self.label]
        return self.results / "eval" / (self.name or "-".join(filter(None, parts)))


def points(chosen: Evaluation, sweep: Iterable[str]) -> list[Evaluation]:
    """Return an evaluation for every combination of values as in "threshold=0.3,0.5,0.7"."""
    values: dict[str, list[Any]] = {}
    for each in sweep:
        name, found = read_sweep(chosen, each)
        if name in values:
            raise ConfigError(f"--sweep names {name} twice: give all of its values in one")
        values[name] = found
    if values and chosen.name:
        raise ConfigError("a sweep has one evaluation for each setting: leave --name out")
    return [chosen.but(**dict(zip(values, one, strict=True))) for one in product(*values.values())]


def read_sweep(chosen: Evaluation, sweep: str) -> tuple[str, list[Any]]:
    """Return the name and the values of an option."""
    name, _, given = sweep.partition("=")
    options = options_in(chosen).items()
    known = {name: option for name, option in options if option.setting.label}  # change a result
    if name not in known or not given:
        missing = name not in known
        problem = unknown(name.replace("-", "_"), known) if missing else "there is no value"
        raise ConfigError(
            f"--sweep {sweep}: {problem}{'' if problem.endswith('?') else '.'} "
            f"Write OPTION=VALUE,VALUE,... with one of {', '.join(known)}"
        )
    return name, [known[name].parse(value) for value in given.split(",")]
