"""Numbers that make no measurement are refused before anything is compiled."""

import math
from collections.abc import Collection

from simuljax.text import SPECIALS


def positive(config: object, *, but: Collection[str] = ()) -> None:
    """Refuses a number of a dataclass, alone or in a tuple, that is not above 0 and finite.

    Fields in `but` may be anything.
    """
    for name, value in vars(config).items():
        for number in value if isinstance(value, tuple) else (value,):
            counts = isinstance(number, int | float) and not isinstance(number, bool)
            if counts and name not in but and not 0 < number < math.inf:
                raise ValueError(f"{name} is {number}; it must be more than 0, and finite")


def check_vocabulary(size: int) -> None:
    """Refuses a vocabulary without a word."""
    if size <= len(SPECIALS):
        raise ValueError(f"vocabulary is {size}; the special pieces alone take {len(SPECIALS)}")
