"""Length of hypotheses against references (Papi et al. 2022, table 2)."""

import math
from collections.abc import Sequence

from simuljax.eval.logs import Record


def word_difference(records: Sequence[Record]) -> float:
    """Words of a prediction above those of its reference, mean over utterances; below 0, missing.

    Words are what `str.split` gives. NaN where there are no references.
    """
    known = [record for record in records if record.reference is not None]
    if not known:
        return math.nan
    more = (len(r.prediction.split()) - len((r.reference or "").split()) for r in known)
    return sum(more) / len(known)
