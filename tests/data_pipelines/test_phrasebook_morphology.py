"""German and English word forms against tables written by hand."""

import pytest

from data_pipelines.phrasebook import english, german, modifiers, nominals, numbers
from data_pipelines.phrasebook.lexemes import CASES, Adjective, Agreement, Bilingual, Number
from data_pipelines.phrasebook.nominals import Determiner, Nominal
from data_pipelines.phrasebook.nouns import NOUNS, noun
from data_pipelines.phrasebook.verbs import VERBS, verb

MY = nominals.possessive("I")


def adjective(word: str) -> Adjective:
    return next(a for a in modifiers.ADJECTIVES if a.english == word)


def phrase(determiner: Determiner, *words: str, number: Number = "sg") -> Nominal:
    """The noun comes last, its adjectives before it."""
    *described, head = words
    adjectives = tuple(adjective(word) for word in described)
    return nominals.noun_phrase(noun(head), determiner, number=number, adjectives=adjectives)


# nominative, accusative, dative, genitive; masculine, feminine, neuter, plural
WITH_THE = """
der alte Mann   | die alte Frau   | das alte Haus    | die alten Türen
den alten Mann  | die alte Frau   | das alte Haus    | die alten Türen
dem alten Mann  | der alten Frau  | dem alten Haus   | den alten Türen
des alten Mannes | der alten Frau | des alten Hauses | der alten Türen
"""
WITH_MY = """
mein alter Mann   | meine alte Frau   | mein altes Haus    | meine alten Türen
meinen alten Mann | meine alte Frau   | mein altes Haus    | meine alten Türen
meinem alten Mann | meiner alten Frau | meinem alten Haus  | meinen alten Türen
meines alten Mannes | meiner alten Frau | meines alten Hauses | meiner alten Türen
"""
WITHOUT = """
alter Mann  | alte Frau  | altes Haus  | alte Türen
alten Mann  | alte Frau  | altes Haus  | alte Türen
altem Mann  | alter Frau | altem Haus  | alten Türen
alten Mannes | alter Frau | alten Hauses | alter Türen
"""


@pytest.mark.parametrize(
    ("determiner", "table"),
    [(nominals.THE, WITH_THE), (MY, WITH_MY), (nominals.BARE, WITHOUT)],
)
def test_adjective_endings(determiner, table):
    columns = [
        phrase(determiner, "old", "man"),
        phrase(determiner, "old", "woman"),
        phrase(determiner, "old", "house"),
        phrase(determiner, "old", "door", number="pl"),
    ]
    made = [[made.german[case] for made in columns] for case in CASES]
    assert made == [[c.strip() for c in row.split("|")] for row in table.strip().splitlines()]


def test_other_determiners_and_stems():
    assert phrase(nominals.A, "expensive", "watch").german["dat"] == "einer teuren Uhr"
    assert phrase(nominals.THE, "high", "tower").german["acc"] == "den hohen Turm"
    assert (
        phrase(nominals.MANY, "tired", "child", number="pl").german["dat"] == "vielen müden Kindern"
    )
    assert phrase(nominals.ALL, "new", "car", number="pl").german["nom"] == "alle neuen Autos"
    assert phrase(nominals.belonging_to("Anna"), "old", "dog").german["nom"] == "Annas alter Hund"
    assert phrase(nominals.possessive("ihr"), "cat").german["acc"] == "eure Katze"
    assert phrase(nominals.THE, "colleague").german["dat"] == "dem Kollegen"
    better = nominals.noun_phrase(noun("car"), nominals.A, stems=(("cheaper", "billiger"),))
    assert better.german["acc"] == "ein billigeres Auto"


@pytest.mark.parametrize(
    ("number", "said", "spoken"),
    [
        (0, "zero", "null"),
        (1, "one", "eins"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (21, "twenty-one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (67, "sixty-seven", "siebenundsechzig"),
        (76, "seventy-six", "sechsundsiebzig"),
        (101, "one hundred one", "einhunderteins"),
        (462, "four hundred sixty-two", "vierhundertzweiundsechzig"),
        (1000, "one thousand", "eintausend"),
        (2317, "two thousand three hundred seventeen", "zweitausenddreihundertsiebzehn"),
        (9999, "nine thousand nine hundred ninety-nine", "neuntausendneunhundertneunundneunzig"),
    ],
)
def test_numbers(number, said, spoken):
    assert numbers.number(number) == Bilingual(english=said, german=spoken)


def test_every_number_has_its_own_words():
    spelled = {(numbers.english_number(n), numbers.german_number(n)) for n in range(10_000)}
    assert len({e for e, _ in spelled}) == len({g for _, g in spelled}) == 10_000
    with pytest.raises(ValueError, match="10000"):
        numbers.german_number(10_000)


@pytest.mark.parametrize(
    ("hour", "minute", "said", "spoken"),
    [
        (1, 0, "one o'clock", "ein Uhr"),
        (3, 30, "half past three", "halb vier"),
        (12, 30, "half past twelve", "halb eins"),
        (4, 45, "a quarter to five", "Viertel vor fünf"),
        (1, 15, "a quarter past one", "Viertel nach eins"),
        (6, 10, "ten past six", "zehn nach sechs"),
        (12, 40, "twenty to one", "zwanzig vor eins"),
        (3, 25, "twenty-five past three", "fünf vor halb vier"),
        (3, 35, "twenty-five to four", "fünf nach halb vier"),
    ],
)
def test_times_of_day(hour, minute, said, spoken):
    assert numbers.clock(hour, minute) == Bilingual(english=said, german=spoken)


@pytest.mark.parametrize(
    ("value", "said", "spoken"),
    [
        (1984, "nineteen eighty-four", "neunzehnhundertvierundachtzig"),
        (2000, "two thousand", "zweitausend"),
        (2015, "twenty fifteen", "zweitausendfünfzehn"),
    ],
)
def test_years(value, said, spoken):
    assert numbers.year(value) == Bilingual(english=said, german=spoken)


# english | german | ich, du, er, ihr, imperative | infinitive with zu | participle
VERB_FORMS = """
call | anrufen | rufe rufst ruft ruft ruf | anzurufen | angerufen
invite | einladen | lade lädst lädt ladet lade | einzuladen | eingeladen
take | mitnehmen | nehme nimmst nimmt nehmt nimm | mitzunehmen | mitgenommen
prepare | vorbereiten | bereite bereitest bereitet bereitet bereite | vorzubereiten | vorbereitet
stop | anhalten | halte hältst hält haltet halte | anzuhalten | angehalten
try | anprobieren | probiere probierst probiert probiert probiere | anzuprobieren | anprobiert
eat | essen | esse isst isst esst iss | zu essen | gegessen
collect | sammeln | sammle sammelst sammelt sammelt sammle | zu sammeln | gesammelt
play | spielen | spiele spielst spielt spielt spiel | zu spielen | gespielt
draw | zeichnen | zeichne zeichnest zeichnet zeichnet zeichne | zu zeichnen | gezeichnet
visit | besuchen | besuche besuchst besucht besucht besuch | zu besuchen | besucht
show | zeigen | zeige zeigst zeigt zeigt zeig | zu zeigen | gezeigt
drive | losfahren | fahre fährst fährt fahrt fahr | loszufahren | losgefahren
"""
PERSONS: tuple[Agreement, ...] = ("ich", "du", "er", "ihr")


@pytest.mark.parametrize("row", VERB_FORMS.strip().splitlines())
def test_german_verbs(row):
    base, infinitive, forms, with_zu, participle = (cell.strip() for cell in row.split("|"))
    entry = verb(base, infinitive)
    made = [german.finite(entry, at) for at in PERSONS] + [german.imperative(entry, "du")]
    assert made == forms.split()
    assert (german.zu_infinitive(entry), entry.participle) == (with_zu, participle)


def test_english_forms():
    third = ("go", "watch", "tidy", "play", "have", "be")
    assert [english.present(v, "er") for v in third] == [
        "goes",
        "watches",
        "tidies",
        "plays",
        "has",
        "is",
    ]
    bases = ("write", "put", "lie", "see", "describe", "be")
    expected = ["writing", "putting", "lying", "seeing", "describing", "being"]
    assert [english.gerund(base) for base in bases] == expected
    follow = ("old hat", "university", "honest man", "umbrella", "useful plan")
    assert [english.article(f) for f in follow] == ["an", "a", "an", "an", "a"]
    compared = [english.comparison(adjective(w))[0] for w in ("big", "happy", "nice", "important")]
    assert compared == ["bigger", "happier", "nicer", "more important"]


def test_the_lexicon_is_large():
    assert len({entry.english for entry in NOUNS}) >= 150
    assert len(modifiers.ADJECTIVES) >= 60
    assert len(VERBS) >= 80
    assert sum(entry.separable for entry in VERBS) >= 20
