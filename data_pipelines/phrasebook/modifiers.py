"""Adjectives, adverbials, names and places that carry no article."""

from .lexemes import Adjective, Bilingual

# english | german[, stem][; comparative superlative] | classes of the nouns it goes with.
# The groups stand in the order in which both languages put adjectives before a noun.
_OPINION = """
beautiful    | schön                          | goods building place art animal
ugly         | hässlich                       | goods building art
expensive    | teuer, teur; teurer teuerst    | goods building drink trip hotel
cheap        | billig                         | goods drink
interesting  | interessant                    | text event show idea art
boring       | langweilig                     | text event show
important    | wichtig                        | text event idea appointment signed
difficult    | schwierig                      | exam question idea lexical text
strange      | seltsam                        | person told idea show song thing
famous       | berühmt                        | person song poem art show castle tower church museum
friendly     | freundlich                     | person
nice         | nett                           | person
smart        | klug; klüger klügst            | person animal
lazy         | faul                           | person animal
polite       | höflich                        | person
patient      | geduldig                       | person
curious      | neugierig                      | person animal
brave        | mutig                          | person
shy          | schüchtern                     | person animal
quiet        | ruhig                          | place room person
dangerous    | gefährlich                     | wild dog vehicle trip plan game bridge storm
delicious    | lecker                         | food
comfortable  | bequem                         | furniture clothing
elegant      | elegant                        | clothing furniture
funny        | lustig                         | told show person sung letter book novel message
sad          | traurig                        | told sung show letter novel message
strict       | streng                         | role rule
nervous      | nervös                         | person
valuable     | wertvoll                       | thing art
useful       | nützlich                       | device bound plan rule answer result
simple       | einfach                        | idea lexical
terrible     | schrecklich                    | event show trip cause
wonderful    | wunderbar                      | event show trip place
generous     | großzügig                      | person
honest       | ehrlich                        | person
cheerful     | fröhlich                       | person
serious      | ernst                          | person
loyal        | treu                           | role dog
wild         | wild                           | wild horse
happy        | glücklich                      | person
"""
_SIZE = """
big          | groß; größer größt             | goods building animal openable place food
small        | klein                          | goods building animal openable place food
long         | lang; länger längst            | text show trip lexical bridge told meeting lecture
short        | kurz; kürzer kürzest           | text show trip lexical told meeting lecture
heavy        | schwer                         | packed furniture device
light        | leicht                         | packed furniture
thick        | dick                           | book dictionary novel blanket letter carpet
thin         | dünn                           | book novel magazine blanket
tall         | groß; größer größt             | kin role
high         | hoch, hoh; höher höchst        | tower wall bridge
wide         | breit                          | furniture openable
narrow       | schmal; schmaler schmalst      | furniture openable bridge
strong       | stark; stärker stärkst         | person horse coffee tea
weak         | schwach; schwächer schwächst   | coffee tea
"""
_STATE = """
warm         | warm; wärmer wärmst            | clothing blanket soup room
cold         | kalt; kälter kältest           | drink soup room
hot          | heiß                           | soup coffee tea
ripe         | reif                           | fruit
salty        | salzig                         | soup cheese sausage
bitter       | bitter                         | coffee tea chocolate
sharp        | scharf; schärfer schärfst      | knife
colorful     | bunt                           | clothing flower ball blanket
fresh        | frisch                         | fruit fish bread milk salad egg
sweet        | süß                            | fruit baked wine juice
sour         | sauer, saur; saurer sauerst    | fruit milk
dry          | trocken                        | clothing baked wine
wet          | nass                           | clothing blanket animal
dirty        | schmutzig                      | clothing vehicle fragile room cleaned animal
clean        | sauber                         | clothing vehicle fragile room cleaned
broken       | kaputt                         | device vehicle furniture fragile umbrella watch
empty        | leer                           | packed bottle fragile room building
full         | voll                           | packed bottle fragile basket transit
loud         | laut                           | device transit party concert
dark         | dunkel, dunkl; dunkler dunkelst | room forest
bright       | hell                           | room lamp
modern       | modern                         | device vehicle furniture building office art
old          | alt; älter ältest              | goods building animal text person place
new          | neu; neuer neuest              | goods building text own idea
young        | jung; jünger jüngst            | person animal
rich         | reich                          | role
poor         | arm; ärmer ärmst               | role
sick         | krank; kränker kränkst         | person animal
healthy      | gesund; gesünder gesündest     | person animal
tired        | müde, müd                      | person animal
hungry       | hungrig                        | person animal
thirsty      | durstig                        | person animal
angry        | wütend; wütender wütendst      | person
proud        | stolz                          | person
"""
_COLOR = """
red          | rot                            | colored
blue         | blau                           | colored
green        | grün                           | colored
yellow       | gelb                           | colored
black        | schwarz                        | colored animal
white        | weiß                           | colored animal
brown        | braun                          | colored animal
gray         | grau                           | colored animal
"""

_UNGRADED = ("broken", "empty", "full")
_GOODS = ("clothing", "thing", "furniture", "vehicle", "device")
_PAINTED = ("clothing", "vehicle", "furniture", "packed", "openable", "fragile", "transit")
_THINGS = ("umbrella", "ball", "flower", "candle", "blanket", "basket", "lamp", "pencil")
_GROUPS = {"goods": _GOODS, "colored": _PAINTED + _THINGS}


def _regular(german: str) -> tuple[str, str]:
    stem = german.removesuffix("e")
    superlative = "est" if stem.endswith(("d", "t", "s", "ß", "z", "sch")) else "st"
    return stem + "er", stem + superlative


def _adjective(row: str, rank: int) -> Adjective:
    english, german, classes = (cell.strip() for cell in row.split("|"))
    forms, _, compared = german.partition("; ")
    positive, _, stem = forms.partition(", ")
    comparative, superlative = compared.split() if compared else _regular(positive)
    kinds = tuple(classes.split())
    for group, members in _GROUPS.items():
        kinds = (*kinds, *members) if group in kinds else kinds
    return Adjective(
        english=english,
        german=positive,
        stem=stem or positive,
        comparative="" if english in _UNGRADED else comparative,
        superlative="" if english in _UNGRADED else superlative,
        rank=rank,
        classes=kinds,
    )


COLORS = tuple(_adjective(row, 3) for row in _COLOR.strip().splitlines())
ADJECTIVES = (
    tuple(
        _adjective(row, rank)
        for rank, table in enumerate((_OPINION, _SIZE, _STATE))
        for row in table.strip().splitlines()
    )
    + COLORS
)


def _pairs(table: str) -> tuple[Bilingual, ...]:
    rows = (line.split("|") for line in table.strip().splitlines())
    return tuple(Bilingual(english=e.strip(), german=g.strip()) for e, g in rows)


PAST_TIMES = _pairs("""
yesterday            | gestern
last week            | letzte Woche
last night           | gestern Abend
this morning         | heute Morgen
last year            | letztes Jahr
last month           | letzten Monat
last summer          | letzten Sommer
last winter          | letzten Winter
yesterday morning    | gestern Morgen
the day before yesterday | vorgestern
back then            | damals
""")
FUTURE_TIMES = _pairs("""
tomorrow             | morgen
next week            | nächste Woche
tonight              | heute Abend
tomorrow evening     | morgen Abend
next month           | nächsten Monat
next year            | nächstes Jahr
next summer          | nächsten Sommer
soon                 | bald
the day after tomorrow | übermorgen
this weekend         | dieses Wochenende
later                | später
this afternoon       | heute Nachmittag
""")
NEAR_TIMES = tuple(t for t in FUTURE_TIMES if not t.english.startswith("next"))
PRESENT_TIMES = _pairs("""
now                  | jetzt
right now            | gerade
at the moment        | im Moment
today                | heute
""")
HABITS = _pairs("""
every day            | jeden Tag
every morning        | jeden Morgen
every evening        | jeden Abend
every week           | jede Woche
every year           | jedes Jahr
every month          | jeden Monat
on Sundays           | sonntags
on Mondays           | montags
in the evening       | abends
in winter            | im Winter
in summer            | im Sommer
""")
FREQUENCIES = _pairs("""
often                | oft
always               | immer
sometimes            | manchmal
rarely               | selten
usually              | meistens
never                | nie
""")
PERFECT_ADVERBS = _pairs("""
already              | schon
never                | noch nie
finally              | endlich
just                 | gerade
often                | oft
""")
MOODS = _pairs("""
unfortunately        | leider
perhaps              | vielleicht
of course            | natürlich
fortunately          | zum Glück
probably             | wahrscheinlich
""")
MANNERS = _pairs("""
quickly              | schnell
slowly               | langsam
carefully            | vorsichtig
quietly              | leise
patiently            | geduldig
immediately          | sofort
""")
LOCATIONS = _pairs("""
at home              | zu Hause
here                 | hier
there                | dort
outside              | draußen
in Berlin            | in Berlin
in Hamburg           | in Hamburg
in Munich            | in München
in Vienna            | in Wien
in Cologne           | in Köln
in Rome              | in Rom
in Paris             | in Paris
in London            | in London
in Dresden           | in Dresden
in Zurich            | in Zürich
in Prague            | in Prag
in Lisbon            | in Lissabon
""")
DIRECTIONS = _pairs("""
home                 | nach Hause
to Berlin            | nach Berlin
to Hamburg           | nach Hamburg
to Munich            | nach München
to Vienna            | nach Wien
to Cologne           | nach Köln
to Rome              | nach Rom
to Paris             | nach Paris
to London            | nach London
to Dresden           | nach Dresden
to Zurich            | nach Zürich
to Prague            | nach Prag
to Lisbon            | nach Lissabon
""")
WEEKDAYS = _pairs("""
Monday               | Montag
Tuesday              | Dienstag
Wednesday            | Mittwoch
Thursday             | Donnerstag
Friday               | Freitag
Saturday             | Samstag
Sunday               | Sonntag
""")
DAY_PARTS = _pairs("""
morning              | morgen
afternoon            | nachmittag
evening              | abend
""")
MONTHS = _pairs("""
January              | Januar
February             | Februar
March                | März
April                | April
May                  | Mai
June                 | Juni
July                 | Juli
August               | August
September            | September
October              | Oktober
November             | November
December             | Dezember
""")
CITIES = tuple(
    Bilingual(english=d.english.removeprefix("to "), german=d.german.removeprefix("nach "))
    for d in DIRECTIONS[1:]
)

_WOMEN = """
Anna Maria Julia Laura Sophie Lena Emma Clara Nina Eva Lisa Hannah Katharina Petra Monika Helga
Ingrid Susanne Christine Martha
"""
_MEN = """
Paul Peter Daniel Stefan David Martin Oskar Simon Robert Anton Jan Tim Leon Michael Karl Otto
Georg Walter Philipp Erik
"""
_SURNAMES = """
Weber Schmidt Fischer Wagner Becker Hoffmann Klein Neumann Schneider Krüger Lehmann Zimmermann
"""
WOMEN, MEN, SURNAMES = (tuple(names.split()) for names in (_WOMEN, _MEN, _SURNAMES))
