"""Constructions that compare and describe: älter als, so alt wie, das älteste."""

from dataclasses import replace
from functools import cache

from . import (
    draw_adverbials,
    draw_nominals,
    english,
    nominals,
    say_english,
    say_german,
)
from . import german as german_forms
from .clauses import Clause, Form
from .draw_states import state
from .frames_main import both_say
from .lexemes import Adjective, Bilingual, Noun
from .nominals import Nominal
from .nouns import nouns_of
from .scene import Scene
from .verbs import BE, KNOW_SOMEBODY, NEED, verb

_COMPARED = ("thing", "clothing", "furniture", "vehicle", "device", "animal", "text", "role", "kin")
_OUTSTANDING = ("building", "vehicle", "text", "art", "animal", "show", "role", "furniture")
_WANTING = (
    (NEED, Form(tense="present")),
    (verb("look", "suchen"), Form(tense="progressive")),
    (verb("buy", "kaufen"), Form(tense="past")),
)


@cache
def _gradable(entry: Noun) -> tuple[Adjective, ...]:
    return tuple(a for a in draw_nominals.fitting(entry) if a.comparative and a.rank < 3)


@cache
def _comparable(classes: tuple[str, ...]) -> tuple[Noun, ...]:
    return tuple(n for n in nouns_of(classes) if _gradable(n))


def is_so(subject: Nominal, predicate: Bilingual) -> Clause:
    """Something is something."""
    return Clause(subject=subject, verb=BE, form=Form(tense="present"), complement=predicate)


def compared(scene: Scene) -> Bilingual:
    """My car is older than your bicycle; as old as."""
    dice = scene.dice
    kind = dice.pick(_COMPARED)
    entry = dice.pick(_comparable((kind,)))
    adjective = dice.pick(_gradable(entry))
    others = [n for n in nouns_of((kind,)) if adjective in _gradable(n)]
    first = draw_nominals.definite(scene, entry, described=0)
    second = draw_nominals.definite(scene, dice.pick(others), described=0)
    while second.english == first.english:
        second = draw_nominals.definite(scene, dice.pick(others), described=0)
    if dice.chance(0.65):
        more, _ = english.comparison(adjective)
        said, spoken = f"{more} than", f"{adjective.comparative} als"
    else:
        said, spoken = f"as {adjective.english} as", f"so {adjective.german} wie"
    return both_say(
        is_so(
            first,
            Bilingual(
                english=f"{said} {second.english}", german=f"{spoken} {second.german['nom']}"
            ),
        )
    )


def superlative(scene: Scene) -> Bilingual:
    """This is the oldest house in the city; the oldest house that she knows."""
    dice = scene.dice
    entry = dice.pick(_comparable((dice.pick(_OUTSTANDING),)))
    adjective = dice.pick(_gradable(entry))
    _, most = english.comparison(adjective)
    phrase = nominals.noun_phrase(entry, nominals.THE, stems=((most, adjective.superlative),))
    if dice.chance(0.5):
        tail = draw_adverbials.location(scene)
    else:
        actor = draw_nominals.subject(scene)
        known = Clause(subject=actor, verb=KNOW_SOMEBODY, form=Form(tense="present"), gap="object")
        pronoun = german_forms.relative("acc", phrase.column)
        phrase = phrase.with_tail("", ",")
        tail = Bilingual(
            english=f"that {say_english.statement(known)}",
            german=say_german.subordinate(known, pronoun),
        )
    return Bilingual(
        english=f"this is {phrase.english} {tail.english}.",
        german=f"das ist {phrase.german['nom']} {tail.german}.",
    )


def something_better(scene: Scene) -> Bilingual:
    """I need a cheaper car: ein billigeres Auto."""
    dice = scene.dice
    entry = dice.pick(_comparable(("clothing", "furniture", "vehicle", "device")))
    adjective = dice.pick(_gradable(entry))
    more, _ = english.comparison(adjective)
    found = nominals.noun_phrase(entry, nominals.A, stems=((more, adjective.comparative),))
    wanting, form = dice.pick(_WANTING)
    return both_say(
        Clause(
            subject=draw_nominals.subject(scene),
            verb=wanting,
            form=form,
            object=found,
            time=draw_adverbials.past_time(scene) if form.tense == "past" else None,
        )
    )


def described(scene: Scene) -> Bilingual:
    """This old table is not very heavy."""
    dice = scene.dice
    entry = dice.pick(_comparable((*_COMPARED, "food", "place")))
    subject = draw_nominals.definite(scene, entry)
    clause = state(scene, replace(subject, animate=False), past=dice.chance(0.3), about=subject)
    return both_say(replace(clause, polarity="no" if dice.chance(0.2) else "yes"))
