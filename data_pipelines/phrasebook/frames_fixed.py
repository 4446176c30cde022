"""Constructions around a verb of their own: comparison, gefallen, gehören, seit, numbers."""

from dataclasses import replace
from functools import cache

from . import draw_adverbials, draw_nominals, english, german, nominals, numbers
from .clauses import Clause, Form
from .draw_clauses import is_so, object_of, state
from .frames_main import addressed, time_first
from .lexemes import MODALS, SPECIAL, Adjective, Bilingual, Noun, noun, nouns_of, verb
from .nominals import Nominal
from .say import say, sentence
from .scene import Scene

_COMPARED = ("thing", "clothing", "furniture", "vehicle", "device", "animal", "text", "role", "kin")
_OUTSTANDING = ("building", "vehicle", "text", "art", "animal", "show", "role", "furniture")
_WANTING = (
    (verb("need", "brauchen"), Form("present")),
    (verb("look", "suchen"), Form("progressive")),
    (verb("buy", "kaufen"), Form("past")),
)


@cache
def _gradable(entry: Noun) -> tuple[Adjective, ...]:
    return tuple(a for a in draw_nominals.fitting(entry) if a.gradable)


@cache
def _comparable(*classes: str) -> tuple[Noun, ...]:
    return tuple(n for n in nouns_of(*classes) if _gradable(n))


def compared(scene: Scene) -> Bilingual:
    """My car is older than your bicycle; as old as."""
    dice = scene.dice
    kind = dice.pick(_COMPARED)
    entry = dice.pick(_comparable(kind))
    adjective = dice.pick(_gradable(entry))
    others = [n for n in nouns_of(kind) if adjective in _gradable(n)]
    first = draw_nominals.definite(scene, entry, described=0)
    second = draw_nominals.definite(scene, dice.pick(others), described=0)
    while second.english == first.english:
        second = draw_nominals.definite(scene, dice.pick(others), described=0)
    more = (f"{adjective.english_comparative} than {{0}}", f"{adjective.comparative} als {{0}}")
    as_much = (f"as {adjective.english} as {{0}}", f"so {adjective.german} wie {{0}}")
    return sentence(is_so(first, say(*(more if dice.chance(0.65) else as_much), second)))


def superlative(scene: Scene) -> Bilingual:
    """This is the oldest house in the city; the oldest house that she knows."""
    dice = scene.dice
    entry = dice.pick(_comparable(dice.pick(_OUTSTANDING)))
    adjective = dice.pick(_gradable(entry))
    most = (adjective.english_superlative, adjective.superlative)
    phrase = nominals.noun_phrase(entry, nominals.THE, stems=(most,))
    if dice.chance(0.5):
        place = draw_adverbials.location(scene)
        return say("this is {0} {1}.", "das ist {0} {1}.", phrase, place)
    known = Clause(
        subject=draw_nominals.subject(scene),
        verb=SPECIAL["be-acquainted"],
        form=Form("present"),
        gap="object",
    )
    pronoun = nominals.relative("acc", phrase.column)
    return say("this is {0} that {1}.", f"das ist {{0}}, {{1:{pronoun}}}.", phrase, known)


def something_better(scene: Scene) -> Bilingual:
    """I need a cheaper car: ein billigeres Auto."""
    dice = scene.dice
    entry = dice.pick(_comparable("clothing", "furniture", "vehicle", "device"))
    adjective = dice.pick(_gradable(entry))
    better = (adjective.english_comparative, adjective.comparative)
    found = nominals.noun_phrase(entry, nominals.A, stems=(better,))
    wanting, form = dice.pick(_WANTING)
    subject = draw_nominals.subject(scene)
    time = draw_adverbials.past_time(scene) if form.tense == "past" else None
    return sentence(Clause(subject=subject, verb=wanting, form=form, object=found, time=time))


def described(scene: Scene) -> Bilingual:
    """This old table is not very heavy."""
    dice = scene.dice
    subject = draw_nominals.definite(scene, dice.pick(_comparable(*_COMPARED, "food", "place")))
    clause = state(scene, replace(subject, animate=False), past=dice.chance(0.3), about=subject)
    return sentence(replace(clause, polarity="no" if dice.chance(0.2) else "yes"))


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
    """I like your new coat: Dein neuer Mantel gefällt mir. The thing liked is the subject."""
    dice = scene.dice
    scene, called = addressed(scene, 0.3)
    classes = ("clothing", "art", "vehicle", "building", "show", "furniture")
    liked = draw_nominals.definite(scene, dice.pick(nouns_of(*classes)))
    you = draw_nominals.personal(scene, "you")
    admirer = you if called.english else draw_nominals.subject(scene)
    form = Form("past" if dice.chance(0.35) else "present")
    said = Clause(subject=admirer, verb=SPECIAL["like"], form=form, object=liked)
    spoken = Clause(subject=liked, verb=SPECIAL["like"], form=form, object=admirer)
    if called.english or dice.chance(0.2):
        asked = _liked_question(spoken, admirer)
        return say("{0}{1:?}?", f"{{0}}{asked}?", called, said)
    deny = "no" if dice.chance(0.2) else "yes"
    english_side = say("{0}.", "", replace(said, polarity=deny)).english
    return replace(sentence(replace(spoken, polarity=deny)), english=english_side)


def _liked_question(clause: Clause, admirer: Nominal) -> str:
    """Gefällt dir das Haus? The person comes before the thing."""
    at = clause.subject.agreement
    dative, thing = admirer.german["dat"], clause.subject.german["nom"]
    if clause.form.tense == "past":
        return f"{german.PRESENT['haben'][german.person(at)]} {dative} {thing} gefallen"
    return f"{german.finite(clause.verb, at)} {dative} {thing}"


def belongs(scene: Scene) -> Bilingual:
    """This book belongs to my brother: gehört meinem Bruder."""
    dice = scene.dice
    entry = dice.pick(nouns_of("portable", "clothing", "vehicle", "building"))
    number = "pl" if dice.chance(0.25) else "sg"
    determiner = dice.pick((nominals.THE, nominals.THESE if number == "pl" else nominals.THIS))
    words = draw_nominals.adjectives(scene, entry)
    thing = nominals.noun_phrase(entry, determiner, number=number, adjectives=words)
    owner = draw_nominals.other_person(scene, thing)
    form = Form("present")
    return sentence(Clause(subject=thing, verb=SPECIAL["belong"], form=form, object=owner))


def since(scene: Scene) -> Bilingual:
    """I have been living here for three years: Ich wohne seit drei Jahren hier."""
    dice = scene.dice
    lasting = dice.pick(_LASTING)
    subject = draw_nominals.subject(scene)
    lives = lasting.english == "live"
    located = lasting.complement == "location" or (not lasting.object_case and dice.chance(0.7))
    return sentence(
        Clause(
            subject=subject,
            verb=lasting,
            form=Form("since"),
            object=object_of(scene, lasting, subject),
            complement=draw_adverbials.location(scene, "home" if lives else "any")
            if located
            else None,
            time=draw_adverbials.duration(scene, long=lives),
        )
    )


def is_where(scene: Scene) -> Bilingual:
    """Where is the key? The keys are in the kitchen."""
    dice = scene.dice
    entry = dice.pick(nouns_of("portable", "clothing", "animal", "role"))
    subject = draw_nominals.definite(scene, entry)
    predicate = draw_adverbials.at(scene)
    deny = "no" if dice.chance(0.3) else "yes"
    form = Form("past" if dice.chance(0.4) else "present")
    return sentence(replace(is_so(subject, predicate, form), polarity=deny))


# Constructions with numbers: price, age, count, distance, year, time of day.

_PRICED = nouns_of("clothing", "furniture", "vehicle", "device", "thing")
_COUNTED = tuple(
    n
    for n in nouns_of("furniture", "portable", "clothing", "person", "animal")
    if n.english_plural and "kin" not in n.classes
)
_HOLDINGS = (
    *(("library", "book"), ("hotel", "room"), ("city", "church"), ("museum", "picture")),
    *(("factory", "machine"), ("village", "house"), ("theater", "chair")),
)
_TRADING = (Form("past"), Form("future"), *(Form("present", modal) for modal in MODALS))
_TIMETABLE = (
    (verb("leave", "abfahren"), "to", "nach"),
    (verb("arrive", "ankommen"), "from", "aus"),
)


def _euros(scene: Scene) -> Bilingual:
    dice = scene.dice
    value = numbers.number(dice.between(2, 99) if dice.chance(0.75) else dice.between(100, 9999))
    euros = say("{0} euros", "{0} Euro", value)
    if not dice.chance(0.3):
        return euros
    return say("{0} {1}", "{0} {1}", euros, numbers.number(5 * dice.between(2, 19)))


def price(scene: Scene) -> Bilingual:
    """The red coat costs eighty-five euros fifty; they paid ninety euros for the coat."""
    dice, euros = scene.dice, _euros(scene)
    entry = dice.pick(_PRICED)
    if dice.chance(0.4):
        goods = draw_nominals.definite(scene, entry)
        # They cost: that is the present as well as the past. It cost is not.
        past = goods.agreement == "er" and dice.chance(0.3)
        form = Form("past" if past else "present")
        return sentence(Clause(subject=goods, verb=SPECIAL["cost"], form=form, complement=euros))
    form = dice.pick(_TRADING)
    time = draw_adverbials.past_time(scene) if form.tense == "past" else None
    actor = draw_nominals.subject(scene)
    goods = draw_nominals.definite(scene, entry, actor.owner)
    spent = say("{0} for {1:object}", "{0} für {1:acc}", euros, goods)
    return sentence(
        Clause(subject=actor, verb=SPECIAL["pay"], form=form, complement=spent, time=time)
    )


def age(scene: Scene) -> Bilingual:
    """My grandmother is eighty-seven years old; he will turn thirty in May."""
    dice = scene.dice
    entry = dice.pick(nouns_of("kin", "own", "animal"))
    known = draw_nominals.definite(scene, entry, plural=0)
    subject = known if dice.chance(0.7) else draw_nominals.given_name(scene)
    years = numbers.number(dice.between(2, 99))
    if dice.chance(0.5):
        return sentence(is_so(subject, say("{0} years old", "{0} Jahre alt", years)))
    return sentence(
        Clause(
            subject=subject,
            verb=SPECIAL["turn"],
            form=Form("future"),
            complement=years,
            time=draw_adverbials.near_day(scene),
        )
    )


def counted(scene: Scene) -> Bilingual:
    """There are twenty-four chairs in the kitchen: In der Küche gibt es vierundzwanzig Stühle."""
    dice = scene.dice
    entry = dice.pick(_COUNTED)
    place = draw_adverbials.at(scene, "outdoors" if "animal" in entry.classes else "indoors")
    words = draw_nominals.adjectives(scene, entry, 0.3)
    if dice.chance(0.3):
        found = nominals.noun_phrase(entry, nominals.A, adjectives=words)
    else:
        count = nominals.counted(dice.between(2, 99))
        found = nominals.noun_phrase(entry, count, number="pl", adjectives=words)
    there = f"there {english.be(found.agreement)} {{0}} {{1}}."
    return say(there, "{1} gibt es {0:acc}.", found, place)


def holds(scene: Scene) -> Bilingual:
    """The library has two thousand three hundred books."""
    dice = scene.dice
    owner, held = dice.pick(_HOLDINGS)
    subject = draw_nominals.definite(scene, noun(owner))
    high = 99 if dice.chance(0.3) else 9999
    found = nominals.noun_phrase(noun(held), nominals.counted(dice.between(12, high)), number="pl")
    form = Form("past" if dice.chance(0.3) else "present")
    books = say("{0}", "{0:acc}", found)
    return sentence(Clause(subject=subject, verb=SPECIAL["have"], form=form, complement=books))


def distance(scene: Scene) -> Bilingual:
    """It is two hundred kilometers from Berlin to Hamburg."""
    dice, cities = scene.dice, draw_adverbials.CITIES
    start = dice.pick(cities)
    goal = dice.pick([city for city in cities if city != start])
    length = numbers.number(dice.between(2, 99) if dice.chance(0.4) else dice.between(100, 1900))
    return say(
        "it is {0} kilometers from {1} to {2}.",
        "von {1} nach {2} sind es {0} Kilometer.",
        length,
        start,
        goal,
    )


def born(scene: Scene) -> Bilingual:
    """She was born in nineteen eighty-four: Sie wurde neunzehnhundertvierundachtzig geboren."""
    subject = draw_nominals.subject(scene)
    when = numbers.year(scene.dice.between(1930, 2019))
    was = english.was(subject.agreement)
    wurde = german.PRETERITE["werden"][german.person(subject.agreement)]
    return say(f"{{0}} {was} born in {{1}}.", f"{{0}} {wurde} {{1}} geboren.", subject, when)


def timetable(scene: Scene) -> Bilingual:
    """The train to Berlin leaves at half past three: Der Zug nach Berlin fährt um halb vier ab."""
    dice = scene.dice
    moving, way, german_way = dice.pick(_TIMETABLE)
    city = dice.pick(draw_adverbials.CITIES)
    entry = noun(dice.pick(("train", "bus", "ship")))
    vehicle = nominals.noun_phrase(entry, dice.pick((nominals.THE, nominals.EVERY)))
    subject = vehicle.with_tail(f" {way} {city.english}", f" {german_way} {city.german}")
    time = draw_adverbials.clock(scene)
    clause = Clause(subject=subject, verb=moving, form=Form("present"), time=time)
    return time_first(clause, time) if dice.chance(0.35) else sentence(clause)
