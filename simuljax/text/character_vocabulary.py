"""Character vocabularies, for languages without spaces and for small data."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from simuljax.text.base import SPECIALS, UNK, Vocabulary, VocabularyConfig

SPACE = " "


@dataclass(frozen=True, kw_only=True)
class CharacterVocabulary(Vocabulary):
    """One token per character; decoding is exact for all characters of the vocabulary."""

    @classmethod
    def learn(cls, lines: Sequence[str], config: VocabularyConfig) -> Self:
        """Learn from cleaned lines: the most frequent characters, all of them if there is room."""
        counts = Counter({SPACE: 0})
        for line in lines:
            counts.update(line)
        symbols, note = most_frequent(counts, config, "characters")
        return cls(config=config, pieces=SPECIALS + symbols, note=note)

    def decode(self, ids: Iterable[int]) -> str:
        """Join the characters, single-spaced."""
        return " ".join("".join(self.spell(ids)).split())

    def _encode(self, text: str) -> list[int]:
        return [self.ids.get(character, UNK) for character in text]


def most_frequent(
    counts: Counter[str], config: VocabularyConfig, what: str
) -> tuple[tuple[str, ...], str]:
    """Return the most frequent symbols that fit, and a note on the rest."""
    room = config.size - len(SPECIALS)
    ranked = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))
    note = ""
    if len(ranked) < room:
        note = f"size {config.size} was asked for, but the text has {len(ranked)} {what}"
    elif len(ranked) > room:
        note = f"the {len(ranked) - room} rarest {what} are unknown: size {config.size} is too few"
    return tuple(ranked[:room]), note
