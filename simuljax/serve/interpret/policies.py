"""When a model that was trained on whole sentences speaks (Dugan et al. 2023; spec section 10).

Every window the model writes down the sound since the last committed point anew. A policy looks at
this hypothesis and those before it, judges its segments in order, and stops at the first that it
refuses:

    greedy       all are committed
    offline      none, until the buffer is full or the sound has ended
    confidence   1 - P(no speech) > threshold, or exp(mean log P of the segment's tokens)
    consensus    similarity(segment, the same segment of the hypothesis before) >= threshold

or its words:

    AlignAtt         while none attends to the last `frames` encoder states
    local agreement  while the last `hypotheses` have them in common

with similarity(a, b) = 1 - indel(a, b) / (|a| + |b|) on characters.

The same segment is the one at the same place, counted from the beginning of the buffer: what is
done with is taken from the front of both. Where there is none, the segment is new, and refused.
"""

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from simuljax.serve.interpret.hypothesis import Hypothesis, InterpretError, Segment


@dataclass(frozen=True, kw_only=True)
class Greedy:
    """Whatever the model writes is said."""

    looks_back: ClassVar[int] = 0  # at so many hypotheses before


@dataclass(frozen=True, kw_only=True)
class Offline:
    """Nothing is said before the sound has ended, or the buffer is full."""

    looks_back: ClassVar[int] = 0


@dataclass(frozen=True, kw_only=True)
class Confidence:
    """A segment is said if the model is surer than `threshold` that there is speech, or of it."""

    threshold: float = 0.5
    by: Literal["no_speech", "log_probability"] = "no_speech"
    looks_back: ClassVar[int] = 0

    def __post_init__(self) -> None:
        _check_share("threshold", self.threshold)
        if self.by not in ("no_speech", "log_probability"):
            raise InterpretError(f"by is {self.by!r}; choose 'no_speech' or 'log_probability'")


@dataclass(frozen=True, kw_only=True)
class Consensus:
    """A segment is said if the window before gave it much the same text."""

    threshold: float = 0.5
    looks_back: ClassVar[int] = 1

    def __post_init__(self) -> None:
        _check_share("threshold", self.threshold)


@dataclass(frozen=True, kw_only=True)
class AlignAtt:
    """Words are said up to the first that attends to the last `frames` states, 20 ms each."""

    frames: int = 25
    looks_back: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if self.frames < 0:
            raise InterpretError(f"frames is {self.frames}; the last 0 states or more")


@dataclass(frozen=True, kw_only=True)
class LocalAgreement:
    """Words are said that so many hypotheses in a row begin with.

    Capital letters and marks at the ends of a word do not count; it is said as in the last.
    """

    hypotheses: int = 2

    def __post_init__(self) -> None:
        if self.hypotheses < 2:
            raise InterpretError(f"hypotheses is {self.hypotheses}; at least 2 can agree")

    @property
    def looks_back(self) -> int:
        """At so many hypotheses before."""
        return self.hypotheses - 1


Policy = Greedy | Offline | Confidence | Consensus | AlignAtt | LocalAgreement


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How much of a hypothesis is committed, and how many of its segments are done with."""

    words: int
    segments: int


def judge(
    policy: Policy,
    now: Hypothesis,
    before: Sequence[Hypothesis],
    *,
    committed: int = 0,
    least_s: float = 0.0,
) -> Verdict:
    """Of a hypothesis whose first `committed` words are so already.

    Where words are judged, a segment is done with when all its words are and another follows it.
    The segments of the first `least_s` must be done with, because the buffer is full; of all, when
    the sound has ended. If the policy refuses, all but the last are, which the end of the buffer
    may have cut; or if that is not enough, all.
    """
    count = len(now.segments)
    if isinstance(policy, AlignAtt | LocalAgreement):
        words = max(committed, words_to_say(policy, now, before))
        done = min(now.segments_in(words), max(0, count - 1))
    else:
        words = committed
        done = segments_to_say(policy, now, before[-1] if before else None)
    ways = (done, max(done, count - 1))
    done = next((way for way in ways if now.end_of(way) >= least_s), count)
    return Verdict(words=max(words, now.words_in(done)), segments=done)


def segments_to_say(
    policy: Greedy | Offline | Confidence | Consensus, now: Hypothesis, before: Hypothesis | None
) -> int:
    """How many of the first segments are committed."""
    for place, segment in enumerate(now.segments):
        former = before.segments[place : place + 1] if before else ()
        if not _accepts(policy, segment, former):
            return place
    return len(now.segments)


def _accepts(
    policy: Greedy | Offline | Confidence | Consensus, segment: Segment, former: Sequence[Segment]
) -> bool:
    match policy:
        case Greedy():
            return True
        case Offline():
            return False
        case Confidence(by="no_speech"):
            return 1 - segment.no_speech > policy.threshold
        case Confidence():
            return math.exp(segment.log_probability) > policy.threshold
        case Consensus():
            alike = [similarity(segment.text, other.text) for other in former]
            return bool(alike) and alike[0] >= policy.threshold


def words_to_say(
    policy: AlignAtt | LocalAgreement, now: Hypothesis, before: Sequence[Hypothesis]
) -> int:
    """How many of the first words are committed; `before` are hypotheses, the latest last."""
    words = now.words
    match policy:
        case AlignAtt():
            last = now.states - policy.frames
            late = (place for place, word in enumerate(words) if word.state >= last)
            return next(late, len(words))
        case LocalAgreement():
            recent = before[-policy.looks_back :]
            if len(recent) < policy.looks_back:
                return 0
            said = [[plain(word.text) for word in h.words] for h in (*recent, now)]
            return _in_common(said)


def _in_common(texts: Sequence[Sequence[str]]) -> int:
    """With how many words all begin."""
    count = 0
    for words in zip(*texts, strict=False):
        if len(set(words)) > 1:
            break
        count += 1
    return count


def plain(word: str) -> str:
    """Without capital letters and marks at the ends; marks alone stay as they are."""
    return word.strip(string.punctuation + "“”¿¡…«»。、，！？").casefold() or word


def similarity(first: str, second: str) -> float:
    """1 - indel / (|first| + |second|): insertions and deletions that make one of the other.

    indel = |first| + |second| - 2 LCS, so this is 2 LCS / (|first| + |second|); 1 of no text.
    """
    together = len(first) + len(second)
    return 2 * _common_length(first, second) / together if together else 1.0


def _common_length(first: str, second: str) -> int:
    """Of the longest common subsequence; a column of the table is the bits of an integer.

    Bit i of `column` is 0 where the length grows from the first i to i + 1 characters of `first`.
    """
    full = (1 << len(first)) - 1
    places: dict[str, int] = {}
    for place, character in enumerate(first):
        places[character] = places.get(character, 0) | 1 << place
    column = full
    for character in second:
        hits = column & places.get(character, 0)
        column = ((column + hits) | (column - hits)) & full
    return len(first) - column.bit_count()


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise InterpretError(f"{name} is {value}; it lies in [0, 1]")
