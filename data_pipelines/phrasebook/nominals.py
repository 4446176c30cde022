"""Noun phrases, names and pronouns in every German case; the meaning of a clause around them."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from . import numbers
from .lexemes import (
    CASES,
    CONTRACTED,
    DETERMINERS,
    ENDINGS,
    PRONOUNS,
    Adjective,
    Agreement,
    Bilingual,
    Case,
    Column,
    Determiner,
    Gender,
    Modal,
    Noun,
    Number,
    Verb,
)

THE, THIS, THESE, EVERY, ALL, WHICH, A, NO, NOT_A, BARE, MANY, SOME = DETERMINERS
Tense = Literal[
    "present", "progressive", "past", "perfect", "pluperfect", "future", "would", "unreal", "since"
]
Polarity = Literal["yes", "no", "no-kein", "not-yet"]


@dataclass(frozen=True, kw_only=True)
class Nominal:
    """Something that can be a subject or an object.

    `owner` is the key in `PRONOUNS` of the pronoun that stands for it, or empty where none would
    be natural.
    """

    english: str  # as a subject
    german: dict[Case, str]
    agreement: Agreement = "er"
    column: Column
    weight: Literal["pronoun", "definite", "indefinite"] = "definite"
    owner: str = ""
    animate: bool = True
    noun: Noun | None = None

    @property
    def english_object(self) -> str:
        """Return the form of an object: me for I."""
        is_pronoun = self.weight == "pronoun"
        return PRONOUNS[self.owner].english_object if is_pronoun else self.english

    def with_tail(self, english: str, german: str) -> "Nominal":
        """Append a relative clause or a name."""
        forms = {case: form + german for case, form in self.german.items()}
        return replace(self, english=self.english + english, german=forms)


@dataclass(frozen=True)
class Form:
    """The form of the verb. A modal has the tenses `present` and `past` only."""

    tense: Tense
    modal: Modal | None = None
    voice: Literal["active", "passive"] = "active"


@dataclass(frozen=True, kw_only=True)
class Clause:
    """One verb with everything that belongs to it; both languages say it.

    In the passive `subject` is what the verb is done to, and `recipient` and `object` are empty.
    """

    subject: Nominal
    verb: Verb
    form: Form
    object: Nominal | None = None
    recipient: Nominal | None = None
    agent: Nominal | None = None
    complement: Bilingual | None = None  # a direction, a place that the verb demands, a predicate
    place: Bilingual | None = None
    manner: Bilingual | None = None
    time: Bilingual | None = None
    mid: Bilingual | None = None  # often, already
    polarity: Polarity = "yes"


def possessive(owner: str) -> Determiner:
    """Return my, your or his."""
    entry = PRONOUNS[owner]
    return Determiner(entry.english_possessive, entry.possessive, "ein", "mixed")


def belonging_to(name: str) -> Determiner:
    """Return Anna's, Annas."""
    return Determiner(f"{name}'s", f"{name}s", "fixed", "strong")


def counted(count: int) -> Determiner:
    """Return a number from two on."""
    spoken = numbers.number(count)
    return Determiner(spoken.english, spoken.german, "fixed", "strong", "indefinite")


def article(following: str) -> str:
    """Return a or an, before what follows."""
    first = following.split()[0]
    vowel = first[0] in "aeiou" and not first.startswith(("uni", "useful"))
    return "an" if vowel or first == "honest" else "a"


def contracted(preposition: str, phrase: str) -> str:
    """Join a German preposition and a noun phrase: am Bahnhof, ins Büro."""
    first, _, rest = phrase.partition(" ")
    short = CONTRACTED.get(f"{preposition} {first}")
    return f"{short} {rest}" if short and rest else f"{preposition} {phrase}"


@cache
def _determined(determiner: Determiner, case: Case, column: Column) -> str:
    """Inflect a determiner; euer loses an e: eure."""
    if determiner.pattern == "fixed":
        return determiner.german
    ending = ENDINGS[determiner.pattern, case, column]
    return ("eur" if determiner.german == "euer" and ending else determiner.german) + ending


def _owner(noun: Noun, number: Number) -> str:
    if number == "pl":
        return "they"
    if "person" in noun.classes:
        return {"m": "he", "f": "she", "n": ""}[noun.gender]
    return f"it-{noun.gender}"


def noun_phrase(
    noun: Noun,
    determiner: Determiner,
    number: Number = "sg",
    adjectives: tuple[Adjective, ...] = (),
    *,
    stems: tuple[tuple[str, str], ...] = (),
) -> Nominal:
    """Build a noun phrase; `stems` are comparatives and superlatives: English, German stem."""
    plural = number == "pl"
    column: Column = "pl" if plural else noun.gender
    described = stems + tuple((a.english, a.stem) for a in adjectives)
    rest = " ".join(
        [word for word, _ in described] + [noun.english_plural if plural else noun.english]
    )
    first = article(rest) if determiner.english == "a" else determiner.english
    forms: dict[Case, str] = {}
    for case, head in zip(CASES, noun.german_plural if plural else noun.german, strict=True):
        ending = ENDINGS[determiner.declension, case, column]
        words = [_determined(determiner, case, column), *(stem + ending for _, stem in described)]
        forms[case] = " ".join([*words, head]).lstrip()
    return Nominal(
        english=f"{first} {rest}".lstrip(),
        german=forms,
        agreement="sie" if plural else "er",
        column=column,
        weight=determiner.weight,
        owner=_owner(noun, number),
        animate="person" in noun.classes,
        noun=noun,
    )


@cache
def pronoun(key: str) -> Nominal:
    """Return a personal pronoun; "it-f" stands for a thing that is feminine in German."""
    entry = PRONOUNS[key]
    columns: dict[str, Column] = {"she": "f", "it-f": "f", "it-n": "n"}
    return Nominal(
        english=entry.english,
        german={"nom": entry.nom, "acc": entry.acc, "dat": entry.dat},
        agreement=entry.agreement,
        column=columns.get(key, "m" if entry.agreement == "er" else "pl"),
        weight="pronoun",
        owner=key,
        animate=not key.startswith("it"),
    )


def _person(english: str, nom: str, other: str, gender: Gender) -> Nominal:
    forms: dict[Case, str] = {"nom": nom, "acc": other, "dat": other, "gen": f"{other}s"}
    owner = "he" if gender == "m" else "she"
    return Nominal(english=english, german=forms, column=gender, owner=owner)


def name(first: str, gender: Gender) -> Nominal:
    """Return a first name: the same in every case but the genitive."""
    return _person(first, first, first, gender)


def titled(surname: str, gender: Gender) -> Nominal:
    """Return Mr. Weber: Herr Weber, and Herrn Weber as an object."""
    if gender == "m":
        return _person(f"Mr. {surname}", f"Herr {surname}", f"Herrn {surname}", gender)
    return _person(f"Mrs. {surname}", f"Frau {surname}", f"Frau {surname}", gender)


def both(first: Nominal, second: Nominal) -> Nominal:
    """Join two names by and."""
    return Nominal(
        english=f"{first.english} and {second.english}",
        german={c: f"{first.german[c]} und {second.german[c]}" for c in CASES if c != "gen"},
        agreement="sie",
        column="pl",
        owner="they",
    )
