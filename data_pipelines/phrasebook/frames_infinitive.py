"""Infinitives: versuchen zu, um zu, ohne zu, anstatt zu, gern."""

from dataclasses import replace
from functools import cache

from . import draw_nominals
from .clauses import Clause, Form, Tense
from .draw_clauses import FormName, Kind, draw_action, is_so
from .english import present
from .lexemes import ADJECTIVES, CAN, SPECIAL, Bilingual
from .say import say
from .scene import Scene

# Verbs that take an infinitive, with the tenses they are used in.
_TENSES_OF: dict[str, tuple[Tense, ...]] = {
    "try": ("progressive", "past", "future"),
    "forget": ("past", "perfect"),
    "hope": ("present", "progressive"),
    "decide": ("past", "perfect"),
    "plan": ("present", "progressive"),
    "start": ("past", "future"),
    "stop": ("past", "future", "perfect"),
    "refuse": ("past", "present"),
    "promise": ("past", "perfect"),
}
_TENSES: dict[str, tuple[Tense, ...]] = {
    "present": ("present", "progressive"),
    "perfect": ("past", "perfect"),
    "future": ("future",),
}
_EASY = ("important", "difficult", "dangerous", "boring", "interesting", "expensive")
_WITHOUT = (Bilingual("without", "ohne"), Bilingual("instead of", "anstatt"))
_GLADLY = (Bilingual("like", "gern"), Bilingual("prefer", "lieber"))


@cache
def _uses(form: FormName) -> tuple[tuple[str, Tense], ...]:
    return tuple((v, t) for v, tenses in _TENSES_OF.items() for t in tenses if t in _TENSES[form])


def to_infinitive(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """She forgot to call me up: anzurufen."""
    outer, tense = scene.dice.pick(_uses(form))
    subject = draw_nominals.subject(scene)
    main = Clause(subject=subject, verb=SPECIAL[outer], form=Form(tense))
    inner = draw_action(scene, "present", kind, subject)
    if outer != "stop":
        return say("{0} to {1:to}.", "{0}, {1:zu}.", main, inner)
    inner = draw_action(scene, "present", kind, subject, "lasting")  # one stops doing what lasts
    return say("{0} {1:ing}.", "{0}, {1:zu}.", main, inner)


def it_is_to(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """It is important to lock the door: Es ist wichtig, die Tür abzuschließen."""
    adjective = scene.dice.pick([a for a in ADJECTIVES if a.english in _EASY])
    inner = draw_action(scene, "present", kind, draw_nominals.personal(scene, "you"))
    while inner.verb.reflexive:
        inner = draw_action(scene, "present", kind, draw_nominals.personal(scene, "you"))
    it = replace(draw_nominals.personal(scene, "it-n"), owner="")
    predicate = Bilingual(adjective.english, adjective.german)
    main = is_so(it, predicate, Form("present" if form == "present" else "past"))
    return say("{0} to {1:to}.", "{0}, {1:zu}.", main, inner)


def _two(scene: Scene, kind: Kind, outer: FormName) -> tuple[Clause, Clause]:
    """Draw a main clause and an infinitive of the same subject."""
    main = draw_action(scene, outer, "plain")
    return main, draw_action(scene, "present", kind, main.subject)


def in_order_to(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """..., um dich anzurufen; with a modal, um dich anrufen zu können."""
    outer: FormName = scene.dice.pick(("present", "perfect", "modal"))
    main, inner = _two(scene, kind, outer)
    if form != "modal":
        return say("{0} in order to {1:to}.", "{0}, um {1:zu}.", main, inner)
    inner = replace(inner, form=Form("present", CAN))
    return say("{0} in order to be able to {1:to}.", "{0}, um {1:zu}.", main, inner)


def without(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """..., ohne mich anzurufen; ..., anstatt mich anzurufen."""
    main, inner = _two(scene, kind, form)
    return say("{0} {1} {2:ing}.", "{0}, {1} {2:zu}.", main, scene.dice.pick(_WITHOUT), inner)


def gladly(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """She likes to read the newspaper: Sie liest gern die Zeitung."""
    del form  # always the present
    word = scene.dice.pick(_GLADLY)
    clause = draw_action(scene, "present", kind, draw_nominals.subject(scene))
    spoken = replace(clause, form=Form("present"), time=Bilingual("", word.german))
    likes = present(word.english, clause.subject.agreement)
    said = f"{clause.subject.english} {likes} to {{0:to}}."
    return Bilingual(say(said, "", clause).english, say("", "{0}.", spoken).german)
