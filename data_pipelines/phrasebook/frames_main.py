"""Constructions of one main clause, or of two side by side."""

from dataclasses import replace

from . import draw_adverbials, draw_nominals, german, nominals
from .clauses import Clause
from .draw_clauses import KINDS, FormName, Kind, draw_action, draw_clause
from .lexemes import PHRASES, Bilingual, nouns_of
from .say import say, sentence
from .scene import Scene

_WHO = replace(
    nominals.pronoun("he"), english="who", german={"nom": "wer"}, owner="", weight="definite"
)
_NOBODY = Bilingual("", "")


def addressed(scene: Scene, probability: float) -> tuple[Scene, Bilingual]:
    """Maybe call somebody by name, which decides how to say you: du, Sie or ihr."""
    dice = scene.dice
    if not dice.chance(probability):
        return scene, _NOBODY
    kind = dice.weighted(("du", "Sie", "ihr"), (0.35, 0.45, 0.2))
    if kind == "du":
        called = draw_nominals.given_name(scene)
    else:
        called = draw_nominals.titled(scene) if kind == "Sie" else dice.pick(PHRASES["groups"])
    return replace(scene, address=kind), say("{0}, ", "{0}, ", called)


def statement(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """I am calling you tomorrow."""
    return sentence(draw_clause(scene, form, kind))


def fronted(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """Tomorrow I will call you: the verb stays second."""
    clause = draw_clause(scene, form, kind)
    if clause.time:
        return time_first(clause, clause.time)
    first = scene.dice.pick(PHRASES["moods"])
    if scene.dice.chance(0.4):
        first = draw_adverbials.circumstance(scene)
    comma = "" if first.english in ("perhaps", "probably") else ","
    rest = german.main(clause, first.german)
    return say(f"{{0}}{comma} {{1}}.", f"{rest}.", first, clause)


def time_first(clause: Clause, time: Bilingual) -> Bilingual:
    """Say the time of a clause before everything else."""
    rest = german.main(clause, time.german, "time")
    return say("{0} {1}.", f"{rest}.", time, replace(clause, time=None))


def yes_no(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """Mrs. Weber, did you call him?"""
    scene, called = addressed(scene, 0.4)
    you = draw_nominals.personal(scene, "you")
    asked = you if called.english or scene.dice.chance(0.3) else None
    return say(
        "{0}{1:?}?", "{0}{1:?}?", called, draw_clause(scene, form, kind, asked, polarity="yes")
    )


def _asked_object(scene: Scene, clause: Clause) -> Bilingual:
    """Return what, who or which book, in the case and with the preposition of the verb."""
    verb = clause.verb
    if not verb.object_case:
        raise ValueError(f"{verb.english} takes no object to ask for")
    preposition, case = verb.german_preposition, verb.object_case
    things = nouns_of(*verb.things)
    if things and (case == "dat" or scene.dice.chance(0.4)):
        entry = scene.dice.pick([noun for noun in things if noun.english_plural] or things)
        which = nominals.noun_phrase(entry, nominals.WHICH)
        return Bilingual(which.english, f"{preposition} {which.german[case]}".strip())
    if things:
        linked = "r" if preposition[:1] in ("a", "i", "u", "ü") else ""
        return Bilingual("what", f"wo{linked}{preposition}" if preposition else "was")
    return Bilingual("who", f"{preposition} {'wem' if case == 'dat' else 'wen'}".strip())


def wh_question(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """When, why, who, what."""
    dice = scene.dice
    about = "adverb" if form == "passive" else dice.pick(("adverb", "object", "subject"))
    scene, called = addressed(scene, 0.25 if about != "subject" else 0)
    you = draw_nominals.personal(scene, "you")
    asked = you if called.english or dice.chance(0.3) else None
    if about == "subject":
        return say("{0}?", "{0}?", draw_clause(scene, form, kind, _WHO, polarity="yes"))
    objects = "needed" if about == "object" else "any"
    clause = draw_clause(
        scene, form, kind, asked, polarity="yes", extras="timeless", objects=objects
    )
    if about == "object":
        first = _asked_object(scene, clause)
        clause = replace(clause, object=None, gap="object")
    else:
        words = PHRASES["questions"]  # how often does not go with the progressive
        first = dice.pick(words if clause.form.tense != "progressive" else words[:2])
    rest = german.main(clause, first.german)
    return say("{0}{1} {2:?}?", f"{{0}}{rest}?", called, first, clause)


def imperative(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """Please call me tomorrow: du, Sie and ihr."""
    scene, called = addressed(scene, 0.5)
    dice, you = scene.dice, draw_nominals.personal(scene, "you")
    clause = draw_clause(scene, form, kind, you, extras="timeless", purpose="wanted")
    if dice.chance(0.4) and clause.polarity == "yes":
        clause = replace(clause, time=draw_adverbials.near_time(scene))
    please, mark = ("please ", ".") if dice.chance(0.6) else ("", "!")
    deny = "" if clause.polarity == "yes" else "don't "
    spoken = german.imperative(clause, "bitte" if please else "")
    return say(f"{{0}}{please}{deny}{{1:to}}{mark}", f"{{0}}{spoken}{mark}", called, clause)


def lets(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """Let's open the window: Lass uns das Fenster aufmachen."""
    clause = draw_action(scene, form, kind, nominals.pronoun("we"))
    while clause.verb.reflexive:
        clause = draw_action(scene, form, kind, nominals.pronoun("we"))
    if scene.dice.chance(0.5):
        clause = replace(clause, time=draw_adverbials.near_time(scene))
    return say("let's {0:to}.", "lass uns {0:inf}.", clause)


def coordinated(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """He opened the window and turned off the lamp: one subject, one auxiliary where it fits."""
    first = draw_action(scene, form, scene.dice.pick(KINDS))
    second = draw_action(scene, form, kind, first.subject)
    second = replace(second, form=first.form)
    mark = {"perfect": "-", "present": "ing"}.get(form, "to")
    spoken = german.conjunct(second, after=first)
    return say(f"{{0}} and {{1:{mark}}}.", f"{{0}} und {spoken}.", first, second)


_CONTRASTS = (
    ("{0}, but {1}.", "{0}, aber {1}."),
    ("{0}, so {1}.", "{0}, deshalb {1:?}."),
    ("{0}; nevertheless, {1}.", "{0}; trotzdem {1:?}."),
)


def contrasted(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """It was late, so he called me: aber keeps the order, deshalb and trotzdem invert it."""
    dice = scene.dice
    english, spoken = dice.pick(_CONTRASTS)
    before: FormName = "perfect" if form in ("perfect", "modal-past") else "present"
    first = draw_clause(scene, before, dice.pick(KINDS), extras="timeless")
    same = first.subject.animate and dice.chance(0.5)
    again = draw_nominals.pronoun_of(first.subject) if same else None
    second = draw_clause(scene, form, kind, again, extras="timeless")
    return say(english, spoken, first, second)
