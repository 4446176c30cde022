"""Infinitives: versuchen zu, um zu, ohne zu, anstatt zu, gern."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from . import draw_nominals, modifiers, say_english, say_german
from .clauses import Clause, Form, Tense
from .draw_clauses import FormName, Kind, Wish, draw_clause
from .english import present
from .lexemes import Bilingual, Verb
from .scene import Scene
from .verbs import BE, CAN, matrix

Shape = Literal["to", "ing"]


@dataclass(frozen=True, kw_only=True)
class _Matrix:
    """A verb that takes an infinitive, the English shape of it, and the tenses it is used in."""

    verb: Verb
    shape: Shape
    tenses: tuple[Tense, ...]


def _takes(
    english: str, german: str, participle: str, tenses: tuple[Tense, ...], shape: Shape = "to"
) -> _Matrix:
    return _Matrix(verb=matrix(english, german, participle), shape=shape, tenses=tenses)


_MATRICES = (
    _takes("try", "versuchen", "versucht", ("progressive", "past", "future")),
    _takes("forget/forgot/forgotten", "vergessen, vergiss", "vergessen", ("past", "perfect")),
    _takes("hope", "hoffen", "gehofft", ("present", "progressive")),
    _takes("decide", "beschließen", "beschlossen", ("past", "perfect")),
    _takes("plan", "vor-haben", "gehabt", ("present", "progressive")),
    _takes("start", "an-fangen, fäng", "gefangen", ("past", "future")),
    _takes("stop", "auf-hören", "gehört", ("past", "future", "perfect"), "ing"),
    _takes("refuse", "sich weigern", "geweigert", ("past", "present")),
    _takes("promise", "versprechen, versprich", "versprochen", ("past", "perfect")),
)
_TENSES: dict[str, tuple[Tense, ...]] = {
    "present": ("present", "progressive"),
    "perfect": ("past", "perfect"),
    "future": ("future",),
}
_EASY = ("important", "difficult", "dangerous", "boring", "interesting", "expensive")


@cache
def _uses(form: FormName) -> tuple[tuple[_Matrix, Tense], ...]:
    return tuple((m, tense) for m in _MATRICES for tense in m.tenses if tense in _TENSES[form])


def _infinitive_clause(scene: Scene, kind: Kind, wish: Wish) -> Clause:
    return draw_clause(
        scene,
        replace(
            wish,
            form="present",
            kind=kind,
            extras="timeless",
            polarity="yes",
            purpose="lasting" if wish.purpose == "lasting" else "wanted",
        ),
    )


def to_infinitive(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """She forgot to call me up: anzurufen."""
    dice = scene.dice
    outer, tense = dice.pick(_uses(form))
    main = Clause(subject=draw_nominals.subject(scene), verb=outer.verb, form=Form(tense=tense))
    wish = Wish(form="present", kind=kind, subject=main.subject)
    inner = _infinitive_clause(scene, kind, wish)
    if outer.shape == "ing":  # one stops doing what lasts
        inner = _infinitive_clause(scene, kind, replace(wish, purpose="lasting"))
        english = say_english.gerund(inner)
    else:
        english = f"to {say_english.infinitive(inner)}"
    return Bilingual(
        english=f"{say_english.statement(main)} {english}.",
        german=f"{say_german.statement(main)}, {say_german.zu_infinitive(inner)}.",
    )


def it_is_to(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """It is important to lock the door: Es ist wichtig, die Tür abzuschließen."""
    dice = scene.dice
    adjective = dice.pick([a for a in modifiers.ADJECTIVES if a.english in _EASY])
    tense: Tense = "present" if form == "present" else "past"
    wish = Wish(form="present", kind=kind, subject=draw_nominals.personal(scene, "you"))
    inner = _infinitive_clause(scene, kind, wish)
    while inner.verb.reflexive:
        inner = _infinitive_clause(scene, kind, wish)
    it = replace(draw_nominals.personal(scene, "it-n"), owner="")
    predicate = Bilingual(english=adjective.english, german=adjective.german)
    main = Clause(subject=it, verb=BE, form=Form(tense=tense), complement=predicate)
    return Bilingual(
        english=f"{say_english.statement(main)} to {say_english.infinitive(inner)}.",
        german=f"{say_german.statement(main)}, {say_german.zu_infinitive(inner)}.",
    )


def _two(scene: Scene, form: FormName, kind: Kind, outer: FormName) -> tuple[Clause, Clause]:
    """A main clause and an infinitive of the same subject."""
    main = draw_clause(
        scene,
        Wish(form=outer, kind="plain", extras="timeless", polarity="yes", purpose="wanted"),
    )
    inner = _infinitive_clause(scene, kind, Wish(form=form, kind=kind, subject=main.subject))
    return main, inner


def in_order_to(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """..., um dich anzurufen; with a modal, um dich anrufen zu können."""
    outer: FormName = scene.dice.pick(("present", "perfect", "modal"))
    main, inner = _two(scene, form, kind, outer)
    able = ""
    if form == "modal":
        inner = replace(inner, form=Form(tense="present", modal=CAN))
        able = "be able to "
    return Bilingual(
        english=f"{say_english.statement(main)} in order to {able}{say_english.infinitive(inner)}.",
        german=f"{say_german.statement(main)}, um {say_german.zu_infinitive(inner)}.",
    )


def without(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """..., ohne mich anzurufen; ..., anstatt mich anzurufen."""
    main, inner = _two(scene, form, kind, form)
    english, german = scene.dice.pick((("without", "ohne"), ("instead of", "anstatt")))
    return Bilingual(
        english=f"{say_english.statement(main)} {english} {say_english.gerund(inner)}.",
        german=f"{say_german.statement(main)}, {german} {say_german.zu_infinitive(inner)}.",
    )


def gladly(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """She likes to read the newspaper: Sie liest gern die Zeitung."""
    english, german = scene.dice.pick((("like", "gern"), ("prefer", "lieber")))
    subject = draw_nominals.subject(scene)
    clause = _infinitive_clause(scene, kind, Wish(form=form, kind=kind, subject=subject))
    said = say_english.infinitive(clause)
    gern = Bilingual(english="", german=german)
    spoken = replace(clause, form=Form(tense="present"), time=gern)
    likes = present(english, clause.subject.agreement)
    return Bilingual(
        english=f"{clause.subject.english} {likes} to {said}.",
        german=f"{say_german.statement(spoken)}.",
    )
