"""Every construction of the grammar, from `lexicon/constructions.tsv`.

A row names a function of `frames` or `fixed` and the weight of its sentences. With forms it is a
frame, which gives a construction for each form and kind of verb: `because/perfect/separable`.

Those in the column `held_out` are for the test split only. Train and valid never show them, though
they show each two of the three parts together: fronted because-clauses in the perfect, separable
verbs in the perfect, and so on.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from . import fixed, frames
from .draw import FORMS, KINDS, Scene
from .lexemes import Bilingual, table


@dataclass(frozen=True)
class Construction:
    """One way to build a sentence; its name tells the frame, the form and the kind of verb."""

    name: str
    build: Callable[[Scene], Bilingual]
    weight: float


def _compositions(row: Mapping[str, Any]) -> Iterator[Construction]:
    name, forms, weight = row["name"], row["forms"], float(row["weight"])
    build = vars(frames).get(row["build"]) or vars(fixed)[row["build"]]
    if row["conjunctions"]:
        links = tuple(frames.LINKS[link] for link in row["conjunctions"].split("|"))
        build = partial(build, links, row["order"])
    if not forms:
        yield Construction(name, build, weight)
    forms = FORMS if forms == ("all",) else forms
    for form, kind in ((form, kind) for form in forms for kind in KINDS):
        of_form = partial(build, form=form, kind=kind)
        yield Construction(f"{name}/{form}/{kind}", of_form, weight / (len(forms) * len(KINDS)))


_ROWS = [(row, [*_compositions(row)]) for row in table("constructions", "forms", "held_out")]
_APART = {f"{row['name']}/{held}" for row, _ in _ROWS for held in row["held_out"]}
_NESTED = [each for row, made in _ROWS if row["held_out"] == ("all",) for each in made]
_OTHERS = [each for row, made in _ROWS if row["held_out"] != ("all",) for each in made]
SHARED = tuple(each for each in _OTHERS if each.name not in _APART)
TEST_ONLY = (*(replace(each, weight=1) for each in _OTHERS if each.name in _APART), *_NESTED)
HELD_OUT = tuple(each.name for each in TEST_ONLY)
"""The constructions of the test split that train and valid lack."""
