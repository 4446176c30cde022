"""Random times and places."""

from functools import cache
from typing import Literal

from . import nominals, numbers
from .lexemes import ADJECTIVES, PHRASES, PLACES, Bilingual, Noun, nouns_of
from .nominals import Nominal
from .say import say
from .scene import Scene

_OF_PLACES = tuple(a for a in ADJECTIVES if "place" in a.classes)
_NEAR_TIMES = tuple(t for t in PHRASES["future_times"] if not t.english.startswith("next"))
_AROUND = (Bilingual("after", "nach"), Bilingual("before", "vor"))
_CIRCUMSTANCES = (
    (Bilingual("because of", "wegen"), "cause"),
    (Bilingual("despite", "trotz"), "cause"),
    (Bilingual("during", "während"), "event"),
)
CITIES = tuple(
    Bilingual(to.english.removeprefix("to "), to.german.removeprefix("nach "))
    for to in PHRASES["directions"][1:]
)


def clock(scene: Scene) -> Bilingual:
    """Draw a time of day. At half past three: um halb vier."""
    dice = scene.dice
    return say("at {0}", "um {0}", numbers.clock(dice.between(1, 12), 5 * dice.below(12)))


def _span(scene: Scene, shortest: int = 0) -> Bilingual:
    """Draw a stretch of time. Three days: drei Tagen, in the dative."""
    unit = scene.dice.pick(PHRASES["units"][shortest:])
    return say("{0} {1}", "{0} {1}", numbers.number(scene.dice.between(2, 12)), unit)


def _weekday(scene: Scene) -> Bilingual:
    day = scene.dice.pick(PHRASES["weekdays"])
    if scene.dice.chance(0.5):
        return say("on {0}", "am {0}", day)
    return say("on {0} {1}", "am {0}{1}", day, scene.dice.pick(PHRASES["day_parts"]))


def _month(scene: Scene) -> Bilingual:
    return say("in {0}", "im {0}", scene.dice.pick(PHRASES["months"]))


def _around_event(scene: Scene) -> Bilingual:
    """Draw a time before or after an event. After the meeting: nach der Besprechung."""
    event = nominals.noun_phrase(scene.dice.pick(nouns_of("event")), nominals.THE)
    return say("{0} {1}", "{0} {1:dat}", scene.dice.pick(_AROUND), event)


_NAMED = {"weekday": _weekday, "month": _month, "event": _around_event, "clock": clock}


def past_time(scene: Scene) -> Bilingual:
    """Draw a time that is over."""
    kinds = ("listed", "ago", "weekday", "month", "clock", "event")
    kind = scene.dice.weighted(kinds, (0.4, 0.16, 0.14, 0.08, 0.12, 0.1))
    if kind == "ago":
        return say("{0} ago", "vor {0}", _span(scene))
    if kind == "clock":
        return say("yesterday {0}", "gestern {0}", clock(scene))
    return scene.dice.pick(PHRASES["past_times"]) if kind == "listed" else _NAMED[kind](scene)


def future_time(scene: Scene) -> Bilingual:
    """Draw a time to come."""
    kinds = ("listed", "in", "weekday", "month", "clock", "event")
    kind = scene.dice.weighted(kinds, (0.4, 0.14, 0.16, 0.08, 0.12, 0.1))
    if kind == "in":
        return say("in {0}", "in {0}", _span(scene))
    if kind == "clock":
        return say("tomorrow {0}", "morgen {0}", clock(scene))
    return scene.dice.pick(PHRASES["future_times"]) if kind == "listed" else _NAMED[kind](scene)


def near_time(scene: Scene) -> Bilingual:
    """Draw a time for a request."""
    kind = scene.dice.weighted(("listed", "weekday", "clock", "event"), (0.5, 0.2, 0.2, 0.1))
    return scene.dice.pick(_NEAR_TIMES) if kind == "listed" else _NAMED[kind](scene)


def near_day(scene: Scene) -> Bilingual:
    """Draw tomorrow, on Monday, in May."""
    kind = scene.dice.pick((_weekday, _month, _month))
    return kind(scene) if scene.dice.chance(0.8) else PHRASES["future_times"][0]


def duration(scene: Scene, *, long: bool) -> Bilingual:
    """Draw for three years, since Monday: seit drei Jahren, seit Montag."""
    if scene.dice.chance(0.7):
        return say("for {0}", "seit {0}", _span(scene, 2 if long else 0))
    day = scene.dice.pick(PHRASES["weekdays"] + PHRASES["months"])
    return say("since {0}", "seit {0}", day)


def circumstance(scene: Scene) -> Bilingual:
    """Draw because of the rain: wegen des Regens; during, despite."""
    preposition, kind = scene.dice.pick(_CIRCUMSTANCES)
    cause = nominals.noun_phrase(scene.dice.pick(nouns_of(kind)), nominals.THE)
    return say("{0} {1}", "{0} {1:gen}", preposition, cause)


def _the(place: Noun, scene: Scene) -> Nominal:
    described = (scene.dice.pick(_OF_PLACES),) if scene.dice.chance(0.15) else ()
    return nominals.noun_phrase(place, nominals.THE, adjectives=described)


@cache
def _places(kind: str) -> tuple[Noun, ...]:
    return tuple(place for place in PLACES if kind in place.classes)


def at(scene: Scene, kind: str = "place") -> Bilingual:
    """Draw in the kitchen, at the station: a place of that class of nouns."""
    place = scene.dice.pick(_places(kind))
    phrase = _the(place, scene)
    german = nominals.contracted(place.german_at, phrase.german["dat"])
    return Bilingual(f"{place.english_at} {phrase.english}", german)


def location(scene: Scene, kind: Literal["any", "home", "stop"] = "any") -> Bilingual:
    """Draw in the kitchen, at home, in Berlin; where one lives, or where journeys end."""
    if kind == "any":
        return scene.dice.pick(PHRASES["locations"]) if scene.dice.chance(0.3) else at(scene)
    if scene.dice.chance(0.5):
        return scene.dice.pick(PHRASES["locations"][1:])
    return at(scene, kind)


def direction(scene: Scene, reach: str) -> Bilingual:
    """Draw to the station, home, to Berlin; one walks near, drives far, and flies to cities."""
    dice = scene.dice
    if reach == "cities" or (reach == "far" and dice.chance(0.3)):
        return dice.pick(PHRASES["directions"][1:])
    if dice.chance(0.1):
        return PHRASES["directions"][0]
    place = dice.pick([p for p in PLACES if reach == "near" or "near" not in p.classes])
    phrase = _the(place, scene)
    case = "dat" if place.german_to == "zu" else "acc"
    german = nominals.contracted(place.german_to, phrase.german[case])
    return Bilingual(f"{place.english_to} {phrase.english}", german)
