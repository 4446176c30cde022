"""One sentence of a corpus as its reader lists it: texts, and the source of its audio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simuljax.errors import SimuljaxError

if TYPE_CHECKING:
    from data_pipelines.augmentation.effects import Augmented


@dataclass(frozen=True, kw_only=True)
class Span:
    """A word or a phoneme and the time it takes, in milliseconds from the utterance's start."""

    text: str
    start_ms: float
    end_ms: float


@dataclass(frozen=True, kw_only=True)
class Clip:
    """A stretch of an audio file; `member` names the file inside a zip archive."""

    path: Path
    member: str | None = None
    offset_s: float = 0.0
    duration_s: float | None = None  # None: to the end of the file


@dataclass(frozen=True, kw_only=True)
class Voice:
    """A voice for the transcript; variants and units are those of the engine."""

    engine: str  # "espeak" or "hibari"
    language: str = "en"
    variant: str = ""
    words_per_minute: int = 175
    pitch: int = 50


@dataclass(frozen=True, kw_only=True)
class Utterance:
    """One example before its audio has been read or synthesised.

    `audio` None is a text-only example. Words and phonemes are given where the corpus has an
    alignment; synthesis fills them in. An origin tells how a side of the pair was changed: empty
    for what the corpus holds, else for example `tempo 1.04` or `distilled by COMMAND`.
    """

    id: str
    transcript: str
    translation: str
    audio: Clip | Voice | Augmented | None = None
    speaker: str = ""
    words: tuple[Span, ...] = ()
    phonemes: tuple[Span, ...] = ()
    audio_origin: str = ""
    translation_origin: str = ""


@dataclass(frozen=True, kw_only=True)
class Skip:
    """An example that was left out; `reason` is one of few fixed phrases, to be counted."""

    id: str
    reason: str  # "empty text", "corrupt audio", ...
    detail: str = ""  # what was found, and where


@dataclass(frozen=True, kw_only=True)
class Listing:
    """All examples of a corpus, per split, in the order of the corpus."""

    splits: Mapping[str, Sequence[Utterance]]
    skipped: Sequence[Skip] = ()


class CorpusError(SimuljaxError):
    """A corpus that is missing or not as its reader expects; the message says what to do."""
