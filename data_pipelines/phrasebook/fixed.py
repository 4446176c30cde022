"""Constructions around a verb of their own: comparison, gefallen, gehören, seit, numbers."""

from dataclasses import replace
from functools import cache

from . import draw, english, german, nominals, numbers
from .draw import Scene, definite, past_time, special
from .frames import addressed, time_first
from .lexemes import ENDINGS, MODALS, SPECIAL, Adjective, Bilingual, Noun, noun, nouns_of, verb
from .nominals import Clause, Form, noun_phrase
from .say import say, sentence

_COMPARED = ("thing", "clothing", "furniture", "vehicle", "device", "animal", "text", "role", "kin")
_OUTSTANDING = ("building", "vehicle", "text", "art", "animal", "show", "role", "furniture")
_WANTING = (
    (verb("need", "brauchen"), Form("present")),
    (verb("look", "suchen"), Form("progressive")),
    (verb("buy", "kaufen"), Form("past")),
)
_LASTING = (
    *(verb("live", "wohnen"), verb("work", "arbeiten"), verb("wait", "warten")),
    *(verb("sleep", "schlafen"), verb("look", "suchen"), verb("sit", "sitzen")),
    *(verb("clean", "putzen"), verb("repair", "reparieren")),
)


@cache
def _gradable(entry: Noun) -> tuple[Adjective, ...]:
    return tuple(a for a in draw.fitting(entry) if a.gradable)


@cache
def _comparable(*classes: str) -> tuple[Noun, ...]:
    return tuple(n for n in nouns_of(*classes) if _gradable(n))


def compared(scene: Scene) -> Bilingual:
    """My car is older than your bicycle; as old as."""
    kind = scene.pick(_COMPARED)
    entry = scene.pick(_comparable(kind))
    adjective = scene.pick(_gradable(entry))
    others = [n for n in nouns_of(kind) if adjective in _gradable(n)]
    first = second = definite(scene, entry, described=0)
    while second.english == first.english:
        second = definite(scene, scene.pick(others), described=0)
    more = (f"{adjective.english_comparative} than {{0}}", f"{adjective.comparative} als {{0}}")
    as_much = (f"as {adjective.english} as {{0}}", f"so {adjective.german} wie {{0}}")
    predicate = say(*(more if scene.chance(0.65) else as_much), second)
    return sentence(special(first, "be", "present", predicate))


def superlative(scene: Scene) -> Bilingual:
    """This is the oldest house in the city; the oldest house that she knows."""
    entry = scene.pick(_comparable(scene.pick(_OUTSTANDING)))
    adjective = scene.pick(_gradable(entry))
    most = (adjective.english_superlative, adjective.superlative)
    phrase = noun_phrase(entry, nominals.THE, stems=(most,))
    if scene.chance(0.5):
        return say("this is {0} {1}.", "das ist {0} {1}.", phrase, draw.location(scene))
    known = special(draw.subject(scene), "be-acquainted", "present")
    pronoun = Bilingual("that", ENDINGS["relative", "acc", phrase.column])
    return say("this is {0} {2} {1}.", "das ist {0}, {1:{2}}.", phrase, known, pronoun)


def something_better(scene: Scene) -> Bilingual:
    """I need a cheaper car: ein billigeres Auto."""
    entry = scene.pick(_comparable("clothing", "furniture", "vehicle", "device"))
    adjective = scene.pick(_gradable(entry))
    better = (adjective.english_comparative, adjective.comparative)
    found = noun_phrase(entry, nominals.A, stems=(better,))
    wanting, form = scene.pick(_WANTING)
    subject = draw.subject(scene)
    time = past_time(scene) if form.tense == "past" else None
    return sentence(Clause(subject=subject, verb=wanting, form=form, object=found, time=time))


def described(scene: Scene) -> Bilingual:
    """This old table is not very heavy."""
    subject = definite(scene, scene.pick(_comparable(*_COMPARED, "food", "place")))
    it, past = replace(subject, animate=False), scene.chance(0.3)
    clause = draw.state(scene, it, past=past, about=subject)
    return sentence(replace(clause, polarity="no" if scene.chance(0.2) else "yes"))


def likes(scene: Scene) -> Bilingual:
    """I like your new coat: Dein neuer Mantel gefällt mir. The thing liked is the subject."""
    scene, called = addressed(scene, 0.3)
    classes = ("clothing", "art", "vehicle", "building", "show", "furniture")
    liked = definite(scene, scene.pick(nouns_of(*classes)))
    admirer = draw.personal(scene, "you") if called.english else draw.subject(scene)
    tense = "past" if scene.chance(0.35) else "present"
    said = special(admirer, "like", tense, object=liked)
    spoken = special(liked, "like", tense, object=admirer)
    if not called.english and not scene.chance(0.2):
        deny = "no" if scene.chance(0.2) else "yes"
        said, spoken = (replace(clause, polarity=deny) for clause in (said, spoken))
        return say("{0}.", "{1}.", said, spoken)
    # Gefällt dir das Haus? The person comes before the thing.
    person = f"{admirer.german['dat']} {liked.german['nom']}"
    asked = f"{german.main(replace(spoken, object=None), '', 'subject')}".split()
    return say("{0}{1:?}?", f"{{0}}{' '.join([asked[0], person, *asked[1:]])}?", called, said)


def belongs(scene: Scene) -> Bilingual:
    """This book belongs to my brother: gehört meinem Bruder."""
    entry = scene.pick(nouns_of("portable", "clothing", "vehicle", "building"))
    number = "pl" if scene.chance(0.25) else "sg"
    determiner = scene.pick((nominals.THE, nominals.THESE if number == "pl" else nominals.THIS))
    thing = noun_phrase(entry, determiner, number, draw.adjectives(scene, entry))
    owner = draw.other_person(scene, thing)
    return sentence(special(thing, "belong", "present", object=owner))


def since(scene: Scene) -> Bilingual:
    """I have been living here for three years: Ich wohne seit drei Jahren hier."""
    lasting = scene.pick(_LASTING)
    subject, lives = draw.subject(scene), lasting.english == "live"
    located = lasting.complement == "location" or (not lasting.object_case and scene.chance(0.7))
    clause = Clause(
        subject=subject,
        verb=lasting,
        form=Form("since"),
        object=draw.object_of(scene, lasting, subject),
        complement=draw.location(scene, "home" if lives else "any") if located else None,
        time=draw.duration(scene, long=lives),
    )
    return sentence(clause)


def is_where(scene: Scene) -> Bilingual:
    """Where is the key? The keys are in the kitchen."""
    subject = definite(scene, scene.pick(nouns_of("portable", "clothing", "animal", "role")))
    predicate = draw.at(scene)
    deny = "no" if scene.chance(0.3) else "yes"
    tense = "past" if scene.chance(0.4) else "present"
    return sentence(special(subject, "be", tense, predicate, polarity=deny))


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
    value = scene.between(2, 99) if scene.chance(0.75) else scene.between(100, 9999)
    euros = say("{0} euros", "{0} Euro", numbers.number(value))
    if not scene.chance(0.3):
        return euros
    return say("{0} {1}", "{0} {1}", euros, numbers.number(5 * scene.between(2, 19)))


def price(scene: Scene) -> Bilingual:
    """The red coat costs eighty-five euros fifty; they paid ninety euros for the coat."""
    euros, entry = _euros(scene), scene.pick(_PRICED)
    if scene.chance(0.4):
        goods = definite(scene, entry)
        # They cost: that is the present as well as the past. It cost is not.
        past = goods.agreement == "er" and scene.chance(0.3)
        return sentence(special(goods, "cost", "past" if past else "present", euros))
    form = scene.pick(_TRADING)
    time = past_time(scene) if form.tense == "past" else None
    actor = draw.subject(scene)
    goods = definite(scene, entry, actor.owner)
    spent = say("{0} for {1:object}", "{0} für {1:acc}", euros, goods)
    paid = Clause(subject=actor, verb=SPECIAL["pay"], form=form, complement=spent, time=time)
    return sentence(paid)


def age(scene: Scene) -> Bilingual:
    """My grandmother is eighty-seven years old; he will turn thirty in May."""
    known = definite(scene, scene.pick(nouns_of("kin", "own", "animal")), plural=0)
    subject = known if scene.chance(0.7) else draw.given_name(scene)
    years = numbers.number(scene.between(2, 99))
    if scene.chance(0.5):
        years_old = say("{0} years old", "{0} Jahre alt", years)
        return sentence(special(subject, "be", "present", years_old))
    return sentence(special(subject, "turn", "future", years, time=draw.near_day(scene)))


def counted(scene: Scene) -> Bilingual:
    """There are twenty-four chairs in the kitchen: In der Küche gibt es vierundzwanzig Stühle."""
    entry = scene.pick(_COUNTED)
    place = draw.at(scene, "outdoors" if "animal" in entry.classes else "indoors")
    words = draw.adjectives(scene, entry, 0.3)
    if scene.chance(0.3):
        found = noun_phrase(entry, nominals.A, adjectives=words)
    else:
        found = noun_phrase(entry, nominals.counted(scene.between(2, 99)), "pl", words)
    be = english.be(found.agreement)
    return say(f"there {be} {{0}} {{1}}.", "{1} gibt es {0:acc}.", found, place)


def holds(scene: Scene) -> Bilingual:
    """The library has two thousand three hundred books."""
    owner, held = scene.pick(_HOLDINGS)
    subject = definite(scene, noun(owner))
    high = 99 if scene.chance(0.3) else 9999
    found = noun_phrase(noun(held), nominals.counted(scene.between(12, high)), "pl")
    tense = "past" if scene.chance(0.3) else "present"
    return sentence(special(subject, "have", tense, say("{0}", "{0:acc}", found)))


def distance(scene: Scene) -> Bilingual:
    """It is two hundred kilometers from Berlin to Hamburg."""
    start = scene.pick(draw.CITIES)
    goal = scene.pick([city for city in draw.CITIES if city != start])
    length = scene.between(2, 99) if scene.chance(0.4) else scene.between(100, 1900)
    said = "it is {0} kilometers from {1} to {2}."
    spoken = "von {1} nach {2} sind es {0} Kilometer."
    return say(said, spoken, numbers.number(length), start, goal)


def born(scene: Scene) -> Bilingual:
    """She was born in nineteen eighty-four: Sie wurde neunzehnhundertvierundachtzig geboren."""
    subject, when = draw.subject(scene), numbers.year(scene.between(1930, 2019))
    was = english.was(subject.agreement)
    wurde = german.auxiliary("preterite", "werden", subject.agreement)
    return say(f"{{0}} {was} born in {{1}}.", f"{{0}} {wurde} {{1}} geboren.", subject, when)


def timetable(scene: Scene) -> Bilingual:
    """The train to Berlin leaves at half past three: Der Zug nach Berlin fährt um halb vier ab."""
    moving, way, german_way = scene.pick(_TIMETABLE)
    city = scene.pick(draw.CITIES)
    entry = noun(scene.pick(("train", "bus", "ship")))
    vehicle = noun_phrase(entry, scene.pick((nominals.THE, nominals.EVERY)))
    subject = vehicle.with_tail(f" {way} {city.english}", f" {german_way} {city.german}")
    time = draw.clock(scene)
    clause = Clause(subject=subject, verb=moving, form=Form("present"), time=time)
    return time_first(clause, time) if scene.chance(0.35) else sentence(clause)
