"""Sentences in both languages from a pair of templates."""

from collections.abc import Callable
from dataclasses import dataclass

from . import english, german
from .clauses import Clause
from .lexemes import Bilingual
from .nominals import Nominal

Part = Clause | Nominal | Bilingual


def _english(part: Part, mark: str) -> str:
    if isinstance(part, Clause):
        return english.MARKS[mark](part)
    return part.english_object if isinstance(part, Nominal) and mark == "object" else part.english


def _german(part: Part, mark: str) -> str:
    if isinstance(part, Clause):
        write = german.MARKS.get(mark)
        return write(part) if write else german.subordinate(part, mark)
    if isinstance(part, Nominal):
        return part.german[mark or "nom"]  # pyright: ignore[reportArgumentType]
    return part.german


@dataclass(frozen=True)
class _Formatted:
    part: Part
    write: Callable[[Part, str], str]

    def __format__(self, mark: str) -> str:
        return self.write(self.part, mark)


def say(english: str, german: str, *parts: Part) -> Bilingual:
    """Fill both templates with the parts, which are numbered from 0.

    A clause becomes a statement, unless a mark follows its number. In English `{0:?}` is a
    question, `{0:to}` an infinitive, `{0:ing}` a gerund, and `{0:-}` lacks the subject. In German
    `{0:?}` has the verb first, `{0:zu}` and `{0:inf}` are infinitives, and any other word opens a
    subordinate clause: `{0:weil}`. A nominal takes a case: `{0:dat}`; in English `{0:object}`.
    """
    return Bilingual(
        english.format(*(_Formatted(part, _english) for part in parts)),
        german.format(*(_Formatted(part, _german) for part in parts)),
    )


def sentence(clause: Clause) -> Bilingual:
    """Say one clause as a statement."""
    return say("{0}.", "{0}.", clause)
