"""The choice of a voice for each sentence; no voice of a test is in the training data."""

import functools
import hashlib
import re
from dataclasses import dataclass, replace
from typing import Literal

from data_pipelines.utterance import Utterance, Voice
from simuljax.voice.espeak import variants

Part = Literal["train", "valid", "test"]

# Measured on 14 English captions. A linear classifier of phonemes, trained on all variants but
# one, knows 83 % of that one's in the median; of these 18 to 48 %. The whispers have no voice: in
# the middle of a vowel the signal's periodicity is .22, elsewhere .34 or more.
UNINTELLIGIBLE = (
    *("Alicia", "Demonic", "Lee", "Marco", "ian", "kaukovalta", "shelby", "zac"),
    *("whisper", "whisperf"),
)
TEST_PERCENT, VALID_PERCENT = 18, 10


@dataclass(frozen=True, kw_only=True)
class Voices:
    """A deterministic choice of speaker, rate and pitch for each utterance.

    The part of a corpus that a speaker is in depends on the name alone, neither on `seed` nor on
    the other voices: models trained on different data are still tested on unseen voices.
    """

    language: str = "en"
    seed: int = 0

    def choose(self, utterance_id: str, part: Part) -> Voice:
        """Choose the voice for this utterance: the same on every machine and in every order."""
        variants = speakers(part)
        return Voice(
            engine="espeak",
            language=self.language,
            variant=variants[self.draw(utterance_id, "speaker", len(variants))],
            words_per_minute=140 + self.draw(utterance_id, "rate", 61),
            pitch=30 + self.draw(utterance_id, "pitch", 41),
        )

    def draw(self, utterance_id: str, what: str, count: int) -> int:
        """Return an integer below `count` for a property of this utterance's voice."""
        return _draw(f"{what}/{self.seed}/{utterance_id}", count)

    def assign(self, utterance: Utterance, part: Part) -> Utterance:
        """Return the utterance with its voice as audio, and its speaker's name."""
        voice = self.choose(utterance.id, part)
        return replace(utterance, audio=voice, speaker=f"{voice.engine}:{voice.variant}")


@functools.cache
def speakers(part: Part) -> tuple[str, ...]:
    """Return eSpeak's variants of this part, sorted."""
    usable = (name for name in variants() if name not in UNINTELLIGIBLE)
    return tuple(name for name in usable if _part(name) == part)


def _part(variant: str) -> Part:
    # Versions of a speaker stay together: steph3 is steph. f1 and f2 are two.
    family = re.sub(r"(?<=[a-z]{2})(\d+|robot)$", "", variant.lower())
    draw = _draw(f"part/{family}", 100)
    if draw < TEST_PERCENT:
        return "test"
    return "valid" if draw < TEST_PERCENT + VALID_PERCENT else "train"


def _draw(key: str, count: int) -> int:
    """Return an integer below `count`; Python's own hash differs between processes."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) % count
