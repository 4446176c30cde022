"""Noun phrases, names and pronouns, said in both languages and in every case."""

from dataclasses import dataclass, replace
from typing import Literal

from . import english, german, numbers
from .german import Column, Declension
from .lexemes import CASES, Adjective, Agreement, Case, Gender, Noun, Number

Weight = Literal["pronoun", "definite", "indefinite"]
German = dict[Case, str]


@dataclass(frozen=True, kw_only=True)
class Nominal:
    """Something that can be a subject or an object.

    `english` is its form as a subject, `english_object` the other one (I, me). `owner` is the key
    in `PRONOUNS` of the pronoun that stands for it, or empty where none would be natural.
    """

    english: str
    english_object: str
    german: German
    agreement: Agreement
    column: Column
    weight: Weight
    owner: str = ""
    animate: bool = False
    noun: Noun | None = None

    def with_tail(self, english_tail: str, german_tail: str) -> "Nominal":
        """The same with a relative clause behind it."""
        return replace(
            self,
            english=self.english + english_tail,
            english_object=self.english_object + english_tail,
            german={case: form + german_tail for case, form in self.german.items()},
        )


@dataclass(frozen=True, kw_only=True)
class Pronoun:
    """A personal pronoun, its possessive, and the verb forms it takes."""

    english: str
    english_object: str
    english_possessive: str
    german: tuple[str, str, str]  # nom, acc, dat
    german_possessive: str
    agreement: Agreement


def _pronoun(text: str) -> Pronoun:
    subject, obj, possessive, nom, acc, dat, mein, agreement = text.split()
    found: dict[str, Agreement] = {
        "ich": "ich",
        "du": "du",
        "er": "er",
        "wir": "wir",
        "ihr": "ihr",
        "sie": "sie",
        "Sie": "Sie",
    }
    return Pronoun(
        english=subject,
        english_object=obj,
        english_possessive=possessive,
        german=(nom, acc, dat),
        german_possessive=mein,
        agreement=found[agreement],
    )


PRONOUNS = {
    "I": _pronoun("I me my ich mich mir mein ich"),
    "du": _pronoun("you you your du dich dir dein du"),
    "Sie": _pronoun("you you your Sie Sie Ihnen Ihr Sie"),
    "ihr": _pronoun("you you your ihr euch euch euer ihr"),
    "he": _pronoun("he him his er ihn ihm sein er"),
    "she": _pronoun("she her her sie sie ihr ihr er"),
    "we": _pronoun("we us our wir uns uns unser wir"),
    "they": _pronoun("they them their sie sie ihnen ihr sie"),
    "it-m": _pronoun("it it its er ihn ihm sein er"),
    "it-f": _pronoun("it it its sie sie ihr ihr er"),
    "it-n": _pronoun("it it its es es ihm sein er"),
}


def pronoun(key: str) -> Nominal:
    """A personal pronoun; "it-f" stands for a thing that is feminine in German."""
    entry = PRONOUNS[key]
    forms = dict(zip(CASES, entry.german, strict=False))
    columns: dict[str, Column] = {"she": "f", "it-f": "f", "it-n": "n"}
    return Nominal(
        english=entry.english,
        english_object=entry.english_object,
        german=forms,
        agreement=entry.agreement,
        column=columns.get(key, "m" if entry.agreement == "er" else "pl"),
        weight="pronoun",
        owner=key,
        animate=not key.startswith("it"),
    )


@dataclass(frozen=True, kw_only=True)
class Determiner:
    """What opens a noun phrase; `pattern` says how the German one is inflected."""

    english: str
    german: str
    pattern: Literal["der", "dieser", "ein", "fixed"]
    declension: Declension
    weight: Weight = "definite"


THE = Determiner(english="the", german="der", pattern="der", declension="weak")
THIS = Determiner(english="this", german="dies", pattern="dieser", declension="weak")
THESE = Determiner(english="these", german="dies", pattern="dieser", declension="weak")
EVERY = Determiner(english="every", german="jed", pattern="dieser", declension="weak")
ALL = Determiner(english="all the", german="all", pattern="dieser", declension="weak")
WHICH = Determiner(english="which", german="welch", pattern="dieser", declension="weak")
A = Determiner(english="a", german="ein", pattern="ein", declension="mixed", weight="indefinite")
NO = Determiner(
    english="any", german="kein", pattern="ein", declension="mixed", weight="indefinite"
)
NOT_A = Determiner(
    english="a", german="kein", pattern="ein", declension="mixed", weight="indefinite"
)
BARE = Determiner(english="", german="", pattern="fixed", declension="strong", weight="indefinite")
MANY = Determiner(
    english="many", german="viel", pattern="dieser", declension="strong", weight="indefinite"
)
SOME = Determiner(
    english="some", german="einig", pattern="dieser", declension="strong", weight="indefinite"
)


def possessive(owner: str) -> Determiner:
    """My, your, his."""
    entry = PRONOUNS[owner]
    return Determiner(
        english=entry.english_possessive,
        german=entry.german_possessive,
        pattern="ein",
        declension="mixed",
    )


def belonging_to(name: str) -> Determiner:
    """Anna's, Annas."""
    return Determiner(english=f"{name}'s", german=f"{name}s", pattern="fixed", declension="strong")


def counted(count: int) -> Determiner:
    """Two and more of something."""
    spoken = numbers.number(count)
    return Determiner(
        english=spoken.english,
        german=spoken.german,
        pattern="fixed",
        declension="strong",
        weight="indefinite",
    )


def _determined(determiner: Determiner, case: Case, at: Column) -> str:
    if determiner.pattern == "der":
        return german.definite(case, at)
    if determiner.pattern == "dieser":
        return german.like_dieser(determiner.german, case, at)
    if determiner.pattern == "ein":
        return german.like_ein(determiner.german, case, at)
    return determiner.german


def _english_phrase(noun: Noun, determiner: Determiner, number: Number, words: list[str]) -> str:
    head = noun.english_plural if number == "pl" else noun.english
    rest = " ".join([*words, head])
    if determiner.english == "a":
        return f"{english.article(rest)} {rest}"
    return f"{determiner.english} {rest}".lstrip()


def _owner(noun: Noun, number: Number) -> str:
    if number == "pl":
        return "they"
    if "person" in noun.classes:
        return {"m": "he", "f": "she", "n": ""}[noun.gender]
    return f"it-{noun.gender}"


def noun_phrase(
    noun: Noun,
    determiner: Determiner,
    *,
    number: Number = "sg",
    adjectives: tuple[Adjective, ...] = (),
    stems: tuple[tuple[str, str], ...] = (),
) -> Nominal:
    """A noun with its determiner and adjectives; `stems` are (English, German stem) pairs, for
    comparatives and superlatives."""
    at = german.column(noun.gender, number)
    described = stems + tuple((a.english, a.stem) for a in adjectives)
    said = _english_phrase(noun, determiner, number, [word for word, _ in described])
    forms: German = {}
    for case in CASES:
        words = [_determined(determiner, case, at)]
        words += [german.adjective(s, determiner.declension, case, at) for _, s in described]
        words.append(german.noun_form(noun, case, number))
        forms[case] = " ".join(words).lstrip()
    return Nominal(
        english=said,
        english_object=said,
        german=forms,
        agreement="sie" if number == "pl" else "er",
        column=at,
        weight=determiner.weight,
        owner=_owner(noun, number),
        animate="person" in noun.classes,
        noun=noun,
    )


def name(first: str, gender: Gender) -> Nominal:
    """A first name: the same in every case, but for the genitive."""
    return Nominal(
        english=first,
        english_object=first,
        german={"nom": first, "acc": first, "dat": first, "gen": f"{first}s"},
        agreement="er",
        column=gender,
        weight="definite",
        owner="he" if gender == "m" else "she",
        animate=True,
    )


def titled(surname: str, gender: Gender) -> Nominal:
    """Mr. Weber is Herr Weber, and Herrn Weber as an object."""
    title, oblique = ("Herr", "Herrn") if gender == "m" else ("Frau", "Frau")
    said = f"{'Mr.' if gender == 'm' else 'Mrs.'} {surname}"
    return Nominal(
        english=said,
        english_object=said,
        german={
            "nom": f"{title} {surname}",
            "acc": f"{oblique} {surname}",
            "dat": f"{oblique} {surname}",
            "gen": f"{oblique} {surname}s",
        },
        agreement="er",
        column=gender,
        weight="definite",
        owner="he" if gender == "m" else "she",
        animate=True,
    )


def both(first: Nominal, second: Nominal) -> Nominal:
    """Two joined by and; with I among them they are we."""
    plural: Agreement = "wir" if "ich" in (first.agreement, second.agreement) else "sie"
    return Nominal(
        english=f"{first.english} and {second.english}",
        english_object=f"{first.english_object} and {second.english_object}",
        german={c: f"{first.german[c]} und {second.german[c]}" for c in CASES if c != "gen"},
        agreement=plural,
        column="pl",
        weight="definite",
        owner="we" if plural == "wir" else "they",
        animate=True,
    )
