"""A spoken language of tones, whose audio alone says what to write.

A word is two phonemes of about 60 ms, a phoneme two tones at once. Every word has one translation.
Words are drawn at random, so that tokens say nothing of those that follow. In the order `swapped`
neighbours change places (a b c d e -> B A D C E), so that it takes two words to write one.
"""

from dataclasses import dataclass
from typing import Literal

import jax.numpy as jnp
import numpy as np

from simuljax.audio import FeatureRecord, Features, Moments, extract
from simuljax.batch import Batch
from simuljax.text import EOS

Order = Literal["straight", "swapped"]
RATE, SHIFT, FRAME = 16_000, 160, 400
WORDS, PHONEMES, SPECIALS = 12, 6, 4
VOCABULARY = SPECIALS + WORDS
MOST_WORDS = 5
FRAMES = 64  # 16 states
SAMPLES = FRAME + (FRAMES - 1) * SHIFT
_LANGUAGE = np.random.default_rng(7)
PITCHES = np.stack([_LANGUAGE.permutation(np.geomspace(250, 4_000, PHONEMES)) for _ in range(2)])
SPELLING = np.array([(a, b) for a in range(PHONEMES) for b in range(PHONEMES) if a != b])
SPELLING = _LANGUAGE.permutation(SPELLING)[:WORDS]
TRANSLATION = _LANGUAGE.permutation(WORDS)


@dataclass(frozen=True, kw_only=True)
class Utterance:
    """Samples, and for each the number of its word and of its phoneme, from 1."""

    samples: np.ndarray
    words: np.ndarray
    phonemes: np.ndarray
    said: np.ndarray


def utterances(count: int, seed: int, order: Order = "swapped") -> Batch:
    """So many, of 3 to 5 words, padded to one shape."""
    random = np.random.default_rng(seed)
    spoken = [speak(random.integers(WORDS, size=length), random)
              for length in random.integers(3, MOST_WORDS + 1, count)]  # fmt: skip
    middles = SHIFT * np.arange(FRAMES) + FRAME // 2
    written = [np.append(SPECIALS + u.said, EOS) for u in spoken]
    ordered = [swapped(u.said) if order == "swapped" else u.said for u in spoken]
    translated = [np.append(SPECIALS + TRANSLATION[words], EOS) for words in ordered]
    lengths = np.array([len(row) for row in written], np.int32)
    return Batch(
        audio=padded([u.samples for u in spoken], SAMPLES, np.int16),
        audio_length=np.array([len(u.samples) for u in spoken], np.int32),
        source=padded(written, MOST_WORDS + 1, np.int32),
        source_length=lengths,
        target=padded(translated, MOST_WORDS + 1, np.int32),
        target_length=lengths,
        index=np.arange(count, dtype=np.int32),
        words=padded([u.words for u in spoken], SAMPLES, np.int16)[:, middles],
        phonemes=padded([u.phonemes for u in spoken], SAMPLES, np.int16)[:, middles],
    )


def speak(words: np.ndarray, random: np.random.Generator) -> Utterance:
    """Loudness, speed and phases are never the same twice, and there is noise."""
    samples = []
    for phoneme in SPELLING[words].ravel():
        time = np.arange(random.integers(880, 1_041)) / RATE
        phase = random.uniform(0, 2 * np.pi, 2)
        tones = np.sin(2 * np.pi * PITCHES[:, phoneme, None] * time + phase[:, None]).sum(0)
        samples.append(random.uniform(1_500, 4_500) * tones)
    number = np.repeat(np.arange(len(samples)), [len(part) for part in samples])
    whole = np.concatenate(samples)
    whole += random.normal(0, 60, len(whole))
    return Utterance(
        samples=whole.astype(np.int16), words=1 + number // 2, phonemes=1 + number, said=words
    )


def swapped(words: np.ndarray) -> np.ndarray:
    """Each pair the other way round; an odd one at the end stays."""
    order = np.arange(len(words)) ^ 1
    return words[np.where(order < len(words), order, len(words) - 1)]


def padded(rows: list[np.ndarray], size: int, dtype: type) -> np.ndarray:
    """The rows with zeros after them."""
    array = np.zeros((len(rows), size), dtype)
    for place, row in zip(array, rows, strict=True):
        place[: len(row)] = row
    return array


def heard_in(batch: Batch) -> FeatureRecord:
    """The features, with the statistics of a batch."""
    features, moments = Features(), Moments.empty(80)
    frames = np.asarray(extract(jnp.asarray(batch.audio), features))
    for row, samples in zip(frames, batch.audio_length, strict=True):
        moments = moments.add(row[: 1 + (samples - FRAME) // SHIFT])
    return FeatureRecord(features=features, statistics=moments.statistics())
