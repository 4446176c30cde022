"""Every construction of the grammar, and those that only the test split has."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from . import fixed, frames
from .draw import FORMS, KINDS, FormName, Scene
from .frames import linked
from .lexemes import Bilingual


@dataclass(frozen=True)
class Frame:
    """A family of constructions: the same frame with every form and kind of verb."""

    name: str
    build: Callable[..., Bilingual]  # of the scene, form and kind
    weight: float
    forms: tuple[FormName, ...] = FORMS


@dataclass(frozen=True)
class Construction:
    """One way to build a sentence; its name tells the frame, the form and the kind of verb."""

    name: str
    build: Callable[[Scene], Bilingual]
    weight: float


_ACTIVE: tuple[FormName, ...] = ("present", "perfect", "future", "modal", "modal-past")
_CONDITION: tuple[FormName, ...] = ("present", "modal", "passive")
_BEFORE: tuple[FormName, ...] = ("present", "perfect", "modal-past", "passive")
_UNTIL = (frames.UNTIL, frames.AS_SOON_AS)

FRAMES = (
    Frame("statement", frames.statement, 9),
    Frame("fronted", frames.fronted, 8),
    Frame("yes-no", frames.yes_no, 7),
    Frame("wh", frames.wh_question, 7),
    Frame("imperative", frames.imperative, 6, ("present",)),
    Frame("lets", frames.lets, 2, ("present",)),
    Frame("and", frames.coordinated, 5, _ACTIVE),
    Frame("contrast", frames.contrasted, 4),
    Frame("because", partial(linked, (frames.BECAUSE,), "after"), 4),
    Frame("because-fronted", partial(linked, (frames.BECAUSE,), "fronted"), 4),
    Frame("although", partial(linked, (frames.ALTHOUGH,), "after"), 4),
    Frame("although-fronted", partial(linked, (frames.ALTHOUGH,), "fronted"), 4),
    Frame("if", partial(linked, (frames.IF,), "after"), 3, _CONDITION),
    Frame("if-fronted", partial(linked, (frames.IF,), "fronted"), 4, _CONDITION),
    Frame("when-fronted", frames.when_fronted, 3, ("present", "perfect", "modal-past")),
    Frame("before", partial(linked, (frames.BEFORE,), "after"), 3, _BEFORE),
    Frame("before-fronted", partial(linked, (frames.BEFORE,), "fronted"), 3, _BEFORE),
    Frame("until", partial(linked, _UNTIL, "after"), 3, ("present", "passive")),
    Frame("while", partial(linked, (frames.WHILE,), "after"), 2, ("present", "perfect", "passive")),
    Frame("after", frames.after, 3, ("perfect", "passive")),
    Frame("so-that", frames.so_that, 2, ("modal", "passive")),
    Frame("that", frames.that, 6),
    Frame("whether", frames.whether, 5),
    Frame("indirect-wh", frames.indirect_wh, 4),
    Frame("unreal", frames.unreal, 3, ("present",)),
    Frame("relative-subject", frames.relative_subject, 5),
    Frame("relative-object", frames.relative_object, 5, _ACTIVE),
    Frame("zu", frames.to_infinitive, 5, ("present", "perfect", "future")),
    Frame("it-is-zu", frames.it_is_to, 1.2, ("present", "perfect")),
    Frame("um-zu", frames.in_order_to, 3, ("present", "modal")),
    Frame("ohne-zu", frames.without, 3, ("present", "perfect", "modal")),
    Frame("gern", frames.gladly, 3, ("present",)),
)
NESTED = (
    Frame("that-because", frames.that_because, 3, _ACTIVE),
    Frame("because-relative", frames.because_relative, 3, _ACTIVE),
)
FIXED = (
    Construction("because-it", frames.because_it, 4),
    Construction("compared", fixed.compared, 2.5),
    Construction("superlative", fixed.superlative, 1.5),
    Construction("better", fixed.something_better, 3),
    Construction("described", fixed.described, 3),
    Construction("price", fixed.price, 3),
    Construction("age", fixed.age, 1),
    Construction("counted", fixed.counted, 2.5),
    Construction("holds", fixed.holds, 1),
    Construction("distance", fixed.distance, 0.5),
    Construction("born", fixed.born, 1),
    Construction("timetable", fixed.timetable, 1),
    Construction("likes", fixed.likes, 2),
    Construction("belongs", fixed.belongs, 1.2),
    Construction("since", fixed.since, 3),
    Construction("is-where", fixed.is_where, 0.8),
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


def _compositions(frames: Iterable[Frame]) -> tuple[Construction, ...]:
    return tuple(
        Construction(
            f"{frame.name}/{form}/{kind}",
            partial(frame.build, form=form, kind=kind),
            frame.weight / (len(frame.forms) * len(KINDS)),
        )
        for frame in frames
        for form in frame.forms
        for kind in KINDS
    )


_COMPOSED = _compositions(FRAMES)
SHARED = (*(c for c in _COMPOSED if c.name not in HELD_OUT_COMPOSITIONS), *FIXED)
TEST_ONLY = (
    *(replace(c, weight=1) for c in _COMPOSED if c.name in HELD_OUT_COMPOSITIONS),
    *_compositions(NESTED),
)
HELD_OUT = tuple(c.name for c in TEST_ONLY)
"""The constructions of the test split that train and valid lack."""
