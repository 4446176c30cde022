"""What somebody or something is, and the pronoun that stands for it."""

from . import draw_nominals, modifiers, nominals
from .clauses import Clause, Form
from .lexemes import Adjective, Bilingual
from .nominals import Nominal
from .scene import Scene
from .verbs import BE

_PERSONAL = tuple(
    a for a in modifiers.ADJECTIVES if "person" in a.classes and a.english not in ("old", "young")
)
_ANYTHING = tuple(a for a in modifiers.ADJECTIVES if a.english in ("beautiful", "strange", "old"))
_STRONG = ("wonderful", "terrible", "delicious")  # nothing is very wonderful
_PLAIN = (Bilingual(english="", german=""),)
_DEGREES = _PLAIN + tuple(
    Bilingual(english=f"{e} ", german=f"{g} ")
    for e, g in (("very", "sehr"), ("too", "zu"), ("really", "wirklich"), ("quite", "ziemlich"))
)


def _predicable(thing: Nominal) -> tuple[Adjective, ...]:
    """What can be said of a thing and has not been said of it yet."""
    said = thing.english.split()
    options = draw_nominals.fitting(thing.noun) if thing.noun else ()
    return tuple(a for a in options if a.english not in said) or _ANYTHING


def state(scene: Scene, subject: Nominal, *, past: bool, about: Nominal | None = None) -> Clause:
    """Somebody is tired; something is expensive. `about` is what a pronoun stands for."""
    options = _PERSONAL if subject.animate else _predicable(about or subject)
    adjective = scene.dice.pick(options)
    gradable = adjective.comparative and adjective.rank < 3 and adjective.english not in _STRONG
    degree = scene.dice.pick(_DEGREES if gradable else _PLAIN)
    return Clause(
        subject=subject,
        verb=BE,
        form=Form(tense="past" if past else "present"),
        complement=Bilingual(
            english=degree.english + adjective.english, german=degree.german + adjective.german
        ),
    )


def pronoun_of(nominal: Nominal) -> Nominal | None:
    """He, she, it or they for what was named before; None where that would be odd."""
    return nominals.pronoun(nominal.owner) if nominal.owner else None
