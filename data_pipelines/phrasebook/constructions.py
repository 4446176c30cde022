"""Every construction of the grammar, and those that only the test split has."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from . import (
    frames_comparison,
    frames_fixed,
    frames_infinitive,
    frames_main,
    frames_numbers,
    frames_relative,
    frames_reported,
    frames_subordinate,
)
from .draw_clauses import FORMS, KINDS, FormName, Kind
from .lexemes import Bilingual
from .scene import Scene


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A family of constructions: the same frame with every form and kind of verb."""

    name: str
    build: Callable[[Scene, FormName, Kind], Bilingual]
    weight: float
    forms: tuple[FormName, ...] = FORMS


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """A construction with a core of its own."""

    name: str
    build: Callable[[Scene], Bilingual]
    weight: float


_NOW: tuple[FormName, ...] = ("present",)
_ACTIVE: tuple[FormName, ...] = ("present", "perfect", "future", "modal", "modal-past")
_CONDITION: tuple[FormName, ...] = ("present", "modal", "passive")
_BEFORE: tuple[FormName, ...] = ("present", "perfect", "modal-past", "passive")

FRAMES = (
    Frame(name="statement", build=frames_main.statement, weight=9),
    Frame(name="fronted", build=frames_main.fronted, weight=8),
    Frame(name="yes-no", build=frames_main.yes_no, weight=7),
    Frame(name="wh", build=frames_main.wh_question, weight=7),
    Frame(name="imperative", build=frames_main.imperative, weight=6, forms=_NOW),
    Frame(name="lets", build=frames_main.lets, weight=2, forms=_NOW),
    Frame(name="and", build=frames_main.coordinated, weight=5, forms=_ACTIVE),
    Frame(name="contrast", build=frames_main.contrasted, weight=4),
    Frame(name="because", build=frames_subordinate.because, weight=4),
    Frame(name="because-fronted", build=frames_subordinate.because_fronted, weight=4),
    Frame(name="although", build=frames_subordinate.although, weight=4),
    Frame(name="although-fronted", build=frames_subordinate.although_fronted, weight=4),
    Frame(name="if", build=frames_subordinate.conditional, weight=3, forms=_CONDITION),
    Frame(
        name="if-fronted", build=frames_subordinate.conditional_fronted, weight=4, forms=_CONDITION
    ),
    Frame(
        name="when-fronted",
        build=frames_subordinate.when_fronted,
        weight=3,
        forms=("present", "perfect", "modal-past"),
    ),
    Frame(name="before", build=frames_subordinate.before, weight=3, forms=_BEFORE),
    Frame(name="before-fronted", build=frames_subordinate.before_fronted, weight=3, forms=_BEFORE),
    Frame(name="until", build=frames_subordinate.temporal, weight=3, forms=("present", "passive")),
    Frame(
        name="while",
        build=frames_subordinate.meanwhile,
        weight=2,
        forms=("present", "perfect", "passive"),
    ),
    Frame(name="after", build=frames_subordinate.after, weight=3, forms=("perfect", "passive")),
    Frame(name="so-that", build=frames_subordinate.so_that, weight=2, forms=("modal", "passive")),
    Frame(name="that", build=frames_reported.that, weight=6),
    Frame(name="whether", build=frames_reported.whether, weight=5),
    Frame(name="indirect-wh", build=frames_reported.indirect_wh, weight=4),
    Frame(name="unreal", build=frames_subordinate.unreal, weight=3, forms=_NOW),
    Frame(name="relative-subject", build=frames_relative.relative_subject, weight=5),
    Frame(name="relative-object", build=frames_relative.relative_object, weight=5, forms=_ACTIVE),
    Frame(
        name="zu",
        build=frames_infinitive.to_infinitive,
        weight=5,
        forms=("present", "perfect", "future"),
    ),
    Frame(
        name="it-is-zu", build=frames_infinitive.it_is_to, weight=1.2, forms=("present", "perfect")
    ),
    Frame(name="um-zu", build=frames_infinitive.in_order_to, weight=3, forms=("present", "modal")),
    Frame(
        name="ohne-zu",
        build=frames_infinitive.without,
        weight=3,
        forms=("present", "perfect", "modal"),
    ),
    Frame(name="gern", build=frames_infinitive.gladly, weight=3, forms=_NOW),
)

NESTED = (
    Frame(name="that-because", build=frames_reported.that_because, weight=3, forms=_ACTIVE),
    Frame(name="because-relative", build=frames_relative.because_relative, weight=3, forms=_ACTIVE),
)

FIXED = (
    Fixed(name="because-it", build=frames_subordinate.because_it, weight=4),
    Fixed(name="compared", build=frames_comparison.compared, weight=2.5),
    Fixed(name="superlative", build=frames_comparison.superlative, weight=1.5),
    Fixed(name="better", build=frames_comparison.something_better, weight=3),
    Fixed(name="described", build=frames_comparison.described, weight=3),
    Fixed(name="price", build=frames_numbers.price, weight=3),
    Fixed(name="age", build=frames_numbers.age, weight=1),
    Fixed(name="counted", build=frames_numbers.counted, weight=2.5),
    Fixed(name="holds", build=frames_numbers.holds, weight=1),
    Fixed(name="distance", build=frames_numbers.distance, weight=0.5),
    Fixed(name="born", build=frames_numbers.born, weight=1),
    Fixed(name="timetable", build=frames_numbers.timetable, weight=1),
    Fixed(name="likes", build=frames_fixed.likes, weight=2),
    Fixed(name="belongs", build=frames_fixed.belongs, weight=1.2),
    Fixed(name="since", build=frames_fixed.since, weight=3),
    Fixed(name="is-where", build=frames_fixed.is_where, weight=0.8),
)

# Compositions that train and valid never show, though they show each two of the three parts
# together: fronted because-clauses in the perfect, separable verbs in the perfect, and so on.
HELD_OUT_COMPOSITIONS = (
    "because-fronted/perfect/separable",
    "although-fronted/modal-past/separable",
    "although/future/plain",
    "if-fronted/passive/separable",
    "before-fronted/perfect/separable",
    "that/future/separable",
    "whether/passive/separable",
    "indirect-wh/modal/separable",
    "relative-subject/modal/separable",
    "relative-object/perfect/separable",
    "wh/modal-past/separable",
    "yes-no/passive/plain",
    "fronted/future/separable",
    "contrast/modal-past/plain",
    "zu/future/separable",
    "ohne-zu/modal/separable",
)


@dataclass(frozen=True, kw_only=True)
class Construction:
    """One way to build a sentence; its name says the frame, the form and the kind of verb."""

    name: str
    build: Callable[[Scene], Bilingual]
    weight: float


def _composed(frame: Frame, form: FormName, kind: Kind) -> Construction:
    return Construction(
        name=f"{frame.name}/{form}/{kind}",
        build=lambda scene: frame.build(scene, form, kind),
        weight=frame.weight / (len(frame.forms) * len(KINDS)),
    )


def _compositions(frames: tuple[Frame, ...]) -> tuple[Construction, ...]:
    return tuple(_composed(f, form, kind) for f in frames for form in f.forms for kind in KINDS)


SHARED = tuple(c for c in _compositions(FRAMES) if c.name not in HELD_OUT_COMPOSITIONS) + tuple(
    Construction(name=f.name, build=f.build, weight=f.weight) for f in FIXED
)
TEST_ONLY = tuple(
    replace(c, weight=1) for c in _compositions(FRAMES) if c.name in HELD_OUT_COMPOSITIONS
) + _compositions(NESTED)
HELD_OUT = tuple(c.name for c in TEST_ONLY)
"""The constructions of the test split that train and valid lack."""
