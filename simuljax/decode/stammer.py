"""Leave out what a model stammers: a phrase, or a part of a word, that it writes again and again.

What a decoder writes goes through a `RepetitionFilter` before it is committed, whatever the model
and the search: words of "einen einen einen einen" and letters of "offenenenenenen".
"""

import functools
import re
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from simuljax.config.decoding import Stammer

MARKS = string.punctuation + "“”„‘’¿¡…«»。、，！？"


def plain(word: str) -> str:
    """Return a word without capitals and marks at its ends; marks alone stay as they are."""
    return word.strip(MARKS).casefold() or word


@dataclass(frozen=True, kw_only=True)
class RepetitionFilter:
    """Words as a model writes them, less those that would repeat a phrase once too often.

    A word is left out if with it the last p (times + 1) words have the period p, p <= limits.words:
    among all words of the model, so that nothing of a loop follows until it is over, or among those
    that were kept, so that what is kept never repeats a phrase more often. Capitals and marks at a
    word's ends do not count, and a phrase without letters, such as a number, may be repeated.

    Inside a word, a part of up to 6 characters, none of them a digit, stands times + 1 times.
    """

    limits: Stammer = Stammer()  # noqa: RUF009 (frozen)
    written: tuple[str, ...] = ()  # the last words of the model, plain
    kept: tuple[str, ...] = ()  # the last of those that were kept

    def text(self, text: str) -> str:
        """Return a text without what it stammers; one that repeats nothing stays as it is."""
        words = text.split()
        kept = self.push(words)[1]
        return text if kept == words else " ".join(filter(None, kept))

    def push(self, words: Iterable[str]) -> tuple[Self, list[str]]:
        """Return the filter after these words, and each as it is kept; "" if it is left out."""
        words, times = list(words), self.limits.times
        if not times:
            return self, words
        window, again = self.limits.words * (times + 1) - 1, _loop(times + 1)
        written, kept, found = self.written, self.kept, []
        for text in words:
            word = plain(text)
            if any(self._repeats((*before, word)) for before in (written, kept)):
                found.append("")
            else:
                found.append(again.sub(lambda loop: loop[1] * (times + 1), text))
                kept = (*kept, word)[-window:]
            written = (*written, word)[-window:]
        return replace(self, written=written, kept=kept), found

    def _repeats(self, text: Sequence[str]) -> bool:
        """Return True if a phrase at the end of the text stands there too often."""
        times, longest = self.limits.times, self.limits.words
        return text[-1] in text[:-1] and any(
            run_length(text, period) >= times * period
            and any(map(str.isalpha, "".join(text[-period:])))
            for period in range(1, min(longest, len(text) // (times + 1)) + 1)
        )


@functools.cache
def _loop(times: int) -> re.Pattern[str]:
    """Return the pattern of a part of a word that stands more than so many times in a row."""
    return re.compile(rf"([^\d\s]{{1,6}}?)\1{{{times},}}")


def run_length(text: Sequence[str], period: int) -> int:
    """Return the number of last words that equal those a period before them."""
    place = len(text) - 1
    while place >= period and text[place] == text[place - period]:
        place -= 1
    return len(text) - 1 - place
