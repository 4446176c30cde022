"""The grammar against German and English written by hand, from knowledge of the languages."""

from dataclasses import replace
from typing import Literal

import pytest

from data_pipelines.phrasebook import modifiers, nominals
from data_pipelines.phrasebook import say_english as en
from data_pipelines.phrasebook import say_german as de
from data_pipelines.phrasebook.clauses import Clause, Form, Tense
from data_pipelines.phrasebook.frames_subordinate import Link, Order, joined
from data_pipelines.phrasebook.lexemes import Adjective, Bilingual, Modal, Number
from data_pipelines.phrasebook.nominals import Determiner, Nominal
from data_pipelines.phrasebook.nouns import noun
from data_pipelines.phrasebook.verbs import (
    ALLOWED,
    BE,
    BELONG,
    CAN,
    HAVE_TO,
    MUST,
    SHOULD,
    WANT,
    WOULD_LIKE,
    verb,
)

ME, YOU, HE, SHE, WE, THEY = (nominals.pronoun(k) for k in ("I", "du", "he", "she", "we", "they"))
POLITE, ALL_OF_YOU = nominals.pronoun("Sie"), nominals.pronoun("ihr")
ANNA, MR_WEBER = nominals.name("Anna", "f"), nominals.titled("Weber", "m")
MY, HIS, YOUR = (nominals.possessive(owner) for owner in ("I", "he", "du"))
PAST, PERFECT, FUTURE = (Form(tense=t) for t in ("past", "perfect", "future"))
NOW, PRESENT, HAD = (Form(tense=t) for t in ("progressive", "present", "pluperfect"))
BECAUSE, IF = Link(english="because", german="weil"), Link(english="if", german="wenn")
ALTHOUGH, AFTER = (
    Link(english="although", german="obwohl"),
    Link(english="after", german="nachdem"),
)


def text(english_text: str, german_text: str) -> Bilingual:
    return Bilingual(english=english_text, german=german_text)


TOMORROW, YESTERDAY = text("tomorrow", "morgen"), text("yesterday", "gestern")
EVERY_DAY, OFTEN = text("every day", "jeden Tag"), text("often", "oft")
ALREADY, HOME = text("already", "schon"), text("home", "nach Hause")
AT_THE_STATION = text("at the station", "am Bahnhof")


def adjective(word: str) -> Adjective:
    return next(a for a in modifiers.ADJECTIVES if a.english == word)


def some(determiner: Determiner, *words: str, number: Number = "sg") -> Nominal:
    """The noun comes last, its adjectives before it."""
    *described, head = words
    adjectives = tuple(adjective(word) for word in described)
    return nominals.noun_phrase(noun(head), determiner, number=number, adjectives=adjectives)


def the(*words: str, number: Number = "sg") -> Nominal:
    return some(nominals.THE, *words, number=number)


def a(*words: str) -> Nominal:
    return some(nominals.A, *words)


def clause(subject: Nominal, words: tuple[str, str], form: Form, obj=None, **rest) -> Clause:
    return Clause(subject=subject, verb=verb(*words), form=form, object=obj, **rest)


def modal(
    which: Modal, tense: Tense = "present", voice: Literal["active", "passive"] = "active"
) -> Form:
    return Form(tense=tense, modal=which, voice=voice)


def statement(c: Clause) -> tuple[str, str]:
    return en.statement(c), de.statement(c)


def question(c: Clause) -> tuple[str, str]:
    return en.question(c), de.question(c)


def fronted(c: Clause) -> tuple[str, str]:
    assert c.time
    rest = en.statement(replace(c, time=None))
    return f"{c.time.english} {rest}", de.main(c, c.time.german, "time")


def asked(word: str, german_word: str, c: Clause) -> tuple[str, str]:
    return f"{word} {en.question(c)}", de.main(c, german_word, "none")


def linked(link: Link, main: Clause, sub: Clause, order: Order = "after") -> tuple[str, str]:
    said = joined(link, main, sub, order)
    return said.english.rstrip("."), said.german.rstrip(".")


def told(c: Clause, please="bitte") -> tuple[str, str]:
    deny = "" if c.polarity == "yes" else "don't "
    return deny + en.infinitive(c), de.imperative(c, please)


def to(c: Clause) -> tuple[str, str]:
    return f"to {en.infinitive(c)}", de.zu_infinitive(c)


CALL, PICK_UP, OPEN = ("call", "anrufen"), ("pick", "abholen"), ("open", "aufmachen")
TURN_OFF, GET_UP, WATCH = ("turn", "ausschalten"), ("get", "aufstehen"), ("watch", "ansehen")
READ, BUY, EAT, GO = ("read", "lesen"), ("buy", "kaufen"), ("eat", "essen"), ("go", "gehen")
GIVE, EXPLAIN, HELP = ("give", "geben"), ("explain", "erklären"), ("help", "helfen")
WAIT, HURRY, REPAIR = ("wait", "warten"), ("hurry", "beeilen"), ("repair", "reparieren")
GIVE_BACK, TAKE_PART = ("give", "zurückgeben"), ("take", "teilnehmen")
SLEEP, STAY = ("sleep", "schlafen"), ("stay", "bleiben")
THE_LAMP, THE_BOOK, THE_CAR = the("lamp"), the("book"), the("car")
SICK = Clause(subject=HE, verb=BE, form=PRESENT, complement=text("sick", "krank"))
GAPPED = clause(ME, BUY, PAST, time=YESTERDAY, gap="object")
ARE_SLEEPING = clause(the("child", number="pl"), SLEEP, NOW)
PASSIVE = {t: Form(tense=t, voice="passive") for t in ("progressive", "past", "perfect")}

# fmt: off
PAIRS = [
    (statement(clause(ME, CALL, NOW, YOU, time=TOMORROW)),
     "I am calling you tomorrow", "ich rufe dich morgen an"),
    (statement(clause(SHE, CALL, PRESENT, HE, mid=OFTEN)),
     "she often calls him", "sie ruft ihn oft an"),
    (statement(clause(ANNA, PICK_UP, PAST, the("child"))),
     "Anna picked up the child", "Anna hat das Kind abgeholt"),
    (statement(clause(WE, PICK_UP, FUTURE, THEY, time=TOMORROW)),
     "we will pick them up tomorrow", "wir werden sie morgen abholen"),
    (statement(clause(THEY, GET_UP, PAST)), "they got up", "sie sind aufgestanden"),
    (statement(clause(ME, OPEN, modal(MUST), the("window"))),
     "I must open the window", "ich muss das Fenster aufmachen"),
    (statement(clause(HE, TURN_OFF, modal(CAN, "past"), THE_LAMP, polarity="no")),
     "he couldn't turn off the lamp", "er konnte die Lampe nicht ausschalten"),
    (statement(clause(ME, WATCH, PAST, a("movie"))),
     "I watched a movie", "ich habe mir einen Film angesehen"),
    (statement(clause(SHE, WATCH, NOW, the("game"))),
     "she is watching the game", "sie sieht sich das Spiel an"),
    (statement(clause(ME, GIVE, PAST, THE_BOOK, recipient=some(MY, "brother"))),
     "I gave my brother the book", "ich habe meinem Bruder das Buch gegeben"),
    (statement(clause(ME, GIVE, NOW, THE_BOOK, recipient=HE)),
     "I am giving him the book", "ich gebe ihm das Buch"),
    (statement(clause(HE, GIVE_BACK, PAST, some(YOUR, "book"), recipient=YOU)),
     "he gave your book back to you", "er hat dir dein Buch zurückgegeben"),
    (statement(clause(SHE, EXPLAIN, FUTURE, the("problem"), recipient=the("student"))),
     "she will explain the problem to the student", "sie wird dem Studenten das Problem erklären"),
    (statement(clause(ME, HELP, PRESENT, the("old", "neighbor"), time=EVERY_DAY)),
     "I help the old neighbor every day", "ich helfe jeden Tag dem alten Nachbarn"),
    (statement(clause(WE, WAIT, NOW, the("bus"), place=AT_THE_STATION)),
     "we are waiting for the bus at the station", "wir warten am Bahnhof auf den Bus"),
    (statement(clause(ME, WAIT, PAST, YOU, polarity="no")),
     "I didn't wait for you", "ich habe nicht auf dich gewartet"),
    (statement(clause(YOU, HURRY, modal(HAVE_TO))),
     "you have to hurry", "du musst dich beeilen"),
    (statement(clause(ALL_OF_YOU, HURRY, modal(SHOULD))),
     "you should hurry", "ihr solltet euch beeilen"),
    (statement(clause(THE_BOOK, ("disappear", "verschwinden"), PERFECT)),
     "the book has disappeared", "das Buch ist verschwunden"),
    (statement(clause(HE, READ, PERFECT, the("letter"), mid=ALREADY)),
     "he has already read the letter", "er hat den Brief schon gelesen"),
    (statement(clause(ME, READ, PAST, the("letter"), time=YESTERDAY, polarity="no")),
     "I didn't read the letter yesterday", "ich habe den Brief gestern nicht gelesen"),
    (statement(clause(SHE, READ, PERFECT, the("article"), polarity="not-yet")),
     "she hasn't read the article yet", "sie hat den Artikel noch nicht gelesen"),
    (statement(clause(HE, BUY, PAST, some(nominals.NOT_A, "new", "car"), polarity="no-kein")),
     "he didn't buy a new car", "er hat kein neues Auto gekauft"),
    (statement(clause(ME, EAT, PRESENT, some(nominals.NO, "meat"), polarity="no-kein")),
     "I don't eat any meat", "ich esse kein Fleisch"),
    (statement(clause(THEY, GO, FUTURE, complement=text("to the station", "zum Bahnhof"))),
     "they will go to the station", "sie werden zum Bahnhof gehen"),
    (statement(clause(SHE, GO, modal(WANT), complement=HOME, polarity="no")),
     "she doesn't want to go home", "sie will nicht nach Hause gehen"),
    (statement(clause(MR_WEBER, STAY, PAST, complement=text("at home", "zu Hause"))),
     "Mr. Weber stayed at home", "Herr Weber ist zu Hause geblieben"),
    (statement(clause(ME, ("apologize", "entschuldigen"), modal(WOULD_LIKE), MR_WEBER)),
     "I would like to apologize to Mr. Weber", "ich möchte mich bei Herrn Weber entschuldigen"),
    (statement(clause(HE, TAKE_PART, modal(ALLOWED, "past"), the("course"))),
     "he was allowed to take part in the course", "er durfte am Kurs teilnehmen"),
    (statement(Clause(subject=some(nominals.THIS, "red", "jacket"), verb=BELONG, form=PRESENT,
                      object=some(HIS, "sister"))),
     "this red jacket belongs to his sister", "diese rote Jacke gehört seiner Schwester"),
    (statement(clause(THE_CAR, REPAIR, PASSIVE["progressive"])),
     "the car is being repaired", "das Auto wird repariert"),
    (statement(clause(THE_CAR, REPAIR, PASSIVE["past"], agent=the("engineer"), time=YESTERDAY)),
     "the car was repaired by the engineer yesterday",
     "das Auto wurde gestern vom Ingenieur repariert"),
    (statement(clause(THE_LAMP, TURN_OFF, PASSIVE["perfect"], mid=ALREADY)),
     "the lamp has already been turned off", "die Lampe ist schon ausgeschaltet worden"),
    (statement(clause(the("door"), ("lock", "abschließen"), modal(MUST, voice="passive"))),
     "the door must be locked", "die Tür muss abgeschlossen werden"),
    (statement(clause(ME, ("live", "wohnen"), Form(tense="since"), complement=text("here", "hier"),
                      time=text("for three years", "seit drei Jahren"))),
     "I have been living here for three years", "ich wohne seit drei Jahren hier"),
    (fronted(clause(ME, CALL, FUTURE, YOU, time=TOMORROW)),
     "tomorrow I will call you", "morgen werde ich dich anrufen"),
    (fronted(clause(WE, GET_UP, PAST, time=YESTERDAY)),
     "yesterday we got up", "gestern sind wir aufgestanden"),
    (fronted(clause(SHE, READ, PRESENT, the("newspaper"), time=EVERY_DAY)),
     "every day she reads the newspaper", "jeden Tag liest sie die Zeitung"),
    (question(clause(YOU, CALL, PAST, HE)), "did you call him", "hast du ihn angerufen"),
    (question(clause(POLITE, OPEN, modal(CAN), the("door"))),
     "can you open the door", "können Sie die Tür aufmachen"),
    (question(clause(ANNA, READ, PRESENT, THE_BOOK, mid=OFTEN)),
     "does Anna often read the book", "liest Anna oft das Buch"),
    (question(clause(ALL_OF_YOU, GO, NOW, complement=HOME)),
     "are you going home", "geht ihr nach Hause"),
    (asked("when", "wann", clause(the("train"), ("leave", "abfahren"), PRESENT)),
     "when does the train leave", "wann fährt der Zug ab"),
    (asked("what", "was", clause(YOU, BUY, PAST, gap="object")),
     "what did you buy", "was hast du gekauft"),
    (asked("what", "worauf", clause(YOU, WAIT, NOW, gap="object")),
     "what are you waiting for", "worauf wartest du"),
    (asked("who", "wem", clause(SHE, HELP, PAST, gap="object")),
     "who did she help", "wem hat sie geholfen"),
    (told(clause(YOU, CALL, PRESENT, ME, time=TOMORROW)),
     "call me tomorrow", "ruf mich bitte morgen an"),
    (told(clause(POLITE, CALL, PRESENT, ME, time=TOMORROW)),
     "call me tomorrow", "rufen Sie mich bitte morgen an"),
    (told(clause(ALL_OF_YOU, OPEN, PRESENT, the("window")), ""),
     "open the window", "macht das Fenster auf"),
    (told(clause(YOU, ("take", "mitnehmen"), PRESENT, some(YOUR, "umbrella")), ""),
     "take your umbrella along", "nimm deinen Regenschirm mit"),
    (told(clause(YOU, READ, PRESENT, the("letter"), polarity="no"), ""),
     "don't read the letter", "lies den Brief nicht"),
    (told(clause(POLITE, ("sit", "hinsetzen"), PRESENT)), "sit down", "setzen Sie sich bitte hin"),
    (linked(BECAUSE, ARE_SLEEPING, clause(ME, TURN_OFF, PAST, THE_LAMP)),
     "the children are sleeping because I turned off the lamp",
     "die Kinder schlafen, weil ich die Lampe ausgeschaltet habe"),
    (linked(BECAUSE, clause(WE, STAY, NOW, complement=text("here", "hier")), SICK, "fronted"),
     "because he is sick, we are staying here", "weil er krank ist, bleiben wir hier"),
    (linked(IF, clause(ME, CALL, FUTURE, YOU), clause(SHE, ("arrive", "ankommen"), PRESENT),
            "fronted"),
     "if she arrives, I will call you", "wenn sie ankommt, werde ich dich anrufen"),
    (linked(ALTHOUGH, clause(HE, GO, PAST, complement=HOME), clause(HE, TAKE_PART, modal(WANT,
            "past"), the("meeting"))),
     "he went home although he wanted to take part in the meeting",
     "er ist nach Hause gegangen, obwohl er an der Besprechung teilnehmen wollte"),
    (linked(AFTER, clause(SHE, CALL, PAST, ME), clause(SHE, GET_UP, HAD), "fronted"),
     "after she had gotten up, she called me",
     "nachdem sie aufgestanden war, hat sie mich angerufen"),
    (linked(BECAUSE, SICK, clause(the("door"), OPEN, modal(MUST, voice="passive"))),
     "he is sick because the door must be opened",
     "er ist krank, weil die Tür aufgemacht werden muss"),
    (to(clause(ME, CALL, PRESENT, YOU, time=TOMORROW)),
     "to call you tomorrow", "dich morgen anzurufen"),
    (to(clause(WE, HURRY, PRESENT)), "to hurry", "uns zu beeilen"),
    (to(clause(SHE, BUY, PRESENT, some(nominals.BARE, "fresh", "bread"))),
     "to buy fresh bread", "frisches Brot zu kaufen"),
    ((f"the book that {en.statement(GAPPED)}", f"das Buch, {de.subordinate(GAPPED, 'das')}"),
     "the book that I bought yesterday", "das Buch, das ich gestern gekauft habe"),
]
# fmt: on


@pytest.mark.parametrize(("said", "expected", "german_expected"), PAIRS)
def test_sentences_written_by_hand(said, expected, german_expected):
    assert said == (expected, german_expected)


def test_there_are_enough_of_them():
    assert len(PAIRS) >= 60
