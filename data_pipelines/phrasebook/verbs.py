"""Verbs: principal parts of both languages, and the objects they take."""

from typing import Literal

from . import english
from .lexemes import Case, Government, Modal, Verb

# english[/past/participle][ particle] | [sich[:dat] ][prefix-]infinitive[, changed stem]
# | participle without prefix, "+": with sein | object | flags
#
# An object is [EN>[DE]] case classes, for example "for>auf acc person"; "give" and "to" stand for
# a recipient in the dative and an accusative. Flags: s no progressive, p at a place, m in a
# manner, x no passive, u nobody does it on purpose,
# l lasts.
_PEOPLE = """
call                    | an-rufen            | gerufen     | acc person         | x
pick up                 | ab-holen            | geholt      | acc person+packed  |
open                    | auf-machen          | gemacht     | acc openable       | m
close                   | zu-machen           | gemacht     | acc openable       | m
lock                    | ab-schließen        | geschlossen | acc locked         |
turn on                 | ein-schalten        | geschaltet  | acc device         |
turn off                | aus-schalten        | geschaltet  | acc device         |
put/put/put on          | an-ziehen           | gezogen     | acc clothing       | x
take/took/taken off     | aus-ziehen          | gezogen     | acc clothing       | x
go/went/gone shopping   | ein-kaufen          | gekauft     |                    | p
arrive                  | an-kommen           | gekommen+   |                    | p
come/came/come back     | zurück-kommen       | gekommen+   |                    |
get/got/gotten up       | auf-stehen          | gestanden+  |                    | m
fall/fell/fallen asleep | ein-schlafen, schläf | geschlafen+ |                   | pu
wake/woke/woken up      | auf-wachen          | gewacht+    |                    | u
go/went/gone out        | aus-gehen           | gegangen+   |                    |
drive/drove/driven off  | los-fahren, fähr    | gefahren+   |                    | m
give/gave/given back    | zurück-geben, gib   | gegeben     | to portable        |
bring/brought/brought back | zurück-bringen   | gebracht    | acc portable       |
invite                  | ein-laden, läd      | geladen     | acc person         |
tidy up                 | auf-räumen          | geräumt     | acc room           |
watch                   | sich:dat an-sehen, sieh | gesehen | acc show           | x
fill out                | aus-füllen          | gefüllt     | acc signed         |
throw/threw/thrown away | weg-werfen, wirf    | geworfen    | acc portable+food  |
take/took/taken along   | mit-nehmen, nimm    | genommen    | acc portable       | x
bring/brought/brought along | mit-bringen     | gebracht    | acc portable+food+drink | x
listen                  | zu-hören            | gehört      | to> dat person     | l
take/took/taken part    | teil-nehmen, nimm   | genommen    | in>an dat event    |
get/got/gotten          | ein-steigen         | gestiegen+  | on>in acc boarded |
get/got/gotten off      | aus-steigen         | gestiegen+  | >aus dat boarded   | x
prepare                 | vor-bereiten        | bereitet    | acc planned+event  |
suggest                 | vor-schlagen, schläg | geschlagen | to trip+plans |
introduce               | vor-stellen         | gestellt    | to person          |
read/read/read          | vor-lesen, lies     | gelesen     | recite text        | p
write/wrote/written down | auf-schreiben      | geschrieben | acc noted          |
give/gave/given up      | auf-geben, gib      | gegeben     | acc plans          |
hang/hung/hung up       | auf-hängen          | gehängt     | acc hung+clothing  |
unpack                  | aus-packen          | gepackt     | acc packed         | p
cancel                  | ab-sagen            | gesagt      | acc planned        |
look                    | an-schauen          | geschaut    | at> acc person+art | x
hand in                 | ab-geben, gib       | gegeben     | acc signed+written |
turn down               | ab-lehnen           | gelehnt     | acc plans+signed   |
rest                    | sich aus-ruhen      | geruht      |                    | pl
get/got/gotten dressed  | sich an-ziehen      | gezogen     |                    | m
look up                 | nach-schlagen, schläg | geschlagen | acc lookup        |
pack                    | ein-packen          | gepackt     | acc portable+clothing |
copy                    | ab-schreiben        | geschrieben | acc text+lexical   |
try on                  | an-probieren        | probiert    | acc clothing       | p
print                   | aus-drucken         | gedruckt    | acc written+signed |
borrow                  | sich:dat aus-leihen | geliehen    | acc text+vehicle   | x
warm up                 | auf-wärmen          | gewärmt     | acc cooked         |
put/put/put away        | weg-räumen          | geräumt     | acc portable       |
move in                 | ein-ziehen          | gezogen+    |                    |
move out                | aus-ziehen          | gezogen+    |                    |
set/set/set off         | auf-brechen, brich  | gebrochen+  |                    |
lie/lay/lain down       | sich hin-legen      | gelegt      |                    |
sit/sat/sat down        | sich hin-setzen     | gesetzt     |                    |
join in                 | mit-machen          | gemacht     |                    |
sing/sang/sung along    | mit-singen          | gesungen    |                    |
read/read/read          | lesen, lies         | gelesen     | acc text           | p
write/wrote/written     | schreiben           | geschrieben | acc written        | p
buy/bought/bought       | kaufen              | gekauft     | acc food+drink+goods | p
sell/sold/sold          | verkaufen           | verkauft    | acc goods+building |
order                   | bestellen           | bestellt    | acc food+drink     | p
eat/ate/eaten           | essen, iss          | gegessen    | acc food           | pm
drink/drank/drunk       | trinken             | getrunken   | acc drink          | pm
cook                    | kochen              | gekocht     | acc cooked         |
bake                    | backen              | gebacken    | acc baked          |
see/saw/seen            | sehen, sieh         | gesehen     | acc person+animal+vehicle | spx
find/found/found        | finden              | gefunden    | acc portable+person+animal | px
lose/lost/lost          | verlieren           | verloren    | acc portable       | pxus
repair                  | reparieren          | repariert   | acc device+vehicle+furniture | m
clean                   | putzen              | geputzt     | acc room+cleaned   | m
wash                    | waschen, wäsch      | gewaschen   | acc clothing+vehicle+fruit | m
visit                   | besuchen            | besucht     | acc person+visited |
understand/understood/understood | verstehen  | verstanden  | acc idea+text+person | sx
forget/forgot/forgotten | vergessen, vergiss  | vergessen   | acc portable+noted+person | xus
meet/met/met            | treffen, triff      | getroffen   | acc person         | px
need                    | brauchen            | gebraucht   | acc goods | sx
carry                   | tragen, träg        | getragen    | acc packed+furniture | m
build/built/built       | bauen               | gebaut      | acc built          |
break/broke/broken      | zerbrechen, zerbrich | zerbrochen | acc fragile        | u
steal/stole/stolen      | stehlen, stiehl     | gestohlen   | acc portable+vehicle | u
sign                    | unterschreiben      | unterschrieben | acc signed      |
translate               | übersetzen          | übersetzt   | acc text+lexical   | m
learn                   | lernen              | gelernt     | acc sung+learned+lexical |
sing/sang/sung          | singen              | gesungen    | acc sung           | pm
describe                | beschreiben         | beschrieben | acc place+art+person |
discuss                 | besprechen, besprich | besprochen | acc idea+text      | p
hide/hid/hidden         | verstecken          | versteckt   | acc portable       | p
feed/fed/fed            | füttern             | gefüttert   | acc animal         |
paint                   | malen               | gemalt      | acc painted+animal | pm
photograph              | fotografieren       | fotografiert | acc person+animal+building | p
organize                | organisieren        | organisiert | acc planned        |
postpone                | verschieben         | verschoben  | acc planned        |
correct                 | korrigieren         | korrigiert  | acc lexical+written+mistake |
look                    | suchen              | gesucht     | for> acc portable+person+animal | xl
give/gave/given         | geben, gib          | gegeben     | give portable      |
show/showed/shown       | zeigen              | gezeigt     | give portable+art+building+signed |
send/sent/sent          | schicken            | geschickt   | give written+portable |
lend/lent/lent          | leihen              | geliehen    | give portable+vehicle |
bring/brought/brought   | bringen             | gebracht    | give portable+food+drink |
explain                 | erklären            | erklärt     | to idea            |
tell/told/told          | erzählen            | erzählt     | give told          |
help                    | helfen, hilf        | geholfen    | dat person         |
thank                   | danken              | gedankt     | dat person         |
answer                  | antworten           | geantwortet | dat person         |
follow                  | folgen              | gefolgt+    | dat person+vehicle+animal | m
trust                   | vertrauen           | vertraut    | dat person         | s
congratulate            | gratulieren         | gratuliert  | dat person         |
wait                    | warten              | gewartet    | for>auf acc person+transit | pl
talk                    | sprechen, sprich    | gesprochen  | about>über acc idea+event+show | pl
talk                    | sprechen, sprich    | gesprochen  | to>mit dat person  | pl
think/thought/thought   | denken              | gedacht     | of>an acc person+planned |
dream/dreamed/dreamed   | träumen             | geträumt    | of>von dat vehicle+building+trip |
laugh                   | lachen              | gelacht     | about>über acc idea+show+art |
complain                | sich beschweren     | beschwert   | about>über acc cause+person+food |
look forward            | sich freuen         | gefreut     | to>auf acc planned+show |
remember                | sich erinnern       | erinnert    | >an acc person+trip+show | s
take/took/taken care    | sich kümmern        | gekümmert   | of>um acc person+animal | l
concentrate             | sich konzentrieren  | konzentriert | on>auf acc idea+text |
apologize               | sich entschuldigen  | entschuldigt | to>bei dat person |
play                    | spielen             | gespielt    | with>mit dat animal+person | pl
greet                   | begrüßen            | begrüßt     | acc person         | p
kiss                    | küssen              | geküsst     | acc person         | x
hug                     | umarmen             | umarmt      | acc person         | x
surprise                | überraschen         | überrascht  | acc person         |
convince                | überzeugen          | überzeugt   | acc person         |
warn                    | warnen              | gewarnt     | acc person         |
examine                 | untersuchen         | untersucht  | acc person+animal  | m
draw/drew/drawn         | zeichnen            | gezeichnet  | acc animal+building | pm
rent                    | mieten              | gemietet    | acc vehicle+building |
destroy                 | zerstören           | zerstört    | acc building+device | u
burn                    | verbrennen          | verbrannt   | acc text           | p
taste                   | probieren           | probiert    | acc food+drink     |
cut/cut/cut             | schneiden           | geschnitten | acc fruit          | m
peel                    | schälen             | geschält    | acc fruit          | m
collect                 | sammeln             | gesammelt   | acc collected      | x
deliver                 | liefern             | geliefert   | acc furniture+packed |
solve                   | lösen               | gelöst      | acc solved         |
admire                  | bewundern           | bewundert   | acc person+art+building |
love                    | lieben              | geliebt     | acc person+food+sung | sx
ask                     | fragen              | gefragt     | acc person         | x
believe                 | glauben             | geglaubt    | dat person         | s
rely                    | sich verlassen, verläss | verlassen | on>auf acc person | s
fall/fell/fallen in love | sich verlieben     | verliebt    | with>in acc person | u
get/got/gotten used     | sich gewöhnen       | gewöhnt     | to>an acc cause+person | u
argue                   | sich streiten       | gestritten  | with>mit dat person | pl
swim/swam/swum          | schwimmen           | geschwommen+ |                   | l
laugh                   | lachen              | gelacht     |                    | pl
travel                  | reisen              | gereist+    | direction          |
fly/flew/flown          | fliegen             | geflogen+   | direction          |
sleep/slept/slept       | schlafen, schläf    | geschlafen  |                    | pl
work                    | arbeiten            | gearbeitet  |                    | pl
sing/sang/sung          | singen              | gesungen    |                    | pm
dance                   | tanzen              | getanzt     |                    | pl
cry                     | weinen              | geweint     |                    | pu
smoke                   | rauchen             | geraucht    |                    | p
hurry                   | sich beeilen        | beeilt      |                    |
go/went/gone            | gehen               | gegangen+   | direction          | m
drive/drove/driven      | fahren, fähr        | gefahren+   | direction          | m
come/came/come          | kommen              | gekommen+   | direction          |
run/ran/run             | rennen              | gerannt+    | direction          |
live                    | wohnen              | gewohnt     | location           | s
stay                    | bleiben             | geblieben+  | location           | l
sit/sat/sat             | sitzen              | gesessen    | location           | l
stand/stood/stood       | stehen              | gestanden   | location           | l
"""

# Things that happen of themselves: the subject's classes come first.
_THINGS = """
leave/left/left         | ab-fahren, fähr     | gefahren+   | transit            |
arrive                  | an-kommen           | gekommen+   | transit            | p
stop                    | an-halten, hält     | gehalten    | transit            |
start                   | an-fangen, fäng     | gefangen    | event+show         |
end                     | enden               | geendet     | event+show         |
open                    | auf-gehen           | gegangen+   | openable           | u
take/took/taken place   | statt-finden        | gefunden    | event              | p
run/ran/run away        | weg-laufen, läuf    | gelaufen+   | animal             |
wake/woke/woken up      | auf-wachen          | gewacht+    | animal             | u
sleep/slept/slept       | schlafen, schläf    | geschlafen  | animal             | pl
break/broke/broken down | kaputt-gehen        | gegangen+   | device+vehicle     | u
fall/fell/fallen down   | herunter-fallen, fäll | gefallen+ | portable           | u
begin/began/begun       | beginnen            | begonnen    | event+show         |
disappear               | verschwinden        | verschwunden+ | animal+portable  | u
burn                    | brennen             | gebrannt    | building+vehicle   | u
"""

_GROUPS = {"goods": ("clothing", "thing", "furniture", "vehicle", "device")}
_RECIPIENT: dict[str, Literal["bare", "to"]] = {"give": "bare", "to": "to", "recite": "to"}
_CASES: dict[str, Case] = {"acc": "acc", "dat": "dat"}


def _english_parts(forms: str) -> tuple[str, str, str, str]:
    parts, _, particle = forms.strip().partition(" ")
    base, *irregular = parts.split("/")
    regular = english.regular_past(base)
    past, participle = irregular or (regular, regular)
    return base, past, participle, particle


def _government(text: str) -> Government | None:
    """`for>auf acc person+transit`, `acc text`, `give portable`; None without an object."""
    words = text.split()
    if len(words) < 2:
        return None
    prepositions = words[0] if ">" in words[0] else ">"
    english_preposition, german_preposition = prepositions.split(">")
    case = next((word for word in words if word in _CASES), "acc")
    return Government(
        english_preposition=english_preposition,
        german_preposition=german_preposition,
        case=_CASES[case],
        classes=tuple(k for kind in words[-1].split("+") for k in _GROUPS.get(kind, (kind,))),
    )


def _german_parts(text: str) -> tuple[Literal["", "acc", "dat"], str, str, str]:
    head, _, changed = text.strip().partition(", ")
    *sich, verb = head.split()
    prefix, _, infinitive = verb.rpartition("-")
    reflexive = "" if not sich else "dat" if sich[0] == "sich:dat" else "acc"
    return reflexive, prefix, infinitive, changed


def _verb(row: str, subject: tuple[str, ...] | None) -> Verb:
    """One line of a table; without a `subject`, the fourth column names its classes."""
    forms, german, participle, frame, flags = (cell.strip() for cell in row.split("|"))
    base, past, english_participle, particle = _english_parts(forms)
    reflexive, prefix, infinitive, changed = _german_parts(german)
    words = frame.split() if subject else []
    complements: dict[str, Literal["direction", "location"]] = {
        "direction": "direction",
        "location": "location",
    }
    return Verb(
        english=base,
        english_past=past,
        english_participle=english_participle,
        particle=particle,
        infinitive=infinitive,
        prefix=prefix,
        changed_stem=changed,
        participle=prefix + participle.removesuffix("+"),
        auxiliary="sein" if participle.endswith("+") else "haben",
        reflexive=reflexive,
        subject=subject or tuple(frame.split("+")),
        object=_government(frame) if subject else None,
        recipient=_RECIPIENT.get(words[0], "") if len(words) == 2 else "",
        complement=complements.get(frame, ""),
        flags=flags,
    )


VERBS = tuple(_verb(row, ("person",)) for row in _PEOPLE.strip().splitlines()) + tuple(
    _verb(row, None) for row in _THINGS.strip().splitlines()
)


def matrix(forms: str, german: str, participle: str, *, case: Case | None = None) -> Verb:
    """A verb outside the tables, for a construction of its own; `case` is its object's."""
    row = f"{forms} | {german} | {participle} | {f'{case} thing' if case else ''} | sx"
    return _verb(row, ("person",))


BE = matrix("be/was/been", "sein", "gewesen+")
HAVE = matrix("have/had/had", "haben", "gehabt")
COST = matrix("cost/cost/cost", "kosten", "gekostet")
LIKE = matrix("like", "gefallen, gefäll", "gefallen", case="dat")
BELONG = _verb("belong | gehören | gehört | to> dat person | sx", ("thing",))
PAY = matrix("pay/paid/paid", "bezahlen", "bezahlt")
TURN = matrix("turn", "werden", "geworden+")
KNOW_SOMEBODY = matrix("know/knew/known", "kennen", "gekannt", case="acc")
KNOW = matrix("know/knew/known", "wissen", "gewusst")
HEAR = matrix("hear/heard/heard", "hören", "gehört")
ASK = matrix("ask", "fragen", "gefragt")
WONDER = matrix("wonder", "sich fragen", "gefragt")
FORGET = matrix("forget/forgot/forgotten", "vergessen, vergiss", "vergessen")
SAYING = (
    KNOW,
    matrix("think/thought/thought", "denken", "gedacht"),
    matrix("believe", "glauben", "geglaubt"),
    matrix("hope", "hoffen", "gehofft"),
    matrix("say/said/said", "sagen", "gesagt"),
)


def verb(english_base: str, german: str) -> Verb:
    """The entry of that English base and German infinitive, prefix included."""
    found = [v for v in VERBS if v.english == english_base and v.prefix + v.infinitive == german]
    return found[0]


NEED = verb("need", "brauchen")

CAN = Modal(
    english="can",
    english_past="could",
    german=("kann", "kannst", "kann", "können", "könnt", "können"),
    german_past=("konnte", "konntest", "konnte", "konnten", "konntet", "konnten"),
    infinitive="können",
)
MUST = Modal(
    english="must",
    english_past="",
    german=("muss", "musst", "muss", "müssen", "müsst", "müssen"),
    german_past=(),
    infinitive="müssen",
)
HAVE_TO = Modal(
    english="have to",
    english_past="had to",
    german=MUST.german,
    german_past=("musste", "musstest", "musste", "mussten", "musstet", "mussten"),
    infinitive="müssen",
)
WANT = Modal(
    english="want to",
    english_past="wanted to",
    german=("will", "willst", "will", "wollen", "wollt", "wollen"),
    german_past=("wollte", "wolltest", "wollte", "wollten", "wolltet", "wollten"),
    infinitive="wollen",
)
SHOULD = Modal(
    english="should",
    english_past="",
    german=("sollte", "solltest", "sollte", "sollten", "solltet", "sollten"),
    german_past=(),
    infinitive="sollen",
)
WOULD_LIKE = Modal(
    english="would like to",
    english_past="",
    german=("möchte", "möchtest", "möchte", "möchten", "möchtet", "möchten"),
    german_past=(),
    infinitive="mögen",
)
ALLOWED = Modal(
    english="be allowed to",
    english_past="was allowed to",
    german=("darf", "darfst", "darf", "dürfen", "dürft", "dürfen"),
    german_past=("durfte", "durftest", "durfte", "durften", "durftet", "durften"),
    infinitive="dürfen",
)
MODALS = (CAN, MUST, HAVE_TO, WANT, SHOULD, WOULD_LIKE, ALLOWED)
PAST_MODALS = (CAN, HAVE_TO, WANT, ALLOWED)
