"""Average token delay (Kano et al. 2023): the delay of each word after its source token.

Speech has no tokens, so 300 ms stand for one. The source between two distinct delays is cut into
such pseudo-tokens, starting afresh at each distinct delay; the remainder is a shorter one. Word t
belongs to the source token

    s(t) = min(t - max(0, Y_before - X_before), X_through)

where Y_before and X_before count words and source tokens before the words committed together with
t, and X_through source tokens through them. With T_t = max(d_t, T_{t-1}) + c_t and c_t the time it
took to compute word t (0 unless `elapsed` is given):

    ATD = mean_t T_t - (end of source token s(t))
"""

import itertools
import math
from collections.abc import Sequence

from simuljax.eval.latency import DEFAULT, PROFILES, Profile

TOKEN_MS = 300.0


def average_token_delay(
    delays: Sequence[float],
    source_length: float,
    reference_length: int,
    *,
    profile: Profile = DEFAULT,
    elapsed: Sequence[float] | None = None,
) -> float:
    """Return ATD of the words, the same in both profiles; NaN if there is no word.

    `elapsed` makes it computation-aware. The lengths are not used; all metrics have the same
    signature.
    """
    if profile not in PROFILES:
        raise ValueError(f"profile is {profile!r}; it must be one of {', '.join(PROFILES)}")
    if not len(delays):
        return math.nan
    delays = [float(delay) for delay in delays]
    if not all(map(math.isfinite, delays)):
        raise ValueError(f"delays are {delays}; each must be a finite number of milliseconds")
    source_ends, source_counts = _source_tokens(delays)
    total = 0.0
    for t, (chunk, words_before, time) in enumerate(_words(delays, elapsed), start=1):
        before = source_counts[min(chunk, len(source_counts) - 1)]
        through = source_counts[min(chunk + 1, len(source_counts) - 1)]
        token = min(t - max(0, words_before - before), through)
        total += time - source_ends[token]
    return total / len(delays)


def _source_tokens(delays: Sequence[float]) -> tuple[list[float], list[int]]:
    """Return the ends of pseudo-tokens (0 first), and their number up to each distinct delay."""
    ends, counts, heard = [0.0], [0], 0.0
    for delay in dict.fromkeys(delays):
        whole, rest = divmod(delay - heard, TOKEN_MS)
        pieces = [TOKEN_MS] * int(whole) + [rest] * (rest != 0)
        ends += itertools.accumulate(pieces[1:], initial=ends[-1] + pieces[0]) if pieces else []
        counts.append(counts[-1] + len(pieces))
        heard = delay
    return ends, counts


def _words(delays: Sequence[float], elapsed: Sequence[float] | None):
    """Yield for each word its group of equal delays, the words before that, and its time."""
    costs = _costs(delays, elapsed)
    time, words, chunk = 0.0, 0, 0
    for _, group in itertools.groupby(zip(delays, costs, strict=True), key=lambda pair: pair[0]):
        members = list(group)
        for delay, cost in members:
            time = max(delay, time) + cost
            yield chunk, words, time
        words, chunk = words + len(members), chunk + 1


def _costs(delays: Sequence[float], elapsed: Sequence[float] | None) -> list[float]:
    """Return the time spent on each word: the growth of `elapsed` - `delays`.

    An `elapsed` of zeros means that time was not measured.
    """
    if elapsed is None or not any(elapsed):
        return [0.0] * len(delays)
    if len(elapsed) != len(delays):
        raise ValueError(f"there are {len(delays)} delays but {len(elapsed)} elapsed times")
    spent = [e - d for e, d in zip(elapsed, delays, strict=True)]
    return [after - before for before, after in itertools.pairwise([0.0, *spent])]
