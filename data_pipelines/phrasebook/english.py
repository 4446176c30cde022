"""English word forms, and clauses in English."""

import re
from collections.abc import Callable
from typing import NamedTuple

from .clauses import Clause, Form
from .lexemes import Agreement, Modal, Verb

_DOUBLED = frozenset(
    ["put", "get", "run", "swim", "sit", "forget", "begin", "plan", "hug", "stop", "cut", "set"]
)
_BE = {"ich": "am", "er": "is"}
_WAS = {"ich": "was", "er": "was"}
_THIRD = {"have": "has", "go": "goes", "do": "does"}
_NEGATED = {"can": "can't", "will": "won't", "am": "am not", "may": "may not"}
_LATE_PARTICLES = ("back", "along")  # bring the book back, but turn off the lamp


def gerund(base: str) -> str:
    """Return the -ing form: calling, putting, writing, lying."""
    if base in _DOUBLED:
        return base + base[-1] + "ing"
    if base.endswith("ie"):
        return base[:-2] + "ying"
    drops_e = base.endswith("e") and not base.endswith("ee") and base != "be"
    return (base[:-1] if drops_e else base) + "ing"


def be(agreement: Agreement) -> str:
    """Return am, is or are."""
    return _BE.get(agreement, "are")


def was(agreement: Agreement) -> str:
    """Return was or were."""
    return _WAS.get(agreement, "were")


def present(base: str, agreement: Agreement) -> str:
    """Return the simple present: I call, he calls, he has, he goes."""
    if base == "be":
        return be(agreement)
    if agreement != "er" or base in _THIRD:
        return _THIRD[base] if agreement == "er" else base
    if re.search(r"[^aeiou]y$", base):
        return base[:-1] + "ies"
    return base + ("es" if re.search(r"(s|x|z|ch|sh)$", base) else "s")


class _Group(NamedTuple):
    """The words of the verb; `support` is the do, does or did of questions and negation."""

    finite: str
    rest: tuple[str, ...] = ()
    support: str = ""
    base: str = ""


def _nonfinite(verb: Verb, form: Form, shape: str) -> tuple[str, ...]:
    """Return the verb as a base, an -ing form or a participle; in the passive, be has that form."""
    if form.voice == "passive":
        return {"base": "be", "ing": "being", "participle": "been"}[shape], verb.english_participle
    if shape == "ing":
        return (gerund(verb.english),)
    return (verb.english if shape == "base" else verb.english_participle,)


def _modal_group(modal: Modal, form: Form, verb: Verb, agreement: Agreement) -> _Group:
    first, *more = (modal.english_past if form.tense == "past" else modal.english).split()
    rest = (*more, *_nonfinite(verb, form, "base"))
    if first in ("be", "was"):
        return _Group(be(agreement) if first == "be" else was(agreement), rest)
    if first in ("have", "want"):
        return _Group(present(first, agreement), rest, present("do", agreement), first)
    if first in ("had", "wanted"):
        return _Group(first, rest, "did", modal.english.split()[0])
    return _Group(first, rest)


def _simple_group(form: Form, verb: Verb, agreement: Agreement) -> _Group:
    """Return present or past, with do-support for all verbs but be."""
    is_past = form.tense in ("past", "unreal")
    if form.voice == "passive":
        return _Group(was(agreement) if is_past else be(agreement), (verb.english_participle,))
    if verb.english == "be":
        if form.tense == "unreal":
            return _Group("were")
        return _Group(was(agreement) if is_past else be(agreement))
    if is_past:
        return _Group(verb.english_past, (), "did", verb.english)
    return _Group(present(verb.english, agreement), (), present("do", agreement), verb.english)


def _group(form: Form, verb: Verb, agreement: Agreement) -> _Group:
    if form.modal:
        return _modal_group(form.modal, form, verb, agreement)
    if form.tense in ("present", "past", "unreal"):
        return _simple_group(form, verb, agreement)
    if form.tense == "progressive":
        return _Group(be(agreement), _nonfinite(verb, form, "ing"))
    if form.tense == "since":
        return _Group(present("have", agreement), ("been", gerund(verb.english)))
    if form.tense in ("perfect", "pluperfect"):
        finite = "had" if form.tense == "pluperfect" else present("have", agreement)
        return _Group(finite, _nonfinite(verb, form, "participle"))
    return _Group("will" if form.tense == "future" else "would", _nonfinite(verb, form, "base"))


def _object_words(clause: Clause) -> list[str]:
    """Return the object with the verb's particle and preposition in their places."""
    verb, said = clause.verb, clause.object.english_object if clause.object else ""
    if verb.english_preposition or not clause.object:
        return [verb.particle, verb.english_preposition, said]
    late = verb.particle in _LATE_PARTICLES and len(said.split()) < 5
    if clause.object.weight == "pronoun" or late:
        return [said, verb.particle]
    return [verb.particle, said]


def _tail(clause: Clause) -> list[str]:
    """Return everything behind the verb."""
    receiver = clause.recipient.english_object if clause.recipient else ""
    if clause.form.voice == "passive":
        words = [clause.verb.particle]
        words += ["by", clause.agent.english_object] if clause.agent else []
    elif clause.verb.recipient == "bare" and receiver:
        words = [receiver, *_object_words(clause)]
    else:
        words = [*_object_words(clause), *(["to", receiver] if receiver else [])]
    slots = (clause.complement, clause.manner, clause.place, clause.time)
    words += [slot.english for slot in slots if slot]
    return [*words, "yet" if clause.polarity == "not-yet" else ""]


def _joined(words: list[str]) -> str:
    return " ".join(word for word in words if word)


def _said(clause: Clause, subject: str, *, inverted: bool) -> str:
    group = _group(clause.form, clause.verb, clause.subject.agreement)
    finite, rest = group.finite, list(group.rest)
    lexical = bool(group.base)
    if lexical and (inverted or clause.polarity != "yes"):
        finite, rest, lexical = group.support, [group.base, *rest], False
    if clause.polarity != "yes":
        finite = _NEGATED.get(finite, finite + "n't")
    mid = clause.mid.english if clause.mid else ""
    if inverted:
        return _joined([finite, subject, mid, *rest, *_tail(clause)])
    before = [mid, finite] if lexical else [finite, mid]
    return _joined([subject, *before, *rest, *_tail(clause)])


def statement(clause: Clause) -> str:
    """Put the subject first; also the order of every subordinate clause."""
    return _said(clause, clause.subject.english, inverted=False)


def question(clause: Clause) -> str:
    """Put the finite verb first, with do-support."""
    return _said(clause, clause.subject.english, inverted=True)


def infinitive(clause: Clause) -> str:
    """Return call me tomorrow: for imperatives and after to."""
    return _joined([clause.verb.english, *_tail(clause)])


MARKS: dict[str, Callable[[Clause], str]] = {
    "": statement,
    "?": question,
    "to": infinitive,
    "ing": lambda clause: _joined([gerund(clause.verb.english), *_tail(clause)]),
    "-": lambda clause: _said(clause, "", inverted=False),  # relative clauses about the subject
}
"""How `say` writes a clause."""
