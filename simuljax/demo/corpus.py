"""A small part of the phrasebook: six constructions, few words, one voice.

The phrasebook has 1,700 English words and a hundred voices: too many for five minutes of training
on a laptop. Six short constructions with their 200 most frequent words still reorder (`She likes
the car`, `Das Auto gefällt ihr`) and inflect, and most test sentences are new.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice

from data_pipelines.corpora import Phrasebook
from data_pipelines.phrasebook.constructions import SHARED
from data_pipelines.phrasebook.corpus import words
from data_pipelines.phrasebook.draw import Scene, seeded
from data_pipelines.phrasebook.lexemes import Bilingual
from data_pipelines.synthesis import Part
from data_pipelines.utterance import Utterance, Voice

# Weights of the constructions; equal shares are left when sentences with rarer words are dropped.
DRAWN: Mapping[str, float] = {
    "described": 1,
    "likes": 1.4,
    "belongs": 1.6,
    "is-where": 1.6,
    "compared": 2,
    "counted": 3,
}
BUILD = {each.name: each.build for each in SHARED if each.name in DRAWN}
SAMPLE = 20_000  # sentences in which words are counted
BYTES: Mapping[Part, range] = {  # the first byte of a sentence's hash says its split
    "train": range(0, 216),
    "valid": range(216, 232),
    "test": range(232, 256),
}


@dataclass(frozen=True, kw_only=True)
class LittlePhrasebook(Phrasebook):
    """Sentences of six constructions and few words, in one voice, the same in every split."""

    train: int = 3_000
    valid: int = 100
    test: int = 200
    vocabulary: int = 200
    """English words: the most frequent ones of the constructions."""
    longest: int = 8
    """Most words in a sentence."""
    words_per_minute: int = 200

    def _split(self, part: Part) -> list[Utterance]:
        voice = Voice(engine="espeak", language="en-us", words_per_minute=self.words_per_minute)
        return [
            Utterance(
                id=f"{part}-{i:06d}",
                transcript=english,
                translation=german,
                audio=None if self.voice == "none" else voice,
                speaker="espeak",
            )
            for i, (english, german) in enumerate(self._pairs(part, getattr(self, part)).items())
        ]

    def _pairs(self, part: Part, count: int) -> dict[str, str]:
        """Return German by English; the hash of a sentence decides its split."""
        known, pairs = frequent_words(self.vocabulary), dict[str, str]()
        drawn = draw(f"little {part} {self.seed}")
        while len(pairs) < count:
            sentence = next(drawn)
            english, german = (s[0].upper() + s[1:] for s in (sentence.english, sentence.german))
            is_short = len(english.split()) <= self.longest
            if is_short and is_of(part, english) and known.issuperset(words(english.lower())):
                pairs[english] = german
        return pairs


def draw(seed: str) -> Iterator[Bilingual]:
    """Yield sentences of the constructions without end."""
    scene, names, weights = Scene(seeded(seed)), tuple(DRAWN), tuple(DRAWN.values())
    while True:
        yield BUILD[scene.weighted(names, weights)](scene)


def is_of(part: Part, english: str) -> bool:
    """Return True if a sentence belongs to this split."""
    return hashlib.blake2b(english.encode()).digest()[0] in BYTES[part]


@cache
def frequent_words(count: int) -> frozenset[str]:
    """Return the most frequent words of the constructions."""
    used = Counter[str]()
    for sentence in islice(draw("little words"), SAMPLE):
        used.update(words(sentence.english.lower()))
    return frozenset(word for word, _ in used.most_common(count))
