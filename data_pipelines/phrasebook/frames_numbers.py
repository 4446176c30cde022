"""Constructions with numbers: price, age, count, distance, year, time of day."""

from dataclasses import replace

from . import (
    draw_adverbials,
    draw_nominals,
    english,
    modifiers,
    nominals,
    numbers,
    say_english,
    say_german,
)
from . import german as german_forms
from .clauses import Clause, Form
from .frames_comparison import is_so
from .frames_main import both_say
from .lexemes import Bilingual
from .nouns import noun, nouns_of
from .scene import Scene
from .verbs import COST, HAVE, MODALS, PAY, TURN, verb

_PRICED = nouns_of(("clothing", "furniture", "vehicle", "device", "thing"))
_COUNTED = tuple(
    n
    for n in nouns_of(("furniture", "portable", "clothing", "person", "animal"))
    if n.countable and "kin" not in n.classes
)
_HOLDINGS = (("library", "book"), ("hotel", "room"), ("city", "church"), ("museum", "picture"))
_HOLDINGS += (("factory", "machine"), ("village", "house"), ("theater", "chair"))
_TRADING = (
    Form(tense="past"),
    Form(tense="future"),
    *(Form(tense="present", modal=m) for m in MODALS),
)
_TIMETABLE = (
    (verb("leave", "abfahren"), "to", "nach"),
    (verb("arrive", "ankommen"), "from", "aus"),
)


def _euros(scene: Scene) -> Bilingual:
    dice = scene.dice
    value = numbers.number(dice.between(2, 99) if dice.chance(0.75) else dice.between(100, 9999))
    said, spoken = f"{value.english} euros", f"{value.german} Euro"
    if dice.chance(0.3):
        cents = numbers.number(5 * dice.between(2, 19))
        said, spoken = f"{said} {cents.english}", f"{spoken} {cents.german}"
    return Bilingual(english=said, german=spoken)


def price(scene: Scene) -> Bilingual:
    """The red coat costs eighty-five euros fifty; they paid ninety euros for the coat."""
    dice, euros = scene.dice, _euros(scene)
    entry = dice.pick(_PRICED)
    if dice.chance(0.4):
        goods = draw_nominals.definite(scene, entry)
        # They cost: that is the present as well as the past. It cost is not.
        past = goods.agreement == "er" and dice.chance(0.3)
        form = Form(tense="past" if past else "present")
        return both_say(Clause(subject=goods, verb=COST, form=form, complement=euros))
    form = dice.pick(_TRADING)
    time = draw_adverbials.past_time(scene) if form.tense == "past" else None
    actor = draw_nominals.subject(scene)
    goods = draw_nominals.definite(scene, entry, actor.owner)
    spent = Bilingual(
        english=f"{euros.english} for {goods.english_object}",
        german=f"{euros.german} für {goods.german['acc']}",
    )
    return both_say(Clause(subject=actor, verb=PAY, form=form, complement=spent, time=time))


def age(scene: Scene) -> Bilingual:
    """My grandmother is eighty-seven years old; he will turn thirty in May."""
    dice = scene.dice
    entry = dice.pick(nouns_of(("kin", "own", "animal")))
    described = draw_nominals.definite(scene, entry, plural=0)
    subject = described if dice.chance(0.7) else draw_nominals.given_name(scene)
    years = numbers.number(dice.between(2, 99))
    if dice.chance(0.5):
        predicate = Bilingual(
            english=f"{years.english} years old", german=f"{years.german} Jahre alt"
        )
        return both_say(is_so(subject, predicate))
    return both_say(
        Clause(
            subject=subject,
            verb=TURN,
            form=Form(tense="future"),
            complement=Bilingual(english=years.english, german=years.german),
            time=draw_adverbials.near_day(scene),
        )
    )


def counted(scene: Scene) -> Bilingual:
    """There are twenty-four chairs in the kitchen: In der Küche gibt es vierundzwanzig Stühle."""
    dice = scene.dice
    entry = dice.pick(_COUNTED)
    place = draw_adverbials.at(scene, "outdoors" if "animal" in entry.classes else "indoors")
    described = draw_nominals.adjectives(scene, entry, 0.3)
    if dice.chance(0.3):
        found = nominals.noun_phrase(entry, nominals.A, adjectives=described)
    else:
        count = nominals.counted(dice.between(2, 99))
        found = nominals.noun_phrase(entry, count, number="pl", adjectives=described)
    return Bilingual(
        english=f"there {english.be(found.agreement)} {found.english} {place.english}.",
        german=f"{place.german} gibt es {found.german['acc']}.",
    )


def holds(scene: Scene) -> Bilingual:
    """The library has two thousand three hundred books."""
    dice = scene.dice
    owner, held = dice.pick(_HOLDINGS)
    subject = draw_nominals.definite(scene, noun(owner))
    high = 99 if dice.chance(0.3) else 9999
    found = nominals.noun_phrase(noun(held), nominals.counted(dice.between(12, high)), number="pl")
    has = Clause(
        subject=subject,
        verb=HAVE,
        form=Form(tense="past" if dice.chance(0.3) else "present"),
        complement=Bilingual(english=found.english, german=found.german["acc"]),
    )
    return both_say(has)


def distance(scene: Scene) -> Bilingual:
    """It is two hundred kilometers from Berlin to Hamburg."""
    dice = scene.dice
    start = dice.pick(modifiers.CITIES)
    goal = dice.pick([city for city in modifiers.CITIES if city != start])
    length = numbers.number(dice.between(2, 99) if dice.chance(0.4) else dice.between(100, 1900))
    return Bilingual(
        english=f"it is {length.english} kilometers from {start.english} to {goal.english}.",
        german=f"von {start.german} nach {goal.german} sind es {length.german} Kilometer.",
    )


def born(scene: Scene) -> Bilingual:
    """She was born in nineteen eighty-four: Sie wurde neunzehnhundertvierundachtzig geboren."""
    subject = draw_nominals.subject(scene)
    when = numbers.year(scene.dice.between(1930, 2019))
    was = english.was(subject.agreement)
    wurde = german_forms.PRETERITE["werden"][german_forms.person(subject.agreement)]
    return Bilingual(
        english=f"{subject.english} {was} born in {when.english}.",
        german=f"{subject.german['nom']} {wurde} {when.german} geboren.",
    )


def timetable(scene: Scene) -> Bilingual:
    """The train to Berlin leaves at half past three: Der Zug nach Berlin fährt um halb vier ab."""
    dice = scene.dice
    moving, way, german_way = dice.pick(_TIMETABLE)
    city = dice.pick(modifiers.CITIES)
    entry = noun(dice.pick(("train", "bus", "ship")))
    vehicle = nominals.noun_phrase(entry, dice.pick((nominals.THE, nominals.EVERY)))
    subject = vehicle.with_tail(f" {way} {city.english}", f" {german_way} {city.german}")
    time = draw_adverbials.clock(scene)
    clause = Clause(subject=subject, verb=moving, form=Form(tense="present"), time=time)
    if dice.chance(0.35):
        return Bilingual(
            english=f"{time.english} {say_english.statement(replace(clause, time=None))}.",
            german=say_german.main(clause, time.german, "time") + ".",
        )
    return both_say(clause)
