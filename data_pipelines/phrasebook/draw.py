"""Random noun phrases, times, places and clauses that make sense."""

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, TypeVar, get_args

from . import lexemes, nominals, numbers
from .lexemes import ADJECTIVES, MODALS, PHRASES, Adjective, Bilingual, Noun, Verb, nouns_of
from .nominals import Clause, Determiner, Form, Nominal, Polarity, Tense, noun_phrase
from .say import say

T = TypeVar("T")


def seeded(seed: str) -> Callable[[], float]:
    """Return a source of random numbers that is the same on every Python version.

    `random.Random.random` is the one method whose sequence Python promises to keep.
    """
    digest = hashlib.sha256(seed.encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "big")).random


@dataclass(frozen=True)
class Scene:
    """The state that a sentence is drawn with; `address` is the German for you."""

    random: Callable[[], float]
    address: Literal["du", "Sie", "ihr"] = "du"

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def below(self, bound: int) -> int:
        return int(self.random() * bound)

    def between(self, low: int, high: int) -> int:
        return low + self.below(high - low + 1)

    def pick(self, options: Sequence[T]) -> T:
        """Draw one of the options, all equally likely."""
        return options[self.below(len(options))]

    def weighted(self, options: Sequence[T], weights: Sequence[float]) -> T:
        """Draw one of the options with probability proportional to its weight."""
        point = self.random() * sum(weights)
        for option, weight in zip(options, weights, strict=True):
            point -= weight
            if point < 0:
                return option
        return options[-1]


# Noun phrases.

_EVERYONE = ("I", "you", "he", "she", "we", "they")
ROLES = tuple(n for n in nouns_of("person") if "kin" not in n.classes)  # who are no relatives
_PLURALS = (
    *(nominals.THE, "own", nominals.THESE, nominals.MANY),
    *(nominals.SOME, "count", nominals.BARE, nominals.ALL),
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
    options = fitting(entry)
    if not options or not scene.chance(probability):
        return ()
    first = scene.pick(options)
    ambiguous = first.english in ("light", "dark", "bright")  # light gray is one color
    if ambiguous or "person" in entry.classes or not scene.chance(0.4):
        return (first,)
    second = scene.pick(options)
    closes = second.rank == "3" or second.english in ("old", "new")
    return (first, second) if closes and first.rank < second.rank else (first,)


def given_name(scene: Scene) -> Nominal:
    """Draw a first name."""
    if scene.chance(0.5):
        return nominals.name(scene.pick(lexemes.WOMEN), "f")
    return nominals.name(scene.pick(lexemes.MEN), "m")


def titled(scene: Scene) -> Nominal:
    """Draw Mr. or Mrs. somebody."""
    return nominals.titled(scene.pick(lexemes.SURNAMES), scene.pick(("m", "f")))


def _owned(scene: Scene, entry: Noun, owner: str) -> Determiner:
    """Draw a possessive: the owner's if there is one, else a name's or anyone's."""
    if "mine" not in entry.classes:  # not my tourist or my museum
        return nominals.THE
    if owner and not owner.startswith("it") and scene.chance(0.7):
        return nominals.possessive(owner)
    if scene.chance(0.3):
        return nominals.belonging_to(scene.pick(lexemes.WOMEN + lexemes.MEN))
    key = scene.pick(_EVERYONE)
    return nominals.possessive(scene.address if key == "you" else key)


def person(scene: Scene, owner: str = "") -> Nominal:
    """Draw a person who is described: my old aunt, the waiter, Mr. Weber."""
    kind = scene.weighted(("kin", "role", "titled", "both"), (0.3, 0.55, 0.1, 0.05))
    if kind == "titled":
        return titled(scene)
    if kind == "both":
        return nominals.both(given_name(scene), given_name(scene))
    if kind == "role":
        return thing(scene, scene.pick(ROLES), owner)
    entry = scene.pick(nouns_of("kin"))
    number: lexemes.Number = "pl" if "only" not in entry.classes and scene.chance(0.15) else "sg"
    described = adjectives(scene, entry, 0.2)
    return noun_phrase(entry, _owned(scene, entry, owner), number, described)


def subject(scene: Scene, classes: tuple[str, ...] = ("person",)) -> Nominal:
    """Draw somebody or something that acts."""
    if classes != ("person",):
        return definite(scene, scene.pick(nouns_of(*classes)))
    choice = scene.weighted(("pronoun", "name", "person"), (0.42, 0.2, 0.38))
    if choice == "pronoun":
        return personal(scene, scene.pick(_EVERYONE))
    return given_name(scene) if choice == "name" else person(scene)


def other_person(scene: Scene, actor: Nominal) -> Nominal:
    """Draw somebody else, to whom the actor does something."""
    choice = scene.weighted(("pronoun", "name", "person"), (0.4, 0.2, 0.4))
    if choice == "pronoun":
        clashing = {"I", "we"} if actor.owner in ("I", "we") else {actor.owner}
        others = [k for k in _EVERYONE if (scene.address if k == "you" else k) not in clashing]
        return personal(scene, scene.pick(others))
    if choice == "name":
        found = given_name(scene)
        return found if found.english not in actor.english else personal(scene, "they")
    return person(scene, actor.owner)


def definite(
    scene: Scene, entry: Noun, owner: str = "", *, plural: float = 0.2, described: float = 0.38
) -> Nominal:
    """Draw a known thing: the, this or somebody's."""
    many = bool(entry.english_plural) and "only" not in entry.classes and scene.chance(plural)
    this, determiner = nominals.THESE if many else nominals.THIS, None
    if "kin" not in entry.classes:
        determiner = scene.weighted((nominals.THE, this, None), (0.55, 0.2, 0.25))
    determiner = determiner or _owned(scene, entry, owner)
    words = adjectives(scene, entry, described)
    return noun_phrase(entry, determiner, "pl" if many else "sg", words)


def _measured(scene: Scene, entry: Noun) -> Nominal:
    """Draw a cup of tea, two bottles of wine: eine Tasse Tee, zwei Flaschen Wein."""
    vessels = ("cup",) if "hot" in entry.classes else ("glass", "bottle")
    vessel, one = lexemes.noun(scene.pick(vessels)), scene.chance(0.6)
    count = nominals.A if one else nominals.counted(scene.between(2, 6))
    phrase = noun_phrase(vessel, count, "sg" if one else "pl")
    return phrase.with_tail(f" of {entry.english}", f" {entry.german[0]}")


def thing(scene: Scene, entry: Noun, owner: str = "") -> Nominal:
    """Draw a noun phrase, known or not."""
    described = adjectives(scene, entry)
    if not entry.english_plural:
        if "measured" in entry.classes and scene.chance(0.4):
            return _measured(scene, entry)
        determiner = scene.weighted((nominals.BARE, nominals.THE), (0.6, 0.4))
        return noun_phrase(entry, determiner, adjectives=described)
    if not scene.chance(0.25):
        options = (nominals.THE, nominals.A, None, nominals.THIS)
        determiner = scene.weighted(options, (0.47, 0.2, 0.23, 0.1)) or _owned(scene, entry, owner)
        return noun_phrase(entry, determiner, adjectives=described)
    chosen = scene.weighted(_PLURALS, (0.3, 0.15, 0.1, 0.08, 0.08, 0.15, 0.1, 0.04))
    if chosen == "count":
        chosen = nominals.counted(2 + scene.below(11 if scene.chance(0.7) else 98))
    elif not isinstance(chosen, Determiner):
        chosen = _owned(scene, entry, owner)
    return noun_phrase(entry, chosen, "pl", described)


def denied(scene: Scene, entry: Noun) -> Nominal:
    """Draw a thing that is denied: not a car, not any apples; kein Auto, keine Äpfel."""
    described = adjectives(scene, entry, 0.25)
    if entry.english_plural and scene.chance(0.65):
        return noun_phrase(entry, nominals.NOT_A, adjectives=described)
    return noun_phrase(entry, nominals.NO, "pl" if entry.english_plural else "sg", described)


def pronoun_of(nominal: Nominal) -> Nominal | None:
    """Return he, she, it or they for what was named before; None where that would be odd."""
    return nominals.pronoun(nominal.owner) if nominal.owner else None


# Times and places.

_OF_PLACES = tuple(a for a in ADJECTIVES if "place" in a.classes)
_NEAR_TIMES = tuple(t for t in PHRASES["future_times"] if not t.english.startswith("next"))
CITIES = tuple(
    Bilingual(to.english.removeprefix("to "), to.german.removeprefix("nach "))
    for to in PHRASES["directions"][1:]
)


def clock(scene: Scene) -> Bilingual:
    """Draw a time of day. At half past three: um halb vier."""
    return say("at {0}", "um {0}", numbers.clock(scene.between(1, 12), 5 * scene.below(12)))


def _span(scene: Scene, shortest: int = 0) -> Bilingual:
    """Draw a stretch of time. Three days: drei Tagen, in the dative."""
    unit = scene.pick(PHRASES["units"][shortest:])
    return say("{0} {1}", "{0} {1}", numbers.number(scene.between(2, 12)), unit)


def _weekday(scene: Scene) -> Bilingual:
    day = scene.pick(PHRASES["weekdays"])
    if scene.chance(0.5):
        return say("on {0}", "am {0}", day)
    return say("on {0} {1}", "am {0}{1}", day, scene.pick(PHRASES["day_parts"]))


def _month(scene: Scene) -> Bilingual:
    return say("in {0}", "im {0}", scene.pick(PHRASES["months"]))


def _around_event(scene: Scene) -> Bilingual:
    event = noun_phrase(scene.pick(nouns_of("event")), nominals.THE)
    return say("{0} {1}", "{0} {1:dat}", scene.pick(PHRASES["around"]), event)


_KINDS_OF_TIME = (_span, _weekday, _month, clock, _around_event)


def _time(
    scene: Scene,
    listed: Sequence[Bilingual],
    weights: Sequence[float],
    **templates: tuple[str, str],
) -> Bilingual:
    """Draw a listed time or one of the kinds above, spans and clocks inside a template."""
    kind = scene.weighted((None, *_KINDS_OF_TIME), weights)
    if kind is None:
        return scene.pick(listed)
    return say(*templates.get(kind.__name__.strip("_"), ("{0}", "{0}")), kind(scene))


def past_time(scene: Scene) -> Bilingual:
    """Draw a time that is over."""
    weights = (0.4, 0.16, 0.14, 0.08, 0.12, 0.1)
    ago, yesterday = ("{0} ago", "vor {0}"), ("yesterday {0}", "gestern {0}")
    return _time(scene, PHRASES["past_times"], weights, span=ago, clock=yesterday)


def future_time(scene: Scene) -> Bilingual:
    """Draw a time to come."""
    weights = (0.4, 0.14, 0.16, 0.08, 0.12, 0.1)
    later, tomorrow = ("in {0}", "in {0}"), ("tomorrow {0}", "morgen {0}")
    return _time(scene, PHRASES["future_times"], weights, span=later, clock=tomorrow)


def near_time(scene: Scene) -> Bilingual:
    """Draw a time for a request."""
    return _time(scene, _NEAR_TIMES, (0.5, 0, 0.2, 0, 0.2, 0.1))


def near_day(scene: Scene) -> Bilingual:
    """Draw tomorrow, on Monday, in May."""
    kind = scene.pick((_weekday, _month, _month))
    return kind(scene) if scene.chance(0.8) else PHRASES["future_times"][0]


def duration(scene: Scene, *, long: bool) -> Bilingual:
    """Draw for three years, since Monday: seit drei Jahren, seit Montag."""
    if scene.chance(0.7):
        return say("for {0}", "seit {0}", _span(scene, 2 if long else 0))
    return say("since {0}", "seit {0}", scene.pick(PHRASES["weekdays"] + PHRASES["months"]))


def circumstance(scene: Scene) -> Bilingual:
    """Draw because of the rain: wegen des Regens; during, despite."""
    preposition = scene.pick(PHRASES["circumstances"])
    kind = "event" if preposition.english == "during" else "cause"
    cause = noun_phrase(scene.pick(nouns_of(kind)), nominals.THE)
    return say("{0} {1}", "{0} {1:gen}", preposition, cause)


def _the(place: Noun, scene: Scene) -> Nominal:
    words = (scene.pick(_OF_PLACES),) if scene.chance(0.15) else ()
    return noun_phrase(place, nominals.THE, adjectives=words)


def at(scene: Scene, kind: str = "place") -> Bilingual:
    """Draw in the kitchen, at the station: a place of that class of nouns."""
    place = scene.pick([place for place in lexemes.PLACES if kind in place.classes])
    phrase = _the(place, scene)
    german = nominals.contracted(place.german_at, phrase.german["dat"])
    return Bilingual(f"{place.english_at} {phrase.english}", german)


def location(scene: Scene, kind: Literal["any", "home", "stop"] = "any") -> Bilingual:
    """Draw in the kitchen, at home, in Berlin; where one lives, or where journeys end."""
    if kind == "any":
        return scene.pick(PHRASES["locations"]) if scene.chance(0.3) else at(scene)
    return scene.pick(PHRASES["locations"][1:]) if scene.chance(0.5) else at(scene, kind)


def direction(scene: Scene, reach: str) -> Bilingual:
    """Draw to the station, home, to Berlin; one walks near, drives far, and flies to cities."""
    if reach == "cities" or (reach == "far" and scene.chance(0.3)):
        return scene.pick(PHRASES["directions"][1:])
    if scene.chance(0.1):
        return PHRASES["directions"][0]
    place = scene.pick([p for p in lexemes.PLACES if reach == "near" or "near" not in p.classes])
    phrase = _the(place, scene)
    case = "dat" if place.german_to == "zu" else "acc"
    german = nominals.contracted(place.german_to, phrase.german[case])
    return Bilingual(f"{place.english_to} {phrase.english}", german)


# Clauses of a wanted form: the tense, and whether the verb is separable.

FormName = Literal["present", "perfect", "future", "modal", "modal-past", "passive"]
Kind = Literal["plain", "separable"]
FORMS: tuple[FormName, ...] = get_args(FormName)
KINDS: tuple[Kind, ...] = get_args(Kind)
_PAST_MODALS = tuple(m for m in MODALS if m.english_past)
_DENIABLE_MODALS = tuple(m for m in MODALS if m not in (lexemes.MUST, lexemes.WOULD_LIKE))
_PASSIVE_MODALS = tuple(m for m in MODALS if m not in (lexemes.WANT, lexemes.WOULD_LIKE))
_PERSONAL = tuple(
    a for a in ADJECTIVES if "person" in a.classes and a.english not in ("old", "young")
)
_ANYTHING = tuple(a for a in ADJECTIVES if a.english in ("beautiful", "strange", "old"))
_STRONG = ("wonderful", "terrible", "delicious")  # nothing is very wonderful
_REACH = {"drive": "far", "travel": "cities", "fly": "cities"}


@cache
def _verbs(kind: str, form: str, purpose: str, objects: str, by_person: bool) -> tuple[Verb, ...]:
    on_purpose = purpose != "any" or form.startswith("modal")
    personal = by_person or on_purpose

    def fits(v: Verb) -> bool:
        if form == "passive":
            prepositions = v.english_preposition or v.german_preposition
            other = prepositions or v.reflexive or v.recipient or "x" in v.flags
            return v.object_case == "acc" and not other
        return (
            (not personal or v.subject == ("person",))
            and not (on_purpose and set(v.flags) & {"s", "u"})
            and (purpose != "lasting" or "l" in v.flags)
            and (objects == "any" or bool(v.object_case and not v.recipient))
            and (objects != "thing" or bool(v.things))
        )

    return tuple(v for v in lexemes.VERBS if bool(v.prefix) == (kind == "separable") and fits(v))


def object_of(scene: Scene, verb: Verb, actor: Nominal, *, deny: bool = False) -> Nominal | None:
    """Draw something the verb can be done to."""
    if not verb.object_case:
        return None
    classes = verb.object_classes
    if "person" in classes and (len(classes) == 1 or scene.chance(0.5)):
        return other_person(scene, actor)
    entry = scene.pick(nouns_of(*verb.things))
    if deny:
        return denied(scene, entry)
    return (definite if verb.german_preposition else thing)(scene, entry, actor.owner)


def _present(scene: Scene, verb: Verb, timed: bool) -> dict[str, Any]:
    """Put habits into the simple present, what happens now or is planned into the progressive."""
    stative, simple = "s" in verb.flags, Form("present")
    progressive = simple if stative else Form("progressive")
    if not timed:
        return {"form": progressive}
    kind = scene.weighted(("habit", "often", "now", "planned"), (0.25, 0.3, 0.25, 0.2))
    if stative or kind == "often":
        return {"form": simple, "mid": scene.pick(PHRASES["frequencies"])}
    if kind == "habit":
        return {"form": simple, "time": scene.pick(PHRASES["habits"])}
    time = scene.pick(PHRASES["present_times"]) if kind == "now" else future_time(scene)
    return {"form": progressive, "time": time}


def _perfect(
    scene: Scene, timed: bool, voice: Literal["active", "passive"] = "active"
) -> dict[str, Any]:
    """Draw one of the two English pasts; spoken German has one."""
    if not timed:
        return {"form": Form("past", voice=voice)}
    if scene.chance(0.55):
        return {"form": Form("past", voice=voice), "time": past_time(scene)}
    return {"form": Form("perfect", voice=voice), "mid": scene.pick(PHRASES["perfect_adverbs"])}


def _passive(scene: Scene, timed: bool) -> dict[str, Any]:
    kind = scene.weighted(("past", "now", "modal"), (0.45, 0.25, 0.3))
    if kind == "past":
        return _perfect(scene, timed, "passive")
    if kind == "now":
        time = scene.pick(PHRASES["present_times"]) if timed else None
        return {"form": Form("progressive", voice="passive"), "time": time}
    time = future_time(scene) if timed and scene.chance(0.7) else None
    return {"form": Form("present", scene.pick(_PASSIVE_MODALS), "passive"), "time": time}


def _timing(scene: Scene, verb: Verb, form: FormName, timed: bool, deny: bool) -> dict[str, Any]:
    """Draw the form, and a time or an adverb that goes with it."""
    if form == "present":
        return _present(scene, verb, timed)
    if form == "perfect":
        return _perfect(scene, timed)
    if form == "future":
        time = future_time(scene) if timed and scene.chance(0.75) else None
        return {"form": Form("future"), "time": time}
    if form == "modal-past":
        chosen, time = Form("past", scene.pick(_PAST_MODALS)), past_time(scene)
    else:
        modal = scene.pick(_DENIABLE_MODALS if deny else MODALS)
        chosen, time = Form("present", modal), future_time(scene)
    return {"form": chosen, "time": time if timed and scene.chance(0.6) else None}


def _passive_clause(scene: Scene, verb: Verb, by: Nominal | None, timed: bool) -> Clause:
    """Make the object the subject; the agent may be named."""
    timing = _passive(scene, timed)
    if verb.things:
        done_to = definite(scene, scene.pick(nouns_of(*verb.things)))
    else:
        done_to = by or subject(scene)
    agent = person(scene) if scene.chance(0.3) else None
    return Clause(subject=done_to, verb=verb, agent=agent, **timing)


def _manner_or_place(scene: Scene, verb: Verb) -> dict[str, Any]:
    manner = scene.pick(PHRASES["manners"]) if "m" in verb.flags and scene.chance(0.3) else None
    if manner or "p" not in verb.flags or not scene.chance(0.35):
        return {"manner": manner}
    return {"place": location(scene, "stop" if verb.english == "arrive" else "any")}


def _complement(scene: Scene, verb: Verb) -> Bilingual | None:
    if verb.complement == "direction":
        return direction(scene, _REACH.get(verb.english, "near"))
    home = "home" if verb.english == "live" else "any"
    return location(scene, home) if verb.complement == "location" else None


def _denial(scene: Scene, verb: Verb, form: FormName, timed: bool) -> Polarity:
    """Draw a denial: not, not a, not yet, or none."""
    if not scene.chance(0.14):
        return "yes"
    plain = verb.object_case == "acc" and not verb.german_preposition
    if plain and "person" not in verb.object_classes and scene.chance(0.45):
        return "no-kein"
    return "not-yet" if form == "perfect" and timed and scene.chance(0.4) else "no"


def clause(
    scene: Scene,
    form: FormName,
    kind: Kind,
    actor: Nominal | None = None,
    *,
    timed: bool = False,
    polarity: Literal["any", "yes"] = "any",
    purpose: Literal["any", "wanted", "lasting"] = "any",
    objects: Literal["any", "thing", "needed"] = "any",
) -> Clause:
    """Draw a clause with these properties, everything else by chance.

    `actor` None lets the verb choose. Without `timed` it has no time and nothing that implies one.
    A "wanted" action is done on purpose, a "lasting" one also continues. With "needed" the verb
    has some object.
    """
    verb = scene.pick(_verbs(kind, form, purpose, objects, actor is not None))
    if form == "passive":
        return _passive_clause(scene, verb, actor, timed)
    actor = actor or subject(scene, verb.subject)
    denial = "yes" if polarity == "yes" else _denial(scene, verb, form, timed)
    timing = _timing(scene, verb, form, timed, denial != "yes")
    extras = _manner_or_place(scene, verb) if denial == "yes" else {}
    receiver = other_person(scene, actor) if verb.recipient else None
    drawn = Clause(
        subject=actor,
        verb=verb,
        object=object_of(scene, verb, actor, deny=denial == "no-kein"),
        recipient=receiver,
        complement=_complement(scene, verb),
        polarity=denial,
        **extras,
        **timing,
    )
    # Repair what cannot be said together: not yet and yesterday, not and often, not and many.
    if denial == "yes":
        return drawn
    if denial == "not-yet":
        return replace(drawn, mid=None, time=None, form=replace(drawn.form, tense="perfect"))
    if denial == "no" and drawn.object and drawn.object.weight == "indefinite":
        return replace(drawn, polarity="yes")
    return replace(drawn, mid=None)


def action(
    scene: Scene,
    form: FormName,
    kind: Kind,
    actor: Nominal | None = None,
    purpose: Literal["wanted", "lasting"] = "wanted",
) -> Clause:
    """Draw a clause of something done on purpose, without a time and not denied."""
    return clause(scene, form, kind, actor, polarity="yes", purpose=purpose)


def special(
    subject: Nominal, verb: str, tense: Tense, complement: Bilingual | None = None, **rest: Any
) -> Clause:
    """Make a clause with a verb of `SPECIAL`."""
    verb_entry, form = lexemes.SPECIAL[verb], Form(tense)
    return Clause(subject=subject, verb=verb_entry, form=form, complement=complement, **rest)


def state(scene: Scene, subject: Nominal, *, past: bool, about: Nominal | None = None) -> Clause:
    """Draw what somebody or something is. `about` is what a pronoun stands for."""
    options = _PERSONAL
    if not subject.animate:
        described = about or subject
        said = described.english.split()
        words = fitting(described.noun) if described.noun else ()
        options = tuple(a for a in words if a.english not in said) or _ANYTHING
    adjective = scene.pick(options)
    gradable = adjective.gradable and adjective.english not in _STRONG
    degree = scene.pick(PHRASES["degrees"][: None if gradable else 1])
    predicate = Bilingual(
        f"{degree.english} {adjective.english}".lstrip(),
        f"{degree.german} {adjective.german}".lstrip(),
    )
    return special(subject, "be", "past" if past else "present", predicate)
