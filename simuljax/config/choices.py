"""A choice that there is not: refused with the closest one, before anything is done."""

import difflib
from collections.abc import Iterable

from simuljax.config.experiment import ExperimentError


class ChoiceError(ExperimentError):
    """What the command line asks for is not there to choose."""


def absent(name: str, known: Iterable[str]) -> str:
    """That there is no such name, and which is meant if one is like it."""
    close = difflib.get_close_matches(name, [*known], 1, cutoff=0.5)
    return f"there is no {name!r}" + (f", do you mean {close[0]!r}?" if close else "")
