"""Constructions around a verb of their own: gefallen, gehören, seit, sein."""

from dataclasses import replace

from . import (
    draw_adverbials,
    draw_nominals,
    nominals,
    say_english,
    say_german,
)
from . import german as german_forms
from .clauses import Clause, Form
from .draw_clauses import object_of
from .frames_comparison import is_so
from .frames_main import addressed, both_say
from .lexemes import Bilingual
from .nominals import Nominal
from .nouns import nouns_of
from .scene import Scene
from .verbs import BELONG, LIKE, verb

_LASTING = (
    verb("live", "wohnen"),
    verb("work", "arbeiten"),
    verb("wait", "warten"),
    verb("sleep", "schlafen"),
    verb("look", "suchen"),
    verb("sit", "sitzen"),
    verb("clean", "putzen"),
    verb("repair", "reparieren"),
)


def likes(scene: Scene) -> Bilingual:
    """I like your new coat: Dein neuer Mantel gefällt mir. What is liked is the subject."""
    dice = scene.dice
    scene, called = addressed(scene, 0.3)
    entry = dice.pick(nouns_of(("clothing", "art", "vehicle", "building", "show", "furniture")))
    liked = draw_nominals.definite(scene, entry)
    you = draw_nominals.personal(scene, "you")
    admirer = you if called.english else draw_nominals.subject(scene)
    form = Form(tense="past" if dice.chance(0.35) else "present")
    said = Clause(subject=admirer, verb=LIKE, form=form, object=liked)
    spoken = Clause(subject=liked, verb=LIKE, form=form, object=admirer)
    if called.english or dice.chance(0.2):
        return Bilingual(
            english=f"{called.english}{say_english.question(said)}?",
            german=f"{called.german}{_liked_question(spoken, admirer)}?",
        )
    deny = "no" if dice.chance(0.2) else "yes"
    return Bilingual(
        english=f"{say_english.statement(replace(said, polarity=deny))}.",
        german=f"{say_german.statement(replace(spoken, polarity=deny))}.",
    )


def _liked_question(clause: Clause, admirer: Nominal) -> str:
    """Gefällt dir das Haus? The person stands before the thing."""
    at = clause.subject.agreement
    dative, thing = admirer.german["dat"], clause.subject.german["nom"]
    if clause.form.tense == "past":
        return f"{german_forms.present('haben', '', at)} {dative} {thing} gefallen"
    return f"{german_forms.finite(LIKE, at)} {dative} {thing}"


def belongs(scene: Scene) -> Bilingual:
    """This book belongs to my brother: gehört meinem Bruder."""
    dice = scene.dice
    entry = dice.pick(nouns_of(("portable", "clothing", "vehicle", "building")))
    number = "pl" if dice.chance(0.25) else "sg"
    determiner = dice.pick((nominals.THE, nominals.THESE if number == "pl" else nominals.THIS))
    described = draw_nominals.adjectives(scene, entry)
    thing = nominals.noun_phrase(entry, determiner, number=number, adjectives=described)
    owner = draw_nominals.other_person(scene, thing)
    return both_say(Clause(subject=thing, verb=BELONG, form=Form(tense="present"), object=owner))


def since(scene: Scene) -> Bilingual:
    """I have been living here for three years: Ich wohne seit drei Jahren hier."""
    dice = scene.dice
    lasting = dice.pick(_LASTING)
    subject = draw_nominals.subject(scene)
    home = "home" if lasting.english == "live" else "any"
    located = lasting.complement == "location" or (not lasting.object and dice.chance(0.7))
    clause = Clause(
        subject=subject,
        verb=lasting,
        form=Form(tense="since"),
        object=object_of(scene, lasting, subject),
        complement=draw_adverbials.location(scene, home) if located else None,
        time=draw_adverbials.duration(scene, long=lasting.english == "live"),
    )
    return both_say(clause)


def is_where(scene: Scene) -> Bilingual:
    """Where is the key? The keys are in the kitchen."""
    dice = scene.dice
    entry = dice.pick(nouns_of(("portable", "clothing", "animal", "role")))
    subject = draw_nominals.definite(scene, entry)
    predicate = draw_adverbials.at(scene)
    deny = "no" if dice.chance(0.3) else "yes"
    tense = "past" if dice.chance(0.4) else "present"
    return both_say(replace(is_so(subject, predicate), polarity=deny, form=Form(tense=tense)))
