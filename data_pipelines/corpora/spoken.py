"""Any parallel text corpus, said by a synthesiser."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from data_pipelines.corpora.text import ParallelText, Tsv
from data_pipelines.prepared import SUMMARY, open_corpus
from data_pipelines.synthesis import Part, Voices
from data_pipelines.utterance import CorpusError, Listing, Utterance, Voice

Engine = Literal["espeak", "hibari"]


@dataclass(frozen=True, kw_only=True)
class PreparedText:
    """A text corpus that `simuljax prepare` has built."""

    source: str = "en"
    target: str = "de"

    def read(self, root: Path) -> Listing:
        """Lists every split; audio that may be there is not looked at."""
        tables = {name: split.table for name, split in open_corpus(root).splits.items()}
        return Listing(
            splits={
                name: [
                    Utterance(id=id, transcript=transcript, translation=translation)
                    for id, transcript, translation in zip(
                        table.id, table.transcript, table.translation, strict=True
                    )
                ]
                for name, table in tables.items()
            }
        )


@dataclass(frozen=True, kw_only=True)
class Spoken:
    """The source side of a text corpus as speech, in voices that differ between splits."""

    name: ClassVar[str] = "spoken"
    description: ClassVar[str] = "A parallel text corpus whose source side was synthesised."
    citation: ClassVar[str] = ""
    homepage: ClassVar[str] = ""
    languages: ClassVar[tuple[str, ...]] = ()

    text: ParallelText | Tsv | PreparedText
    engine: Engine = "espeak"
    seed: int = 0

    def read(self, root: Path) -> Listing:
        """Lists the text corpus and gives each sentence a voice."""
        listing = self.text.read(root)
        voices = Voices(language=self.text.source, seed=self.seed)
        return Listing(
            splits={
                name: give_voices(utterances, part_of(name), voices, self.engine)
                for name, utterances in listing.splits.items()
            },
            skipped=listing.skipped,
        )


def give_voices(
    utterances: Sequence[Utterance], part: Part, voices: Voices, engine: Engine
) -> list[Utterance]:
    """A voice for each utterance: one of the part's, or the one that hibari has."""
    if engine == "hibari":
        voice = Voice(engine="hibari", language=voices.language)
        return [replace(utterance, audio=voice, speaker="hibari") for utterance in utterances]
    return [voices.assign(utterance, part) for utterance in utterances]


def part_of(split: str) -> Part:
    """Whose voices a split has: whatever is not for training or validation is a test."""
    return split if split in ("train", "valid") else "test"


def text_corpus(path: Path, **options: Any) -> ParallelText | Tsv | PreparedText:
    """The reader for what lies at a path."""
    if not path.exists():
        raise CorpusError(f"{path} does not exist; give a text corpus: {EXPECTED}")
    if (path / SUMMARY).exists():
        return PreparedText(source=options["source"], target=options["target"])
    return ParallelText(**options) if path.is_dir() else Tsv(**options)


EXPECTED = (
    "a directory of files like train.en[.gz] and train.de[.gz], a tab-separated file (also in .gz "
    "or .zip), or a directory that `simuljax prepare` built"
)
