"""English verb groups, and clauses in English."""

from collections.abc import Callable
from typing import NamedTuple

from .lexemes import Agreement, Modal, Verb
from .nominals import Clause, Form

_NEGATED = {"can": "can't", "will": "won't", "am": "am not", "may": "may not"}
_LATE_PARTICLES = ("back", "along")  # bring the book back, but turn off the lamp


def be(agreement: Agreement) -> str:
    """Return am, is or are."""
    return {"ich": "am", "er": "is"}.get(agreement, "are")


def was(agreement: Agreement) -> str:
    """Return was or were."""
    return "was" if agreement in ("ich", "er") else "were"


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
    forms = (verb.english, verb.english_gerund, verb.english_participle)
    return (forms[("base", "ing", "participle").index(shape)],)


def _modal_group(modal: Modal, form: Form, verb: Verb, agreement: Agreement) -> _Group:
    first, *more = (modal.english_past if form.tense == "past" else modal.english).split()
    rest, third = (*more, *_nonfinite(verb, form, "base")), agreement == "er"
    if first in ("be", "was"):
        return _Group(be(agreement) if first == "be" else was(agreement), rest)
    if first in ("have", "want"):
        finite = {"have": "has", "want": "wants"}[first] if third else first
        return _Group(finite, rest, "does" if third else "do", first)
    if first in ("had", "wanted"):
        return _Group(first, rest, "did", modal.english.split()[0])
    return _Group(first, rest)


def _simple_group(form: Form, verb: Verb, agreement: Agreement) -> _Group:
    """Return present or past, with do-support for all verbs but be."""
    is_past, third = form.tense in ("past", "unreal"), agreement == "er"
    if form.voice == "passive":
        return _Group(was(agreement) if is_past else be(agreement), (verb.english_participle,))
    if verb.english == "be":
        past = "were" if form.tense == "unreal" else was(agreement)
        return _Group(past if is_past else be(agreement))
    if is_past:
        return _Group(verb.english_past, (), "did", verb.english)
    finite = verb.english_third if third else verb.english
    return _Group(finite, (), "does" if third else "do", verb.english)


def _group(form: Form, verb: Verb, agreement: Agreement) -> _Group:
    if form.modal:
        return _modal_group(form.modal, form, verb, agreement)
    if form.tense in ("present", "past", "unreal"):
        return _simple_group(form, verb, agreement)
    if form.tense == "progressive":
        return _Group(be(agreement), _nonfinite(verb, form, "ing"))
    have = "has" if agreement == "er" else "have"
    if form.tense == "since":
        return _Group(have, ("been", verb.english_gerund))
    if form.tense in ("perfect", "pluperfect"):
        finite = "had" if form.tense == "pluperfect" else have
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


def _joined(*words: str) -> str:
    return " ".join(word for word in words if word)


def _said(clause: Clause, subject: str, *, inverted: bool) -> str:
    group = _group(clause.form, clause.verb, clause.subject.agreement)
    finite, rest, lexical = group.finite, group.rest, bool(group.base)
    if lexical and (inverted or clause.polarity != "yes"):
        finite, rest, lexical = group.support, (group.base, *rest), False
    if clause.polarity != "yes":
        finite = _NEGATED.get(finite, finite + "n't")
    mid = clause.mid.english if clause.mid else ""
    if inverted:
        return _joined(finite, subject, mid, *rest, *_tail(clause))
    before = (mid, finite) if lexical else (finite, mid)
    return _joined(subject, *before, *rest, *_tail(clause))


def statement(clause: Clause) -> str:
    """Put the subject first; also the order of every subordinate clause."""
    return _said(clause, clause.subject.english, inverted=False)


def question(clause: Clause) -> str:
    """Put the finite verb first, with do-support."""
    return _said(clause, clause.subject.english, inverted=True)


def infinitive(clause: Clause) -> str:
    """Return call me tomorrow: for imperatives and after to."""
    return _joined(clause.verb.english, *_tail(clause))


MARKS: dict[str, Callable[[Clause], str]] = {
    "": statement,
    "?": question,
    "to": infinitive,
    "ing": lambda clause: _joined(clause.verb.english_gerund, *_tail(clause)),
    "-": lambda clause: _said(clause, "", inverted=False),  # relative clauses about the subject
}
"""How `say` writes a clause."""
