"""Frames: sentences with a verb of any form and kind, of one clause or of two."""

from dataclasses import replace
from functools import cache
from typing import Literal

from . import draw, german, lexemes, nominals
from .draw import KINDS, FormName, Kind, Scene
from .lexemes import ENDINGS, PHRASES, SPECIAL, Bilingual, nouns_of, verb
from .nominals import Clause, Form, Nominal, Polarity, Tense, noun_phrase
from .say import say, sentence

# One main clause, or two side by side.

_WHO = replace(
    nominals.pronoun("he"), english="who", german={"nom": "wer"}, owner="", weight="definite"
)
_CONTRASTS = (
    ("{0}, but {1}.", "{0}, aber {1}."),
    ("{0}, so {1}.", "{0}, deshalb {1:?}."),
    ("{0}; nevertheless, {1}.", "{0}; trotzdem {1:?}."),
)


def addressed(scene: Scene, probability: float) -> tuple[Scene, Bilingual]:
    """Maybe call somebody by name, which decides how to say you: du, Sie or ihr."""
    if not scene.chance(probability):
        return scene, Bilingual("", "")
    kind = scene.weighted(("du", "Sie", "ihr"), (0.35, 0.45, 0.2))
    if kind == "du":
        called = draw.given_name(scene)
    else:
        called = draw.titled(scene) if kind == "Sie" else scene.pick(PHRASES["groups"])
    return replace(scene, address=kind), say("{0}, ", "{0}, ", called)


def statement(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """I am calling you tomorrow."""
    return sentence(draw.clause(scene, form, kind, timed=True))


def fronted(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """Tomorrow I will call you: the verb stays second."""
    clause = draw.clause(scene, form, kind, timed=True)
    if clause.time:
        return time_first(clause, clause.time)
    first = scene.pick(PHRASES["moods"])
    if scene.chance(0.4):
        first = draw.circumstance(scene)
    comma = "" if first.english in ("perhaps", "probably") else ","
    return say("{0}" + comma + " {1}.", german.main(clause, first.german) + ".", first, clause)


def time_first(clause: Clause, time: Bilingual) -> Bilingual:
    """Say the time of a clause before everything else."""
    rest = german.main(clause, time.german, "time") + "."
    return say("{0} {1}.", rest, time, replace(clause, time=None))


def yes_no(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """Mrs. Weber, did you call him?"""
    scene, called = addressed(scene, 0.4)
    asked = draw.personal(scene, "you") if called.english or scene.chance(0.3) else None
    clause = draw.clause(scene, form, kind, asked, timed=True, polarity="yes")
    return say("{0}{1:?}?", "{0}{1:?}?", called, clause)


def _asked_object(scene: Scene, clause: Clause) -> Bilingual:
    """Return what, who or which book, in the case and with the preposition of the verb."""
    preposition, case = clause.verb.german_preposition, clause.verb.object_case or "acc"
    things = nouns_of(*clause.verb.things)
    if things and (case == "dat" or scene.chance(0.4)):
        entry = scene.pick([noun for noun in things if noun.english_plural] or things)
        which = noun_phrase(entry, nominals.WHICH)
        return Bilingual(which.english, f"{preposition} {which.german[case]}".strip())
    if things:
        linked = "r" if preposition[:1] in ("a", "i", "u", "ü") else ""
        return Bilingual("what", f"wo{linked}{preposition}" if preposition else "was")
    return Bilingual("who", f"{preposition} {'wem' if case == 'dat' else 'wen'}".strip())


def wh_question(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """When, why, who, what."""
    about = "adverb" if form == "passive" else scene.pick(("adverb", "object", "subject"))
    scene, called = addressed(scene, 0.25 if about != "subject" else 0)
    asked = draw.personal(scene, "you") if called.english or scene.chance(0.3) else None
    if about == "subject":
        clause = draw.clause(scene, form, kind, _WHO, timed=True, polarity="yes")
        return say("{0}?", "{0}?", clause)
    objects = "needed" if about == "object" else "any"
    clause = draw.clause(scene, form, kind, asked, polarity="yes", objects=objects)
    if about == "object":
        first = _asked_object(scene, clause)
        clause = replace(clause, object=None)
    else:
        words = PHRASES["questions"]  # how often does not go with the progressive
        first = scene.pick(words if clause.form.tense != "progressive" else words[:2])
    rest = german.main(clause, first.german)
    return say("{0}{1} {2:?}?", f"{{0}}{rest}?", called, first, clause)


def imperative(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """Please call me tomorrow: du, Sie and ihr."""
    scene, called = addressed(scene, 0.5)
    clause = draw.clause(scene, form, kind, draw.personal(scene, "you"), purpose="wanted")
    if scene.chance(0.4) and clause.polarity == "yes":
        clause = replace(clause, time=draw.near_time(scene))
    please, mark = ("please ", ".") if scene.chance(0.6) else ("", "!")
    deny = "" if clause.polarity == "yes" else "don't "
    spoken = german.imperative(clause, "bitte" if please else "")
    return say(f"{{0}}{please}{deny}{{1:to}}{mark}", f"{{0}}{spoken}{mark}", called, clause)


def _not_reflexive(scene: Scene, form: FormName, kind: Kind, subject: str) -> Clause:
    while True:
        clause = draw.action(scene, form, kind, draw.personal(scene, subject))
        if not clause.verb.reflexive:
            return clause


def lets(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """Let's open the window: Lass uns das Fenster aufmachen."""
    clause = _not_reflexive(scene, form, kind, "we")
    if scene.chance(0.5):
        clause = replace(clause, time=draw.near_time(scene))
    return say("let's {0:to}.", "lass uns {0:inf}.", clause)


def coordinated(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """He opened the window and turned off the lamp: one subject, one auxiliary where it fits."""
    first = draw.action(scene, form, scene.pick(KINDS))
    second = replace(draw.action(scene, form, kind, first.subject), form=first.form)
    mark = {"perfect": "-", "present": "ing"}.get(form, "to")
    spoken = german.conjunct(second, after=first)
    return say(f"{{0}} and {{1:{mark}}}.", f"{{0}} und {spoken}.", first, second)


def contrasted(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """It was late, so he called me: aber keeps the order, deshalb and trotzdem invert it."""
    templates = scene.pick(_CONTRASTS)
    before: FormName = "perfect" if form in ("perfect", "modal-past") else "present"
    first = draw.clause(scene, before, scene.pick(KINDS))
    second = draw.clause(scene, form, kind, _next_subject(scene, first.subject))
    return say(*templates, first, second)


# Infinitives: versuchen zu, um zu, ohne zu, anstatt zu, gern.

_EASY = ("important", "difficult", "dangerous", "boring", "interesting", "expensive")
_TENSES: dict[str, tuple[Tense, ...]] = {
    "present": ("present", "progressive"),
    "perfect": ("past", "perfect"),
    "future": ("future",),
}


@cache
def _uses(form: FormName) -> tuple[tuple[str, Tense], ...]:
    """Return verbs that take an infinitive, with the tenses of the form they are used in."""
    rows = lexemes.table("infinitives", "tenses")
    return tuple((r["verb"], t) for r in rows for t in r["tenses"] if t in _TENSES[form])


def to_infinitive(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """She forgot to call me up: anzurufen."""
    outer, tense = scene.pick(_uses(form))
    subject = draw.subject(scene)
    main = draw.special(subject, outer, tense)
    inner = draw.action(scene, "present", kind, subject)
    if outer != "stop":
        return say("{0} to {1:to}.", "{0}, {1:zu}.", main, inner)
    inner = draw.action(scene, "present", kind, subject, "lasting")  # one stops doing what lasts
    return say("{0} {1:ing}.", "{0}, {1:zu}.", main, inner)


def it_is_to(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """It is important to lock the door: Es ist wichtig, die Tür abzuschließen."""
    adjective = scene.pick([a for a in lexemes.ADJECTIVES if a.english in _EASY])
    inner = _not_reflexive(scene, "present", kind, "you")
    predicate = Bilingual(adjective.english, adjective.german)
    tense = "past" if form == "perfect" else "present"
    main = draw.special(nominals.pronoun("it-n"), "be", tense, predicate)
    return say("{0} to {1:to}.", "{0}, {1:zu}.", main, inner)


def _two(scene: Scene, kind: Kind, outer: FormName) -> tuple[Clause, Clause]:
    """Draw a main clause and an infinitive of the same subject."""
    main = draw.action(scene, outer, "plain")
    return main, draw.action(scene, "present", kind, main.subject)


def in_order_to(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """..., um dich anzurufen; with a modal, um dich anrufen zu können."""
    main, inner = _two(scene, kind, scene.pick(("present", "perfect", "modal")))
    if form != "modal":
        return say("{0} in order to {1:to}.", "{0}, um {1:zu}.", main, inner)
    inner = replace(inner, form=Form("present", lexemes.CAN))
    return say("{0} in order to be able to {1:to}.", "{0}, um {1:zu}.", main, inner)


def without(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """..., ohne mich anzurufen; ..., anstatt mich anzurufen."""
    main, inner = _two(scene, kind, form)
    return say(
        "{0} {1} {2:ing}.", "{0}, {1} {2:zu}.", main, scene.pick(PHRASES["omissions"]), inner
    )


def gladly(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """She likes to read the newspaper: Sie liest gern die Zeitung."""
    word, gern = scene.pick((("like", "gern"), ("prefer", "lieber")))
    clause = draw.action(scene, form, kind, draw.subject(scene))
    spoken = replace(clause, form=Form("present"), time=Bilingual("", gern))
    likes = word + ("s" if clause.subject.agreement == "er" else "")
    return say(f"{clause.subject.english} {likes} to {{0:to}}.", "{1}.", clause, spoken)


# A subordinate clause, whose verb is last in German.

Order = Literal["after", "fronted"]


_TIMELESS = PHRASES["timeless"]  # these take the simple present for what is to come
LINKS = {link.english: link for link in PHRASES["conjunctions"] + _TIMELESS}


def _is_past(clause: Clause) -> bool:
    return clause.form.tense in ("past", "perfect", "pluperfect")


def _simple(clause: Clause) -> Clause:
    """Return if he calls for if he is calling, and if he has to call for if he must."""
    form = clause.form
    if form.modal in (lexemes.MUST, lexemes.SHOULD, lexemes.WOULD_LIKE):
        return replace(clause, form=replace(form, modal=lexemes.HAVE_TO))
    if form.tense == "progressive":
        return replace(clause, form=replace(form, tense="present"))
    return clause


def _next_subject(scene: Scene, before: Nominal) -> Nominal | None:
    """Return the same person again, as a pronoun, or None for somebody else."""
    same = before.animate and scene.chance(0.5)
    return draw.pronoun_of(before) if same else None


def _main_beside(scene: Scene, link: Bilingual, subject: Nominal | None, *, past: bool) -> Clause:
    """Draw a main clause that goes with the subordinate one."""
    kind: Kind = scene.pick(KINDS)
    name, timeless = link.english, link in _TIMELESS
    if not timeless and name != "while" and scene.chance(0.2):
        return draw.state(scene, subject or draw.subject(scene), past=past)
    forms: tuple[FormName, ...] = ("present", "present", "modal")
    if past:
        forms = ("perfect", "perfect", "modal-past")
    elif name in ("whenever", "while"):
        forms = ("present",)
    elif timeless:
        forms = ("future", "modal")
    clause = draw.clause(
        scene,
        scene.pick(forms),
        kind,
        subject,
        polarity="yes" if timeless else "any",
        purpose="lasting" if name in ("until", "while") else "any",
    )
    return _simple(clause) if name == "whenever" else clause


def joined(link: Bilingual, main: Clause, sub: Clause, order: Order) -> Bilingual:
    """Join both clauses; after a fronted one the main clause opens with its verb."""
    if order == "after":
        return say("{0} {2} {1}.", "{0}, {1:{2}}.", main, sub, link)
    return say("{2} {1}, {0}.", "{1:{2}}, {0:?}.", main, sub, link)


def linked(
    links: tuple[Bilingual, ...], order: Order, scene: Scene, form: FormName, kind: Kind
) -> Bilingual:
    """Draw both clauses in spoken order, so that a pronoun follows what it stands for."""
    link = scene.pick(links)
    past = form in ("perfect", "modal-past")
    yes = "any" if link.english in ("because", "although") else "yes"

    def draw_sub(subject: Nominal | None) -> Clause:
        sub = draw.clause(scene, form, kind, subject, polarity=yes)
        if link.english == "if" and _is_past(sub):  # a condition is still open
            return replace(sub, form=replace(sub.form, tense="present"))
        return _simple(sub) if link in _TIMELESS else sub

    if order == "fronted":
        sub = draw_sub(None)
        again = _next_subject(scene, sub.subject)
        main = _main_beside(scene, link, again, past=past or _is_past(sub))
        return joined(link, main, sub, order)
    if form == "passive":
        past = link.english != "if" and scene.chance(0.5)
    main = _main_beside(scene, link, None, past=past)
    sub = draw_sub(_next_subject(scene, main.subject))
    if form == "passive":
        tense = "past" if past else "present" if link in _TIMELESS else "progressive"
        sub = replace(sub, form=Form(tense, voice="passive"))
    return joined(link, main, sub, order)


def when_fronted(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """Once: als; every time: immer wenn."""
    link = "when" if form in ("perfect", "modal-past") else "whenever"
    return linked((LINKS[link],), "fronted", scene, form, kind)


def after(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """After he had called me, ...: nachdem with the Plusquamperfekt."""
    sub = draw.clause(scene, form, kind, polarity="yes")
    sub = replace(sub, form=Form("pluperfect", voice=sub.form.voice), mid=None)
    again = _next_subject(scene, sub.subject)
    main = _main_beside(scene, LINKS["after"], again, past=True)
    return joined(LINKS["after"], main, sub, "fronted")


def so_that(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """..., damit er mich anrufen kann."""
    main = draw.action(scene, "present", "plain")
    sub = draw.clause(scene, form, kind, _next_subject(scene, main.subject), polarity="yes")
    sub = replace(sub, form=Form("present", lexemes.CAN, sub.form.voice), mid=None)
    return joined(LINKS["so that"], main, sub, "after")


def because_it(scene: Scene) -> Bilingual:
    """I bought the lamp because it was cheap: it has the gender of what was named."""
    past = scene.chance(0.6)
    kind: Kind = scene.pick(KINDS)
    form: FormName = "perfect" if past else "modal"
    main = draw.clause(scene, form, kind, polarity="yes", objects="thing")
    while not (main.object and main.object.noun) or main.object.animate:
        main = replace(main, object=draw.object_of(scene, main.verb, main.subject))
    it = draw.pronoun_of(main.object) or main.object
    sub = draw.state(scene, replace(it, animate=False), past=past, about=main.object)
    return joined(LINKS["because"], main, sub, "after")


_OWNED = nouns_of("vehicle", "device", "clothing", "furniture", "building", "animal")


def unreal(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """If I had more time, I would call you: hätte, wäre, würde."""
    subject = draw.subject(scene)
    if scene.chance(0.7):
        if scene.chance(0.25):
            wished = say("more {0}", "mehr {0}", scene.pick(PHRASES["wishes"]))
        else:
            entry = scene.pick(_OWNED)
            thing = noun_phrase(entry, nominals.A, adjectives=draw.adjectives(scene, entry))
            wished = say("{0}", "{0:acc}", thing)
        sub = draw.special(subject, "have", "unreal", wished)
    else:
        sub = replace(draw.state(scene, subject, past=False), form=Form("unreal"))
    main = draw.action(scene, form, kind, draw.pronoun_of(subject) or subject)
    return joined(LINKS["if"], replace(main, form=Form("would")), sub, "fronted")


# What somebody says, knows or asks: dass, ob, wann, warum.

_OPINIONS = ("know", "think", "believe", "hope", "say")
_DOUBTS: tuple[tuple[str, Form, Polarity], ...] = (
    ("know", Form("present"), "no"),  # he doesn't know
    ("know", Form("present", lexemes.WANT), "yes"),
    ("ask", Form("past"), "yes"),
    ("wonder", Form("present"), "yes"),
    ("forget", Form("perfect"), "yes"),
)


def _opinion(scene: Scene, form: FormName) -> Bilingual:
    """Draw I think, Anna says, he hopes, we have heard, you are sure, it is possible."""
    if scene.chance(0.1):
        return say("it is {0}", "es ist {0}", scene.pick(PHRASES["facts"]))
    subject = draw.subject(scene)
    kind = scene.weighted(("says", "heard", "sure"), (0.6, 0.2, 0.2))
    if kind == "heard":
        clause = draw.special(subject, "hear", "perfect")
    elif kind == "sure":
        clause = draw.special(subject, "be", "present", Bilingual("sure", "sicher"))
    else:
        options = [n for n in _OPINIONS if n != "hope" or not form.startswith("modal")]
        clause = draw.special(subject, scene.pick(options), "present")
    return say("{0}", "{0}", clause)


def that(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """I hope that you will call me up: dass."""
    opinion = _opinion(scene, form)
    clause = draw.clause(scene, form, kind, timed=True)
    return say("{0} that {1}.", "{0}, {1:dass}.", opinion, clause)


def _doubt(scene: Scene) -> tuple[Scene, Bilingual, str]:
    """Draw the opening of an indirect question, and the mark that closes it."""
    if scene.chance(0.7):
        subject = draw.subject(scene)
        name, form, polarity = scene.pick(_DOUBTS)
        wondering = Clause(subject=subject, verb=SPECIAL[name], form=form, polarity=polarity)
        return scene, say("{0}", "{0}", wondering), "."
    scene, called = addressed(scene, 0.5)
    clause = draw.special(draw.personal(scene, "you"), "know", "present")
    return scene, say("{0}{1:?}", "{0}{1:?}", called, clause), "?"


def whether(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """Do you know whether the train has left? ob."""
    scene, doubt, mark = _doubt(scene)
    sub = draw.clause(scene, form, kind, timed=True, polarity="yes")
    return say("{0} whether {1}" + mark, "{0}, {1:ob}" + mark, doubt, sub)


def indirect_wh(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """I don't know when the train leaves."""
    scene, doubt, mark = _doubt(scene)
    word = scene.pick(PHRASES["questions"][:2])
    sub = draw.clause(scene, form, kind, polarity="yes")
    return say("{0} {2} {1}" + mark, "{0}, {1:{2}}" + mark, doubt, sub, word)


def that_because(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """She says that he stayed at home because the train had left: two verbs at two ends."""
    opinion = _opinion(scene, form)
    main = _main_beside(scene, LINKS["because"], None, past=form in ("perfect", "modal-past"))
    sub = draw.clause(scene, form, kind, _next_subject(scene, main.subject))
    return say("{0} that {1} because {2}.", "{0}, {1:dass}, {2:weil}.", opinion, main, sub)


# Relative clauses, about a subject or an object, in the middle of a sentence or at its end.

_MEETING = (
    SPECIAL["be-acquainted"],
    verb("look", "suchen"),
    verb("wait", "warten"),
    verb("help", "helfen"),
    verb("trust", "vertrauen"),
)


def _with_relative(head: Nominal, clause: Clause) -> Nominal:
    """Describe the head by a clause whose subject it is: the man who called me."""
    who = "who" if head.animate else "that"
    pronoun = ENDINGS["relative", "nom", head.column]
    tail = say("{0:-}", german.subordinate(clause, pronoun, "subject"), clause)
    return head.with_tail(f" {who} {tail.english}", f", {tail.german},")


def _person(scene: Scene) -> Nominal:
    entry = scene.pick(draw.ROLES)
    return noun_phrase(entry, nominals.THE, adjectives=draw.adjectives(scene, entry, 0.2))


def relative_subject(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """The man who called me is tired; the car that is being repaired."""
    clause = draw.clause(scene, form, kind, _person(scene), polarity="yes")
    named, head = clause.subject, _with_relative(clause.subject, clause)
    if not named.animate or scene.chance(0.35):
        past = _is_past(clause) and scene.chance(0.5)
        return sentence(draw.state(scene, head, past=past, about=named))
    if scene.chance(0.5):
        return sentence(draw.clause(scene, "perfect", "plain", head, polarity="yes"))
    met = scene.pick(_MEETING)
    form_met = Form("present" if "s" in met.flags else "progressive")
    said = sentence(Clause(subject=draw.subject(scene), verb=met, form=form_met, object=head))
    return replace(said, german=said.german.replace(",.", "."))  # no comma before the end


def relative_object(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """The book that I bought yesterday is interesting: auf den, mit dem, das."""
    timed = form != "present"
    clause = draw.clause(scene, form, kind, timed=timed, polarity="yes", objects="thing")
    entry = scene.pick([n for n in nouns_of(*clause.verb.things) if draw.fitting(n)])
    described = draw.adjectives(scene, entry, 0.2)
    head = noun_phrase(entry, nominals.THE, adjectives=described)
    pronoun = ENDINGS["relative", clause.verb.object_case or "acc", head.column]
    opening = f"{clause.verb.german_preposition} {pronoun}".strip()
    tail = say(" that {0}", f", {{0:{opening}}},", replace(clause, object=None))
    with_relative = head.with_tail(tail.english, tail.german)
    past = _is_past(clause) and scene.chance(0.5)
    return sentence(draw.state(scene, with_relative, past=past, about=head))


def because_relative(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """I am waiting because the man who picks me up is sick: a bracket inside a bracket."""
    head = _person(scene)
    clause = draw.clause(scene, form, kind, head, polarity="yes")
    described = _with_relative(head, replace(clause, subject=head))
    main = draw.clause(scene, "modal", "plain")
    return joined(LINKS["because"], main, draw.state(scene, described, past=False), "after")
