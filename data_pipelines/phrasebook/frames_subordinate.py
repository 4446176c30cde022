"""Constructions with a subordinate clause, whose verb stands last in German."""

from dataclasses import dataclass, replace
from typing import Literal

from . import draw_nominals, nominals, say_english, say_german
from .clauses import Clause, Form
from .draw_clauses import FormName, Kind, Wish, draw_clause, object_of
from .draw_states import pronoun_of, state
from .lexemes import Bilingual
from .nominals import Nominal
from .nouns import nouns_of
from .scene import Scene
from .verbs import CAN, HAVE, HAVE_TO, MUST, SHOULD, WOULD_LIKE

Order = Literal["after", "fronted"]
_PAST = ("past", "perfect", "pluperfect")


def is_past(clause: Clause) -> bool:
    """Whether it is told as over."""
    return clause.form.tense in _PAST


@dataclass(frozen=True, kw_only=True)
class Link:
    """A conjunction; `timeless` ones take the simple present for what is to come."""

    english: str
    german: str
    timeless: bool = False


BECAUSE = (Link(english="because", german="weil"),)
_ALTHOUGH = (Link(english="although", german="obwohl"),)
_IF = (Link(english="if", german="wenn", timeless=True),)
_WHEN_PAST = (Link(english="when", german="als"),)
_WHEN = (Link(english="whenever", german="immer wenn", timeless=True),)
_BEFORE = (Link(english="before", german="bevor", timeless=True),)
_TEMPORAL = (
    Link(english="until", german="bis", timeless=True),
    Link(english="as soon as", german="sobald", timeless=True),
)
_WHILE = (Link(english="while", german="während"),)


def _simple(clause: Clause) -> Clause:
    """If he calls, not if he is calling; if he has to call, not if he must."""
    form = clause.form
    if form.modal in (MUST, SHOULD, WOULD_LIKE):
        return replace(clause, form=replace(form, modal=HAVE_TO))
    if form.tense == "progressive":
        return replace(clause, form=replace(form, tense="present"))
    return clause


def next_subject(scene: Scene, before: Nominal) -> Nominal | None:
    """The same person again, as a pronoun, or None for somebody else."""
    same = before.animate and scene.dice.chance(0.5)
    return pronoun_of(before) if same else None


def main_beside(scene: Scene, *, past: bool, link: Link, subject: Nominal | None) -> Clause:
    """A main clause that goes with the subordinate one."""
    dice = scene.dice
    kind: Kind = dice.pick(("plain", "separable"))
    if not link.timeless and link.english != "while" and dice.chance(0.2):
        return state(scene, subject or draw_nominals.subject(scene), past=past)
    forms: tuple[FormName, ...] = ("present", "present", "modal")
    if past:
        forms = ("perfect", "perfect", "modal-past")
    elif link.english == "whenever":
        forms = ("present",)
    elif link.timeless:
        forms = ("future", "modal")
    if link.english == "while" and not past:
        forms = ("present",)
    wish = Wish(
        form=dice.pick(forms),
        kind=kind,
        subject=subject,
        extras="timeless",
        polarity="yes" if link.timeless else "any",
        purpose="lasting" if link.english in ("until", "while") else "any",
    )
    clause = draw_clause(scene, wish)
    return _simple(clause) if link.english == "whenever" else clause


def joined(link: Link, main: Clause, sub: Clause, order: Order) -> Bilingual:
    """Both clauses in one sentence; after a fronted one the main clause opens with its verb."""
    said, spoken = say_english.statement(sub), say_german.subordinate(sub, link.german)
    if order == "after":
        return Bilingual(
            english=f"{say_english.statement(main)} {link.english} {said}.",
            german=f"{say_german.statement(main)}, {spoken}.",
        )
    return Bilingual(
        english=f"{link.english} {said}, {say_english.statement(main)}.",
        german=f"{spoken}, {say_german.main(main, '', 'none')}.",
    )


def _sub(scene: Scene, wish: Wish, link: Link) -> Clause:
    clause = draw_clause(scene, wish)
    if link.english == "if" and is_past(clause):  # a condition is still open
        return replace(clause, form=replace(clause.form, tense="present"))
    return _simple(clause) if link.timeless else clause


def _linked(
    scene: Scene, form: FormName, kind: Kind, links: tuple[Link, ...], order: Order
) -> Bilingual:
    """Both clauses are drawn in the order in which they are said, so that a pronoun follows what
    it stands for."""
    link = scene.dice.pick(links)
    past = form in ("perfect", "modal-past")
    yes = "any" if link.english in ("because", "although") else "yes"
    wish = Wish(form=form, kind=kind, extras="timeless", polarity=yes)
    if order == "fronted":
        sub = _sub(scene, wish, link)
        again = next_subject(scene, sub.subject)
        past = past or is_past(sub)
        return joined(link, main_beside(scene, past=past, link=link, subject=again), sub, order)
    if form == "passive":
        past = link.english != "if" and scene.dice.chance(0.5)
    main = main_beside(scene, past=past, link=link, subject=None)
    again = next_subject(scene, main.subject)
    sub = _sub(scene, replace(wish, subject=again), link)
    if form == "passive":
        tense = "past" if past else "present" if link.timeless else "progressive"
        sub = replace(sub, form=Form(tense=tense, voice="passive"))
    return joined(link, main, sub, order)


def because(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """He stayed at home because he called you up."""
    return _linked(scene, form, kind, BECAUSE, "after")


def because_fronted(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """Because ..., the main clause opens with its verb."""
    return _linked(scene, form, kind, BECAUSE, "fronted")


def although(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """..., obwohl ..."""
    return _linked(scene, form, kind, _ALTHOUGH, "after")


def although_fronted(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """Obwohl ..., ..."""
    return _linked(scene, form, kind, _ALTHOUGH, "fronted")


def conditional(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """..., wenn ..."""
    return _linked(scene, form, kind, _IF, "after")


def conditional_fronted(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """Wenn ..., ..."""
    return _linked(scene, form, kind, _IF, "fronted")


def when_fronted(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """Once: als; every time: immer wenn."""
    links = _WHEN_PAST if form in ("perfect", "modal-past") else _WHEN
    return _linked(scene, form, kind, links, "fronted")


def before(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """..., bevor ..."""
    return _linked(scene, form, kind, _BEFORE, "after")


def before_fronted(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """Bevor ..., ..."""
    return _linked(scene, form, kind, _BEFORE, "fronted")


def temporal(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """..., bis ...; ..., sobald ..."""
    return _linked(scene, form, kind, _TEMPORAL, "after")


def meanwhile(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """..., während ..."""
    return _linked(scene, form, kind, _WHILE, "after")


def after(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """After he had called me, ...: nachdem with the Plusquamperfekt."""
    wish = Wish(form=form, kind=kind, extras="timeless", polarity="yes")
    sub = draw_clause(scene, wish)
    sub = replace(sub, form=Form(tense="pluperfect", voice=sub.form.voice), mid=None)
    link = Link(english="after", german="nachdem", timeless=True)
    again = next_subject(scene, sub.subject)
    return joined(link, main_beside(scene, past=True, link=link, subject=again), sub, "fronted")


def so_that(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """..., damit er mich anrufen kann."""
    link = Link(english="so that", german="damit")
    main = draw_clause(
        scene,
        Wish(form="present", kind="plain", extras="timeless", polarity="yes", purpose="wanted"),
    )
    again = next_subject(scene, main.subject)
    wish = Wish(form=form, kind=kind, subject=again, extras="timeless", polarity="yes")
    sub = draw_clause(scene, wish)
    sub = replace(sub, form=Form(tense="present", modal=CAN, voice=sub.form.voice), mid=None)
    return joined(link, main, sub, "after")


def because_it(scene: Scene) -> Bilingual:
    """I bought the lamp because it was cheap: it has the gender of what was named."""
    past = scene.dice.chance(0.6)
    form: FormName = "perfect" if past else "modal"
    wish = Wish(
        form=form,
        kind=scene.dice.pick(("plain", "separable")),
        extras="timeless",
        polarity="yes",
        objects="thing",
    )
    main = draw_clause(scene, wish)
    while not (main.object and main.object.noun) or main.object.animate:
        main = replace(main, object=object_of(scene, main.verb, main.subject))
    it = pronoun_of(main.object) or main.object
    sub = state(scene, replace(it, animate=False), past=past, about=main.object)
    return joined(BECAUSE[0], main, sub, "after")


_WISHED = tuple(
    Bilingual(english=f"more {e}", german=f"mehr {g}")
    for e, g in (("time", "Zeit"), ("money", "Geld"), ("patience", "Geduld"), ("luck", "Glück"))
)
_OWNED = nouns_of(("vehicle", "device", "clothing", "furniture", "building", "animal"))


def _wished(scene: Scene) -> Bilingual:
    """More time; a bigger house would do as well."""
    if scene.dice.chance(0.25):
        return scene.dice.pick(_WISHED)
    entry = scene.dice.pick(_OWNED)
    described = draw_nominals.adjectives(scene, entry)
    thing = nominals.noun_phrase(entry, nominals.A, adjectives=described)
    return Bilingual(english=thing.english, german=thing.german["acc"])


def unreal(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """If I had more time, I would call you: hätte, wäre, würde."""
    dice = scene.dice
    subject = draw_nominals.subject(scene)
    if dice.chance(0.7):
        sub = Clause(
            subject=subject, verb=HAVE, form=Form(tense="unreal"), complement=_wished(scene)
        )
    else:
        sub = replace(state(scene, subject, past=False), form=Form(tense="unreal"))
    again = nominals.pronoun(subject.owner) if subject.owner else subject
    wish = Wish(
        form=form, kind=kind, subject=again, extras="timeless", polarity="yes", purpose="wanted"
    )
    main = replace(draw_clause(scene, wish), form=Form(tense="would"))
    return joined(_IF[0], main, sub, "fronted")
