"""Sentences in both languages from a pair of templates."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from . import english, german
from .clauses import Clause
from .lexemes import Bilingual
from .nominals import Nominal

Part = Clause | Nominal | Bilingual

_ENGLISH: Mapping[str, Callable[[Clause], str]] = {
    "": english.statement,
    "?": english.question,
    "-": english.without_subject,
    "to": english.infinitive,
    "ing": english.gerund_clause,
}
_GERMAN: Mapping[str, Callable[[Clause], str]] = {
    "": german.statement,
    "?": lambda clause: german.main(clause, ""),
    "zu": german.zu_infinitive,
    "inf": german.infinitive,
}


@dataclass(frozen=True)
class _English:
    part: Part

    def __format__(self, mark: str) -> str:
        if isinstance(self.part, Clause):
            return _ENGLISH[mark](self.part)
        if isinstance(self.part, Nominal) and mark == "object":
            return self.part.english_object
        return self.part.english


@dataclass(frozen=True)
class _German:
    part: Part

    def __format__(self, mark: str) -> str:
        if isinstance(self.part, Clause):
            if mark in _GERMAN:
                return _GERMAN[mark](self.part)
            return german.subordinate(self.part, mark)
        if isinstance(self.part, Nominal):
            return self.part.german[mark or "nom"]  # pyright: ignore[reportArgumentType]
        return self.part.german


def say(english: str, german: str, *parts: Part) -> Bilingual:
    """Fill both templates with the parts, which are numbered from 0.

    A clause becomes a statement, unless a mark follows its number. In English `{0:?}` is a
    question, `{0:to}` an infinitive, `{0:ing}` a gerund, and `{0:-}` lacks the subject. In German
    `{0:?}` has the verb first, `{0:zu}` and `{0:inf}` are infinitives, and any other word opens a
    subordinate clause: `{0:weil}`. A nominal takes a case: `{0:dat}`; in English `{0:object}`.
    """
    return Bilingual(english.format(*map(_English, parts)), german.format(*map(_German, parts)))


def sentence(clause: Clause) -> Bilingual:
    """Say one clause as a statement."""
    return say("{0}.", "{0}.", clause)
