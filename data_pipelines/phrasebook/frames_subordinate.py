"""Constructions with a subordinate clause, whose verb is last in German."""

from dataclasses import dataclass, replace
from typing import Literal

from . import draw_nominals, german, nominals
from .clauses import Clause, Form
from .draw_clauses import KINDS, FormName, Kind, draw_action, draw_clause, is_so, object_of, state
from .frames_main import addressed
from .lexemes import (
    CAN,
    HAVE_TO,
    MUST,
    PHRASES,
    SHOULD,
    SPECIAL,
    WANT,
    WOULD_LIKE,
    Bilingual,
    nouns_of,
    verb,
)
from .nominals import Nominal
from .say import say, sentence
from .scene import Scene

Order = Literal["after", "fronted"]


@dataclass(frozen=True)
class Link:
    """A conjunction; a `timeless` one takes the simple present for what is to come."""

    english: str
    german: str
    timeless: bool = False


BECAUSE, ALTHOUGH, WHILE = (
    Link("because", "weil"),
    Link("although", "obwohl"),
    Link("while", "während"),
)
IF, BEFORE = Link("if", "wenn", True), Link("before", "bevor", True)
_WHEN, _WHENEVER = Link("when", "als"), Link("whenever", "immer wenn", True)
_AFTER, _SO_THAT = Link("after", "nachdem", True), Link("so that", "damit")
UNTIL, AS_SOON_AS = (Link("until", "bis", True), Link("as soon as", "sobald", True))


def _is_past(clause: Clause) -> bool:
    return clause.form.tense in ("past", "perfect", "pluperfect")


def _simple(clause: Clause) -> Clause:
    """Return if he calls for if he is calling, and if he has to call for if he must."""
    form = clause.form
    if form.modal in (MUST, SHOULD, WOULD_LIKE):
        return replace(clause, form=replace(form, modal=HAVE_TO))
    if form.tense == "progressive":
        return replace(clause, form=replace(form, tense="present"))
    return clause


def _next_subject(scene: Scene, before: Nominal) -> Nominal | None:
    """Return the same person again, as a pronoun, or None for somebody else."""
    same = before.animate and scene.dice.chance(0.5)
    return draw_nominals.pronoun_of(before) if same else None


def _main_beside(scene: Scene, *, past: bool, link: Link, subject: Nominal | None) -> Clause:
    """Draw a main clause that goes with the subordinate one."""
    dice = scene.dice
    kind: Kind = dice.pick(KINDS)
    if not link.timeless and link is not WHILE and dice.chance(0.2):
        return state(scene, subject or draw_nominals.subject(scene), past=past)
    forms: tuple[FormName, ...] = ("present", "present", "modal")
    if past:
        forms = ("perfect", "perfect", "modal-past")
    elif link in (_WHENEVER, WHILE):
        forms = ("present",)
    elif link.timeless:
        forms = ("future", "modal")
    clause = draw_clause(
        scene,
        dice.pick(forms),
        kind,
        subject,
        extras="timeless",
        polarity="yes" if link.timeless else "any",
        purpose="lasting" if link.english in ("until", "while") else "any",
    )
    return _simple(clause) if link is _WHENEVER else clause


def joined(link: Link, main: Clause, sub: Clause, order: Order) -> Bilingual:
    """Join both clauses; after a fronted one the main clause opens with its verb."""
    if order == "after":
        return say(f"{{0}} {link.english} {{1}}.", f"{{0}}, {{1:{link.german}}}.", main, sub)
    return say(f"{link.english} {{1}}, {{0}}.", f"{{1:{link.german}}}, {{0:?}}.", main, sub)


def linked(
    links: tuple[Link, ...], order: Order, scene: Scene, form: FormName, kind: Kind
) -> Bilingual:
    """Draw both clauses in spoken order, so that a pronoun follows what it stands for."""
    link = scene.dice.pick(links)
    past = form in ("perfect", "modal-past")
    yes = "any" if link in (BECAUSE, ALTHOUGH) else "yes"

    def draw_sub(subject: Nominal | None) -> Clause:
        sub = draw_clause(scene, form, kind, subject, extras="timeless", polarity=yes)
        if link is IF and _is_past(sub):  # a condition is still open
            return replace(sub, form=replace(sub.form, tense="present"))
        return _simple(sub) if link.timeless else sub

    if order == "fronted":
        sub = draw_sub(None)
        again = _next_subject(scene, sub.subject)
        main = _main_beside(scene, past=past or _is_past(sub), link=link, subject=again)
        return joined(link, main, sub, order)
    if form == "passive":
        past = link is not IF and scene.dice.chance(0.5)
    main = _main_beside(scene, past=past, link=link, subject=None)
    sub = draw_sub(_next_subject(scene, main.subject))
    if form == "passive":
        tense = "past" if past else "present" if link.timeless else "progressive"
        sub = replace(sub, form=Form(tense, voice="passive"))
    return joined(link, main, sub, order)


def when_fronted(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """Once: als; every time: immer wenn."""
    link = _WHEN if form in ("perfect", "modal-past") else _WHENEVER
    return linked((link,), "fronted", scene, form, kind)


def after(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """After he had called me, ...: nachdem with the Plusquamperfekt."""
    sub = draw_clause(scene, form, kind, extras="timeless", polarity="yes")
    sub = replace(sub, form=Form("pluperfect", voice=sub.form.voice), mid=None)
    again = _next_subject(scene, sub.subject)
    main = _main_beside(scene, past=True, link=_AFTER, subject=again)
    return joined(_AFTER, main, sub, "fronted")


def so_that(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """..., damit er mich anrufen kann."""
    main = draw_action(scene, "present", "plain")
    again = _next_subject(scene, main.subject)
    sub = draw_clause(scene, form, kind, again, extras="timeless", polarity="yes")
    sub = replace(sub, form=Form("present", CAN, sub.form.voice), mid=None)
    return joined(_SO_THAT, main, sub, "after")


def because_it(scene: Scene) -> Bilingual:
    """I bought the lamp because it was cheap: it has the gender of what was named."""
    past = scene.dice.chance(0.6)
    kind: Kind = scene.dice.pick(KINDS)
    main = draw_clause(
        scene,
        "perfect" if past else "modal",
        kind,
        extras="timeless",
        polarity="yes",
        objects="thing",
    )
    while not (main.object and main.object.noun) or main.object.animate:
        main = replace(main, object=object_of(scene, main.verb, main.subject))
    it = draw_nominals.pronoun_of(main.object) or main.object
    sub = state(scene, replace(it, animate=False), past=past, about=main.object)
    return joined(BECAUSE, main, sub, "after")


_OWNED = nouns_of("vehicle", "device", "clothing", "furniture", "building", "animal")


def unreal(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """If I had more time, I would call you: hätte, wäre, würde."""
    dice = scene.dice
    subject = draw_nominals.subject(scene)
    if dice.chance(0.7):
        if dice.chance(0.25):
            wished = say("more {0}", "mehr {0}", dice.pick(PHRASES["wishes"]))
        else:
            entry = dice.pick(_OWNED)
            described = draw_nominals.adjectives(scene, entry)
            thing = nominals.noun_phrase(entry, nominals.A, adjectives=described)
            wished = say("{0}", "{0:acc}", thing)
        sub = Clause(subject=subject, verb=SPECIAL["have"], form=Form("unreal"), complement=wished)
    else:
        sub = replace(state(scene, subject, past=False), form=Form("unreal"))
    again = draw_nominals.pronoun_of(subject) or subject
    main = draw_action(scene, form, kind, again)
    return joined(IF, replace(main, form=Form("would")), sub, "fronted")


# What somebody says, knows or asks: dass, ob, wann, warum.


def _opinion(scene: Scene, form: FormName) -> Bilingual:
    """Draw I think, Anna says, he hopes, we have heard, you are sure, it is possible."""
    dice = scene.dice
    if dice.chance(0.1):
        return say("it is {0}", "es ist {0}", dice.pick(PHRASES["facts"]))
    subject = draw_nominals.subject(scene)
    kind = dice.weighted(("says", "heard", "sure"), (0.6, 0.2, 0.2))
    if kind == "heard":
        clause = Clause(subject=subject, verb=SPECIAL["hear"], form=Form("perfect"))
    elif kind == "sure":
        clause = is_so(subject, Bilingual("sure", "sicher"))
    else:
        names = ["know", "think", "believe", "hope", "say"]
        options = [n for n in names if n != "hope" or not form.startswith("modal")]
        clause = Clause(subject=subject, verb=SPECIAL[dice.pick(options)], form=Form("present"))
    return say("{0}", "{0}", clause)


def that(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """I hope that you will call me up: dass."""
    opinion = _opinion(scene, form)
    return say("{0} that {1}.", "{0}, {1:dass}.", opinion, draw_clause(scene, form, kind))


def _doubt(scene: Scene) -> tuple[Scene, Bilingual, str]:
    """Draw the opening of an indirect question, and the mark that closes it."""
    if scene.dice.chance(0.7):
        subject = draw_nominals.subject(scene)
        name, form = scene.dice.pick(
            (
                ("know", Form("present")),  # denied: he doesn't know
                ("know", Form("present", WANT)),
                ("ask", Form("past")),
                ("wonder", Form("present")),
                ("forget", Form("perfect")),
            )
        )
        denied = name == "know" and not form.modal
        wondering = Clause(
            subject=subject, verb=SPECIAL[name], form=form, polarity="no" if denied else "yes"
        )
        return scene, say("{0}", "{0}", wondering), "."
    scene, called = addressed(scene, 0.5)
    you = draw_nominals.personal(scene, "you")
    clause = Clause(subject=you, verb=SPECIAL["know"], form=Form("present"))
    return scene, say("{0}{1:?}", "{0}{1:?}", called, clause), "?"


def whether(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """Do you know whether the train has left? ob."""
    scene, doubt, mark = _doubt(scene)
    sub = draw_clause(scene, form, kind, polarity="yes")
    return say(f"{{0}} whether {{1}}{mark}", f"{{0}}, {{1:ob}}{mark}", doubt, sub)


def indirect_wh(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """I don't know when the train leaves."""
    scene, doubt, mark = _doubt(scene)
    word = scene.dice.pick(PHRASES["questions"][:2])
    sub = draw_clause(scene, form, kind, polarity="yes", extras="timeless")
    german_end = f"{{0}}, {{1:{word.german}}}{mark}"
    return say(f"{{0}} {word.english} {{1}}{mark}", german_end, doubt, sub)


def that_because(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """She says that he stayed at home because the train had left: two verbs at two ends."""
    opinion = _opinion(scene, form)
    past = form in ("perfect", "modal-past")
    main = _main_beside(scene, past=past, link=BECAUSE, subject=None)
    again = _next_subject(scene, main.subject)
    sub = draw_clause(scene, form, kind, again, extras="timeless")
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
    pronoun = nominals.relative("nom", head.column)
    said = say(f" {who} {{0:-}}", "", clause).english
    return head.with_tail(said, f", {german.subordinate(clause, pronoun, 'subject')},")


def _person(scene: Scene) -> Nominal:
    entry = scene.dice.pick(draw_nominals.roles())
    described = draw_nominals.adjectives(scene, entry, 0.2)
    return nominals.noun_phrase(entry, nominals.THE, adjectives=described)


def relative_subject(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """The man who called me is tired; the car that is being repaired."""
    clause = draw_clause(scene, form, kind, _person(scene), extras="timeless", polarity="yes")
    named, dice = clause.subject, scene.dice
    head = _with_relative(named, clause)
    if not named.animate or dice.chance(0.35):
        past = _is_past(clause) and dice.chance(0.5)
        return sentence(state(scene, head, past=past, about=named))
    if dice.chance(0.5):
        return sentence(
            draw_clause(scene, "perfect", "plain", head, extras="timeless", polarity="yes")
        )
    met = dice.pick(_MEETING)
    form_met = Form("present" if "s" in met.flags else "progressive")
    subject = draw_nominals.subject(scene)
    said = sentence(Clause(subject=subject, verb=met, form=form_met, object=head))
    return replace(said, german=said.german.replace(",.", "."))  # no comma before the end


def relative_object(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """The book that I bought yesterday is interesting: auf den, mit dem, das."""
    dice = scene.dice
    extras = "timeless" if form == "present" else "all"
    clause = draw_clause(scene, form, kind, extras=extras, polarity="yes", objects="thing")
    case = clause.verb.object_case
    if not case:
        raise ValueError(f"{clause.verb.english} takes no object to describe")
    entry = dice.pick([n for n in nouns_of(*clause.verb.things) if draw_nominals.fitting(n)])
    described = draw_nominals.adjectives(scene, entry, 0.2)
    head = nominals.noun_phrase(entry, nominals.THE, adjectives=described)
    pronoun = nominals.relative(case, head.column)
    opening = f"{clause.verb.german_preposition} {pronoun}".strip()
    tail = say(" that {0}", f", {{0:{opening}}},", replace(clause, object=None, gap="object"))
    with_relative = head.with_tail(tail.english, tail.german)
    past = _is_past(clause) and dice.chance(0.5)
    return sentence(state(scene, with_relative, past=past, about=head))


def because_relative(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """I am waiting because the man who picks me up is sick: a bracket inside a bracket."""
    head = _person(scene)
    clause = draw_clause(scene, form, kind, head, extras="timeless", polarity="yes")
    described = _with_relative(head, replace(clause, subject=head))
    main = draw_clause(scene, "modal", "plain", extras="timeless")
    return joined(BECAUSE, main, state(scene, described, past=False), "after")
