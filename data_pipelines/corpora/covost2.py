"""CoVoST 2: translations of Common Voice clips."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from data_pipelines.corpora.reading import (
    MALFORMED_ROW,
    MISSING_AUDIO,
    TOO_SHORT,
    UNREADABLE_AUDIO,
    Row,
    Shelf,
    collect,
    read_table,
    refuse_layout,
    shelve,
    split_name,
)
from data_pipelines.utterance import Listing, Skip, Utterance

TREE = """
ROOT/clips/common_voice_en_1.mp3 ...     Common Voice 4, the directory of the source language
ROOT/validated.tsv                       columns client_id, path, sentence, ...
ROOT/covost_v2.en_de.tsv                 columns path, translation, split
    or ROOT/covost_v2.en_de.{train,dev,test}.tsv  (path, sentence, translation, client_id)
ROOT/clip_durations.tsv                  optional: columns clip, duration[ms]
(ROOT may also be the parent, with Common Voice in ROOT/en)
"""
NOT_LISTED = "not in validated.tsv"


@dataclass(frozen=True, kw_only=True)
class CoVoST2:
    """CoVoST 2. Splits: train (with the rows marked train_covost), valid (dev), test."""

    name: ClassVar[str] = "covost2"
    description: ClassVar[str] = "Common Voice clips with transcripts and translations."
    citation: ClassVar[str] = (
        "@misc{wang2020covost2, title={CoVoST 2: A Massively Multilingual Speech-to-Text "
        "Translation Corpus}, author={Wang, Changhan and Wu, Anne and Pino, Juan}, year={2020}, "
        "eprint={2007.10310}}"
    )
    homepage: ClassVar[str] = "https://github.com/facebookresearch/covost"
    languages: ClassVar[tuple[str, ...]] = (
        *("en", "ar", "ca", "cy", "de", "es", "et", "fa", "fr", "id", "it", "ja", "lv", "mn"),
        *("nl", "pt", "ru", "sl", "sv-SE", "ta", "tr", "zh-CN"),
    )

    source: str = "en"
    """Language spoken, as CoVoST writes it: en, de, zh-CN, sv-SE, ..."""
    target: str = "de"
    """Language of the translation; one of the two is English."""
    translations: Path | None = None
    """Directory of the covost_v2 files, if they are not beside Common Voice's own."""
    min_seconds: float = 0.0
    """Leave out shorter clips; from clip_durations.tsv, else from the headers of the clips."""

    def read(self, root: Path) -> Listing:
        """Lists the clips that have a translation, in the order of CoVoST's table."""
        home = root if (root / "clips").is_dir() else root / self.source
        if not (home / "clips").is_dir():
            refuse_layout("CoVoST 2", "directory clips", root, TREE)
        splits = self._rows(home, self.translations or home)
        shelf = shelve(home / "clips")
        clips = Clips(shelf=shelf, durations=self._durations(home, shelf, splits))
        return collect("CoVoST 2", {s: self._list(rows, clips) for s, rows in splits.items()})

    def _rows(self, home: Path, folder: Path) -> dict[str, list[Row]]:
        """Per split, rows with path, sentence, translation and client_id."""
        whole = folder / f"covost_v2.{self.source}_{self.target}.tsv"
        if whole.is_file():
            return _joined(whole, home)
        parts = {s: whole.with_suffix(f".{s}.tsv") for s in ("train", "dev", "test")}
        there = {split: path for split, path in parts.items() if path.is_file()}
        if not there:
            refuse_layout("CoVoST 2", f"file {whole.name}", folder, TREE)
        columns = ("path", "sentence", "translation")
        return {split_name(s): list(_table(path, columns)) for s, path in there.items()}

    def _durations(
        self, home: Path, shelf: Shelf, splits: Mapping[str, list[Row]]
    ) -> Mapping[str, float]:
        """Seconds by clip, where a filter needs them; a clip that cannot be read is not in it."""
        if self.min_seconds <= 0:
            return {}
        table = home / "clip_durations.tsv"
        if table.is_file():
            return _told_durations(table)
        stems = [_stem(row) for rows in splits.values() for row in rows if row.cells]
        return dict(_measured_durations(stems, shelf))

    def _list(self, rows: list[Row], clips: "Clips") -> Iterator[Utterance | Skip]:
        for row in rows:
            if row.cells is None:
                yield Skip(id=row.where, reason=MALFORMED_ROW, detail="wrong number of cells")
            else:
                yield self._utterance(_stem(row), row.cells, clips)

    def _utterance(self, key: str, cells: Mapping[str, str], clips: "Clips") -> Utterance | Skip:
        if "sentence" not in cells:
            return Skip(id=key, reason=NOT_LISTED, detail=cells["path"])
        clip = clips.shelf.clip(key)
        if clip is None:
            detail = f"{cells['path']} in {clips.shelf.place}"
            return Skip(id=key, reason=MISSING_AUDIO, detail=detail)
        if self.min_seconds > 0 and key not in clips.durations:
            return Skip(id=key, reason=UNREADABLE_AUDIO, detail=f"{clip.path}: no duration")
        if self.min_seconds > 0 and clips.durations[key] < self.min_seconds:
            return Skip(id=key, reason=TOO_SHORT, detail=f"{clips.durations[key]:.3f} s")
        return Utterance(
            id=key,
            transcript=cells["sentence"],
            translation=cells["translation"],
            audio=clip,
            speaker=cells.get("client_id", ""),
        )


@dataclass(frozen=True, kw_only=True)
class Clips:
    """The clips of Common Voice, and how long they are where that was asked for."""

    shelf: Shelf
    durations: Mapping[str, float]


def _table(path: Path, required: tuple[str, ...]) -> Iterator[Row]:
    return read_table(path, required, backslashes="escape")


def _stem(row: Row) -> str:
    return Path(row.cells["path"]).stem if row.cells else ""


def _joined(whole: Path, home: Path) -> dict[str, list[Row]]:
    """CoVoST's own table with the sentences and speakers of Common Voice."""
    if not (home / "validated.tsv").is_file():
        refuse_layout("CoVoST 2", "file validated.tsv", home, TREE)
    voices = _table(home / "validated.tsv", ("path", "sentence", "client_id"))
    kept = ("sentence", "client_id")
    spoken = {row.cells["path"]: {k: row.cells[k] for k in kept} for row in voices if row.cells}
    splits: dict[str, list[Row]] = {"train": [], "valid": [], "test": []}
    for row in _table(whole, ("path", "translation", "split")):
        if row.cells is None:
            splits["train"].append(row)
            continue
        told = row.cells["split"]
        split = "train" if told == "train_covost" else split_name(told)
        cells = {**spoken.get(row.cells["path"], {}), **row.cells}
        splits.setdefault(split, []).append(Row(where=row.where, cells=cells))
    return splits


def _told_durations(table: Path) -> dict[str, float]:
    durations = {}
    for row in _table(table, ("clip", "duration[ms]")):
        if row.cells and row.cells["duration[ms]"].isdecimal():
            durations[Path(row.cells["clip"]).stem] = int(row.cells["duration[ms]"]) / 1e3
    return durations


def _measured_durations(stems: list[str], shelf: Shelf) -> Iterator[tuple[str, float]]:
    import soundfile
    from tqdm import tqdm

    for stem in tqdm(stems, desc="durations from headers", unit="clip", disable=None):
        clip = shelf.clip(stem)
        if clip is None:
            continue
        try:
            yield stem, soundfile.info(clip.path).duration
        except soundfile.LibsndfileError:
            continue  # told as a skip by the reader
