"""Nouns and places: English, German with article and plural, and what kind of thing it is."""

from functools import cache

from . import english
from .lexemes import Gender, Noun, Place

# english[/plural, "-" if none] | article German/plural[, "+": weak declension] | classes
_NOUNS = """
man/men               | der Mann/Männer                | person
woman/women           | die Frau/Frauen                | person
child/children        | das Kind/Kinder                | person
boy                   | der Junge/Jungen+              | person
girl                  | das Mädchen/Mädchen            | person
teacher               | der Lehrer/Lehrer              | person role own
doctor                | der Arzt/Ärzte                 | person role own
nurse                 | die Krankenschwester/Krankenschwestern | person role
neighbor              | der Nachbar/Nachbarn+          | person role own
colleague             | der Kollege/Kollegen+          | person role own
student               | der Student/Studenten+         | person role
customer              | der Kunde/Kunden+              | person role own
boss/bosses           | der Chef/Chefs                 | person role own
waiter                | der Kellner/Kellner            | person role
policeman/policemen   | der Polizist/Polizisten+       | person role
guest                 | der Gast/Gäste                 | person role own
friend                | der Freund/Freunde             | person role own
lawyer                | der Anwalt/Anwälte             | person role own
baker                 | der Bäcker/Bäcker              | person role
farmer                | der Bauer/Bauern+              | person role
engineer              | der Ingenieur/Ingenieure       | person role
secretary             | die Sekretärin/Sekretärinnen   | person role own
actress/actresses     | die Schauspielerin/Schauspielerinnen | person role
tourist               | der Tourist/Touristen+         | person role
driver                | der Fahrer/Fahrer              | person role own
musician              | der Musiker/Musiker            | person role
gardener              | der Gärtner/Gärtner            | person role own
painter               | der Maler/Maler                | person role
brother               | der Bruder/Brüder              | person kin
sister                | die Schwester/Schwestern       | person kin
mother                | die Mutter/Mütter              | person kin only
father                | der Vater/Väter                | person kin only
aunt                  | die Tante/Tanten               | person kin
uncle                 | der Onkel/Onkel                | person kin
daughter              | die Tochter/Töchter            | person kin
son                   | der Sohn/Söhne                 | person kin
grandmother           | die Großmutter/Großmütter      | person kin only
grandfather           | der Großvater/Großväter        | person kin only
dog                   | der Hund/Hunde                 | animal
cat                   | die Katze/Katzen               | animal
horse                 | das Pferd/Pferde               | animal
bird                  | der Vogel/Vögel                | animal
rabbit                | das Kaninchen/Kaninchen        | animal
cow                   | die Kuh/Kühe                   | animal
donkey                | der Esel/Esel                  | animal
duck                  | die Ente/Enten                 | animal
apple                 | der Apfel/Äpfel                | food fruit
banana                | die Banane/Bananen             | food fruit
pear                  | die Birne/Birnen               | food fruit
tomato/tomatoes       | die Tomate/Tomaten             | food fruit
potato/potatoes       | die Kartoffel/Kartoffeln       | food cooked
egg                   | das Ei/Eier                    | food cooked
soup                  | die Suppe/Suppen               | food cooked
fish/fish             | der Fisch/Fische               | food cooked
sausage               | die Wurst/Würste               | food
cake                  | der Kuchen/Kuchen              | food baked
cookie                | der Keks/Kekse                 | food baked
pizza                 | die Pizza/Pizzas               | food baked
salad                 | der Salat/Salate               | food
bread/-               | das Brot/-                     | food baked
cheese/-              | der Käse/-                     | food
meat/-                | das Fleisch/-                  | food cooked
rice/-                | der Reis/-                     | food cooked
chocolate/-           | die Schokolade/-               | food
water/-               | das Wasser/-                   | drink
coffee/-              | der Kaffee/-                   | drink
tea/-                 | der Tee/-                      | drink
milk/-                | die Milch/-                    | drink
beer/-                | das Bier/-                     | drink
wine/-                | der Wein/-                     | drink
juice/-               | der Saft/-                     | drink
book                  | das Buch/Bücher                | text portable
newspaper             | die Zeitung/Zeitungen          | text portable
letter                | der Brief/Briefe               | text portable written
novel                 | der Roman/Romane               | text portable written
article               | der Artikel/Artikel            | text written
report                | der Bericht/Berichte           | text written
magazine              | die Zeitschrift/Zeitschriften  | text portable
message               | die Nachricht/Nachrichten      | text written
poem                  | das Gedicht/Gedichte           | text written learned
contract              | der Vertrag/Verträge           | text written signed
email                 | die E-Mail/E-Mails             | text written
postcard              | die Postkarte/Postkarten       | text portable written collected
form                  | das Formular/Formulare         | signed
application           | der Antrag/Anträge             | signed
coat                  | der Mantel/Mäntel              | clothing
shirt                 | das Hemd/Hemden                | clothing
dress/dresses         | das Kleid/Kleider              | clothing
jacket                | die Jacke/Jacken               | clothing
skirt                 | der Rock/Röcke                 | clothing
sweater               | der Pullover/Pullover          | clothing
suit                  | der Anzug/Anzüge               | clothing
uniform               | die Uniform/Uniformen           | clothing
lamp                  | die Lampe/Lampen               | device portable
computer              | der Computer/Computer          | device
radio                 | das Radio/Radios               | device
television            | der Fernseher/Fernseher        | device
heater                | die Heizung/Heizungen          | device
washing machine       | die Waschmaschine/Waschmaschinen | device
camera                | die Kamera/Kameras             | device portable
machine               | die Maschine/Maschinen         | device
door                  | die Tür/Türen                  | openable locked
window                | das Fenster/Fenster            | openable cleaned
box/boxes             | die Kiste/Kisten               | openable portable packed
suitcase              | der Koffer/Koffer              | openable portable packed locked
bottle                | die Flasche/Flaschen           | openable portable
drawer                | die Schublade/Schubladen       | openable locked
gate                  | das Tor/Tore                   | openable locked
package               | das Paket/Pakete               | openable portable packed
bag                   | die Tasche/Taschen             | openable portable packed
car                   | das Auto/Autos                 | vehicle
bicycle               | das Fahrrad/Fahrräder          | vehicle
truck                 | der Lastwagen/Lastwagen        | vehicle
motorcycle            | das Motorrad/Motorräder        | vehicle
boat                  | das Boot/Boote                 | vehicle built
bus/buses             | der Bus/Busse                  | transit boarded
train                 | der Zug/Züge                   | transit boarded
ship                  | das Schiff/Schiffe             | transit built
tram                  | die Straßenbahn/Straßenbahnen  | transit boarded
key                   | der Schlüssel/Schlüssel        | thing portable
ring                  | der Ring/Ringe                 | thing portable
cup                   | die Tasse/Tassen               | thing portable fragile
glass/glasses         | das Glas/Gläser                | thing portable fragile
plate                 | der Teller/Teller              | thing portable fragile
mirror                | der Spiegel/Spiegel            | thing fragile hung cleaned
knife/knives          | das Messer/Messer              | thing portable
umbrella              | der Regenschirm/Regenschirme   | thing portable
watch/watches         | die Uhr/Uhren                  | thing portable
ball                  | der Ball/Bälle                 | thing portable
flower                | die Blume/Blumen               | thing portable
picture               | das Bild/Bilder                | thing hung art painted
photo                 | das Foto/Fotos                 | thing portable hung art
gift                  | das Geschenk/Geschenke         | thing portable packed
ticket                | die Fahrkarte/Fahrkarten       | thing portable
map                   | die Landkarte/Landkarten       | thing portable hung collected
candle                | die Kerze/Kerzen               | thing portable
pencil                | der Bleistift/Bleistifte       | thing portable
guitar                | die Gitarre/Gitarren           | thing portable
blanket               | die Decke/Decken               | thing portable
basket                | der Korb/Körbe                 | thing portable
ladder                | die Leiter/Leitern             | thing
table                 | der Tisch/Tische               | furniture
chair                 | der Stuhl/Stühle               | furniture
bed                   | das Bett/Betten                | furniture
sofa                  | das Sofa/Sofas                 | furniture
shelf/shelves         | das Regal/Regale               | furniture
armchair              | der Sessel/Sessel              | furniture
carpet                | der Teppich/Teppiche           | furniture
house                 | das Haus/Häuser                | building built locked
apartment             | die Wohnung/Wohnungen          | building room locked
bridge                | die Brücke/Brücken             | built
tower                 | der Turm/Türme                 | building built visited
castle                | das Schloss/Schlösser          | building visited
factory/factories     | die Fabrik/Fabriken            | building built visited
wall                  | die Mauer/Mauern               | built
room                  | das Zimmer/Zimmer              | room
meeting               | die Besprechung/Besprechungen  | event planned
concert               | das Konzert/Konzerte           | event planned show
course                | der Kurs/Kurse                 | event
party/parties         | die Party/Partys               | event planned
exam                  | die Prüfung/Prüfungen          | event
lecture               | der Vortrag/Vorträge           | event planned
wedding               | die Hochzeit/Hochzeiten        | event planned
conference            | die Konferenz/Konferenzen      | event planned
movie                 | der Film/Filme                 | show
game                  | das Spiel/Spiele               | show
trip                  | die Reise/Reisen               | planned trip
question              | die Frage/Fragen               | idea
problem               | das Problem/Probleme           | idea solved
plan                  | der Plan/Pläne                 | idea plans
idea                  | die Idee/Ideen                 | idea plans
story/stories         | die Geschichte/Geschichten     | idea told
mistake               | der Fehler/Fehler              | idea mistake
rule                  | die Regel/Regeln               | idea lookup
sentence              | der Satz/Sätze                 | idea noted lexical
word                  | das Wort/Wörter                | idea noted lexical lookup
song                  | das Lied/Lieder                | sung
hymn                  | die Hymne/Hymnen               | sung
lullaby/lullabies     | das Schlaflied/Schlaflieder    | sung
melody/melodies       | die Melodie/Melodien           | sung
appointment           | der Termin/Termine             | planned noted
cook                  | der Koch/Köche                 | person role
butcher               | der Metzger/Metzger            | person role
journalist            | der Journalist/Journalisten+   | person role
soldier               | der Soldat/Soldaten+           | person role
author                | der Autor/Autoren              | person role
hairdresser           | der Friseur/Friseure           | person role own
pilot                 | der Pilot/Piloten+             | person role
singer                | der Sänger/Sänger              | person role
princess/princesses   | die Prinzessin/Prinzessinnen   | person role
scientist             | der Wissenschaftler/Wissenschaftler | person role
salesman/salesmen     | der Verkäufer/Verkäufer        | person role
judge                 | der Richter/Richter            | person role
cousin                | der Cousin/Cousins             | person kin
niece                 | die Nichte/Nichten             | person kin
nephew                | der Neffe/Neffen+              | person kin
pig                   | das Schwein/Schweine           | animal
goat                  | die Ziege/Ziegen               | animal
bear                  | der Bär/Bären+                 | animal wild
mouse/mice            | die Maus/Mäuse                 | animal
elephant              | der Elefant/Elefanten+         | animal wild
lion                  | der Löwe/Löwen+                | animal wild
chicken               | das Huhn/Hühner                | animal
orange                | die Orange/Orangen             | food fruit
carrot                | die Karotte/Karotten           | food fruit
strawberry/strawberries | die Erdbeere/Erdbeeren       | food fruit
roll                  | das Brötchen/Brötchen          | food baked
butter/-              | die Butter/-                   | food
honey/-               | der Honig/-                    | food
lemonade/-            | die Limonade/-                 | drink
dictionary/dictionaries | das Wörterbuch/Wörterbücher  | portable bound
diary/diaries         | das Tagebuch/Tagebücher        | text portable
invitation            | die Einladung/Einladungen      | text written
fairy tale            | das Märchen/Märchen            | text told
joke                  | der Witz/Witze                 | told
blouse                | die Bluse/Blusen               | clothing
vest                  | die Weste/Westen               | clothing
costume               | das Kostüm/Kostüme             | clothing
printer               | der Drucker/Drucker            | device
fan                   | der Ventilator/Ventilatoren    | device
oven                  | der Ofen/Öfen                  | device
dishwasher            | die Spülmaschine/Spülmaschinen | device
fork                  | die Gabel/Gabeln               | thing portable
spoon                 | der Löffel/Löffel              | thing portable
pot                   | der Topf/Töpfe                 | thing portable
bucket                | der Eimer/Eimer                | thing portable
hammer                | der Hammer/Hämmer              | thing portable
needle                | die Nadel/Nadeln               | thing portable
stamp                 | die Briefmarke/Briefmarken     | thing portable collected
coin                  | die Münze/Münzen               | thing portable collected
vase                  | die Vase/Vasen                 | thing portable fragile
pillow                | das Kissen/Kissen              | thing portable
rope                  | das Seil/Seile                 | thing portable
drum                  | die Trommel/Trommeln           | thing portable
flute                 | die Flöte/Flöten               | thing portable
violin                | die Geige/Geigen               | thing portable
doll                  | die Puppe/Puppen               | thing portable
desk                  | der Schreibtisch/Schreibtische | furniture
wardrobe              | der Kleiderschrank/Kleiderschränke | furniture
bench/benches         | die Bank/Bänke                 | furniture
hut                   | die Hütte/Hütten               | building built locked
garage                | die Garage/Garagen             | building built locked
barn                  | die Scheune/Scheunen           | building built locked
subway                | die U-Bahn/U-Bahnen            | transit boarded
ferry/ferries         | die Fähre/Fähren               | transit
seminar               | das Seminar/Seminare           | event planned
festival              | das Festival/Festivals         | event planned
auction               | die Auktion/Auktionen          | event planned
play                  | das Theaterstück/Theaterstücke | show
riddle                | das Rätsel/Rätsel              | idea solved
answer                | die Antwort/Antworten          | idea
decision              | die Entscheidung/Entscheidungen | idea
result                | das Ergebnis/Ergebnisse        | idea noted
weather/-             | das Wetter/-                   | cause
rain/-                | der Regen/-                    | cause
snow/-                | der Schnee/-                   | cause
noise/-               | der Lärm/-                     | cause
storm                 | der Sturm/Stürme               | cause
cold/-                | die Kälte/-                    | cause
heat/-                | die Hitze/-                    | cause
traffic/-             | der Verkehr/-                  | cause
"""

# english[/plural] | article German/plural | English at, to | German at, to [| classes]
_PLACES = """
kitchen               | die Küche/Küchen               | in into | in in | room indoors near
garden                | der Garten/Gärten              | in into | in in | outdoors near
office                | das Büro/Büros                 | in to   | in in | room indoors near
park                  | der Park/Parks                 | in to   | in in | outdoors
station               | der Bahnhof/Bahnhöfe           | at to   | an zu | stop
airport               | der Flughafen/Flughäfen        | at to   | an zu | stop
restaurant            | das Restaurant/Restaurants     | in to   | in in | indoors
hospital              | das Krankenhaus/Krankenhäuser  | in to   | in in | indoors
library/libraries     | die Bibliothek/Bibliotheken    | in to   | in in | indoors
museum                | das Museum/Museen              | in to   | in in | visited indoors
theater               | das Theater/Theater            | in to   | in in | indoors
supermarket           | der Supermarkt/Supermärkte     | in to   | in in | indoors
market                | der Markt/Märkte               | at to   | auf auf | outdoors
bakery/bakeries       | die Bäckerei/Bäckereien        | in to   | in zu | indoors
pharmacy/pharmacies   | die Apotheke/Apotheken         | in to   | in zu | indoors
beach/beaches         | der Strand/Strände             | at to   | an an | outdoors
lake                  | der See/Seen                   | at to   | an an | outdoors
forest                | der Wald/Wälder                | in into | in in | outdoors
city/cities           | die Stadt/Städte               | in into | in in | visited home
village               | das Dorf/Dörfer                | in to   | in in | visited outdoors home
hotel                 | das Hotel/Hotels               | in to   | in in | indoors home stop
university/universities | die Universität/Universitäten | at to  | an zu | visited
church/churches       | die Kirche/Kirchen             | in to   | in in | visited indoors
basement              | der Keller/Keller              | in into | in in | room indoors near
living room           | das Wohnzimmer/Wohnzimmer      | in into | in in | room indoors near
café                  | das Café/Cafés                 | in to   | in in | indoors
movie theater         | das Kino/Kinos                 | in to   | in in | indoors
farm                  | der Bauernhof/Bauernhöfe       | on to   | auf auf | outdoors home
island                | die Insel/Inseln               | on to   | auf auf | outdoors home
harbor                | der Hafen/Häfen                | at to   | an zu | stop
stadium               | das Stadion/Stadien            | in to   | in in |
gas station           | die Tankstelle/Tankstellen     | at to   | an zu | stop
river                 | der Fluss/Flüsse               | at to   | an an | outdoors
attic                 | der Dachboden/Dachböden        | in into | auf auf | indoors near
bathroom              | das Badezimmer/Badezimmer      | in into | in in | room indoors near
bedroom               | das Schlafzimmer/Schlafzimmer  | in into | in in | room indoors near
school                | die Schule/Schulen             | at to   | in in | visited indoors
zoo                   | der Zoo/Zoos                   | at to   | in in | visited outdoors
"""

_ARTICLES: dict[str, Gender] = {"der": "m", "die": "f", "das": "n"}


def _noun(english_forms: str, german_forms: str, classes: tuple[str, ...]) -> Noun:
    singular, _, plural = english_forms.strip().partition("/")
    article, _, german = german_forms.strip().partition(" ")
    german_singular, german_plural = german.removesuffix("+").split("/")
    return Noun(
        english=singular,
        english_plural="" if plural == "-" else plural or english.regular_plural(singular),
        german=german_singular,
        german_plural=german_plural,
        gender=_ARTICLES[article],
        weak=german.endswith("+"),
        classes=classes,
    )


def _rows(table: str) -> list[list[str]]:
    return [line.split("|") for line in table.strip().splitlines()]


def _place(forms: str, german: str, english_way: str, german_way: str, classes: str = "") -> Place:
    english_at, english_to = english_way.split()
    german_at, german_to = german_way.split()
    return Place(
        noun=_noun(forms, german, ("place", *classes.split())),
        english_at=english_at,
        english_to=english_to,
        german_at=german_at,
        german_to=german_to,
    )


PLACES = tuple(_place(*row) for row in _rows(_PLACES))
NOUNS = tuple(_noun(row[0], row[1], tuple(row[2].split())) for row in _rows(_NOUNS)) + tuple(
    place.noun for place in PLACES
)


@cache
def nouns_of(classes: tuple[str, ...]) -> tuple[Noun, ...]:
    """Every noun that is of one of the classes, in the order of the table."""
    return tuple(noun for noun in NOUNS if any(kind in noun.classes for kind in classes))


@cache
def noun(singular: str) -> Noun:
    """The noun of that English name."""
    return next(entry for entry in NOUNS if entry.english == singular)
