"""CoVoST 2: translations of Common Voice clips."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from data_pipelines.corpora import reading
from data_pipelines.corpora.reading import AudioIndex, Reader, Row
from data_pipelines.utterance import Listing, Skip, Utterance

NOT_LISTED = "not in validated.tsv"


@dataclass(frozen=True, kw_only=True)
class CoVoST2(Reader):
    """CoVoST 2. Splits: train (with the rows marked train_covost), valid (dev), test."""

    name: ClassVar[str] = "covost2"

    source: str = "en"
    """Language spoken, as CoVoST writes it: en, de, zh-CN, sv-SE, ..."""
    target: str = "de"
    """Language of the translation; one of the two is English."""
    translations: Path | None = None
    """Directory of the covost_v2 files, if they are not beside Common Voice's own."""
    min_seconds: float = 0.0
    """Leave out shorter clips; durations are from clip_durations.tsv, else from the clips."""

    def read(self, root: Path) -> Listing:
        """List the clips that have a translation, in the order of CoVoST's table."""
        home = root if (root / "clips").is_dir() else root / self.source
        self.require((home / "clips").is_dir(), "directory clips", root)
        splits = self._rows(home, self.translations or home)
        audio = reading.index_audio(home / "clips")
        make = partial(self._utterance, audio, self._durations(home, audio, splits))
        return self.collect({s: reading.list_rows(rows, make) for s, rows in splits.items()})

    def _rows(self, home: Path, folder: Path) -> dict[str, list[Row]]:
        """Return rows with path, sentence, translation and client_id per split."""
        whole = folder / f"covost_v2.{self.source}_{self.target}.tsv"
        if whole.is_file():
            self.require((home / "validated.tsv").is_file(), "file validated.tsv", home)
            return _joined(whole, home)
        parts = {s: whole.with_suffix(f".{s}.tsv") for s in ("train", "dev", "test")}
        there = {split: path for split, path in parts.items() if path.is_file()}
        self.require(there, f"file {whole.name}", folder)
        columns = ("path", "sentence", "translation")
        return {reading.split_name(s): list(_table(path, columns)) for s, path in there.items()}

    def _durations(
        self, home: Path, audio: AudioIndex, splits: Mapping[str, list[Row]]
    ) -> Mapping[str, float]:
        """Return seconds by clip if they are needed; unreadable clips are missing."""
        if self.min_seconds <= 0:
            return {}
        table = home / "clip_durations.tsv"
        if table.is_file():
            return _listed_durations(table)
        cells = (row.cells for rows in splits.values() for row in rows if row.cells)
        return dict(_measured_durations([Path(each["path"]).stem for each in cells], audio))

    def _utterance(
        self,
        audio: AudioIndex,
        durations: Mapping[str, float],
        where: str,
        cells: Mapping[str, str],
    ) -> Utterance | Skip:
        key = Path(cells["path"]).stem
        if "sentence" not in cells:
            return Skip(id=key, reason=NOT_LISTED, detail=cells["path"])
        clip = audio.clip(key)
        if clip is None:
            return reading.missing_audio(key, cells["path"], audio)
        if self.min_seconds > 0 and key not in durations:
            return Skip(id=key, reason=reading.UNREADABLE_AUDIO, detail=f"{clip.path}: no duration")
        if self.min_seconds > 0 and durations[key] < self.min_seconds:
            return Skip(id=key, reason=reading.TOO_SHORT, detail=f"{durations[key]:.3f} s")
        return Utterance(
            id=key,
            transcript=cells["sentence"],
            translation=cells["translation"],
            audio=clip,
            speaker=cells.get("client_id", ""),
        )


def _table(path: Path, required: tuple[str, ...]) -> Iterator[Row]:
    return reading.read_table(path, required, backslashes="escape")


def _joined(whole: Path, home: Path) -> dict[str, list[Row]]:
    """Join CoVoST's table with the sentences and speakers of Common Voice."""
    voices = _table(home / "validated.tsv", ("path", "sentence", "client_id"))
    kept = ("sentence", "client_id")
    spoken = {row.cells["path"]: {k: row.cells[k] for k in kept} for row in voices if row.cells}
    splits: dict[str, list[Row]] = {"train": [], "valid": [], "test": []}
    for row in _table(whole, ("path", "translation", "split")):
        if row.cells is None:
            splits["train"].append(row)
            continue
        name = row.cells["split"]
        split = "train" if name == "train_covost" else reading.split_name(name)
        cells = {**spoken.get(row.cells["path"], {}), **row.cells}
        splits.setdefault(split, []).append(Row(where=row.where, cells=cells))
    return splits


def _listed_durations(table: Path) -> dict[str, float]:
    rows = (row.cells for row in _table(table, ("clip", "duration[ms]")))
    return {
        Path(cells["clip"]).stem: int(cells["duration[ms]"]) / 1e3
        for cells in rows
        if cells and cells["duration[ms]"].isdecimal()
    }


def _measured_durations(stems: list[str], audio: AudioIndex) -> Iterator[tuple[str, float]]:
    import soundfile
    from tqdm import tqdm

    for stem in tqdm(stems, desc="durations from headers", unit="clip", disable=None):
        clip = audio.clip(stem)
        if clip is None:
            continue
        try:
            yield stem, soundfile.info(clip.path).duration
        except soundfile.LibsndfileError:
            continue  # the reader skips it
