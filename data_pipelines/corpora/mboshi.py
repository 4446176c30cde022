"""Mboshi-French: field recordings of a Bantu language of Congo with French translations."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from data_pipelines.corpora import reading
from data_pipelines.corpora.reading import AudioIndex, Reader, Row
from data_pipelines.utterance import Listing, Skip, Utterance

SILENCE = "SIL"


@dataclass(frozen=True, kw_only=True)
class Mboshi(Reader):
    """Mboshi speech with French text and word times. Splits: train, valid (dev)."""

    name: ClassVar[str] = "mboshi"

    def read(self, root: Path) -> Listing:
        """List the recordings; those in a zip archive are read from there."""
        manifest = root / "manifest.tsv"
        self.require(manifest.is_file(), "file manifest.tsv", root)
        make = partial(_utterance, self._audio(root))
        splits: dict[str, list[Row]] = {"train": [], "valid": []}
        for row in reading.read_table(manifest, ("id", "split", "speaker", "mboshi", "french")):
            split = row.cells["split"] if row.cells else "train"
            splits.setdefault(reading.split_name(split), []).append(row)
        return self.collect({s: reading.list_rows(rows, make) for s, rows in splits.items()})

    def _audio(self, root: Path) -> AudioIndex:
        places = [place for place in (root, root / "audio") if place.is_dir()]
        indexes = map(reading.index_audio, [*places, *sorted(root.glob("*.zip"))])
        filled = [index for index in indexes if index.names]
        self.require(filled, "zip archive of audio, nor any audio file,", root)
        return filled[0]


def _utterance(audio: AudioIndex, where: str, cells: Mapping[str, str]) -> Utterance | Skip:
    key = cells["id"]
    aligned = [text for column, text in cells.items() if column.startswith("word_alignment")]
    try:
        words = reading.parse_spans(" ".join(aligned))
    except ValueError as error:
        return Skip(id=key, reason=reading.MALFORMED_ROW, detail=f"{where}: {error}")
    return reading.make_utterance(
        key,
        audio.clip(key) or reading.missing_audio(key, key, audio),
        transcript=cells["mboshi"],
        translation=cells["french"],
        speaker=cells["speaker"],
        words=tuple(word for word in words if word.text != SILENCE),
    )
