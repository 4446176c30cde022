"""What the lexicon's tables hold: words of both languages that mean the same.

Entries are compared by identity (`eq=False`): each stands in its table once.
"""

from dataclasses import dataclass
from typing import Literal

Gender = Literal["m", "f", "n"]
Number = Literal["sg", "pl"]
Case = Literal["nom", "acc", "dat", "gen"]
Agreement = Literal["ich", "du", "er", "wir", "ihr", "sie", "Sie"]

CASES: tuple[Case, ...] = ("nom", "acc", "dat", "gen")


@dataclass(frozen=True, kw_only=True)
class Bilingual:
    """A stretch of text in both languages."""

    english: str
    german: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Noun:
    """A noun; an empty `english_plural` marks what cannot be counted."""

    english: str
    english_plural: str
    german: str
    german_plural: str
    gender: Gender
    weak: bool  # der Student, den Studenten
    classes: tuple[str, ...]

    @property
    def countable(self) -> bool:
        """Whether there can be two of it."""
        return bool(self.english_plural)


@dataclass(frozen=True, kw_only=True, eq=False)
class Place:
    """A noun with its prepositions: at the station, to the station; am Bahnhof, zum Bahnhof."""

    noun: Noun
    english_at: str
    english_to: str
    german_at: str  # governs the dative
    german_to: str  # "zu" governs the dative, the others the accusative


@dataclass(frozen=True, kw_only=True, eq=False)
class Adjective:
    """An adjective; `stem` takes the endings (teuer, teur-e), `rank` orders it before a noun."""

    english: str
    german: str
    stem: str
    comparative: str
    superlative: str
    rank: int
    classes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Government:
    """How a verb takes its object: wait *for* it, warten *auf* plus accusative."""

    english_preposition: str
    german_preposition: str
    case: Case
    classes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Verb:
    """A verb with its principal parts and everything its clause has to know."""

    english: str
    english_past: str
    english_participle: str
    particle: str  # call *up*, fall *asleep*
    infinitive: str  # without its prefix: rufen
    prefix: str  # an
    changed_stem: str  # fahren: fähr
    participle: str  # with its prefix: angerufen
    auxiliary: Literal["haben", "sein"]
    reflexive: Literal["", "acc", "dat"]
    subject: tuple[str, ...]
    object: Government | None
    recipient: Literal["", "bare", "to"]  # give *him* it, explain it *to him*
    complement: Literal["", "direction", "location"]
    # s: no progressive; p: happens at a place; m: has a manner; x: no passive; u: not on purpose;
    # l: lasts
    flags: str

    @property
    def separable(self) -> bool:
        """Whether its prefix leaves it: er ruft an."""
        return bool(self.prefix)


@dataclass(frozen=True, kw_only=True, eq=False)
class Modal:
    """A modal verb; `german_past` is empty where the English one has no past of its own."""

    english: str  # what follows it is an infinitive, with "to" if the modal ends in it
    english_past: str
    german: tuple[str, ...]  # ich, du, er, wir, ihr, sie
    german_past: tuple[str, ...]
    infinitive: str
