"""What is evaluated: a trained run on a split of a corpus, and how it listens and writes."""

import difflib
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from simuljax.config.fields import ConfigError
from simuljax.decode.beam import Beam
from simuljax.decode.choosing import PolicyOptions
from simuljax.decode.options import Blocks, Decoding, LengthLimit
from simuljax.decode.policies import Policy, PolicyError

# Settings that a sweep may vary, and how a value of each is read.
SWEPT = {
    "predecision_ms": int,
    "read_ms": int,
    "threshold": float,
    "k": int,
    "gather": str,
    "checkpoint": str,
    "beam": int,
    "inside": int,
    "length_penalty": float,
    "then_k": int,
    "then_threshold": float,
    "policy": str,
    "units": str,
    "step_ms": int,
    "first_ms": int,
    "tokens": int,
    "agree": int,
    "last_frames": int,
    "alpha": float,
    "layer": int,
}
# How a setting that is not as usual shows in the name of the results.
NAMED = {
    "checkpoint": "{}",
    "predecision_ms": "{}ms",
    "read_ms": "read{}ms",
    "threshold": "p{:g}",
    "k": "k{}",
    "gather": "{}",
    "force_finish": "finish",
    "avoid_eos_while_reading": "avoid",
    "audio": "{}-audio",
    "beam": "beam{}",
    "inside": "inside{}",
    "length_penalty": "lp{:g}",
    "policy": "{}",
    "units": "{}",
    "step_ms": "step{}ms",
    "first_ms": "first{}ms",
    "tokens": "n{}",
    "agree": "agree{}",
    "last_frames": "f{}",
    "alpha": "a{:g}",
    "layer": "layer{}",
    "heads": "head{}",
    "convention": "{}",
    "trailing": "{}",
    "scores": "{}",
    "length_ratio": "ratio{:g}",
    "length_constant": "plus{}",
    "then": "then-{0.name}",
    "then_k": "k{}",
    "then_threshold": "p{:g}",
}


@dataclass(frozen=True, kw_only=True)
class Evaluation(PolicyOptions):
    """What is translated, and how."""

    run: Annotated[Path, tyro.conf.Positional]
    """The directory of a trained run."""
    split: str = "test"
    corpus: Path | None = None
    """A prepared corpus; by default the run's own."""
    name: str | None = None
    """Of the results under RUN/eval/; by default made from what follows."""
    branch: Literal["speech", "text"] = "speech"
    mode: Literal["streamed", "offline", "live"] = "streamed"
    """`live` plays one utterance after the other to a stream and notes the clock."""
    checkpoint: Literal["best", "last", "averaged"] = "best"
    read_ms: int | None = None
    """Speech to a READ; by default the step between decisions."""
    predecision_ms: int | None = None
    """Step between decisions; by default as trained."""
    threshold: float = 0.5
    """On the probability of writing."""
    gather: Literal["any", "majority", "mean"] = "any"
    force_finish: bool = False
    avoid_eos_while_reading: bool = False
    beam: int | None = None
    """Hypotheses that are followed at once, with `--mode offline`; by default one, greedily."""
    length_penalty: float | None = None
    """Of a beam: scores are log p / length ** this; by default 1."""
    inside: int | None = None
    """Of CAAT, streamed: hypotheses inside a group; by default 5, and 1 is greedy."""
    length_ratio: float | None = None
    """The most tokens per state of the source (40 ms, or a piece); by default 1.5."""
    length_constant: int | None = None
    """Tokens beside that; by default 10."""
    then: Path | None = None
    """A run whose text branch translates what this one, a recogniser, writes: a cascade."""
    then_k: int | None = None
    """Of that run: k of wait-k, in words."""
    then_threshold: float = 0.5
    """Of that run: on the probability of writing."""
    audio: Literal["own", "other"] = "own"
    """`other` plays each utterance its neighbour's: a control that must ruin the score."""
    first: int | None = None
    """So many utterances of the split, from its beginning; by default all."""
    repeats: int = 3
    """Passes with `--mode live`: the clock's scores are means over them."""
    frames: int = 100_000
    """In a batch."""

    def decoding(self) -> Decoding:
        """The choices of decoding."""
        return Decoding(
            gather=self.gather,
            threshold=self.threshold,
            k=self.k if self.policy is None else None,
            force_finish=self.force_finish,
            avoid_eos_while_reading=self.avoid_eos_while_reading,
            limit=self.limit(),
            blocks=Blocks() if self.inside is None else Blocks(inside=self.inside),
            policy=self.decides(),
        )

    def limit(self) -> LengthLimit:
        """The most tokens."""
        given = {"ratio": self.length_ratio, "constant": self.length_constant}
        return LengthLimit(**{name: value for name, value in given.items() if value is not None})

    def decides(self) -> Policy | None:
        """The policy with its options; None: the model decides."""
        try:
            return self.chosen_policy(beam=self.beam)
        except PolicyError as error:
            raise ConfigError(str(error)) from None

    def search(self) -> Beam | None:
        """The choices of beam search; None: greedy decoding."""
        if self.beam is None:
            if self.length_penalty is not None:
                raise ConfigError("--length-penalty compares hypotheses: give a --beam too")
            return None
        if self.policy == "local-agreement":
            return None  # a beam of its own
        if self.mode != "offline":
            raise ConfigError(
                f"--beam {self.beam} --mode {self.mode}: words that are committed cannot be taken "
                "back: beam needs --mode offline, or --policy local-agreement"
            )
        penalty = 1.0 if self.length_penalty is None else self.length_penalty
        try:
            return Beam(size=self.beam, length_penalty=penalty)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    @property
    def label(self) -> str:
        """Whatever is not as usual."""
        usual = {field.name: field.default for field in fields(self)}
        given = {name: getattr(self, name) for name in NAMED}
        return "-".join(NAMED[name].format(v) for name, v in given.items() if v != usual[name])

    @property
    def folder(self) -> Path:
        """Where the results go."""
        parts = [self.split, self.branch, self.mode, self.label]
        parts += [f"first{self.first}"] if self.first else []
        return self.run / "eval" / (self.name or "-".join(filter(None, parts)))


def points(chosen: Evaluation, sweep: tuple[str, ...]) -> list[Evaluation]:
    """Every combination of the values in settings like "threshold=0.3,0.5,0.7"."""
    settings = [read_sweep(setting) for setting in sweep]
    values = dict(settings)
    if len(values) < len(settings):
        raise ConfigError("--sweep names a setting twice: give all of its values in one")
    if values and chosen.name:
        raise ConfigError("a sweep has one evaluation for each setting: leave --name out")
    combined = (dict(zip(values, one, strict=True)) for one in product(*values.values()))
    return [replace(chosen, **settings) for settings in combined]


def read_sweep(setting: str) -> tuple[str, list[Any]]:
    """The name and the values of one setting."""
    name, _, given = setting.partition("=")
    if name not in SWEPT or not given:
        close = difflib.get_close_matches(name.replace("-", "_"), SWEPT, 1)
        hint = f" (do you mean {close[0]}?)" if close and close[0] != name else ""
        raise ConfigError(
            f"--sweep {setting}{hint}: write SETTING=VALUE,VALUE,... with one of {', '.join(SWEPT)}"
        )
    try:
        return name, [SWEPT[name](value) for value in given.split(",")]
    except ValueError as error:
        raise ConfigError(f"--sweep {setting}: {error}") from None
