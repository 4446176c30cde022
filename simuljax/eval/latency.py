"""Latency of one utterance from the times at which its words were committed.

d_i is the delay of word i (ms of source read), S the source's duration in the same unit, n the
number of words, r the reference's. Published numbers come from two versions of SimulEval:

    simuleval-1.1   words only: n delays, r
    simuleval-1.0   end-of-sentence counts: n + 1 delays, r + 1 (2020-2022 papers)

In 1.0 the delay of end-of-sentence is S unless `end_delay` is given. A text source counts its own
end there too, so its S is the number of words plus one; the caller adds it.

An utterance without a word has no latency: the value is NaN, and `score` skips and counts it. An
empty reference counts as one word, as `"".split(" ")` does.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Literal, get_args

Profile = Literal["simuleval-1.1", "simuleval-1.0"]
PROFILES: tuple[Profile, ...] = get_args(Profile)
DEFAULT: Profile = "simuleval-1.1"
TOKEN_MS = 300.0  # of a pseudo-token


def average_lagging(
    delays: Sequence[float],
    source_length: float,
    reference_length: int,
    *,
    profile: Profile = DEFAULT,
    end_delay: float | None = None,
) -> float:
    """Return AL = mean_{i <= tau} d_i - (i-1) S/r, tau the first i with d_i >= S (Ma 2019).

    1.0: r + 1 for r, and the ideal delay stays at r S/(r+1) once the reference is used up.
    """
    times = _times(delays, source_length, profile, end_delay)
    old = profile == "simuleval-1.0"
    entries, last = max(reference_length, 1) + old, max(reference_length, 1) if old else math.inf
    return _lagging(times, source_length, source_length / entries, last)


def length_adaptive_average_lagging(
    delays: Sequence[float],
    source_length: float,
    reference_length: int,
    *,
    profile: Profile = DEFAULT,
    end_delay: float | None = None,
) -> float:
    """Return LAAL: AL with max(n, r) for r, in 1.0 max(n+1, r) (Papi 2022, Polák 2022)."""
    times = _times(delays, source_length, profile, end_delay)
    entries = max(len(times), reference_length, 1)
    return _lagging(times, source_length, source_length / entries)


def average_proportion(
    delays: Sequence[float],
    source_length: float,
    reference_length: int,
    *,
    profile: Profile = DEFAULT,
    end_delay: float | None = None,
) -> float:
    """Return AP = sum_i d_i / (S r), in 1.0 sum_i d_i / (S (n+1)) (Cho & Esipova 2016)."""
    times = _times(delays, source_length, profile, end_delay)
    if not times:
        return math.nan
    entries = len(times) if profile == "simuleval-1.0" else max(reference_length, 1)
    return math.fsum(times) / (source_length * entries)


def differentiable_average_lagging(
    delays: Sequence[float],
    source_length: float,
    reference_length: int,
    *,
    profile: Profile = DEFAULT,
    end_delay: float | None = None,
) -> float:
    """Return DAL = mean_i d'_i - (i-1) S/n,  d'_1 = d_1,  d'_i = max(d_i, d'_{i-1} + S/n).

    From Arivazhagan et al. 2019. The reference plays no part; 1.0 has n + 1 for n.
    """
    times = _times(delays, source_length, profile, end_delay)
    if not times:
        return math.nan
    step, spaced, total = source_length / len(times), -math.inf, 0.0
    for i, delay in enumerate(times):
        spaced = max(delay, spaced + step)
        total += spaced - i * step
    return total / len(times)


def yaal(
    delays: Sequence[float],
    source_length: float,
    reference_length: int,
    *,
    profile: Profile = DEFAULT,
    source_end: float | None = None,
) -> float:
    """Return YAAL: LAAL over the words with d_i < S; NaN if there are none (Polák et al. 2025).

    `source_end` is the end of a longer recording of which S is one segment: then the words with
    d_i < source_end count (LongYAAL). End-of-sentence is not a word.
    """
    _times(delays, source_length, profile, None)
    end = source_length if source_end is None else source_end
    entries = max(len(delays) + (profile == "simuleval-1.0"), reference_length, 1)
    before = next((i for i, delay in enumerate(delays) if delay >= end), len(delays))
    return _lagging(delays[:before], math.inf, source_length / entries)


def _lagging(
    times: Sequence[float], source_length: float, step: float, last: float = math.inf
) -> float:
    """Return the mean of d_i - step min(i, last), i from 0, through the first d_i >= S."""
    total, count = 0.0, 0
    for i, delay in enumerate(times):
        total += delay - step * min(i, last)
        count = i + 1
        if delay >= source_length:
            break
    return total / count if count else math.nan


def _times(
    delays: Sequence[float], source_length: float, profile: Profile, end_delay: float | None
) -> list[float]:
    """Return the delays that a profile counts; none if there is no word."""
    if profile not in PROFILES:
        raise ValueError(f"profile is {profile!r}; it must be one of {', '.join(PROFILES)}")
    if not 0 < source_length < math.inf:
        raise ValueError(f"source_length must be positive and finite, not {source_length}")
    times = list(delays)
    if times and profile == "simuleval-1.0":
        times.append(source_length if end_delay is None else end_delay)
    return times


def average_token_delay(
    delays: Sequence[float],
    source_length: float,
    reference_length: int,
    *,
    profile: Profile = DEFAULT,
    elapsed: Sequence[float] | None = None,
) -> float:
    """Return ATD = mean_t T_t - (end of source token s(t)), the same in both profiles (Kano 2023).

    Speech has no tokens, so 300 ms stand for one. The source between two distinct delays is cut
    into such pseudo-tokens, starting afresh at each; the remainder is a shorter one. Word t belongs
    to s(t) = min(t - max(0, Y_before - X_before), X_through): Y_before and X_before count words and
    source tokens before the words committed together with t, X_through source tokens through them.
    T_t = max(d_t, T_{t-1}) + c_t, c_t the time that word t took: 0 unless `elapsed` is given.
    """
    if profile not in PROFILES:
        raise ValueError(f"profile is {profile!r}; it must be one of {', '.join(PROFILES)}")
    if not len(delays):
        return math.nan
    delays = [float(delay) for delay in delays]
    if not all(map(math.isfinite, delays)):
        raise ValueError(f"delays are {delays}; each must be a finite number of milliseconds")
    ends, counts = _source_tokens(delays)
    total, time, t = 0.0, 0.0, 0
    words = zip(delays, _costs(delays, elapsed), strict=True)
    for chunk, (_, group) in enumerate(itertools.groupby(words, key=lambda word: word[0])):
        before, through = (counts[min(i, len(counts) - 1)] for i in (chunk, chunk + 1))
        ahead = max(0, t - before)
        for delay, cost in group:
            t, time = t + 1, max(delay, time) + cost
            total += time - ends[min(t - ahead, through)]
    return total / len(delays)


def _source_tokens(delays: Sequence[float]) -> tuple[list[float], list[int]]:
    """Return the ends of pseudo-tokens (0 first), and their number up to each distinct delay.

    Word t belongs to token t at most, so no more ends than words are listed.
    """
    ends, counts, last = [0.0], [0], 0.0
    for delay in dict.fromkeys(delays):
        whole, rest = divmod(delay - last, TOKEN_MS)
        pieces = [TOKEN_MS] * min(int(whole), len(delays)) + [rest] * (rest != 0)
        if pieces and len(ends) <= len(delays):
            ends += itertools.accumulate(pieces[1:], initial=ends[-1] + pieces[0])
        counts.append(counts[-1] + max(0, int(whole)) + (rest != 0))
        last = delay
    return ends, counts


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
