"""Words and phrases of both languages that mean the same, loaded from the tables in `lexicon/`.

Entries are compared by identity (`eq=False`): each is in its table once.
"""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

Gender = Literal["m", "f", "n"]
Column = Literal["m", "f", "n", "pl"]  # of a declension table: plurals have no gender
Number = Literal["sg", "pl"]
Case = Literal["nom", "acc", "dat", "gen"]
Agreement = Literal["ich", "du", "er", "wir", "ihr", "sie", "Sie"]

CASES: tuple[Case, ...] = ("nom", "acc", "dat", "gen")
PERSONS: tuple[Agreement, ...] = ("ich", "du", "er", "wir", "ihr", "sie")


@dataclass(frozen=True)
class Bilingual:
    """A stretch of text in both languages."""

    english: str
    german: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Noun:
    """A noun; an empty `english_plural` marks a noun that cannot be counted."""

    english: str
    english_plural: str
    german: tuple[str, ...]  # as in CASES
    german_plural: tuple[str, ...]
    gender: Gender
    classes: tuple[str, ...]
    # Prepositions of a place: at the station, to the station; am Bahnhof, zum Bahnhof.
    english_at: str
    english_to: str
    german_at: str  # takes the dative
    german_to: str  # "zu" takes the dative, the others the accusative


@dataclass(frozen=True, kw_only=True, eq=False)
class Adjective:
    """An adjective; `stem` takes the endings (teuer, teur-e), `rank` orders it before a noun.

    An empty German comparative marks an adjective without degrees.
    """

    english: str
    english_comparative: str
    english_superlative: str
    german: str
    stem: str
    comparative: str
    superlative: str
    rank: str  # 0 opinion, 1 size, 2 state, 3 color
    classes: tuple[str, ...]  # of the nouns it describes

    @property
    def gradable(self) -> bool:
        """Return True if it is compared: older, but not redder or emptier."""
        return bool(self.comparative) and self.rank < "3"


@dataclass(frozen=True, kw_only=True, eq=False)
class Verb:
    """A verb with its forms and everything its clause has to know."""

    role: str  # of a verb that only one construction uses; else empty
    english: str
    english_third: str
    english_gerund: str
    english_past: str
    english_participle: str
    particle: str  # call *up*, fall *asleep*
    prefix: str  # an
    infinitive: str  # without its prefix: rufen
    present: tuple[str, ...]  # as in PERSONS, without the prefix
    imperative: str  # to du
    participle: str  # with its prefix: angerufen
    auxiliary: Literal["haben", "sein"]
    reflexive: Literal["", "acc", "dat"]
    subject: tuple[str, ...]  # classes of nouns
    english_preposition: str  # wait *for*
    german_preposition: str  # warten *auf*
    object_case: Case | Literal[""]  # empty: no object
    object_classes: tuple[str, ...]
    recipient: Literal["", "bare", "to"]  # give *him* it, explain it *to him*
    complement: Literal["", "direction", "location"]
    # s: no progressive; p: happens at a place; m: has a manner; x: no passive; u: not on purpose;
    # l: lasts
    flags: str

    @property
    def things(self) -> tuple[str, ...]:
        """The classes of its object that are not persons."""
        return tuple(kind for kind in self.object_classes if kind != "person")


@dataclass(frozen=True, kw_only=True, eq=False)
class Modal:
    """A modal verb; `german_past` is empty where the English one has no past of its own."""

    english: str  # an infinitive follows, with "to" if the modal ends in it
    english_past: str
    infinitive: str
    german: tuple[str, ...]  # as in PERSONS
    german_past: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Pronoun:
    """A personal pronoun, its possessive, and the verb forms it takes."""

    key: str
    english: str
    english_object: str
    english_possessive: str
    nom: str
    acc: str
    dat: str
    possessive: str
    agreement: Agreement


@dataclass(frozen=True)
class Determiner:
    """The word that opens a noun phrase; `pattern` says how the German one is inflected."""

    english: str
    german: str
    pattern: str  # of ENDINGS; `fixed` has none
    declension: str  # of the adjectives behind it, also of ENDINGS
    weight: Literal["definite", "indefinite"] = "definite"


def table(name: str, *lists: str) -> list[dict[str, Any]]:
    """Return the rows of a table; the named columns are lists separated by spaces."""
    with (Path(__file__).with_name("lexicon") / f"{name}.tsv").open(encoding="utf-8") as file:
        rows = [*csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    return [row | {column: tuple(row[column].split()) for column in lists} for row in rows]


def _bilingual(name: str) -> dict[str, tuple[Bilingual, ...]]:
    """Return the phrases of each kind."""
    phrases: dict[str, tuple[Bilingual, ...]] = {}
    for row in table(name):
        phrase = Bilingual(row["english"], row["german"])
        phrases[row["kind"]] = (*phrases.get(row["kind"], ()), phrase)
    return phrases


NOUNS = tuple(Noun(**row) for row in table("nouns", "german", "german_plural", "classes"))
PLACES = tuple(noun for noun in NOUNS if noun.english_at)
ADJECTIVES = tuple(Adjective(**row) for row in table("adjectives", "classes"))
_ALL_VERBS = tuple(Verb(**row) for row in table("verbs", "present", "subject", "object_classes"))
VERBS = tuple(verb for verb in _ALL_VERBS if not verb.role)
SPECIAL = {verb.role: verb for verb in _ALL_VERBS if verb.role}
MODALS = tuple(Modal(**row) for row in table("modals", "german", "german_past"))
CAN, MUST, HAVE_TO, WANT, SHOULD, WOULD_LIKE, ALLOWED = MODALS
PRONOUNS = {row["key"]: Pronoun(**row) for row in table("pronouns")}
DETERMINERS = tuple(Determiner(**row) for row in table("determiners"))
ENDINGS: dict[tuple[str, Case, Column], str] = {
    (row["kind"], row["case"], column): row[column]
    for row in table("endings")
    for column in ("m", "f", "n", "pl")
}
CONJUGATION = {
    (row["kind"], row["infinitive"]): row["forms"] for row in table("conjugation", "forms")
}
CONTRACTED = {row["words"]: row["contracted"] for row in table("contractions")}
PHRASES = _bilingual("phrases")
_NAMES = table("names")
WOMEN, MEN, SURNAMES = (
    tuple(row["name"] for row in _NAMES if row["kind"] == kind)
    for kind in ("women", "men", "surnames")
)


@cache
def nouns_of(*classes: str) -> tuple[Noun, ...]:
    """Return every noun of one of the classes, in the order of the table."""
    return tuple(noun for noun in NOUNS if any(kind in noun.classes for kind in classes))


@cache
def noun(singular: str) -> Noun:
    """Return the noun with that English name."""
    return next(entry for entry in NOUNS if entry.english == singular)


@cache
def verb(english: str, german: str) -> Verb:
    """Return the verb with that English base and German infinitive, prefix included."""
    found = (v for v in VERBS if (v.english, v.prefix + v.infinitive) == (english, german))
    return next(found)
