"""What somebody says, knows or asks: dass, ob, wann, warum."""

from . import draw_nominals, say_english, say_german
from .clauses import Clause, Form
from .draw_clauses import FormName, Kind, Wish, draw_clause
from .frames_main import addressed
from .frames_subordinate import BECAUSE, main_beside, next_subject
from .lexemes import Bilingual
from .scene import Scene
from .verbs import ASK, BE, FORGET, HEAR, KNOW, SAYING, WANT, WONDER

_IMPERSONAL = tuple(
    Bilingual(english=f"it is {e}", german=f"es ist {g}")
    for e, g in (("possible", "möglich"), ("strange", "seltsam"), ("true", "wahr"))
)
_SURE = Bilingual(english="sure", german="sicher")


def _said(clause: Clause) -> Bilingual:
    return Bilingual(english=say_english.statement(clause), german=say_german.statement(clause))


def _opinion(scene: Scene, form: FormName) -> Bilingual:
    """I think, Anna says, he hopes, we have heard, you are sure, it is possible."""
    dice = scene.dice
    if dice.chance(0.1):
        return dice.pick(_IMPERSONAL)
    subject = draw_nominals.subject(scene)
    kind = dice.weighted(("says", "heard", "sure"), (0.6, 0.2, 0.2))
    if kind == "heard":
        return _said(Clause(subject=subject, verb=HEAR, form=Form(tense="perfect")))
    if kind == "sure":
        form_now = Form(tense="present")
        return _said(Clause(subject=subject, verb=BE, form=form_now, complement=_SURE))
    options = [v for v in SAYING if v.english != "hope" or not form.startswith("modal")]
    return _said(Clause(subject=subject, verb=dice.pick(options), form=Form(tense="present")))


def that(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """I hope that you will call me up: dass."""
    opinion = _opinion(scene, form)
    sub = draw_clause(scene, Wish(form=form, kind=kind))
    return Bilingual(
        english=f"{opinion.english} that {say_english.statement(sub)}.",
        german=f"{opinion.german}, {say_german.subordinate(sub, 'dass')}.",
    )


def _wondering(scene: Scene) -> Bilingual:
    """He doesn't know, she wants to know, we asked, I wonder, they have forgotten."""
    dice, subject = scene.dice, draw_nominals.subject(scene)
    now = Form(tense="present")
    options = (
        Clause(subject=subject, verb=KNOW, form=now, polarity="no"),
        Clause(subject=subject, verb=KNOW, form=Form(tense="present", modal=WANT)),
        Clause(subject=subject, verb=ASK, form=Form(tense="past")),
        Clause(subject=subject, verb=WONDER, form=now),
        Clause(subject=subject, verb=FORGET, form=Form(tense="perfect")),
    )
    return _said(dice.pick(options))


def _doubt(scene: Scene) -> tuple[Scene, Bilingual, str]:
    """What opens an indirect question, and the mark that closes it."""
    if scene.dice.chance(0.7):
        return scene, _wondering(scene), "."
    scene, called = addressed(scene, 0.5)
    you = draw_nominals.personal(scene, "you")
    clause = Clause(subject=you, verb=KNOW, form=Form(tense="present"))
    asked = Bilingual(
        english=called.english + say_english.question(clause),
        german=called.german + say_german.question(clause),
    )
    return scene, asked, "?"


def whether(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """Do you know whether the train has left? ob."""
    scene, doubt, mark = _doubt(scene)
    sub = draw_clause(scene, Wish(form=form, kind=kind, polarity="yes"))
    return Bilingual(
        english=f"{doubt.english} whether {say_english.statement(sub)}{mark}",
        german=f"{doubt.german}, {say_german.subordinate(sub, 'ob')}{mark}",
    )


def indirect_wh(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """I don't know when the train leaves."""
    scene, doubt, mark = _doubt(scene)
    word, german = scene.dice.pick((("when", "wann"), ("why", "warum")))
    sub = draw_clause(scene, Wish(form=form, kind=kind, polarity="yes", extras="timeless"))
    return Bilingual(
        english=f"{doubt.english} {word} {say_english.statement(sub)}{mark}",
        german=f"{doubt.german}, {say_german.subordinate(sub, german)}{mark}",
    )


def that_because(scene: Scene, form: FormName, kind: Kind) -> Bilingual:
    """She says that he stayed at home because the train had left: two verbs at two ends."""
    opinion = _opinion(scene, form)
    past = form in ("perfect", "modal-past")
    main = main_beside(scene, past=past, link=BECAUSE[0], subject=None)
    again = next_subject(scene, main.subject)
    sub = draw_clause(scene, Wish(form=form, kind=kind, subject=again, extras="timeless"))
    return Bilingual(
        english=f"{opinion.english} that {say_english.statement(main)} because "
        f"{say_english.statement(sub)}.",
        german=f"{opinion.german}, {say_german.subordinate(main, 'dass')}, "
        f"{say_german.subordinate(sub, 'weil')}.",
    )
