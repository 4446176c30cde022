"""The corpus that needs no download: our own English-German grammar, said by synthesisers."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from data_pipelines import phrasebook
from data_pipelines.corpora.spoken import Engine, give_voices
from data_pipelines.synthesis import Part, Voices
from data_pipelines.utterance import Listing, Utterance


@dataclass(frozen=True, kw_only=True)
class Phrasebook:
    """English sentences with German translations that reorder, any number, made on the spot.

    Constructions of the test split are not in train, its voices are not either.
    """

    name: ClassVar[str] = "phrasebook"
    description: ClassVar[str] = "English-German sentences of a grammar, synthesised."
    citation: ClassVar[str] = ""
    homepage: ClassVar[str] = ""
    languages: ClassVar[tuple[str, ...]] = ("en", "de")
    source: ClassVar[str] = "en"
    target: ClassVar[str] = "de"

    train: int = 10_000
    """Sentences to train on."""
    valid: int = 500
    """Sentences to validate on."""
    test: int = 1_000
    """Sentences to test on."""
    seed: int = 0
    """Another seed, other sentences."""
    voice: Engine | Literal["none"] = "espeak"
    """espeak: dozens of robotic voices; hibari: one natural voice; none: text only."""

    def read(self, root: Path | None = None) -> Listing:
        """Lists the sentences; `root` is not needed."""
        del root
        return Listing(splits={part: self._split(part) for part in ("train", "valid", "test")})

    def _split(self, part: Part) -> list[Utterance]:
        pairs = phrasebook.sentences(part, getattr(self, part), seed=self.seed)
        listed = [
            Utterance(id=f"{part}-{i:06d}", transcript=pair.english, translation=pair.german)
            for i, pair in enumerate(pairs)
        ]
        if self.voice == "none":
            return listed
        return give_voices(listed, part, Voices(seed=self.seed), self.voice)
