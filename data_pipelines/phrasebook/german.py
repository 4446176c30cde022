"""German verb forms, and clauses in German.

A German clause is a bracket. In a main clause the finite verb opens it in second place and the
rest of the verb closes it (Ich *rufe* dich morgen *an*); in a subordinate clause all of the verb
closes it (weil ich dich morgen *anrufe*).
"""

from collections.abc import Callable
from typing import Literal

from .lexemes import CONJUGATION, PERSONS, PRONOUNS, Agreement, Verb
from .nominals import Clause, Form, contracted

Slot = Literal["none", "subject", "time"]

# Er hat den Brief schon gelesen, but Er liest oft die Zeitung.
_AFTER_THE_OBJECT = ("schon", "nie", "noch nie")
_OWN = {"ich": "I", "du": "du", "wir": "we", "ihr": "ihr"}  # pronouns; the others have sich
_NOT = {"yes": "", "no": "nicht", "no-kein": "", "not-yet": "noch nicht"}


def person(agreement: Agreement) -> int:
    """Return the column of a conjugation table; the polite Sie conjugates like they."""
    return PERSONS.index("sie" if agreement == "Sie" else agreement)


def auxiliary(kind: str, infinitive: str, agreement: Agreement) -> str:
    """Return the present, preterite or subjunctive of haben, sein or werden."""
    return CONJUGATION[kind, infinitive][person(agreement)]


def zu_form(verb: Verb) -> str:
    """Return anzurufen or zu lesen."""
    return f"{verb.prefix}zu{'' if verb.prefix else ' '}{verb.infinitive}"


def _infinitives(verb: Verb, form: Form) -> list[str]:
    if form.voice == "passive":
        return [verb.participle, "werden"]
    return [verb.prefix + verb.infinitive]


def _group(clause: Clause) -> tuple[str, list[str]]:
    """Return the finite verb, and what closes the bracket of a main clause but a lone prefix.

    The English past is the Perfekt, as it is spoken; but war, hatte, wurde.
    """
    verb, form, agreement = clause.verb, clause.form, clause.subject.agreement
    passive, infinitives = form.voice == "passive", _infinitives(verb, form)
    if form.modal:
        forms = form.modal.german_past if form.tense == "past" else form.modal.german
        return forms[person(agreement)], infinitives
    if form.tense == "past" and passive:
        return auxiliary("preterite", "werden", agreement), [verb.participle]
    if form.tense == "past" and ("preterite", verb.infinitive) in CONJUGATION:
        return auxiliary("preterite", verb.infinitive, agreement), []
    if form.tense in ("past", "perfect", "pluperfect"):
        kind = "preterite" if form.tense == "pluperfect" else "present"
        helper, rest = ("sein", ["worden"]) if passive else (verb.auxiliary, [])
        return auxiliary(kind, helper, agreement), [verb.participle, *rest]
    if form.tense == "future":
        return auxiliary("present", "werden", agreement), infinitives
    if form.tense in ("would", "unreal"):
        if verb.infinitive in ("sein", "haben"):
            return auxiliary("subjunctive", verb.infinitive, agreement), []
        return auxiliary("subjunctive", "werden", agreement), infinitives
    if passive:
        return auxiliary("present", "werden", agreement), [verb.participle]
    return verb.present[person(agreement)], []


def _pronouns(clause: Clause) -> list[str]:
    """Return the pronouns, which come first, the accusative before the dative: es ihm, sich das."""
    verb, words = clause.verb, []
    own = PRONOUNS.get(_OWN.get(clause.subject.agreement, ""))
    reflexive = getattr(own, verb.reflexive) if own and verb.reflexive else "sich"
    if verb.reflexive == "acc":
        words.append(reflexive)
    known = clause.object
    if verb.object_case and not verb.german_preposition and known and known.weight == "pronoun":
        words.append(known.german[verb.object_case])
    if verb.reflexive == "dat":
        words.append(reflexive)
    if clause.recipient and clause.recipient.weight == "pronoun":
        words.append(clause.recipient.german["dat"])
    return words


def _object(clause: Clause) -> tuple[str, Literal["none", "definite", "indefinite", "oblique"]]:
    """Return an object that is no plain pronoun, and the region of the clause it belongs to."""
    verb = clause.verb
    if not (verb.object_case and clause.object):
        return "", "none"
    said = clause.object.german[verb.object_case]
    if verb.german_preposition:
        return contracted(verb.german_preposition, said), "oblique"
    if clause.object.weight == "pronoun":
        return "", "none"
    return said, clause.object.weight


def _middle(clause: Clause, fronted: Slot, *, polite: str = "") -> list[str]:
    """Return everything between the brackets, in its neutral order."""
    said, region = _object(clause)
    negation, receiver = _NOT[clause.polarity], clause.recipient
    full = receiver.german["dat"] if receiver and receiver.weight != "pronoun" else ""
    definite = [full, said if region == "definite" else ""]
    time = [clause.time.german if clause.time and fronted != "time" else ""]
    # Negated, a known object comes before the time: Ich habe den Brief gestern nicht gelesen.
    core = [*definite, *time] if negation and region == "definite" else [*time, *definite]
    mid = clause.mid.german if clause.mid else ""
    late = mid in _AFTER_THE_OBJECT
    return [
        clause.subject.german["nom"] if fronted != "subject" else "",
        *_pronouns(clause),
        polite,
        "" if late else mid,
        *core,
        mid if late else "",
        negation,
        contracted("von", clause.agent.german["dat"]) if clause.agent else "",
        clause.manner.german if clause.manner else "",
        clause.place.german if clause.place else "",
        said if region in ("indefinite", "oblique") else "",
        clause.complement.german if clause.complement else "",
    ]


def _joined(*words: str) -> str:
    return " ".join(word for word in words if word)


def main(clause: Clause, first: str, fronted: Slot = "none") -> str:
    """Return a main clause that opens with `first`, which was taken from the slot `fronted`.

    With an empty `first` the finite verb opens: a question, or what follows a fronted clause.
    """
    finite, cluster = _group(clause)
    prefix = "" if cluster else clause.verb.prefix
    return _joined(first, finite, *_middle(clause, fronted), *cluster, prefix)


def statement(clause: Clause) -> str:
    """Put the subject first."""
    return main(clause, clause.subject.german["nom"], "subject")


def subordinate(clause: Clause, opening: str, fronted: Slot = "none") -> str:
    """Put the verb last, after a conjunction, a relative pronoun or a question word."""
    finite, cluster = _group(clause)
    closing = finite if cluster else clause.verb.prefix + finite
    return _joined(opening, *_middle(clause, fronted), *cluster, closing)


def zu_infinitive(clause: Clause) -> str:
    """Return dich morgen anzurufen; with a modal, dich anrufen zu können."""
    if clause.form.modal:
        closing = [*_infinitives(clause.verb, clause.form), "zu", clause.form.modal.infinitive]
        return _joined(*_middle(clause, "subject"), *closing)
    return _joined(*_middle(clause, "subject"), zu_form(clause.verb))


def infinitive(clause: Clause) -> str:
    """Return das Fenster aufmachen: after Lass uns."""
    return _joined(*_middle(clause, "subject"), *_infinitives(clause.verb, clause.form))


def imperative(clause: Clause, polite: str) -> str:
    """Return ruf mich bitte morgen an; rufen Sie mich bitte morgen an."""
    agreement, verb = clause.subject.agreement, clause.verb
    forms = {"Sie": f"{verb.infinitive} Sie", "ihr": verb.present[person("ihr")]}
    opening = forms.get(agreement, verb.imperative)
    return _joined(opening, *_middle(clause, "subject", polite=polite), verb.prefix)


def conjunct(clause: Clause, *, after: Clause) -> str:
    """Return the second of two clauses with one subject; an auxiliary is not repeated."""
    finite, cluster = _group(clause)
    if cluster and finite == _group(after)[0]:
        return _joined(*_middle(clause, "subject"), *cluster)
    return main(clause, "", "subject")


MARKS: dict[str, Callable[[Clause], str]] = {
    "": statement,
    "?": lambda clause: main(clause, ""),
    "zu": zu_infinitive,
    "inf": infinitive,
}
"""How `say` writes a clause; with any other word, it is subordinate."""
