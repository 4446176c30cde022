"""Corpora that are synthesised: the phrasebook, and any parallel text."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from data_pipelines import phrasebook
from data_pipelines.augmentation.effects import Augmented, at_speed
from data_pipelines.corpora.reading import Reader
from data_pipelines.corpora.text import ParallelText, Tsv
from data_pipelines.dataset import SUMMARY, Split, open_corpus
from data_pipelines.synthesis import Part, Voices, check_engines
from data_pipelines.synthesis.hibari import LANGUAGES
from data_pipelines.utterance import CorpusError, Listing, Utterance, Voice

Engine = Literal["espeak", "hibari", "both"]
ROWS = 500  # stored examples that are read at once
SLOWEST, FASTEST = 0.85, 1.2  # of hibari's voice in `both`


@dataclass(frozen=True, kw_only=True)
class Phrasebook(Reader):
    """English sentences with German translations that reorder, any number, from a grammar.

    The test split has constructions and voices that train does not have.
    """

    name: ClassVar[str] = "phrasebook"

    train: int = 10_000
    """Sentences to train on."""
    valid: int = 500
    """Sentences to validate on."""
    test: int = 1_000
    """Sentences to test on."""
    seed: int = 0
    """Another seed gives other sentences."""
    voice: Engine | Literal["none"] = "espeak"
    """espeak: dozens of robotic voices; hibari: a natural one; both: half each; none: text."""

    def read(self, root: Path | None = None) -> Listing:
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
        return assign_voices(listed, part, Voices(seed=self.seed), self.voice)


@dataclass(frozen=True, kw_only=True)
class PreparedText:
    """A text corpus that `simuljax prepare` has built."""

    source: str = "en"
    target: str = "de"

    def read(self, root: Path) -> Listing:
        """List every split without its audio."""
        splits = {}
        for name, split in open_corpus(root).splits.items():
            table = split.table
            rows = zip(table.id, table.transcript, table.translation, _origins(split), strict=True)
            splits[name] = [
                Utterance(id=key, transcript=said, translation=meant, translation_origin=origin)
                for key, said, meant, origin in rows
            ]
        return Listing(splits=splits)


def _origins(split: Split) -> Iterator[str]:
    """Yield who wrote each translation."""
    for start in range(0, len(split), ROWS):
        for example in split.read(range(start, min(start + ROWS, len(split)))):
            yield bytes(example["translation_origin"]).decode()


@dataclass(frozen=True, kw_only=True)
class Spoken(Reader):
    """The source side of a text corpus as speech, in voices that differ between splits."""

    name: ClassVar[str] = "spoken"

    text: ParallelText | Tsv | PreparedText
    engine: Engine = "espeak"
    seed: int = 0

    def read(self, root: Path) -> Listing:
        """List the text corpus and give each sentence a voice."""
        listing = self.text.read(root)
        voices = Voices(language=self.text.source, seed=self.seed)
        splits = {
            name: assign_voices(utterances, part_of(name), voices, self.engine)
            for name, utterances in listing.splits.items()
        }
        return replace(listing, splits=splits)


def assign_voices(
    utterances: Sequence[Utterance], part: Part, voices: Voices, engine: Engine
) -> list[Utterance]:
    """Give each utterance one of the part's voices, or the only one of hibari.

    `both` draws the engine for each utterance, and a speed for hibari's voice, which changes its
    pitch and formants as those of another speaker.
    """
    check_engines(engine)
    if engine != "espeak" and voices.language not in LANGUAGES:
        raise CorpusError(f"hibari speaks English, not {voices.language!r}: set --engine espeak")
    natural = Voice(engine="hibari", language=voices.language)

    def assign(utterance: Utterance) -> Utterance:
        robotic = engine == "espeak" or (
            engine == "both" and voices.draw(utterance.id, "engine", 2)
        )
        if robotic:
            return voices.assign(utterance, part)
        if engine == "hibari":
            return replace(utterance, audio=natural, speaker="hibari")
        place = voices.draw(utterance.id, "speed", 101) / 100
        effects = at_speed(round(SLOWEST + place * (FASTEST - SLOWEST), 2))
        audio = Augmented(source=natural, effects=effects)
        return replace(utterance, audio=audio, speaker="hibari", audio_origin=str(effects))

    return [assign(utterance) for utterance in utterances]


def part_of(split: str) -> Part:
    """Return the part whose voices a split has: test, unless it is for training or validation."""
    if split.startswith("train"):
        return "train"
    return "valid" if split == "valid" else "test"


def text_corpus(path: Path, **options: Any) -> ParallelText | Tsv | PreparedText:
    """Return the reader for the files at a path."""
    if not path.exists():
        raise CorpusError(f"{path} does not exist; give a text corpus: {EXPECTED}")
    for name, code in options.items():
        if not re.fullmatch(r"\w+([.-]\w+)*", str(code)):
            raise CorpusError(f"--{name} is {code!r}; give the code of a language, such as en")
    if (path / SUMMARY).exists():
        return PreparedText(source=options["source"], target=options["target"])
    return ParallelText(**options) if path.is_dir() else Tsv(**options)


EXPECTED = (
    "a directory of files like train.en[.gz] and train.de[.gz], a tab-separated file (also in .gz "
    "or .zip), or a directory that `simuljax prepare` built"
)
