"""Random noun phrases that make sense."""

from functools import cache

from . import nominals
from .lexemes import (
    ADJECTIVES,
    MEN,
    SURNAMES,
    WOMEN,
    Adjective,
    Noun,
    Number,
    noun,
    nouns_of,
)
from .nominals import Determiner, Nominal
from .scene import Scene

_EVERYONE = ("I", "you", "he", "she", "we", "they")
_MEASURES = {"coffee": ("cup",), "tea": ("cup",)} | dict.fromkeys(
    ("water", "milk", "beer", "wine", "juice"), ("glass", "bottle")
)


def personal(scene: Scene, key: str) -> Nominal:
    """Return a pronoun; "you" is du, Sie or ihr as in the scene."""
    return nominals.pronoun(scene.address if key == "you" else key)


@cache
def fitting(entry: Noun) -> tuple[Adjective, ...]:
    """Return the adjectives that can describe a noun."""
    kinds = {entry.english, *entry.classes}
    found = (a for a in ADJECTIVES if not kinds.isdisjoint(a.classes))
    return tuple(a for a in found if entry.english_plural or a.english not in ("big", "small"))


def adjectives(scene: Scene, entry: Noun, probability: float = 0.38) -> tuple[Adjective, ...]:
    """Draw no adjective, one, or seldom two, where the second is a color, old or new."""
    dice, options = scene.dice, fitting(entry)
    if not options or not dice.chance(probability):
        return ()
    first = dice.pick(options)
    ambiguous = first.english in ("light", "dark", "bright")  # light gray is one color
    if ambiguous or "person" in entry.classes or not dice.chance(0.4):
        return (first,)
    second = dice.pick(options)
    closes = second.rank == "3" or second.english in ("old", "new")
    return (first, second) if closes and first.rank < second.rank else (first,)


def given_name(scene: Scene) -> Nominal:
    """Draw a first name."""
    if scene.dice.chance(0.5):
        return nominals.name(scene.dice.pick(WOMEN), "f")
    return nominals.name(scene.dice.pick(MEN), "m")


def titled(scene: Scene) -> Nominal:
    """Draw Mr. or Mrs. somebody."""
    return nominals.titled(scene.dice.pick(SURNAMES), scene.dice.pick(("m", "f")))


def _is_ownable(entry: Noun) -> bool:
    """Return True for my aunt, my doctor, my kitchen; not for my tourist or my museum."""
    if "person" in entry.classes:
        return "kin" in entry.classes or "own" in entry.classes
    if any(kind in entry.classes for kind in ("wild", "cause", "transit")):
        return False
    return "place" not in entry.classes or "room" in entry.classes


def _owned(scene: Scene, entry: Noun, owner: str) -> Determiner:
    """Draw a possessive: the owner's if there is one, else a name's or anyone's."""
    dice = scene.dice
    if not _is_ownable(entry):
        return nominals.THE
    if owner and not owner.startswith("it") and dice.chance(0.7):
        return nominals.possessive(owner)
    if dice.chance(0.3):
        return nominals.belonging_to(dice.pick(WOMEN + MEN))
    key = dice.pick(_EVERYONE)
    return nominals.possessive(scene.address if key == "you" else key)


def _singular(scene: Scene, entry: Noun, owner: str) -> Determiner:
    options = (nominals.THE, nominals.A, None, nominals.THIS)
    drawn = scene.dice.weighted(options, (0.47, 0.2, 0.23, 0.1))
    return drawn or _owned(scene, entry, owner)


def _plural(scene: Scene, entry: Noun, owner: str) -> Determiner:
    dice = scene.dice
    options = ("the", "own", "these", "many", "some", "count", "bare", "all")
    choice = dice.weighted(options, (0.3, 0.15, 0.1, 0.08, 0.08, 0.15, 0.1, 0.04))
    if choice == "own":
        return _owned(scene, entry, owner)
    if choice == "count":
        return nominals.counted(2 + dice.below(11 if dice.chance(0.7) else 98))
    return {
        "the": nominals.THE,
        "these": nominals.THESE,
        "many": nominals.MANY,
        "some": nominals.SOME,
        "bare": nominals.BARE,
        "all": nominals.ALL,
    }[choice]


@cache
def roles() -> tuple[Noun, ...]:
    """Return the nouns for persons who are no relatives."""
    return tuple(n for n in nouns_of("person") if "kin" not in n.classes)


def person(scene: Scene, owner: str = "") -> Nominal:
    """Draw a person who is described: my old aunt, the waiter, Mr. Weber."""
    dice = scene.dice
    kind = dice.weighted(("kin", "role", "titled", "both"), (0.3, 0.55, 0.1, 0.05))
    if kind == "titled":
        return titled(scene)
    if kind == "both":
        return nominals.both(given_name(scene), given_name(scene))
    if kind == "role":
        return thing(scene, dice.pick(roles()), owner)
    entry = dice.pick(nouns_of("kin"))
    number: Number = "pl" if "only" not in entry.classes and dice.chance(0.15) else "sg"
    described = adjectives(scene, entry, 0.2)
    determiner = _owned(scene, entry, owner)
    return nominals.noun_phrase(entry, determiner, number=number, adjectives=described)


def subject(scene: Scene, classes: tuple[str, ...] = ("person",)) -> Nominal:
    """Draw somebody or something that acts."""
    dice = scene.dice
    if classes != ("person",):
        return definite(scene, dice.pick(nouns_of(*classes)))
    choice = dice.weighted(("pronoun", "name", "person"), (0.42, 0.2, 0.38))
    if choice == "pronoun":
        return personal(scene, dice.pick(_EVERYONE))
    return given_name(scene) if choice == "name" else person(scene)


def other_person(scene: Scene, actor: Nominal) -> Nominal:
    """Draw somebody else, to whom the actor does something."""
    dice = scene.dice
    choice = dice.weighted(("pronoun", "name", "person"), (0.4, 0.2, 0.4))
    if choice == "pronoun":
        clashing = {"I", "we"} if actor.owner in ("I", "we") else {actor.owner}
        others = [k for k in _EVERYONE if (scene.address if k == "you" else k) not in clashing]
        return personal(scene, dice.pick(others))
    if choice == "name":
        found = given_name(scene)
        return found if found.english not in actor.english else personal(scene, "they")
    return person(scene, actor.owner)


def definite(
    scene: Scene, entry: Noun, owner: str = "", *, plural: float = 0.2, described: float = 0.38
) -> Nominal:
    """Draw a known thing: the, this or somebody's."""
    dice = scene.dice
    many = bool(entry.english_plural) and "only" not in entry.classes and dice.chance(plural)
    this = nominals.THESE if many else nominals.THIS
    determiner = None
    if "kin" not in entry.classes:
        determiner = dice.weighted((nominals.THE, this, None), (0.55, 0.2, 0.25))
    determiner = determiner or _owned(scene, entry, owner)
    words = adjectives(scene, entry, described)
    return nominals.noun_phrase(entry, determiner, number="pl" if many else "sg", adjectives=words)


def _measured(scene: Scene, entry: Noun) -> Nominal:
    """Draw a cup of tea, two bottles of wine: eine Tasse Tee, zwei Flaschen Wein."""
    dice = scene.dice
    vessel = noun(dice.pick(_MEASURES[entry.english]))
    if dice.chance(0.6):
        phrase = nominals.noun_phrase(vessel, nominals.A)
    else:
        phrase = nominals.noun_phrase(vessel, nominals.counted(dice.between(2, 6)), number="pl")
    return phrase.with_tail(f" of {entry.english}", f" {entry.german}")


def thing(scene: Scene, entry: Noun, owner: str = "") -> Nominal:
    """Draw a noun phrase, known or not."""
    dice = scene.dice
    described = adjectives(scene, entry)
    if not entry.english_plural:
        if entry.english in _MEASURES and dice.chance(0.4):
            return _measured(scene, entry)
        determiner = dice.weighted((nominals.BARE, nominals.THE), (0.6, 0.4))
        return nominals.noun_phrase(entry, determiner, adjectives=described)
    if dice.chance(0.25):
        determiner = _plural(scene, entry, owner)
        return nominals.noun_phrase(entry, determiner, number="pl", adjectives=described)
    return nominals.noun_phrase(entry, _singular(scene, entry, owner), adjectives=described)


def denied(scene: Scene, entry: Noun) -> Nominal:
    """Draw a thing that is denied: not a car, not any apples; kein Auto, keine Äpfel."""
    described = adjectives(scene, entry, 0.25)
    if entry.english_plural and scene.dice.chance(0.65):
        return nominals.noun_phrase(entry, nominals.NOT_A, adjectives=described)
    number: Number = "pl" if entry.english_plural else "sg"
    return nominals.noun_phrase(entry, nominals.NO, number=number, adjectives=described)


def pronoun_of(nominal: Nominal) -> Nominal | None:
    """Return he, she, it or they for what was named before; None where that would be odd."""
    return nominals.pronoun(nominal.owner) if nominal.owner else None
