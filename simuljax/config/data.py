"""The prepared corpus of an experiment: splits, vocabularies, features and batches."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from simuljax.audio.features import Features
from simuljax.config.fields import Checked, ConfigError, setting
from simuljax.text.vocabulary import VocabularyConfig


@dataclass(frozen=True, kw_only=True)
class Budget(Checked):
    """The size of one global batch, padding included, over all hosts and devices.

    The number of rows is a multiple of `row_multiple`, so that it divides among devices. Leave it
    alone when the number of devices changes: a resumed run then sees the very same batches.
    """

    frames: int = setting(40_000, help="Frames of 10 ms; text-only batches ignore it.", low=1)
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
