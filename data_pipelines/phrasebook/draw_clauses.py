"""Random clauses of a wanted form: the tense, and whether the verb is separable."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, get_args

from . import draw_adverbials, draw_nominals
from .clauses import Clause, Form, Polarity
from .lexemes import (
    ADJECTIVES,
    ALLOWED,
    CAN,
    HAVE_TO,
    MODALS,
    MUST,
    PHRASES,
    SPECIAL,
    VERBS,
    WANT,
    WOULD_LIKE,
    Bilingual,
    Verb,
    nouns_of,
)
from .nominals import Nominal
from .scene import Scene

FormName = Literal["present", "perfect", "future", "modal", "modal-past", "passive"]
Kind = Literal["plain", "separable"]
FORMS: tuple[FormName, ...] = get_args(FormName)
KINDS: tuple[Kind, ...] = get_args(Kind)
_PAST_MODALS = (CAN, HAVE_TO, WANT, ALLOWED)
_DENIABLE_MODALS = tuple(m for m in MODALS if m not in (MUST, WOULD_LIKE))
_PASSIVE_MODALS = tuple(m for m in MODALS if m not in (WANT, WOULD_LIKE))
_PERSONAL = tuple(
    a for a in ADJECTIVES if "person" in a.classes and a.english not in ("old", "young")
)
_ANYTHING = tuple(a for a in ADJECTIVES if a.english in ("beautiful", "strange", "old"))
_STRONG = ("wonderful", "terrible", "delicious")  # nothing is very wonderful


@cache
def _verbs(kind: str, form: str, purpose: str, objects: str, by_person: bool) -> tuple[Verb, ...]:
    found = [v for v in VERBS if bool(v.prefix) == (kind == "separable")]
    if form == "passive":
        return tuple(v for v in found if _has_passive(v))
    if by_person:
        found = [v for v in found if v.subject == ("person",)]
    if purpose != "any" or form.startswith("modal"):
        found = [v for v in found if not set(v.flags) & {"s", "u"} and v.subject == ("person",)]
    if purpose == "lasting":
        found = [v for v in found if "l" in v.flags]
    if objects != "any":
        found = [v for v in found if v.object_case and not v.recipient]
    if objects == "thing":
        found = [v for v in found if v.things]
    return tuple(found)


def _has_passive(verb: Verb) -> bool:
    if verb.object_case != "acc" or verb.english_preposition or verb.german_preposition:
        return False
    return not (verb.reflexive or verb.recipient or "x" in verb.flags)


def object_of(scene: Scene, verb: Verb, actor: Nominal, *, denied: bool = False) -> Nominal | None:
    """Draw something the verb can be done to."""
    if not verb.object_case:
        return None
    dice, classes = scene.dice, verb.object_classes
    if "person" in classes and (len(classes) == 1 or dice.chance(0.5)):
        return draw_nominals.other_person(scene, actor)
    entry = dice.pick(nouns_of(*verb.things))
    if denied:
        return draw_nominals.denied(scene, entry)
    if verb.german_preposition:
        return draw_nominals.definite(scene, entry, actor.owner)
    return draw_nominals.thing(scene, entry, actor.owner)


@dataclass(frozen=True)
class _Timing:
    form: Form
    time: Bilingual | None = None
    mid: Bilingual | None = None


def _present(scene: Scene, verb: Verb, extras: str) -> _Timing:
    """Put habits into the simple present, what happens now or is planned into the progressive."""
    dice, stative, simple = scene.dice, "s" in verb.flags, Form("present")
    progressive = simple if stative else Form("progressive")
    if extras != "all":
        return _Timing(progressive)
    kind = dice.weighted(("habit", "often", "now", "planned"), (0.25, 0.3, 0.25, 0.2))
    if stative or kind == "often":
        return _Timing(simple, mid=dice.pick(PHRASES["frequencies"]))
    if kind == "habit":
        return _Timing(simple, dice.pick(PHRASES["habits"]))
    if kind == "now":
        return _Timing(progressive, dice.pick(PHRASES["present_times"]))
    return _Timing(progressive, draw_adverbials.future_time(scene))


def _perfect(scene: Scene, extras: str, voice: Literal["active", "passive"] = "active") -> _Timing:
    """Draw one of the two English pasts; spoken German has one."""
    if extras != "all":
        return _Timing(Form("past", voice=voice))
    if scene.dice.chance(0.55):
        return _Timing(Form("past", voice=voice), draw_adverbials.past_time(scene))
    return _Timing(Form("perfect", voice=voice), mid=scene.dice.pick(PHRASES["perfect_adverbs"]))


def _modal(scene: Scene, form: FormName, extras: str, *, denied: bool) -> _Timing:
    dice = scene.dice
    if form == "modal-past":
        chosen, time = Form("past", dice.pick(_PAST_MODALS)), draw_adverbials.past_time(scene)
    else:
        chosen = Form("present", dice.pick(_DENIABLE_MODALS if denied else MODALS))
        time = draw_adverbials.future_time(scene)
    return _Timing(chosen, time if extras == "all" and dice.chance(0.6) else None)


def _passive(scene: Scene, extras: str) -> _Timing:
    dice = scene.dice
    kind = dice.weighted(("past", "now", "modal"), (0.45, 0.25, 0.3))
    if kind == "past":
        return _perfect(scene, extras, "passive")
    if kind == "now":
        time = dice.pick(PHRASES["present_times"]) if extras == "all" else None
        return _Timing(Form("progressive", voice="passive"), time)
    time = draw_adverbials.future_time(scene) if extras == "all" and dice.chance(0.7) else None
    return _Timing(Form("present", dice.pick(_PASSIVE_MODALS), "passive"), time)


def _timing(scene: Scene, verb: Verb, form: FormName, extras: str, *, denied: bool) -> _Timing:
    if form == "present":
        return _present(scene, verb, extras)
    if form == "perfect":
        return _perfect(scene, extras)
    if form == "future":
        timed = extras == "all" and scene.dice.chance(0.75)
        return _Timing(Form("future"), draw_adverbials.future_time(scene) if timed else None)
    return _modal(scene, form, extras, denied=denied)


def _passive_clause(scene: Scene, verb: Verb, subject: Nominal | None, extras: str) -> Clause:
    """Make the object the subject; the agent may be named."""
    timing = _passive(scene, extras)
    if verb.things:
        done_to = draw_nominals.definite(scene, scene.dice.pick(nouns_of(*verb.things)))
    else:
        done_to = subject or draw_nominals.subject(scene)
    agent = draw_nominals.person(scene) if scene.dice.chance(0.3) else None
    return Clause(subject=done_to, verb=verb, agent=agent, **vars(timing))


def _extras(scene: Scene, verb: Verb) -> tuple[Bilingual | None, Bilingual | None]:
    """Draw a manner or a place, or neither."""
    dice = scene.dice
    manner = dice.pick(PHRASES["manners"]) if "m" in verb.flags and dice.chance(0.3) else None
    if manner or "p" not in verb.flags or not dice.chance(0.35):
        return manner, None
    return None, draw_adverbials.location(scene, "stop" if verb.english == "arrive" else "any")


def _complement(scene: Scene, verb: Verb) -> Bilingual | None:
    if verb.complement == "direction":
        far = {"drive": "far", "travel": "cities", "fly": "cities"}
        return draw_adverbials.direction(scene, far.get(verb.english, "near"))
    if verb.complement == "location":
        return draw_adverbials.location(scene, "home" if verb.english == "live" else "any")
    return None


def _denial(scene: Scene, verb: Verb, form: FormName, extras: str) -> Polarity:
    """Draw a denial: not, not a, not yet, or none."""
    dice = scene.dice
    if not dice.chance(0.14):
        return "yes"
    plain = verb.object_case == "acc" and not verb.german_preposition
    if plain and "person" not in verb.object_classes and dice.chance(0.45):
        return "no-kein"
    return "not-yet" if form == "perfect" and extras == "all" and dice.chance(0.4) else "no"


def draw_clause(
    scene: Scene,
    form: FormName,
    kind: Kind,
    subject: Nominal | None = None,
    *,
    extras: Literal["all", "timeless"] = "all",
    polarity: Literal["any", "yes"] = "any",
    purpose: Literal["any", "wanted", "lasting"] = "any",
    objects: Literal["any", "thing", "needed"] = "any",
) -> Clause:
    """Draw a clause with these properties, everything else by chance.

    `subject` None lets the verb choose. `extras` are the time, place and manner that the verb
    does not demand; "timeless" leaves out the time and what implies one. A "wanted" action is done
    on purpose, a "lasting" one also continues. With "needed" the verb has some object.
    """
    verb = scene.dice.pick(_verbs(kind, form, purpose, objects, subject is not None))
    if form == "passive":
        return _passive_clause(scene, verb, subject, extras)
    actor = subject or draw_nominals.subject(scene, verb.subject)
    denial = "yes" if polarity == "yes" else _denial(scene, verb, form, extras)
    timing = _timing(scene, verb, form, extras, denied=denial != "yes")
    manner, place = _extras(scene, verb) if denial == "yes" else (None, None)
    receiver = draw_nominals.other_person(scene, actor) if verb.recipient else None
    clause = Clause(
        subject=actor,
        verb=verb,
        object=object_of(scene, verb, actor, denied=denial == "no-kein"),
        recipient=receiver,
        complement=_complement(scene, verb),
        manner=manner,
        place=place,
        polarity=denial,
        **vars(timing),
    )
    return _consistent(clause)


def draw_action(
    scene: Scene,
    form: FormName,
    kind: Kind,
    subject: Nominal | None = None,
    purpose: Literal["wanted", "lasting"] = "wanted",
) -> Clause:
    """Draw a clause of something done on purpose, without a time and not denied."""
    return draw_clause(
        scene, form, kind, subject, extras="timeless", polarity="yes", purpose=purpose
    )


def _consistent(clause: Clause) -> Clause:
    """Repair what cannot be said together: not yet and yesterday, not and often, not and many."""
    if clause.polarity == "yes":
        return clause
    if clause.polarity == "not-yet":
        return replace(clause, mid=None, time=None, form=replace(clause.form, tense="perfect"))
    if clause.polarity == "no" and clause.object and clause.object.weight == "indefinite":
        return replace(clause, polarity="yes")
    return replace(clause, mid=None)


def is_so(subject: Nominal, predicate: Bilingual, form: Form | None = None) -> Clause:
    """Say that the subject is something."""
    form = form or Form("present")
    return Clause(subject=subject, verb=SPECIAL["be"], form=form, complement=predicate)


def state(scene: Scene, subject: Nominal, *, past: bool, about: Nominal | None = None) -> Clause:
    """Draw what somebody or something is. `about` is what a pronoun stands for."""
    options = _PERSONAL
    if not subject.animate:
        thing = about or subject
        said = thing.english.split()
        fitting = draw_nominals.fitting(thing.noun) if thing.noun else ()
        options = tuple(a for a in fitting if a.english not in said) or _ANYTHING
    adjective = scene.dice.pick(options)
    gradable = adjective.gradable and adjective.english not in _STRONG
    degree = scene.dice.pick(PHRASES["degrees"][: None if gradable else 1])
    predicate = Bilingual(
        f"{degree.english} {adjective.english}".lstrip(),
        f"{degree.german} {adjective.german}".lstrip(),
    )
    return is_so(subject, predicate, Form("past" if past else "present"))
