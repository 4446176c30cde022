"""Mboshi-French: field recordings of a Bantu language of Congo with French translations."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from data_pipelines.corpora.reading import (
    MALFORMED_ROW,
    MISSING_AUDIO,
    Row,
    Shelf,
    collect,
    parse_spans,
    read_table,
    refuse_layout,
    shelve,
    split_name,
)
from data_pipelines.utterance import Listing, Skip, Utterance

TREE = """
ROOT/manifest.tsv        columns id, split, speaker, seconds, mboshi, french,
                         and optionally word_alignment: `word@start-end ...`, in seconds
ROOT/mboshi_fr.opus.zip  members ID.opus;  or ROOT/ID.wav ..., or ROOT/audio/ID.wav ...
"""
SILENCE = "SIL"


@dataclass(frozen=True, kw_only=True)
class Mboshi:
    """Mboshi speech with French text and word times. Splits: train, valid (dev)."""

    name: ClassVar[str] = "mboshi"
    description: ClassVar[str] = "Mboshi field speech, 3 speakers, 4.4 hours, with French text."
    citation: ClassVar[str] = (
        "@inproceedings{godard2018mboshi, title={A Very Low Resource Language Speech Corpus for "
        "Computational Language Documentation Experiments}, author={Godard, Pierre and others}, "
        "booktitle={LREC}, year={2018}}"
    )
    homepage: ClassVar[str] = "https://github.com/besacier/mboshi-french-parallel-corpus"
    languages: ClassVar[tuple[str, ...]] = ("mdw", "fr")
    source: ClassVar[str] = "mdw"
    target: ClassVar[str] = "fr"

    def read(self, root: Path) -> Listing:
        """Lists the recordings; those in a zip archive stay there."""
        manifest = root / "manifest.tsv"
        if not manifest.is_file():
            refuse_layout("Mboshi", "file manifest.tsv", root, TREE)
        shelf = _shelf(root)
        splits: dict[str, list[Row]] = {"train": [], "valid": []}
        for row in read_table(manifest, ("id", "split", "speaker", "mboshi", "french")):
            told = row.cells["split"] if row.cells else "train"
            splits.setdefault(split_name(told), []).append(row)
        return collect("Mboshi", {split: _list(rows, shelf) for split, rows in splits.items()})


def _shelf(root: Path) -> Shelf:
    shelves = [shelve(place) for place in (root, root / "audio") if place.is_dir()]
    shelves += [shelve(archive) for archive in sorted(root.glob("*.zip"))]
    filled = [shelf for shelf in shelves if shelf.names]
    if not filled:
        refuse_layout("Mboshi", "zip archive of audio, nor any audio file,", root, TREE)
    return filled[0]


def _list(rows: list[Row], shelf: Shelf) -> Iterator[Utterance | Skip]:
    for row in rows:
        if row.cells is None:
            yield Skip(id=row.where, reason=MALFORMED_ROW, detail="wrong number of cells")
        else:
            yield _utterance(row.where, row.cells, shelf)


def _utterance(where: str, cells: Mapping[str, str], shelf: Shelf) -> Utterance | Skip:
    key = cells["id"]
    aligned = [text for column, text in cells.items() if column.startswith("word_alignment")]
    try:
        words = parse_spans(" ".join(aligned))
    except ValueError as error:
        return Skip(id=key, reason=MALFORMED_ROW, detail=f"{where}: {error}")
    clip = shelf.clip(key)
    if clip is None:
        return Skip(id=key, reason=MISSING_AUDIO, detail=f"{key} in {shelf.place}")
    return Utterance(
        id=key,
        transcript=cells["mboshi"],
        translation=cells["french"],
        audio=clip,
        speaker=cells["speaker"],
        words=tuple(word for word in words if word.text != SILENCE),
    )
