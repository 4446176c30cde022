"""Sentences in both languages from a pair of templates."""

from string import Formatter
from typing import Any

from . import english as english_forms
from . import german as german_forms
from .lexemes import Bilingual
from .nominals import Clause, Nominal


class _English(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, Clause):
            return english_forms.MARKS[format_spec](value)
        return value.english_object if format_spec == "object" else value.english


class _German(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, Clause):
            write = german_forms.MARKS.get(format_spec)
            return write(value) if write else german_forms.subordinate(value, format_spec)
        if isinstance(value, Nominal):
            return value.german[format_spec or "nom"]  # pyright: ignore[reportArgumentType]
        return value.german


def say(english: str, german: str, *parts: Clause | Nominal | Bilingual) -> Bilingual:
    """Fill both templates with the parts, which are numbered from 0.

    A clause becomes a statement, unless a mark follows its number. In English `{0:?}` is a
    question, `{0:to}` an infinitive, `{0:ing}` a gerund, and `{0:-}` lacks the subject. In German
    `{0:?}` has the verb first, `{0:zu}` and `{0:inf}` are infinitives, and any other word opens a
    subordinate clause: `{0:weil}`, or `{0:{1}}` if part 1 is that word. A nominal takes a case:
    `{0:dat}`; in English `{0:object}`.
    """
    return Bilingual(_English().format(english, *parts), _German().format(german, *parts))


def sentence(clause: Clause) -> Bilingual:
    """Say one clause as a statement."""
    return say("{0}.", "{0}.", clause)
