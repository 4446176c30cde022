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

import math
from collections.abc import Sequence
from typing import Literal, get_args

Profile = Literal["simuleval-1.1", "simuleval-1.0"]
PROFILES: tuple[Profile, ...] = get_args(Profile)
DEFAULT: Profile = "simuleval-1.1"


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
    entries = _reference(reference_length, profile)
    last = entries - 1 if profile == "simuleval-1.0" else math.inf
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


def hypothesis_average_lagging(
    delays: Sequence[float],
    source_length: float,
    *,
    profile: Profile = DEFAULT,
    end_delay: float | None = None,
) -> float:
    """Return AL as first published, with n for r (Ma 2019; figure 3 of Nguyen et al. 2021)."""
    return average_lagging(delays, source_length, len(delays), profile=profile, end_delay=end_delay)


def off_by_one_average_lagging(
    delays: Sequence[float], source_length: float, reference_length: int
) -> float:
    """Return AL as the code of Dugan et al. 2023 has it: words count from 0, less one.

        AL' = mean_{i <= tau} d_i - (i-2) S/r,  tau the first i with d_i > S (all, if none)

    The ideal speaker says its first word S/r before the recording begins, so AL' exceeds AL by S/r.
    Words after the first with a delay of exactly S count as well. Their words are Whisper's tokens;
    here they are the units of delays and reference.
    """
    _times(delays, source_length, DEFAULT, None)
    step = source_length / max(reference_length, 1)
    end = math.nextafter(source_length, math.inf)  # d_i > S
    return _lagging(delays, end, step) + step


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


def _reference(reference_length: int, profile: Profile) -> int:
    return max(reference_length, 1) + (profile == "simuleval-1.0")
