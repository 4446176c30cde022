"""A corpus that has been prepared: a TFDS directory with a table of contents per split."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from data_pipelines.utterance import CorpusError

COUNTS = ("samples", "words", "phonemes")
COLUMNS = (*COUNTS, "id", "speaker", "transcript", "translation")
METADATA = ("dataset_info.json", "features.json")  # of TFDS
SUMMARY, STATISTICS = "summary.json", "statistics.json"  # the summary comes last: it means done
SKIPPED = "skipped.tsv"


@dataclass(frozen=True, kw_only=True)
class Table:
    """What `SPLIT.tsv` says of every example: all that planning needs, without the audio."""

    samples: np.ndarray  # int64 [n]; 0 for text
    words: np.ndarray  # int64 [n], how many have a known time; 0: no alignment
    phonemes: np.ndarray  # int64 [n]
    id: Sequence[str]
    speaker: Sequence[str]
    transcript: Sequence[str]
    translation: Sequence[str]

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True, kw_only=True)
class Split:
    """The examples of a split: their table, and the stored records by position."""

    name: str
    table: Table
    source: Any  # tfds data source: len, [i], __getitems__

    def __len__(self) -> int:
        return len(self.table)


@dataclass(frozen=True, kw_only=True)
class PreparedCorpus:
    """Everything `simuljax prepare` left in a directory."""

    directory: Path
    splits: Mapping[str, Split]
    summary: Mapping[str, Any]

    def __getitem__(self, split: str) -> Split:
        if split not in self.splits:
            raise CorpusError(
                f"{self.directory} has no split {split!r}; it has {', '.join(self.splits)}"
            )
        return self.splits[split]


def open_corpus(directory: Path | str) -> PreparedCorpus:
    """The corpus in a directory that `simuljax prepare` or `simuljax speak` has finished."""
    directory = Path(directory)
    if not (directory / SUMMARY).exists():
        raise CorpusError(
            f"{directory} holds no prepared corpus (there is no {SUMMARY}): build one with "
            f"`simuljax prepare CORPUS --to {directory}`, or run that again if it was interrupted"
        )
    summary = json.loads((directory / SUMMARY).read_text())
    splits = {name: open_split(directory, name) for name in summary["splits"]}
    return PreparedCorpus(directory=directory, splits=splits, summary=summary)


def open_split(directory: Path, name: str) -> Split:
    """One split, as soon as its records and its table are written."""
    missing = [f for f in (*METADATA, f"{name}.tsv") if not (directory / f).exists()]
    if missing:
        raise _damaged(directory, f"{', '.join(missing)} is missing")
    builder, table = tfds.builder_from_directory(directory), read_table(directory / f"{name}.tsv")
    stored = builder.info.splits[name]
    if stored.num_examples != len(table):
        what = f"{name}.tsv lists {len(table)} examples and the records hold {stored.num_examples}"
        raise _damaged(directory, what)
    sizes = [path.stat().length if path.exists() else 0 for path in stored.filepaths]
    if sum(sizes) != stored.num_bytes:
        what = f"the records of {name} have {sum(sizes)} bytes and had {int(stored.num_bytes)}"
        raise _damaged(directory, what)
    opened: Any = builder
    # TFDS opens no split without examples.
    source = opened.as_data_source(split=name) if len(table) else ()
    return Split(name=name, table=table, source=source)


def _damaged(directory: Path, what: str) -> CorpusError:
    return CorpusError(f"{directory} is damaged ({what}): prepare it again into an empty directory")


def read_table(path: Path) -> Table:
    """The table written by `write_table`."""
    *lines, end = path.read_text(encoding="utf-8").split("\n")
    header, *rows = [line.split("\t") for line in lines or [""]]
    if end or tuple(header) != COLUMNS or any(len(row) != len(COLUMNS) for row in rows):
        raise CorpusError(
            f"{path} is not a whole table of contents of this version: prepare it again"
        )
    columns: dict[str, Any] = dict.fromkeys(COLUMNS, ())
    columns |= dict(zip(COLUMNS, zip(*rows, strict=True), strict=False))
    for name in COUNTS:
        columns[name] = np.array(columns[name], np.int64)
    return Table(**columns)


def write_table(path: Path, rows: Iterable[Sequence[str | int]]) -> None:
    """Writes the contents of a split. Texts have been cleaned: no tab or line break is in them."""
    lines = ["\t".join(map(str, row)) for row in [COLUMNS, *rows]]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
