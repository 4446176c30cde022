"""German verb forms, and clauses in German.

A German clause is a bracket. In a main clause the finite verb opens it in second place and the
rest of the verb closes it (Ich *rufe* dich morgen *an*); in a subordinate clause all of the verb
closes it (weil ich dich morgen *anrufe*).
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Literal

from .clauses import Clause, Form
from .lexemes import PRONOUNS, Agreement, Verb, grouped, table
from .nominals import contracted

Slot = Literal["none", "subject", "time"]

_PERSONS: tuple[Agreement, ...] = ("ich", "du", "er", "wir", "ihr", "sie")
PRESENT, PRETERITE, _SUBJUNCTIVE = (
    {row["infinitive"]: row["forms"] for row in rows}
    for rows in grouped(table("conjugation", "forms")).values()
)
_REFLEXIVE = {
    p.agreement: p for p in PRONOUNS.values() if p.agreement in ("ich", "du", "wir", "ihr")
}
# Er hat den Brief schon gelesen, but Er liest oft die Zeitung.
_AFTER_THE_OBJECT = ("schon", "nie", "noch nie")
_NOT = {"yes": "", "no": "nicht", "no-kein": "", "not-yet": "noch nicht"}


def person(agreement: Agreement) -> int:
    """Return the column of a conjugation table; the polite Sie conjugates like they."""
    return 5 if agreement == "Sie" else _PERSONS.index(agreement)


def _stem(infinitive: str) -> str:
    return infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]


def _needs_e(stem: str) -> bool:
    """Return True if a consonant ending takes an e before it: arbeitet, zeichnet, öffnet."""
    return bool(re.search(r"([td]|chn|ffn|tm)$", stem))


@cache
def finite(verb: Verb, agreement: Agreement) -> str:
    """Return the present of a verb, without its prefix."""
    infinitive, changed, stem = verb.infinitive, verb.changed_stem, _stem(verb.infinitive)
    if infinitive in PRESENT:
        return PRESENT[infinitive][person(agreement)]
    if agreement == "ich":
        return (stem[:-2] + "l" if infinitive.endswith("eln") else stem) + "e"
    if agreement == "du":
        second = changed or stem
        if second.endswith(("s", "ß", "z", "x")):
            return second + "t"
        return second + ("est" if _needs_e(second) and not changed else "st")
    if agreement == "er" and changed:
        return changed + ("" if changed.endswith("t") else "t")
    if agreement in ("er", "ihr"):
        return stem + ("et" if _needs_e(stem) else "t")
    return infinitive


def imperative_form(verb: Verb, agreement: Agreement) -> str:
    """Return ruf, ruft or rufen (Sie); e changes to i but a not to ä: nimm, fahr."""
    if agreement == "Sie":
        return verb.infinitive
    if agreement == "ihr":
        return finite(verb, "ihr")
    changed, stem = verb.changed_stem, _stem(verb.infinitive)
    if changed and not re.search("[äöü]", changed):
        return changed
    if verb.infinitive.endswith("eln"):
        return stem[:-2] + "le"
    return stem + ("e" if _needs_e(stem) or re.search("(er|[^e]ig|[^s]s)$", stem) else "")


def zu_form(verb: Verb) -> str:
    """Return anzurufen or zu lesen."""
    return f"{verb.prefix}zu{'' if verb.prefix else ' '}{verb.infinitive}"


def _infinitives(verb: Verb, form: Form) -> list[str]:
    if form.voice == "passive":
        return [verb.participle, "werden"]
    return [verb.prefix + verb.infinitive]


def _past_group(verb: Verb, form: Form, at: int) -> tuple[str, list[str]]:
    """Return the Perfekt, as it is spoken; but war, hatte, wurde."""
    forms = PRETERITE if form.tense == "pluperfect" else PRESENT
    if form.voice == "passive" and form.tense == "past":
        return PRETERITE["werden"][at], [verb.participle]
    if form.voice == "passive":
        return forms["sein"][at], [verb.participle, "worden"]
    if form.tense == "past" and verb.infinitive in PRETERITE:
        return PRETERITE[verb.infinitive][at], []
    return forms[verb.auxiliary][at], [verb.participle]


def _group(clause: Clause) -> tuple[str, list[str]]:
    """Return the finite verb, and what closes the bracket of a main clause but a lone prefix."""
    verb, form, agreement = clause.verb, clause.form, clause.subject.agreement
    at = person(agreement)
    if form.modal:
        forms = form.modal.german_past if form.tense == "past" else form.modal.german
        return forms[at], _infinitives(verb, form)
    if form.tense in ("past", "perfect", "pluperfect"):
        return _past_group(verb, form, at)
    if form.tense == "future":
        return PRESENT["werden"][at], _infinitives(verb, form)
    if form.tense in ("would", "unreal"):
        if verb.infinitive in ("sein", "haben"):
            return _SUBJUNCTIVE[verb.infinitive][at], []
        return _SUBJUNCTIVE["werden"][at], _infinitives(verb, form)
    if form.voice == "passive":
        return PRESENT["werden"][at], [verb.participle]
    return finite(verb, agreement), []


def _pronouns(clause: Clause) -> list[str]:
    """Return the pronouns, which come first, the accusative before the dative: es ihm, sich das."""
    verb, words = clause.verb, []
    own = _REFLEXIVE.get(clause.subject.agreement)
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
    if not (verb.object_case and clause.object) or clause.gap == "object":
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
    agreement = clause.subject.agreement
    verb = imperative_form(clause.verb, agreement)
    middle = _middle(clause, "subject", polite=polite)
    return _joined(verb, "Sie" if agreement == "Sie" else "", *middle, clause.verb.prefix)


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
