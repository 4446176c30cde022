"""Random noun phrases that make sense."""

from functools import cache

from . import modifiers, nominals
from .lexemes import Adjective, Noun, Number
from .nominals import Determiner, Nominal
from .nouns import noun, nouns_of
from .scene import Scene

_EVERYONE = ("I", "you", "he", "she", "we", "they")
_MEASURES = {
    "water": ("glass", "bottle"),
    "coffee": ("cup",),
    "tea": ("cup",),
    "milk": ("glass", "bottle"),
    "beer": ("glass", "bottle"),
    "wine": ("glass", "bottle"),
    "juice": ("glass", "bottle"),
}


def personal(scene: Scene, key: str) -> Nominal:
    """A pronoun; "you" is du, Sie or ihr as the scene has it."""
    return nominals.pronoun(scene.address if key == "you" else key)


@cache
def fitting(entry: Noun) -> tuple[Adjective, ...]:
    """The adjectives that can describe a noun."""
    kinds = (entry.english, *entry.classes)
    found = (a for a in modifiers.ADJECTIVES if any(kind in a.classes for kind in kinds))
    return tuple(a for a in found if entry.countable or a.english not in ("big", "small"))


def adjectives(scene: Scene, entry: Noun, probability: float = 0.38) -> tuple[Adjective, ...]:
    """No adjective, one, or seldom two, where the second is a color, old or new."""
    dice, options = scene.dice, fitting(entry)
    if not options or not dice.chance(probability):
        return ()
    first = dice.pick(options)
    ambiguous = first.english in ("light", "dark", "bright")  # light gray is one color
    if ambiguous or "person" in entry.classes or not dice.chance(0.4):
        return (first,)
    second = dice.pick(options)
    closes = second.rank == 3 or second.english in ("old", "new")
    return (first, second) if closes and first.rank < second.rank else (first,)


def given_name(scene: Scene) -> Nominal:
    """A first name."""
    if scene.dice.chance(0.5):
        return nominals.name(scene.dice.pick(modifiers.WOMEN), "f")
    return nominals.name(scene.dice.pick(modifiers.MEN), "m")


def _is_ownable(entry: Noun) -> bool:
    """My aunt, my doctor, my kitchen; but not my tourist or my museum."""
    if "person" in entry.classes:
        return "kin" in entry.classes or "own" in entry.classes
    if any(kind in entry.classes for kind in ("wild", "cause", "transit")):
        return False
    return "place" not in entry.classes or "room" in entry.classes


def _owned(scene: Scene, entry: Noun, owner: str) -> Determiner:
    """Somebody's: the owner's if there is one, else a name's or anyone's."""
    dice = scene.dice
    if not _is_ownable(entry):
        return nominals.THE
    if owner and not owner.startswith("it") and dice.chance(0.7):
        return nominals.possessive(owner)
    if dice.chance(0.3):
        return nominals.belonging_to(dice.pick(modifiers.WOMEN + modifiers.MEN))
    key = dice.pick(_EVERYONE)
    return nominals.possessive(scene.address if key == "you" else key)


def _singular(scene: Scene, entry: Noun, owner: str) -> Determiner:
    options = ("the", "a", "own", "this")
    choice = scene.dice.weighted(options, (0.47, 0.2, 0.23, 0.1))
    if choice == "own":
        return _owned(scene, entry, owner)
    return {"the": nominals.THE, "a": nominals.A, "this": nominals.THIS}[choice]


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


def person(scene: Scene, owner: str = "") -> Nominal:
    """A person who is described: my old aunt, the waiter, Mr. Weber."""
    dice = scene.dice
    kind = dice.weighted(("kin", "role", "titled", "both"), (0.3, 0.55, 0.1, 0.05))
    if kind == "titled":
        return nominals.titled(dice.pick(modifiers.SURNAMES), dice.pick(("m", "f")))
    if kind == "both":
        return nominals.both(given_name(scene), given_name(scene))
    if kind == "kin":
        entry = dice.pick(nouns_of(("kin",)))
        number: Number = "pl" if "only" not in entry.classes and dice.chance(0.15) else "sg"
        described = adjectives(scene, entry, 0.2)
        return nominals.noun_phrase(
            entry, _owned(scene, entry, owner), number=number, adjectives=described
        )
    entries = tuple(n for n in nouns_of(("person",)) if "kin" not in n.classes)
    return thing(scene, dice.pick(entries), owner)


def subject(scene: Scene, classes: tuple[str, ...] = ("person",)) -> Nominal:
    """Somebody or something that acts."""
    dice = scene.dice
    if classes != ("person",):
        return definite(scene, dice.pick(nouns_of(classes)))
    choice = dice.weighted(("pronoun", "name", "person"), (0.42, 0.2, 0.38))
    if choice == "pronoun":
        return personal(scene, dice.pick(_EVERYONE))
    return given_name(scene) if choice == "name" else person(scene)


def other_person(scene: Scene, actor: Nominal) -> Nominal:
    """Somebody else, to whom the actor does something."""
    dice = scene.dice
    choice = dice.weighted(("pronoun", "name", "person"), (0.4, 0.2, 0.4))
    clashing = {actor.owner} | ({"I", "we"} if actor.owner in ("I", "we") else set())
    if choice == "pronoun":
        others = [
            key for key in _EVERYONE if (scene.address if key == "you" else key) not in clashing
        ]
        return personal(scene, dice.pick(others))
    if choice == "name":
        found = given_name(scene)
        return found if found.english not in actor.english else personal(scene, "they")
    return person(scene, actor.owner)


def definite(
    scene: Scene, entry: Noun, owner: str = "", *, plural: float = 0.2, described: float = 0.38
) -> Nominal:
    """A known thing: the, this or somebody's."""
    dice = scene.dice
    many = entry.countable and "only" not in entry.classes and dice.chance(plural)
    number: Number = "pl" if many else "sg"
    kin = "kin" in entry.classes
    choice = "own" if kin else dice.weighted(("the", "this", "own"), (0.55, 0.2, 0.25))
    this = nominals.THESE if many else nominals.THIS
    determiner = {"the": nominals.THE, "this": this}.get(choice) or _owned(scene, entry, owner)
    words = adjectives(scene, entry, described)
    return nominals.noun_phrase(entry, determiner, number=number, adjectives=words)


def measured(scene: Scene, entry: Noun) -> Nominal:
    """A cup of tea, two bottles of wine: eine Tasse Tee, zwei Flaschen Wein."""
    dice = scene.dice
    vessel = noun(dice.pick(_MEASURES[entry.english]))
    if dice.chance(0.6):
        phrase = nominals.noun_phrase(vessel, nominals.A)
    else:
        phrase = nominals.noun_phrase(vessel, nominals.counted(dice.between(2, 6)), number="pl")
    return phrase.with_tail(f" of {entry.english}", f" {entry.german}")


def thing(scene: Scene, entry: Noun, owner: str = "") -> Nominal:
    """Something, known or not."""
    dice = scene.dice
    described = adjectives(scene, entry)
    if not entry.countable:
        if entry.english in _MEASURES and dice.chance(0.4):
            return measured(scene, entry)
        determiner = dice.weighted((nominals.BARE, nominals.THE), (0.6, 0.4))
        return nominals.noun_phrase(entry, determiner, adjectives=described)
    if dice.chance(0.25):
        determiner = _plural(scene, entry, owner)
        return nominals.noun_phrase(entry, determiner, number="pl", adjectives=described)
    return nominals.noun_phrase(entry, _singular(scene, entry, owner), adjectives=described)


def denied(scene: Scene, entry: Noun) -> Nominal:
    """Something that is not there: not a car, not any apples; kein Auto, keine Äpfel."""
    described = adjectives(scene, entry, 0.25)
    if entry.countable and scene.dice.chance(0.65):
        return nominals.noun_phrase(entry, nominals.NOT_A, adjectives=described)
    number: Number = "pl" if entry.countable else "sg"
    return nominals.noun_phrase(entry, nominals.NO, number=number, adjectives=described)
