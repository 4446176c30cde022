"""The meaning of a clause, from which both languages say it."""

from dataclasses import dataclass
from typing import Literal

from .lexemes import Bilingual, Modal, Verb
from .nominals import Nominal

Tense = Literal[
    "present", "progressive", "past", "perfect", "pluperfect", "future", "would", "unreal", "since"
]
Polarity = Literal["yes", "no", "no-kein", "not-yet"]


@dataclass(frozen=True)
class Form:
    """The form of the verb. A modal has the tenses `present` and `past` only."""

    tense: Tense
    modal: Modal | None = None
    voice: Literal["active", "passive"] = "active"


@dataclass(frozen=True, kw_only=True)
class Clause:
    """One verb with everything that belongs to it.

    In the passive `subject` is what the verb is done to, and `recipient` and `object` are empty.
    With `gap` the object has been moved out of the clause (the book that I read _).
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
    gap: Literal["none", "object"] = "none"
