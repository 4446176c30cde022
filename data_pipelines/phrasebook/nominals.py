"""Noun phrases, names and pronouns in both languages and in every German case."""

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, get_args

from . import numbers
from .lexemes import CASES, PRONOUNS, Adjective, Agreement, Case, Gender, Noun, Number

Weight = Literal["pronoun", "definite", "indefinite"]
Column = Literal["m", "f", "n", "pl"]  # of a declension table: plurals have no gender
Declension = Literal["weak", "mixed", "strong"]


def _endings(rows: str) -> dict[tuple[Case, Column], str]:
    """Read four rows (nom, acc, dat, gen) of four endings (m, f, n, pl); `-` is no ending."""
    return {
        (case, column): ending.strip("-")
        for case, row in zip(CASES, rows.split("|"), strict=True)
        for column, ending in zip(get_args(Column), row.split(), strict=True)
    }


_ADJECTIVES = {
    "weak": _endings("e e e en | en e e en | en en en en | en en en en"),
    "mixed": _endings("er e es en | en e es en | en en en en | en en en en"),
    "strong": _endings("er e es e | en e es e | em er em en | en er en er"),
}
_DETERMINERS = {
    "der": _endings("er ie as ie | en ie as ie | em er em en | es er es er"),
    "dieser": _endings("er e es e | en e es e | em er em en | es er es er"),
    "ein": _endings("- e - e | en e - e | em er em en | es er es er"),
}
RELATIVE = _endings(  # the German relative pronouns
    "der die das die | den die das die | dem der dem denen | dessen deren dessen deren"
)
_CONTRACTED = {
    "in dem": "im",
    "in das": "ins",
    "an dem": "am",
    "zu dem": "zum",
    "zu der": "zur",
    "von dem": "vom",
    "bei dem": "beim",
}


@dataclass(frozen=True, kw_only=True)
class Nominal:
    """Something that can be a subject or an object.

    `owner` is the key in `PRONOUNS` of the pronoun that stands for it, or empty where none would
    be natural.
    """

    english: str  # as a subject
    german: dict[Case, str]
    agreement: Agreement
    column: Column
    weight: Weight
    owner: str = ""
    animate: bool = False
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
class Determiner:
    """The word that opens a noun phrase; `pattern` says how the German one is inflected."""

    english: str
    german: str
    pattern: Literal["der", "dieser", "ein", "fixed"]
    declension: Declension
    weight: Weight = "definite"


THE = Determiner("the", "d", "der", "weak")
THIS = Determiner("this", "dies", "dieser", "weak")
THESE = Determiner("these", "dies", "dieser", "weak")
EVERY = Determiner("every", "jed", "dieser", "weak")
ALL = Determiner("all the", "all", "dieser", "weak")
WHICH = Determiner("which", "welch", "dieser", "weak")
A = Determiner("a", "ein", "ein", "mixed", "indefinite")
NO = Determiner("any", "kein", "ein", "mixed", "indefinite")
NOT_A = Determiner("a", "kein", "ein", "mixed", "indefinite")
BARE = Determiner("", "", "fixed", "strong", "indefinite")
MANY = Determiner("many", "viel", "dieser", "strong", "indefinite")
SOME = Determiner("some", "einig", "dieser", "strong", "indefinite")


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
    short = _CONTRACTED.get(f"{preposition} {first}")
    return f"{short} {rest}" if short and rest else f"{preposition} {phrase}"


@cache
def _determined(determiner: Determiner, case: Case, column: Column) -> str:
    """Inflect a determiner; euer loses an e: eure."""
    if determiner.pattern == "fixed":
        return determiner.german
    ending = _DETERMINERS[determiner.pattern][case, column]
    return ("eur" if determiner.german == "euer" and ending else determiner.german) + ending


@cache
def _noun_form(noun: Noun, case: Case, number: Number) -> str:
    """Decline a noun: den Kindern, den Studenten, des Hauses, des Wetters, des Schnees."""
    german, plural = noun.german, noun.german_plural
    if number == "pl":
        return plural + ("n" if case == "dat" and not plural.endswith(("n", "s")) else "")
    if noun.declension == "weak":
        return german if case == "nom" else plural
    if case != "gen" or noun.gender == "f":
        return german
    if german == "Bus":
        return "Busses"
    if german.endswith(("s", "ß", "x", "z", "ch", "sch")):
        return german + "es"
    one_syllable = len(re.findall(r"[aeiouäöü]+", german.lower())) == 1
    return german + ("es" if one_syllable and german[-1] in "bdgktn" else "s")


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
    at: Column = "pl" if number == "pl" else noun.gender
    described = stems + tuple((a.english, a.stem) for a in adjectives)
    head = noun.english_plural if number == "pl" else noun.english
    rest = " ".join([*(word for word, _ in described), head])
    first = article(rest) if determiner.english == "a" else determiner.english
    endings = _ADJECTIVES[determiner.declension]
    forms: dict[Case, str] = {}
    for case in CASES:
        words = [_determined(determiner, case, at)]
        words += [stem + endings[case, at] for _, stem in described]
        forms[case] = " ".join([*words, _noun_form(noun, case, number)]).lstrip()
    return Nominal(
        english=f"{first} {rest}".lstrip(),
        german=forms,
        agreement="sie" if number == "pl" else "er",
        column=at,
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
    return Nominal(
        english=english,
        german={"nom": nom, "acc": other, "dat": other, "gen": f"{other}s"},
        agreement="er",
        column=gender,
        weight="definite",
        owner="he" if gender == "m" else "she",
        animate=True,
    )


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
        weight="definite",
        owner="they",
        animate=True,
    )
