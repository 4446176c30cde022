"""Constructions of one main clause, or of two that stand side by side."""

from dataclasses import replace

from . import draw_adverbials, draw_nominals, modifiers, nominals, say_english, say_german
from .clauses import Clause
from .draw_clauses import FormName, Kind, Wish, draw_clause
from .draw_states import pronoun_of
from .lexemes import Bilingual
from .nouns import nouns_of
from .scene import Scene

WHO = replace(
    nominals.pronoun("he"), english="who", german={"nom": "wer"}, owner="", weight="definite"
)
_CHILDREN = (
    Bilingual(english="children", german="Kinder"),
    Bilingual(english="boys", german="Jungs"),
    Bilingual(english="friends", german="Freunde"),
)


def addressed(scene: Scene, probability: float) -> tuple[Scene, Bilingual]:
    """Maybe somebody is called by name, which settles how to say you: du, Sie or ihr."""
    dice = scene.dice
    if not dice.chance(probability):
        return scene, Bilingual(english="", german="")
    kind = dice.weighted(("du", "Sie", "ihr"), (0.35, 0.45, 0.2))
    if kind == "du":
        name = draw_nominals.given_name(scene)
        return scene, Bilingual(english=f"{name.english}, ", german=f"{name.english}, ")
    if kind == "Sie":
        name = nominals.titled(dice.pick(modifiers.SURNAMES), dice.pick(("m", "f")))
        called = Bilingual(english=f"{name.english}, ", german=f"{name.german['nom']}, ")
        return replace(scene, address="Sie"), called
    group = dice.pick(_CHILDREN)
    called = Bilingual(english=f"{group.english}, ", german=f"{group.german}, ")
    return replace(scene, address="ihr"), called


def both_say(clause: Clause, mark: str = ".") -> Bilingual:
    """A statement."""
    return Bilingual(
        english=say_english.statement(clause) + mark, german=say_german.statement(clause) + mark
    )


def statement(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """I am calling you tomorrow."""
    return both_say(draw_clause(scene, Wish(form=form, kind=kind)))


def fronted(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """Tomorrow I will call you: the verb stays second."""
    clause = draw_clause(scene, Wish(form=form, kind=kind))
    if clause.time:
        rest = say_english.statement(replace(clause, time=None))
        return Bilingual(
            english=f"{clause.time.english} {rest}.",
            german=say_german.main(clause, clause.time.german, "time") + ".",
        )
    first = scene.dice.pick(modifiers.MOODS)
    if scene.dice.chance(0.4):
        first = draw_adverbials.circumstance(scene)
    comma = "" if first.english in ("perhaps", "probably") else ","
    return Bilingual(
        english=f"{first.english}{comma} {say_english.statement(clause)}.",
        german=say_german.main(clause, first.german, "none") + ".",
    )


def yes_no(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """Mrs. Weber, did you call him?"""
    scene, called = addressed(scene, 0.4)
    you = draw_nominals.personal(scene, "you")
    asked = you if called.english or scene.dice.chance(0.3) else None
    wish = Wish(form=form, kind=kind, subject=asked, polarity="yes")
    clause = draw_clause(scene, wish)
    return Bilingual(
        english=f"{called.english}{say_english.question(clause)}?",
        german=f"{called.german}{say_german.question(clause)}?",
    )


def _asked_object(scene: Scene, clause: Clause) -> Bilingual:
    """What, who or which book, in the case and with the preposition that the verb wants."""
    government = clause.verb.object
    if government is None:
        raise ValueError(f"{clause.verb.english} takes no object to ask for")
    preposition, case = government.german_preposition, government.case
    things = nouns_of(tuple(c for c in government.classes if c != "person"))
    if things and (case == "dat" or scene.dice.chance(0.4)):
        entry = scene.dice.pick([noun for noun in things if noun.countable] or things)
        which = nominals.noun_phrase(entry, nominals.WHICH)
        return Bilingual(
            english=which.english, german=f"{preposition} {which.german[case]}".strip()
        )
    if things:
        linked = "r" if preposition[:1] in ("a", "i", "u", "ü") else ""
        return Bilingual(
            english="what", german=f"wo{linked}{preposition}" if preposition else "was"
        )
    whom = "wem" if case == "dat" else "wen"
    return Bilingual(english="who", german=f"{preposition} {whom}".strip())


_ASKED = tuple(
    Bilingual(english=e, german=g)
    for e, g in (("when", "wann"), ("why", "warum"), ("how often", "wie oft"))
)


def wh_question(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """When, why, who, what."""
    dice = scene.dice
    about = "adverb" if form == "passive" else dice.pick(("adverb", "object", "subject"))
    scene, called = addressed(scene, 0.25) if about != "subject" else addressed(scene, 0)
    you = draw_nominals.personal(scene, "you")
    asked = you if called.english or dice.chance(0.3) else None
    if about == "subject":
        wish = Wish(form=form, kind=kind, subject=WHO, polarity="yes")
        clause = draw_clause(scene, wish)
        return Bilingual(
            english=f"{say_english.statement(clause)}?", german=f"{say_german.statement(clause)}?"
        )
    objects = "needed" if about == "object" else "any"
    wish = Wish(
        form=form, kind=kind, subject=asked, polarity="yes", extras="timeless", objects=objects
    )
    clause = draw_clause(scene, wish)
    if about == "object":
        first = _asked_object(scene, clause)
        clause = replace(clause, object=None, gap="object")
    else:
        first = dice.pick(_ASKED if clause.form.tense != "progressive" else _ASKED[:2])
    return Bilingual(
        english=f"{called.english}{first.english} {say_english.question(clause)}?",
        german=f"{called.german}{say_german.main(clause, first.german, 'none')}?",
    )


def imperative(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """Please call me tomorrow: du, Sie and ihr."""
    scene, called = addressed(scene, 0.5)
    dice, you = scene.dice, draw_nominals.personal(scene, "you")
    wish = Wish(form=form, kind=kind, subject=you, extras="timeless", purpose="wanted")
    clause = draw_clause(scene, wish)
    if dice.chance(0.4) and clause.polarity == "yes":
        clause = replace(clause, time=draw_adverbials.near_time(scene))
    please, mark = ("please ", ".") if dice.chance(0.6) else ("", "!")
    deny = "" if clause.polarity == "yes" else "don't "
    said = say_german.imperative(clause, "bitte" if please else "")
    return Bilingual(
        english=f"{called.english}{please}{deny}{say_english.infinitive(clause)}{mark}",
        german=f"{called.german}{said}{mark}",
    )


def lets(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """Let's open the window: Lass uns das Fenster aufmachen."""
    we = nominals.pronoun("we")
    wish = Wish(
        form=form, kind=kind, subject=we, extras="timeless", polarity="yes", purpose="wanted"
    )
    clause = draw_clause(scene, wish)
    while clause.verb.reflexive:
        clause = draw_clause(scene, wish)
    if scene.dice.chance(0.5):
        clause = replace(clause, time=draw_adverbials.near_time(scene))
    return Bilingual(
        english=f"let's {say_english.infinitive(clause)}.",
        german=f"lass uns {say_german.bare_infinitive(clause)}.",
    )


def coordinated(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """He opened the window and turned off the lamp: one subject, one auxiliary where it fits."""
    other = scene.dice.pick(("plain", "separable"))
    first = draw_clause(
        scene, Wish(form=form, kind=other, extras="timeless", polarity="yes", purpose="wanted")
    )
    wish = Wish(
        form=form,
        kind=kind,
        subject=first.subject,
        extras="timeless",
        polarity="yes",
        purpose="wanted",
    )
    second = replace(draw_clause(scene, wish), form=first.form)
    if form == "perfect":
        english = say_english.gapped_subject(second)
    elif form == "present":
        english = say_english.gerund(second)
    else:
        english = say_english.infinitive(second)
    return Bilingual(
        english=f"{say_english.statement(first)} and {english}.",
        german=f"{say_german.statement(first)} und {say_german.conjunct(second, after=first)}.",
    )


_CONTRASTS = (
    ("but", "aber", "subject"),
    ("so", "deshalb", "none"),
    ("nevertheless", "trotzdem", "none"),
)


def contrasted(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """It was late, so he called me: aber keeps the order, deshalb and trotzdem invert it."""
    dice = scene.dice
    english, german, order = dice.pick(_CONTRASTS)
    before: FormName = "perfect" if form in ("perfect", "modal-past") else "present"
    other = dice.pick(("plain", "separable"))
    first = draw_clause(scene, Wish(form=before, kind=other, extras="timeless"))
    again = pronoun_of(first.subject) if first.subject.animate and dice.chance(0.5) else None
    second = draw_clause(scene, Wish(form=form, kind=kind, subject=again, extras="timeless"))
    if order == "subject":
        said = f"{german} {say_german.statement(second)}"
    else:
        said = say_german.main(second, german, "none")
    comma = ";" if english == "nevertheless" else ","
    joined = f"{english}," if english == "nevertheless" else english
    return Bilingual(
        english=f"{say_english.statement(first)}{comma} {joined} {say_english.statement(second)}.",
        german=f"{say_german.statement(first)}{comma} {said}.",
    )
