"""Clauses in German: the finite verb second, first or last, and the order of what lies between.

A German clause is a bracket. In a main clause the finite verb opens it in second place and the
rest of the verb closes it (Ich *rufe* dich morgen *an*); in a subordinate clause all of the verb
closes it (weil ich dich morgen *anrufe*).
"""

from typing import Literal

from . import german
from .clauses import Clause, Form
from .lexemes import Agreement, Verb

Slot = Literal["none", "subject", "time"]

# Er hat den Brief schon gelesen, but Er liest oft die Zeitung.
_AFTER_THE_KNOWN = ("schon", "nie", "noch nie")
_NOT = {"yes": "", "no": "nicht", "no-kein": "", "not-yet": "noch nicht"}


def _infinitives(verb: Verb, form: Form) -> list[str]:
    if form.voice == "passive":
        return [verb.participle, "werden"]
    return [verb.prefix + verb.infinitive]


def _past_group(verb: Verb, form: Form, at: int) -> tuple[str, list[str]]:
    """Perfekt, as it is spoken; but war, hatte, wurde."""
    if form.voice == "passive":
        if form.tense == "past":
            return german.PRETERITE["werden"][at], [verb.participle]
        forms = german.PRETERITE if form.tense == "pluperfect" else german.IRREGULAR
        return forms["sein"][at], [verb.participle, "worden"]
    if form.tense == "past" and verb.infinitive in german.PRETERITE:
        return german.PRETERITE[verb.infinitive][at], []
    forms = german.PRETERITE if form.tense == "pluperfect" else german.IRREGULAR
    return forms[verb.auxiliary][at], [verb.participle]


def _group(verb: Verb, form: Form, agreement: Agreement) -> tuple[str, list[str]]:
    """The finite verb, and what closes the bracket in a main clause but for a lone prefix."""
    at = german.person(agreement)
    if form.modal:
        forms = form.modal.german_past if form.tense == "past" else form.modal.german
        return forms[at], _infinitives(verb, form)
    if form.tense in ("past", "perfect", "pluperfect"):
        return _past_group(verb, form, at)
    if form.tense == "future":
        return german.IRREGULAR["werden"][at], _infinitives(verb, form)
    if form.tense in ("would", "unreal"):
        if verb.infinitive in ("sein", "haben"):
            return german.SUBJUNCTIVE[verb.infinitive][at], []
        return german.SUBJUNCTIVE["werden"][at], _infinitives(verb, form)
    if form.voice == "passive":
        return german.IRREGULAR["werden"][at], [verb.participle]
    return german.finite(verb, agreement), []


def _pronouns(clause: Clause) -> list[str]:
    """Pronouns come first, the accusative before the dative: es ihm, sich das."""
    verb, words = clause.verb, []
    if verb.reflexive == "acc":
        words.append(german.reflexive("acc", clause.subject.agreement))
    governed, known = verb.object, clause.object
    if governed and not governed.german_preposition and known and known.weight == "pronoun":
        words.append(known.german[governed.case])
    if verb.reflexive == "dat":
        words.append(german.reflexive("dat", clause.subject.agreement))
    if clause.recipient and clause.recipient.weight == "pronoun":
        words.append(clause.recipient.german["dat"])
    return words


def _object(clause: Clause) -> tuple[str, Literal["none", "definite", "indefinite", "oblique"]]:
    """The object that is no plain pronoun, and the region of the clause it belongs to."""
    government = clause.verb.object
    if not (government and clause.object) or clause.gap == "object":
        return "", "none"
    said = clause.object.german[government.case]
    if government.german_preposition:
        return german.contracted(government.german_preposition, said), "oblique"
    if clause.object.weight == "pronoun":
        return "", "none"
    return said, "definite" if clause.object.weight == "definite" else "indefinite"


def _recipient(clause: Clause) -> str:
    is_full = clause.recipient and clause.recipient.weight != "pronoun"
    return clause.recipient.german["dat"] if clause.recipient and is_full else ""


def _middle(clause: Clause, fronted: Slot, *, polite: str = "") -> list[str]:
    """Everything between the brackets, in its neutral order."""
    said, region = _object(clause)
    negation = _NOT[clause.polarity]
    definite = [_recipient(clause), said if region == "definite" else ""]
    time = [clause.time.german if clause.time and fronted != "time" else ""]
    # Negated, a known object comes before the time: Ich habe den Brief gestern nicht gelesen.
    core = [*definite, *time] if negation and region == "definite" else [*time, *definite]
    mid = clause.mid.german if clause.mid else ""
    late = mid in _AFTER_THE_KNOWN
    return [
        clause.subject.german["nom"] if fronted != "subject" else "",
        *_pronouns(clause),
        polite,
        "" if late else mid,
        *core,
        mid if late else "",
        negation,
        german.contracted("von", clause.agent.german["dat"]) if clause.agent else "",
        clause.manner.german if clause.manner else "",
        clause.place.german if clause.place else "",
        said if region in ("indefinite", "oblique") else "",
        clause.complement.german if clause.complement else "",
    ]


def _joined(words: list[str]) -> str:
    return " ".join(word for word in words if word)


def main(clause: Clause, first: str, fronted: Slot) -> str:
    """A main clause that opens with `first`; `fronted` says which slot that was taken from.

    With an empty `first` the finite verb opens: a question, or what follows a fronted clause.
    """
    finite, cluster = _group(clause.verb, clause.form, clause.subject.agreement)
    prefix = "" if cluster else clause.verb.prefix
    return _joined([first, finite, *_middle(clause, fronted), *cluster, prefix])


def statement(clause: Clause) -> str:
    """The subject first."""
    return main(clause, clause.subject.german["nom"], "subject")


def question(clause: Clause) -> str:
    """The verb first."""
    return main(clause, "", "none")


def _closing(clause: Clause) -> list[str]:
    finite, cluster = _group(clause.verb, clause.form, clause.subject.agreement)
    return [*cluster, finite if cluster else clause.verb.prefix + finite]


def subordinate(clause: Clause, opening: str, fronted: Slot = "none") -> str:
    """The verb last, after a conjunction, a relative pronoun or a question word."""
    return _joined([opening, *_middle(clause, fronted), *_closing(clause)])


def zu_infinitive(clause: Clause) -> str:
    """Dich morgen anzurufen; with a modal, dich anrufen zu können."""
    middle = _middle(clause, "subject")
    if clause.form.modal:
        closing = [*_infinitives(clause.verb, clause.form), "zu", clause.form.modal.infinitive]
        return _joined([*middle, *closing])
    return _joined([*middle, german.zu_infinitive(clause.verb)])


def bare_infinitive(clause: Clause) -> str:
    """Das Fenster aufmachen: after Lass uns."""
    return _joined([*_middle(clause, "subject"), *_infinitives(clause.verb, clause.form)])


def imperative(clause: Clause, polite: str) -> str:
    """Ruf mich bitte morgen an; rufen Sie mich bitte morgen an."""
    agreement = clause.subject.agreement
    addressee = "Sie" if agreement == "Sie" else ""
    verb = german.imperative(clause.verb, agreement)
    return _joined(
        [verb, addressee, *_middle(clause, "subject", polite=polite), clause.verb.prefix]
    )


def conjunct(clause: Clause, *, after: Clause) -> str:
    """The second of two clauses with one subject; an auxiliary is not said twice."""
    finite, cluster = _group(clause.verb, clause.form, clause.subject.agreement)
    earlier, _ = _group(after.verb, after.form, after.subject.agreement)
    if cluster and finite == earlier:
        return _joined([*_middle(clause, "subject"), *cluster])
    return main(clause, "", "subject")
