"""Latency of one utterance from the times at which its words were committed.

d_i is the delay of word i (ms of source read), S the source's duration in the same unit, n the
number of words, r the reference's. Published numbers come from two versions of SimulEval:

    simuleval-1.1   words only: n delays, r
    simuleval-1.0   end-of-sentence counts: n + 1 delays, r + 1 (2020-2022 papers)

In 1.0 the delay of end-of-sentence is S unless `end_delay` is given. A text source counts its own
end there too, so its S is the number of words plus one; the caller adds it.

An utterance without a word has no latency: the value is NaN, and `score` skips and counts it. An
empty reference counts as one word, as `"".split(" ")` does.

Average token delay (Kano et al. 2023): the delay of each word after its source token.

Speech has no tokens, so 300 ms stand for one. The source between two distinct delays is cut into
such pseudo-tokens, starting afresh at each distinct delay; the remainder is a shorter one. Word t
belongs to the source token

    s(t) = min(t - max(0, Y_before - X_before), X_through)

where Y_before and X_before count words and source tokens before the words committed together with
t, and X_through source tokens through them. With T_t = max(d_t, T_{t-1}) + c_t and c_t the time it
took to compute word t (0 unless `elapsed` is given):

    ATD = mean_t T_t - (end of source token s(t))

Latency of spoken output: start, end and average token delay of the voice.

Output is a sequence of pieces, each spoken without a pause. A piece is committed after `delay_ms`
of the source and sounds from `start_ms` to `end_ms`, from the start of the source. `start_ms`
includes computation where it is measured, synthesis, and waiting for the piece before.

    StartOffset    start of the first piece
    EndOffset      end of the last piece - end of the source
    ATD            average token delay (Kano et al. 2023) with tokens on both sides

For ATD every piece is cut into tokens of 300 ms; its remainder is a shorter one. Token t belongs to
source token s(t) as in `token_delay`, by the delays of the pieces, and is complete at its end T_t:

    ATD = mean_t T_t - (end of source token s(t)) = ATD of text with those delays + mean_t T_t - d_t
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Speech without a pause."""

    delay_ms: float  # of the source, when its words were committed
    start_ms: float
    end_ms: float

    def __post_init__(self) -> None:
        if not self.start_ms <= self.end_ms < math.inf:
            raise ValueError(f"a piece cannot sound from {self.start_ms} to {self.end_ms} ms")
        if self.delay_ms < 0:
            raise ValueError(f"the delay of a piece must not be below 0, as {self.delay_ms} ms is")


@dataclass(frozen=True, kw_only=True)
class SpeechLatency:
    """The latencies of one recording, in ms."""

    start_offset: float
    end_offset: float
    token_delay: float


def speech_latency(pieces: Sequence[Piece], source_length: float) -> SpeechLatency:
    """Return the latencies of pieces in order that do not overlap; NaN without speech.

    `source_length` is the source's duration in ms.
    """
    if not 0 < source_length < math.inf:
        raise ValueError(f"source_length must be positive and finite, not {source_length}")
    for one, following in itertools.pairwise(pieces):
        if following.start_ms < one.end_ms or following.delay_ms < one.delay_ms:
            raise ValueError(f"{following} does not come after {one}")
    said = [piece for piece in pieces if piece.end_ms > piece.start_ms]
    if not said:
        return SpeechLatency(start_offset=math.nan, end_offset=math.nan, token_delay=math.nan)
    return SpeechLatency(
        start_offset=said[0].start_ms,
        end_offset=said[-1].end_ms - source_length,
        token_delay=speech_token_delay(said, source_length),
    )


def speech_token_delay(pieces: Sequence[Piece], source_length: float) -> float:
    """Return ATD of pieces that have a length; NaN if there are none."""
    tokens = [(piece.delay_ms, end) for piece in pieces for end in _token_ends(piece)]
    if not tokens:
        return math.nan
    delays = [delay for delay, _ in tokens]
    late = math.fsum(end - delay for delay, end in tokens) / len(tokens)
    return average_token_delay(delays, source_length, len(tokens)) + late


def _token_ends(piece: Piece) -> list[float]:
    """Return the ends of the tokens of a piece."""
    count = math.ceil((piece.end_ms - piece.start_ms) / TOKEN_MS)
    return [min(piece.start_ms + (t + 1) * TOKEN_MS, piece.end_ms) for t in range(count)]
