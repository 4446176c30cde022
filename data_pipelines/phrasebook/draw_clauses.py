"""Random clauses of a wanted form: the tense, and whether the verb is separable."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from . import draw_adverbials, draw_nominals, modifiers
from .clauses import Clause, Form, Polarity
from .lexemes import Bilingual, Verb
from .nominals import Nominal
from .nouns import nouns_of
from .scene import Scene
from .verbs import MODALS, MUST, PAST_MODALS, VERBS, WANT, WOULD_LIKE

FormName = Literal["present", "perfect", "future", "modal", "modal-past", "passive"]
Kind = Literal["plain", "separable"]
FORMS: tuple[FormName, ...] = ("present", "perfect", "future", "modal", "modal-past", "passive")
KINDS: tuple[Kind, ...] = ("plain", "separable")
_DENIABLE_MODALS = tuple(m for m in MODALS if m not in (MUST, WOULD_LIKE))
_PASSIVE_MODALS = tuple(m for m in MODALS if m not in (WANT, WOULD_LIKE))


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a construction asks of a clause.

    `subject` None lets the verb choose. `extras` are the time, place and manner that the verb
    does not demand; "timeless" leaves out the time and what implies one.
    """

    form: FormName
    kind: Kind
    subject: Nominal | None = None
    extras: Literal["all", "timeless"] = "all"
    polarity: Literal["any", "yes"] = "any"
    # wanted: somebody does it on purpose; lasting: and goes on doing it
    purpose: Literal["any", "wanted", "lasting"] = "any"
    objects: Literal["any", "thing", "needed"] = "any"  # needed: the verb has some object


@cache
def _verbs(wish_key: tuple[str, str, str, str, bool]) -> tuple[Verb, ...]:
    kind, form, purpose, objects, by_person = wish_key
    found = [v for v in VERBS if v.separable == (kind == "separable")]
    if form == "passive":
        return tuple(v for v in found if _has_passive(v))
    if by_person:
        found = [v for v in found if v.subject == ("person",)]
    if purpose != "any" or form.startswith("modal"):
        found = [v for v in found if not set(v.flags) & {"s", "u"} and v.subject == ("person",)]
    if purpose == "lasting":
        found = [v for v in found if "l" in v.flags]
    if objects != "any":
        found = [v for v in found if v.object and not v.recipient]
    if objects == "thing":
        found = [v for v in found if v.object and v.object.classes != ("person",)]
    return tuple(found)


def _has_passive(verb: Verb) -> bool:
    government = verb.object
    plain = government and not (government.english_preposition or government.german_preposition)
    if not (plain and government) or government.case != "acc" or verb.reflexive:
        return False
    return not verb.recipient and "x" not in verb.flags


def draw_verb(scene: Scene, wish: Wish) -> Verb:
    """A verb that can do what is wished."""
    by_person = wish.subject is not None
    return scene.dice.pick(_verbs((wish.kind, wish.form, wish.purpose, wish.objects, by_person)))


def object_of(scene: Scene, verb: Verb, actor: Nominal, *, denied: bool = False) -> Nominal | None:
    """Something the verb can be done to."""
    if not verb.object:
        return None
    dice, classes = scene.dice, verb.object.classes
    if "person" in classes and (len(classes) == 1 or dice.chance(0.5)):
        return draw_nominals.other_person(scene, actor)
    entry = dice.pick(nouns_of(tuple(c for c in classes if c != "person")))
    if denied:
        return draw_nominals.denied(scene, entry)
    if verb.object.german_preposition:
        return draw_nominals.definite(scene, entry, actor.owner)
    return draw_nominals.thing(scene, entry, actor.owner)


@dataclass(frozen=True, kw_only=True)
class _Timing:
    form: Form
    time: Bilingual | None = None
    mid: Bilingual | None = None


def _present(scene: Scene, verb: Verb, extras: str) -> _Timing:
    """Habits in the simple present, what happens now or is planned in the progressive."""
    dice, stative = scene.dice, "s" in verb.flags
    progressive = Form(tense="present" if stative else "progressive")
    if extras != "all":
        return _Timing(form=progressive)
    kind = dice.weighted(("habit", "often", "now", "planned"), (0.25, 0.3, 0.25, 0.2))
    if stative or kind == "often":
        return _Timing(form=Form(tense="present"), mid=dice.pick(modifiers.FREQUENCIES))
    if kind == "habit":
        return _Timing(form=Form(tense="present"), time=dice.pick(modifiers.HABITS))
    if kind == "now":
        return _Timing(form=progressive, time=dice.pick(modifiers.PRESENT_TIMES))
    return _Timing(form=progressive, time=draw_adverbials.future_time(scene))


def _perfect(scene: Scene, extras: str, voice: Literal["active", "passive"]) -> _Timing:
    """German has one spoken past for the two of English."""
    dice = scene.dice
    past, perfect = Form(tense="past", voice=voice), Form(tense="perfect", voice=voice)
    if extras != "all":
        return _Timing(form=past)
    if dice.chance(0.55):
        return _Timing(form=past, time=draw_adverbials.past_time(scene))
    return _Timing(form=perfect, mid=dice.pick(modifiers.PERFECT_ADVERBS))


def _modal(scene: Scene, wish: Wish, *, denied: bool) -> _Timing:
    dice = scene.dice
    if wish.form == "modal-past":
        form = Form(tense="past", modal=dice.pick(PAST_MODALS))
        time = draw_adverbials.past_time(scene)
    else:
        form = Form(tense="present", modal=dice.pick(_DENIABLE_MODALS if denied else MODALS))
        time = draw_adverbials.future_time(scene)
    return _Timing(form=form, time=time if wish.extras == "all" and dice.chance(0.6) else None)


def _passive(scene: Scene, extras: str) -> _Timing:
    dice = scene.dice
    kind = dice.weighted(("past", "now", "modal"), (0.45, 0.25, 0.3))
    if kind == "past":
        return _perfect(scene, extras, "passive")
    if kind == "now":
        time = dice.pick(modifiers.PRESENT_TIMES) if extras == "all" else None
        return _Timing(form=Form(tense="progressive", voice="passive"), time=time)
    time = draw_adverbials.future_time(scene) if extras == "all" and dice.chance(0.7) else None
    modal = dice.pick(_PASSIVE_MODALS)
    return _Timing(form=Form(tense="present", modal=modal, voice="passive"), time=time)


def _timing(scene: Scene, wish: Wish, verb: Verb, *, denied: bool) -> _Timing:
    if wish.form == "present":
        return _present(scene, verb, wish.extras)
    if wish.form == "perfect":
        return _perfect(scene, wish.extras, "active")
    if wish.form == "future":
        timed = wish.extras == "all" and scene.dice.chance(0.75)
        time = draw_adverbials.future_time(scene) if timed else None
        return _Timing(form=Form(tense="future"), time=time)
    if wish.form == "passive":
        return _passive(scene, wish.extras)
    return _modal(scene, wish, denied=denied)


def _passive_clause(scene: Scene, wish: Wish, verb: Verb) -> Clause:
    """The object becomes the subject; who does it may be said."""
    timing = _passive(scene, wish.extras)
    classes = verb.object.classes if verb.object else ()
    if classes == ("person",):
        done_to = wish.subject or draw_nominals.subject(scene)
    else:
        entry = scene.dice.pick(nouns_of(tuple(c for c in classes if c != "person")))
        done_to = draw_nominals.definite(scene, entry)
    agent = draw_nominals.person(scene) if scene.dice.chance(0.3) else None
    return Clause(
        subject=done_to,
        verb=verb,
        form=timing.form,
        agent=agent,
        time=timing.time,
        mid=timing.mid,
    )


def _extras(scene: Scene, verb: Verb) -> tuple[Bilingual | None, Bilingual | None]:
    """Maybe a manner, maybe a place."""
    dice = scene.dice
    manner = dice.pick(modifiers.MANNERS) if "m" in verb.flags and dice.chance(0.3) else None
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


def _polarity(scene: Scene, wish: Wish, verb: Verb) -> Polarity:
    """Whether to deny it, and how: not, not a, not yet."""
    dice = scene.dice
    if wish.polarity == "yes" or wish.form == "passive" or not dice.chance(0.14):
        return "yes"
    thing = verb.object and "person" not in verb.object.classes
    plain = thing and verb.object and not verb.object.german_preposition
    if plain and verb.object and verb.object.case == "acc" and dice.chance(0.45):
        return "no-kein"
    if wish.form == "perfect" and wish.extras == "all" and dice.chance(0.4):
        return "not-yet"
    return "no"


def draw_clause(scene: Scene, wish: Wish) -> Clause:
    """A clause as wished, everything else by chance."""
    verb = draw_verb(scene, wish)
    if wish.form == "passive":
        return _passive_clause(scene, wish, verb)
    actor = wish.subject or draw_nominals.subject(scene, verb.subject)
    polarity = _polarity(scene, wish, verb)
    timing = _timing(scene, wish, verb, denied=polarity != "yes")
    manner, place = _extras(scene, verb) if polarity == "yes" else (None, None)
    receiver = draw_nominals.other_person(scene, actor) if verb.recipient else None
    clause = Clause(
        subject=actor,
        verb=verb,
        form=timing.form,
        object=object_of(scene, verb, actor, denied=polarity == "no-kein"),
        recipient=receiver,
        complement=_complement(scene, verb),
        manner=manner,
        place=place,
        time=timing.time,
        mid=timing.mid,
        polarity=polarity,
    )
    return _settled(clause)


def _settled(clause: Clause) -> Clause:
    """Mends what cannot be said together: not yet and yesterday, not and often, not and many."""
    if clause.polarity == "yes":
        return clause
    if clause.polarity == "not-yet":
        form = replace(clause.form, tense="perfect")
        return replace(clause, mid=None, time=None, form=form)
    indefinite = clause.object and clause.object.weight == "indefinite"
    if clause.polarity == "no" and indefinite:
        return replace(clause, polarity="yes")
    return replace(clause, mid=None)
