"""What a model wrote for a buffer of sound, as policies see it. Times are seconds of the buffer."""

import itertools
from dataclasses import dataclass, replace

from simuljax.errors import SimuljaxError


class InterpretError(SimuljaxError):
    """A setting, or a use of a stream, that cannot be; says what to do instead."""


@dataclass(frozen=True, kw_only=True)
class Token:
    """A word as it is shown, the ids it is spelt with, and where its attention lies."""

    text: str
    ids: tuple[int, ...] = ()
    state: int = 0  # the latest encoder state that one of its ids attends to most, from 0


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Words between two timestamps."""

    words: tuple[Token, ...]
    start: float
    end: float
    log_probability: float = 0.0  # mean of its own tokens
    no_speech: float = 0.0  # of the whole window

    @property
    def text(self) -> str:
        """The words with spaces between them."""
        return " ".join(word.text for word in self.words)


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """All that was written for a window, words that are committed already included."""

    segments: tuple[Segment, ...] = ()
    states: int = 0  # of real sound, 20 ms each
    no_speech: float = 0.0
    log_probability: float = 0.0  # mean of all its tokens
    language: str | None = None  # that was spoken, where it was guessed

    @property
    def text(self) -> str:
        """The words with spaces between them."""
        return " ".join(word.text for word in self.words)

    @property
    def words(self) -> tuple[Token, ...]:
        """Of all segments."""
        return tuple(itertools.chain.from_iterable(segment.words for segment in self.segments))

    def words_in(self, segments: int) -> int:
        """How many words the first so many segments have."""
        return sum(len(segment.words) for segment in self.segments[:segments])

    def segments_in(self, words: int) -> int:
        """How many of the first segments are whole in the first so many words."""
        ends = itertools.accumulate(len(segment.words) for segment in self.segments)
        return sum(end <= words for end in ends)

    def end_of(self, segments: int) -> float:
        """When the first so many segments end."""
        return self.segments[segments - 1].end if segments else 0.0

    def without(self, words: int) -> "Hypothesis":
        """What is left when the first words are done with; times stay as they were."""
        rest = []
        for segment in self.segments:
            kept = segment.words[words:]
            words = max(0, words - len(segment.words))
            if kept:
                rest.append(replace(segment, words=kept))
        return replace(self, segments=tuple(rest))
