"""Random times and places."""

from functools import cache
from typing import Literal

from . import german, modifiers, nominals, numbers
from .lexemes import Bilingual, Place
from .nouns import PLACES, nouns_of
from .scene import Scene

_UNITS = (
    ("minutes", "Minuten"),
    ("hours", "Stunden"),
    ("days", "Tagen"),
    ("weeks", "Wochen"),
    ("months", "Monaten"),
    ("years", "Jahren"),
)

_OF_PLACES = tuple(a for a in modifiers.ADJECTIVES if "place" in a.classes)


def clock(scene: Scene) -> Bilingual:
    """At half past three: um halb vier."""
    dice = scene.dice
    spoken = numbers.clock(dice.between(1, 12), 5 * dice.below(12))
    return Bilingual(english=f"at {spoken.english}", german=f"um {spoken.german}")


def _span(scene: Scene, units: tuple[tuple[str, str], ...] = _UNITS) -> tuple[str, str]:
    """Three days: drei Tagen, in the dative."""
    dice = scene.dice
    plural, dative = dice.pick(units)
    count = numbers.number(dice.between(2, 12))
    return f"{count.english} {plural}", f"{count.german} {dative}"


def _weekday(scene: Scene) -> Bilingual:
    day = scene.dice.pick(modifiers.WEEKDAYS)
    if scene.dice.chance(0.5):
        return Bilingual(english=f"on {day.english}", german=f"am {day.german}")
    part = scene.dice.pick(modifiers.DAY_PARTS)
    return Bilingual(
        english=f"on {day.english} {part.english}", german=f"am {day.german}{part.german}"
    )


def _month(scene: Scene) -> Bilingual:
    month = scene.dice.pick(modifiers.MONTHS)
    return Bilingual(english=f"in {month.english}", german=f"im {month.german}")


def _around_event(scene: Scene) -> Bilingual:
    """After the meeting: nach der Besprechung."""
    dice = scene.dice
    event = nominals.noun_phrase(dice.pick(nouns_of(("event",))), nominals.THE)
    before, german_before = dice.pick((("after", "nach"), ("before", "vor")))
    return Bilingual(
        english=f"{before} {event.english}", german=f"{german_before} {event.german['dat']}"
    )


def past_time(scene: Scene) -> Bilingual:
    """A time that is over."""
    dice = scene.dice
    kinds = ("listed", "ago", "weekday", "month", "clock", "event")
    kind = dice.weighted(kinds, (0.4, 0.16, 0.14, 0.08, 0.12, 0.1))
    if kind == "ago":
        english, dative = _span(scene)
        return Bilingual(english=f"{english} ago", german=f"vor {dative}")
    if kind == "clock":
        at = clock(scene)
        return Bilingual(english=f"yesterday {at.english}", german=f"gestern {at.german}")
    if kind == "listed":
        return dice.pick(modifiers.PAST_TIMES)
    return {"weekday": _weekday, "month": _month, "event": _around_event}[kind](scene)


def future_time(scene: Scene) -> Bilingual:
    """A time to come."""
    dice = scene.dice
    kinds = ("listed", "in", "weekday", "month", "clock", "event")
    kind = dice.weighted(kinds, (0.4, 0.14, 0.16, 0.08, 0.12, 0.1))
    if kind == "in":
        english, dative = _span(scene)
        return Bilingual(english=f"in {english}", german=f"in {dative}")
    if kind == "clock":
        at = clock(scene)
        return Bilingual(english=f"tomorrow {at.english}", german=f"morgen {at.german}")
    if kind == "listed":
        return dice.pick(modifiers.FUTURE_TIMES)
    return {"weekday": _weekday, "month": _month, "event": _around_event}[kind](scene)


def near_time(scene: Scene) -> Bilingual:
    """A time that one can be told to do something at."""
    dice = scene.dice
    kind = dice.weighted(("listed", "weekday", "clock", "event"), (0.5, 0.2, 0.2, 0.1))
    if kind == "listed":
        return dice.pick(modifiers.NEAR_TIMES)
    return {"weekday": _weekday, "clock": clock, "event": _around_event}[kind](scene)


def near_day(scene: Scene) -> Bilingual:
    """Tomorrow, on Monday, in May."""
    kind = scene.dice.pick((_weekday, _month, _month))
    return kind(scene) if scene.dice.chance(0.8) else modifiers.FUTURE_TIMES[0]


def duration(scene: Scene, *, long: bool) -> Bilingual:
    """For three years, since Monday: seit drei Jahren, seit Montag."""
    if scene.dice.chance(0.7):
        english, dative = _span(scene, _UNITS[2:] if long else _UNITS)
        return Bilingual(english=f"for {english}", german=f"seit {dative}")
    day = scene.dice.pick(modifiers.WEEKDAYS + modifiers.MONTHS)
    return Bilingual(english=f"since {day.english}", german=f"seit {day.german}")


def circumstance(scene: Scene) -> Bilingual:
    """Because of the rain: wegen des Regens; during, despite."""
    dice = scene.dice
    english, preposition, classes = dice.pick(
        (
            ("because of", "wegen", "cause"),
            ("despite", "trotz", "cause"),
            ("during", "während", "event"),
        )
    )
    cause = nominals.noun_phrase(dice.pick(nouns_of((classes,))), nominals.THE)
    return Bilingual(
        english=f"{english} {cause.english}", german=f"{preposition} {cause.german['gen']}"
    )


def _the(place: Place, scene: Scene) -> nominals.Nominal:
    described = (scene.dice.pick(_OF_PLACES),) if scene.dice.chance(0.15) else ()
    return nominals.noun_phrase(place.noun, nominals.THE, adjectives=described)


@cache
def _places(kind: str) -> tuple[Place, ...]:
    return tuple(place for place in PLACES if kind in place.noun.classes)


def at(scene: Scene, kind: str = "place") -> Bilingual:
    """In the kitchen, at the station: a place of that class of nouns."""
    place = scene.dice.pick(_places(kind))
    phrase = _the(place, scene)
    return Bilingual(
        english=f"{place.english_at} {phrase.english}",
        german=german.contracted(place.german_at, phrase.german["dat"]),
    )


def location(scene: Scene, kind: Literal["any", "home", "stop"] = "any") -> Bilingual:
    """In the kitchen, at home, in Berlin; where one lives, or where journeys end."""
    if kind == "any":
        return scene.dice.pick(modifiers.LOCATIONS) if scene.dice.chance(0.3) else at(scene)
    if scene.dice.chance(0.5):
        return scene.dice.pick(modifiers.LOCATIONS[1:])
    return at(scene, kind)


def direction(scene: Scene, reach: str) -> Bilingual:
    """To the station, home, to Berlin; one walks near, drives far, and flies to cities."""
    dice = scene.dice
    if reach == "cities" or (reach == "far" and dice.chance(0.3)):
        return dice.pick(modifiers.DIRECTIONS[1:])
    if dice.chance(0.1):
        return modifiers.DIRECTIONS[0]
    place = dice.pick([p for p in PLACES if reach == "near" or "near" not in p.noun.classes])
    phrase = _the(place, scene)
    case = "dat" if place.german_to == "zu" else "acc"
    return Bilingual(
        english=f"{place.english_to} {phrase.english}",
        german=german.contracted(place.german_to, phrase.german[case]),
    )
