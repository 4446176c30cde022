"""Clauses in English."""

from dataclasses import dataclass

from . import english
from .clauses import Clause, Form
from .lexemes import Agreement, Modal, Verb

_LATE_PARTICLES = ("back", "along")  # bring the book back, but turn off the lamp
_CLOSING = {"not-yet": "yet"}


@dataclass(frozen=True, kw_only=True)
class _Group:
    """The verb's words; `support` is the do, does or did that questions and negation need."""

    finite: str
    rest: tuple[str, ...]
    support: str = ""
    base: str = ""


def _nonfinite(verb: Verb, form: Form, shape: str) -> tuple[str, ...]:
    """The verb as a base, an -ing form or a participle; in the passive, be takes that shape."""
    if form.voice == "passive":
        return {"base": "be", "ing": "being", "participle": "been"}[shape], verb.english_participle
    if shape == "ing":
        return (english.gerund(verb.english),)
    return (verb.english if shape == "base" else verb.english_participle,)


def _modal_group(modal: Modal, form: Form, verb: Verb, agreement: Agreement) -> _Group:
    base = _nonfinite(verb, form, "base")
    first, *more = (modal.english_past if form.tense == "past" else modal.english).split()
    rest = (*more, *base)
    if first in ("be", "was"):
        finite = english.be(agreement) if first == "be" else english.was(agreement)
        return _Group(finite=finite, rest=rest)
    if first in ("have", "want"):
        support = english.present("do", agreement)
        return _Group(
            finite=english.present(first, agreement), rest=rest, support=support, base=first
        )
    if first in ("had", "wanted"):
        return _Group(finite=first, rest=rest, support="did", base=modal.english.split()[0])
    return _Group(finite=first, rest=rest)


def _simple_group(form: Form, verb: Verb, agreement: Agreement) -> _Group:
    """Present and past, with do-support for all but be."""
    is_past = form.tense in ("past", "unreal")
    if form.voice == "passive":
        finite = english.was(agreement) if is_past else english.be(agreement)
        return _Group(finite=finite, rest=(verb.english_participle,))
    if form.tense == "unreal" and verb.english == "be":
        return _Group(finite="were", rest=())
    word = english.past(verb, agreement) if is_past else english.present(verb.english, agreement)
    if verb.english == "be":
        return _Group(finite=word, rest=())
    support = "did" if is_past else english.present("do", agreement)
    return _Group(finite=word, rest=(), support=support, base=verb.english)


def _group(form: Form, verb: Verb, agreement: Agreement) -> _Group:
    if form.modal:
        return _modal_group(form.modal, form, verb, agreement)
    if form.tense in ("present", "past", "unreal"):
        return _simple_group(form, verb, agreement)
    if form.tense == "progressive":
        return _Group(finite=english.be(agreement), rest=_nonfinite(verb, form, "ing"))
    if form.tense == "since":
        have = english.present("have", agreement)
        return _Group(finite=have, rest=("been", english.gerund(verb.english)))
    if form.tense in ("perfect", "pluperfect"):
        finite = "had" if form.tense == "pluperfect" else english.present("have", agreement)
        return _Group(finite=finite, rest=_nonfinite(verb, form, "participle"))
    finite = "will" if form.tense == "future" else "would"
    return _Group(finite=finite, rest=_nonfinite(verb, form, "base"))


def _object_words(clause: Clause) -> list[str]:
    """The object with the verb's particle and preposition in their places."""
    verb, said = clause.verb, clause.object.english_object if clause.object else ""
    preposition = verb.object.english_preposition if verb.object else ""
    if preposition or not clause.object:
        return [verb.particle, preposition, said]
    late = verb.particle in _LATE_PARTICLES and len(said.split()) < 5
    if clause.object.weight == "pronoun" or late:
        return [said, verb.particle]
    return [verb.particle, said]


def _tail(clause: Clause) -> list[str]:
    """Everything behind the verb."""
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
    return [*words, _CLOSING.get(clause.polarity, "")]


def _joined(words: list[str]) -> str:
    return " ".join(word for word in words if word)


def _said(clause: Clause, subject: str, *, inverted: bool) -> str:
    group = _group(clause.form, clause.verb, clause.subject.agreement)
    finite, rest = group.finite, list(group.rest)
    lexical = bool(group.base)
    if lexical and (inverted or clause.polarity != "yes"):
        finite, rest, lexical = group.support, [group.base, *rest], False
    if clause.polarity != "yes":
        finite = english.negated(finite)
    mid = clause.mid.english if clause.mid else ""
    if inverted:
        return _joined([finite, subject, mid, *rest, *_tail(clause)])
    before = [mid, finite] if lexical else [finite, mid]
    return _joined([subject, *before, *rest, *_tail(clause)])


def statement(clause: Clause) -> str:
    """Subject first; also the order of every subordinate clause."""
    return _said(clause, clause.subject.english, inverted=False)


def gapped_subject(clause: Clause) -> str:
    """What follows the subject: for relative clauses about it."""
    return _said(clause, "", inverted=False)


def question(clause: Clause) -> str:
    """The finite verb first, with do-support."""
    return _said(clause, clause.subject.english, inverted=True)


def infinitive(clause: Clause) -> str:
    """Call me tomorrow: for imperatives and after to."""
    return _joined([clause.verb.english, *_tail(clause)])


def gerund(clause: Clause) -> str:
    """Calling me tomorrow."""
    return _joined([english.gerund(clause.verb.english), *_tail(clause)])
