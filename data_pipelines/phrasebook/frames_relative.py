"""Relative clauses, about a subject or an object, in the middle of a sentence or at its end."""

from dataclasses import replace

from . import draw_nominals, german, nominals, say_english, say_german
from .clauses import Clause, Form
from .draw_clauses import FormName, Kind, Wish, draw_clause
from .draw_states import state
from .frames_main import both_say
from .frames_subordinate import is_past
from .lexemes import Bilingual
from .nominals import Nominal
from .nouns import nouns_of
from .scene import Scene
from .verbs import KNOW_SOMEBODY, verb

_ROLES = tuple(n for n in nouns_of(("person",)) if "kin" not in n.classes)
_MEETING = (
    KNOW_SOMEBODY,
    verb("look", "suchen"),
    verb("wait", "warten"),
    verb("help", "helfen"),
    verb("trust", "vertrauen"),
)


def _told_of(head: Nominal, clause: Clause) -> Nominal:
    """The man who called me: the relative clause takes its subject from the head."""
    who = "who" if head.animate else "that"
    pronoun = german.relative("nom", head.column)
    return head.with_tail(
        f" {who} {say_english.gapped_subject(clause)}",
        f", {say_german.subordinate(clause, pronoun, 'subject')},",
    )


def _closed(said: Bilingual) -> Bilingual:
    """A relative clause at the end needs no second comma."""
    return Bilingual(english=said.english, german=said.german.replace(",.", "."))


def _person(scene: Scene) -> Nominal:
    entry = scene.dice.pick(_ROLES)
    described = draw_nominals.adjectives(scene, entry, 0.2)
    return nominals.noun_phrase(entry, nominals.THE, adjectives=described)


def relative_subject(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """The man who called me is tired; the car that is being repaired."""
    head = _person(scene)
    wish = Wish(form=form, kind=kind, subject=head, extras="timeless", polarity="yes")
    clause = draw_clause(scene, wish)
    named = clause.subject
    head, dice = _told_of(named, clause), scene.dice
    if not named.animate or dice.chance(0.35):
        past = is_past(clause) and dice.chance(0.5)
        return both_say(state(scene, head, past=past, about=named))
    if dice.chance(0.5):
        wish = Wish(form="perfect", kind="plain", subject=head, extras="timeless", polarity="yes")
        return both_say(draw_clause(scene, wish))
    return _closed(both_say(_met(scene, head)))


def _met(scene: Scene, head: Nominal) -> Clause:
    met = scene.dice.pick(_MEETING)
    tense = "present" if "s" in met.flags else "progressive"
    subject = draw_nominals.subject(scene)
    return Clause(subject=subject, verb=met, form=Form(tense=tense), object=head)


def relative_object(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """The book that I bought yesterday is interesting: auf den, mit dem, das."""
    dice = scene.dice
    extras = "timeless" if form == "present" else "all"
    wish = Wish(form=form, kind=kind, extras=extras, polarity="yes", objects="thing")
    clause = draw_clause(scene, wish)
    government = clause.verb.object
    if government is None:
        raise ValueError(f"{clause.verb.english} takes no object to tell of")
    things = [
        noun
        for noun in nouns_of(tuple(c for c in government.classes if c != "person"))
        if draw_nominals.fitting(noun)
    ]
    entry = dice.pick(things)
    head = nominals.noun_phrase(
        entry, nominals.THE, adjectives=draw_nominals.adjectives(scene, entry, 0.2)
    )
    pronoun = german.relative(government.case, head.column)
    opening = f"{government.german_preposition} {pronoun}".strip()
    gapped = replace(clause, object=None, gap="object")
    told = head.with_tail(
        f" that {say_english.statement(gapped)}",
        f", {say_german.subordinate(gapped, opening)},",
    )
    return both_say(state(scene, told, past=is_past(clause) and dice.chance(0.5), about=head))


def because_relative(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """I am waiting because the man who picks me up is sick: a bracket inside a bracket."""
    head = _person(scene)
    wish = Wish(form=form, kind=kind, subject=head, extras="timeless", polarity="yes")
    told = _told_of(head, replace(draw_clause(scene, wish), subject=head))
    main = draw_clause(scene, Wish(form="modal", kind="plain", extras="timeless"))
    sub = state(scene, told, past=False)
    return Bilingual(
        english=f"{say_english.statement(main)} because {say_english.statement(sub)}.",
        german=f"{say_german.statement(main)}, {say_german.subordinate(sub, 'weil')}.",
    )
