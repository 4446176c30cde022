"""German morphology: nouns, determiners, adjectives and verbs, as pure functions."""

import re
from functools import cache
from typing import Literal

from .lexemes import Agreement, Case, Gender, Noun, Number, Verb

Declension = Literal["weak", "mixed", "strong"]
Column = Literal["m", "f", "n", "pl"]

_COLUMNS: tuple[Column, ...] = ("m", "f", "n", "pl")
_PERSONS: tuple[Agreement, ...] = ("ich", "du", "er", "wir", "ihr", "sie")


def _table(rows: str) -> dict[tuple[Case, Column], str]:
    """Four rows (nom, acc, dat, gen) of four endings (m, f, n, pl); `-` is no ending."""
    cases: tuple[Case, ...] = ("nom", "acc", "dat", "gen")
    return {
        (case, column): ending.strip("-")
        for case, row in zip(cases, rows.split("|"), strict=True)
        for column, ending in zip(_COLUMNS, row.split(), strict=True)
    }


ADJECTIVE_ENDINGS: dict[Declension, dict[tuple[Case, Column], str]] = {
    "weak": _table("e e e en | en e e en | en en en en | en en en en"),
    "mixed": _table("er e es en | en e es en | en en en en | en en en en"),
    "strong": _table("er e es e | en e es e | em er em en | en er en er"),
}
_DER = _table("der die das die | den die das die | dem der dem den | des der des der")
_RELATIVE = _table(
    "der die das die | den die das die | dem der dem denen | dessen deren dessen deren"
)
_DIESER = _table("er e es e | en e es e | em er em en | es er es er")
_EIN = _table("- e - e | en e - e | em er em en | es er es er")
_CONTRACTED = {
    "in dem": "im",
    "in das": "ins",
    "an dem": "am",
    "zu dem": "zum",
    "zu der": "zur",
    "von dem": "vom",
    "bei dem": "beim",
}

IRREGULAR: dict[str, tuple[str, ...]] = {
    "sein": ("bin", "bist", "ist", "sind", "seid", "sind"),
    "haben": ("habe", "hast", "hat", "haben", "habt", "haben"),
    "werden": ("werde", "wirst", "wird", "werden", "werdet", "werden"),
    "wissen": ("weiß", "weißt", "weiß", "wissen", "wisst", "wissen"),
}
PRETERITE: dict[str, tuple[str, ...]] = {
    "sein": ("war", "warst", "war", "waren", "wart", "waren"),
    "haben": ("hatte", "hattest", "hatte", "hatten", "hattet", "hatten"),
    "werden": ("wurde", "wurdest", "wurde", "wurden", "wurdet", "wurden"),
}
SUBJUNCTIVE: dict[str, tuple[str, ...]] = {
    "sein": ("wäre", "wärst", "wäre", "wären", "wärt", "wären"),
    "haben": ("hätte", "hättest", "hätte", "hätten", "hättet", "hätten"),
    "werden": ("würde", "würdest", "würde", "würden", "würdet", "würden"),
}
_REFLEXIVE = {
    "ich": {"acc": "mich", "dat": "mir"},
    "du": {"acc": "dich", "dat": "dir"},
    "wir": {"acc": "uns", "dat": "uns"},
    "ihr": {"acc": "euch", "dat": "euch"},
}


def column(gender: Gender, number: Number) -> Column:
    """The column of a declension table: plurals have no gender."""
    return "pl" if number == "pl" else gender


def definite(case: Case, at: Column) -> str:
    """Der, die, das."""
    return _DER[case, at]


def relative(case: Case, at: Column) -> str:
    """The relative pronoun: der, dem, denen."""
    return _RELATIVE[case, at]


def like_dieser(stem: str, case: Case, at: Column) -> str:
    """Dieser, jeder, welcher, alle."""
    return stem + _DIESER[case, at]


def like_ein(stem: str, case: Case, at: Column) -> str:
    """Ein, kein and the possessives; euer loses an e: eure."""
    ending = _EIN[case, at]
    return ("eur" if stem == "euer" and ending else stem) + ending


def adjective(stem: str, declension: Declension, case: Case, at: Column) -> str:
    """An adjective before its noun."""
    return stem + ADJECTIVE_ENDINGS[declension][case, at]


@cache
def noun_form(noun: Noun, case: Case, number: Number) -> str:
    """A noun in its case: den Kindern, des Hauses, den Studenten."""
    if number == "pl":
        takes_n = case == "dat" and not noun.german_plural.endswith(("n", "s"))
        return noun.german_plural + ("n" if takes_n else "")
    if noun.weak:
        return noun.german if case == "nom" else noun.german_plural
    if case == "gen" and noun.gender != "f":
        return genitive(noun.german)
    return noun.german


def genitive(german: str) -> str:
    """The genitive of a strong masculine or neuter noun: des Hauses, des Wetters, des Schnees."""
    if german == "Bus":
        return "Busses"
    if german.endswith(("s", "ß", "x", "z", "ch", "sch")):
        return german + "es"
    one_syllable = len(re.findall(r"[aeiouäöü]+", german.lower())) == 1
    return german + ("es" if one_syllable and german[-1] in "bdgktn" else "s")


def contracted(preposition: str, phrase: str) -> str:
    """A preposition before a noun phrase: am Bahnhof, ins Büro."""
    first, _, rest = phrase.partition(" ")
    short = _CONTRACTED.get(f"{preposition} {first}")
    return f"{short} {rest}" if short and rest else f"{preposition} {phrase}"


def person(agreement: Agreement) -> int:
    """The row of a conjugation table; the polite Sie conjugates like they."""
    return 5 if agreement == "Sie" else _PERSONS.index(agreement)


def stem_of(infinitive: str) -> str:
    """Rufen: ruf; füttern: fütter."""
    return infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]


def _needs_e(stem: str) -> bool:
    """Whether a consonant ending wants an e before it: arbeitet, zeichnet, öffnet."""
    return bool(re.search(r"([td]|chn|ffn|tm)$", stem))


@cache
def present(infinitive: str, changed_stem: str, agreement: Agreement) -> str:
    """The present tense of a verb without its prefix."""
    at = person(agreement)
    if infinitive in IRREGULAR:
        return IRREGULAR[infinitive][at]
    stem = stem_of(infinitive)
    if agreement == "ich":
        return (stem[:-2] + "l" if infinitive.endswith("eln") else stem) + "e"
    if agreement == "du":
        return _second(changed_stem or stem, changed=bool(changed_stem))
    if agreement == "er" and changed_stem:
        return changed_stem + ("" if changed_stem.endswith("t") else "t")
    if agreement in ("er", "ihr"):
        return stem + ("et" if _needs_e(stem) else "t")
    return infinitive


def _second(stem: str, *, changed: bool) -> str:
    if stem.endswith(("s", "ß", "z", "x")):
        return stem + "t"
    return stem + ("est" if _needs_e(stem) and not changed else "st")


def imperative(verb: Verb, agreement: Agreement) -> str:
    """Ruf, ruft, rufen (Sie); e changes to i but a does not change to ä: nimm, fahr."""
    if agreement == "Sie":
        return verb.infinitive
    if agreement == "ihr":
        return present(verb.infinitive, verb.changed_stem, "ihr")
    changed, stem = verb.changed_stem, stem_of(verb.infinitive)
    if changed and not re.search("[äöü]", changed):
        return changed
    if verb.infinitive.endswith("eln"):
        return stem[:-2] + "le"
    return stem + ("e" if _needs_e(stem) or re.search("(er|[^e]ig|[^s]s)$", stem) else "")


def finite(verb: Verb, agreement: Agreement) -> str:
    """The present of a verb, without its prefix."""
    return present(verb.infinitive, verb.changed_stem, agreement)


def zu_infinitive(verb: Verb) -> str:
    """Anzurufen, zu lesen."""
    if verb.prefix:
        return f"{verb.prefix}zu{verb.infinitive}"
    return f"zu {verb.infinitive}"


def reflexive(case: Literal["acc", "dat"], agreement: Agreement) -> str:
    """Mich, dich, sich."""
    return _REFLEXIVE.get(agreement, {}).get(case, "sich")
