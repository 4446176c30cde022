"""Phoneme vocabularies: text is encoded as phonemes; decoding gives phonemes, not spelling."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from simuljax.text.base import SPECIALS, UNK, Vocabulary, VocabularyConfig
from simuljax.text.character_vocabulary import most_frequent
from simuljax.text.phonemes import WORD_END, phonemize


@dataclass(frozen=True, kw_only=True)
class PhonemeVocabulary(Vocabulary):
    """One token per phoneme, and `|` between words.

    `encode` runs eSpeak NG; `decode` gives the phoneme string, not the text it came from.
    """

    word_separator: ClassVar[str] = f" {WORD_END} "

    @classmethod
    def learn(cls, lines: Sequence[str], config: VocabularyConfig) -> Self:
        """Learn from cleaned lines: the most frequent phonemes, all of them if there is room."""
        counts = Counter({WORD_END: 0})
        for line in lines:
            counts.update(phonemize(line, config.language).split())
        symbols, note = most_frequent(counts, config, "phonemes")
        return cls(config=config, pieces=SPECIALS + symbols, note=note)

    def encode_phonemes(self, phonemes: str) -> list[int]:
        """Return the ids of a phoneme string made by `phonemize`."""
        return [self.ids.get(phoneme, UNK) for phoneme in phonemes.split()]

    def decode(self, ids: Iterable[int]) -> str:
        """Return phonemes separated by spaces, and `|` between words."""
        words = " ".join(self.spell(ids)).split(WORD_END)
        return self.word_separator.join(word.strip() for word in words if word.strip())

    def _encode(self, text: str) -> list[int]:
        return self.encode_phonemes(phonemize(text, self.config.language))
