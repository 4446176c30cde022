"""A prepared corpus: a TFDS directory with a table of contents per split, and its summary.

TFDS takes long to import, so the functions that need it import it.
"""

import functools
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines.utterance import CorpusError, Skip, Span, Utterance
from simuljax.audio import RATE
from simuljax.config.fields import read_object

COUNTS = ("samples", "words", "phonemes")
COLUMNS = (*COUNTS, "id", "speaker", "transcript", "translation")
METADATA = ("dataset_info.json", "features.json")  # of TFDS
SUMMARY, STATISTICS = "summary.json", "statistics.json"  # the summary comes last: it means done
SKIPPED = "skipped.tsv"
# The classes that `record_features` is made of, and the keys that TFDS finds classes under.
_FEATURES = tuple(
    f"tensorflow_datasets.core.features.{name}"
    for name in ("features_dict.FeaturesDict", "tensor_feature.Tensor", "text_feature.Text")
)
_CLASS_KEYS = ("pythonclassname", "type")
# TFDS formats the template of the files' names as it is.
_FIXED = {
    "filepathtemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
    "fileformat": "array_record",
}
USED_DATA = "corpus.json"  # in a run's directory: digests of the tables that it was trained on


@dataclass(frozen=True, kw_only=True)
class Table:
    """The columns of `SPLIT.tsv`, one entry per example: all that planning needs."""

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

    def read(self, positions: Sequence[int]) -> list[Mapping[str, Any]]:
        """Return the stored examples at these positions."""
        try:
            stored = self.source.__getitems__([*positions]) if positions else []
            counts = [len(example["audio"]) for example in stored]
        except Exception as error:  # ArrayRecord, protobuf and TFDS have errors of their own
            raise self._damaged(f"{error!r:.200}") from error
        if counts != self.table.samples[[*positions]].tolist():
            raise self._damaged("they have other lengths than the table lists")
        return stored

    def _damaged(self, problem: str) -> CorpusError:
        return CorpusError(
            f"the records of {self.name} are damaged ({problem}): prepare the corpus again into an "
            "empty directory"
        )


@dataclass(frozen=True, kw_only=True)
class PreparedCorpus:
    """Everything `simuljax prepare` wrote to a directory."""

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
    """Open a directory that `simuljax prepare` or `simuljax speak` has finished."""
    directory = Path(directory)
    if not (directory / SUMMARY).exists():
        raise CorpusError(
            f"{directory} holds no prepared corpus (there is no {SUMMARY}): build one with "
            f"`simuljax prepare CORPUS --to {directory}`, or run that again if it was interrupted"
        )
    summary = read_summary(directory)
    splits = {name: open_split(directory, name) for name in summary["splits"]}
    return PreparedCorpus(directory=directory, splits=splits, summary=summary)


def read_summary(directory: Path) -> dict[str, Any]:
    """Return the summary of a finished preparation."""
    summary, path = read_object(directory / SUMMARY), directory / SUMMARY
    counts = dict.fromkeys(("sentences", "speakers", "timed_words"), int) | {"hours": (int, float)}
    for name in ("preparation", "splits", "skipped", "changed"):
        part = summary.get(name)
        if not isinstance(part, dict):
            raise CorpusError(f"{path} is damaged: {name!r} must be an object")
        for key, held in part.items() if name != "preparation" else ():
            numbers = held if isinstance(held, dict) else {}
            wanted = [(numbers.get(n), kind) for n, kind in counts.items()]
            if not all(
                isinstance(n, k) for n, k in (wanted if name == "splits" else [(held, int)])
            ):
                raise CorpusError(f"{path} is damaged: {key!r} in {name!r} is {held!r:.80}")
    return summary


def check_metadata(directory: Path) -> None:
    """Raise CorpusError if TFDS would do more with its metadata than read our records.

    It imports the module of any class that features.json names.
    """
    info, features = (directory / name for name in METADATA)
    for key, value in _entries(read_object(features)):
        if key in _CLASS_KEYS and value not in _FEATURES:
            raise CorpusError(
                f"{features} names the class {value!r:.100}, which no corpus of ours has"
            )
    for key, value in _entries(read_object(info)):
        if key in _FIXED and value != _FIXED[key]:
            raise CorpusError(
                f"{info} is damaged ({key} is {value!r:.100}, not {_FIXED[key]!r}): prepare again"
            )


def _entries(value: Any) -> Iterable[tuple[str, Any]]:
    """Yield every key inside a JSON value, as protobuf compares them, with its value."""
    waiting = [value]
    while waiting:
        held = waiting.pop()
        if isinstance(held, dict):
            yield from ((key.replace("_", "").lower(), part) for key, part in held.items())
            waiting += held.values()
        elif isinstance(held, list):
            waiting += held


def open_split(directory: Path, name: str) -> Split:
    """Open one split, as soon as its records and its table are written."""
    import tensorflow_datasets as tfds

    def damaged(problem: str) -> CorpusError:
        return CorpusError(
            f"{directory} is damaged ({problem}): prepare it again into an empty directory"
        )

    missing = [f for f in (*METADATA, f"{name}.tsv") if not (directory / f).exists()]
    if missing:
        raise damaged(f"{', '.join(missing)} is missing")
    check_metadata(directory)
    table = read_table(directory / f"{name}.tsv")
    try:
        builder: Any = tfds.builder_from_directory(directory)
        stored = builder.info.splits[name]
        size = sum(path.stat().length if path.exists() else 0 for path in stored.filepaths)
        records, had = int(stored.num_examples), int(stored.num_bytes)
    except Exception as error:  # broken metadata fails in TFDS in as many ways as there are
        raise damaged(f"{' or '.join(METADATA)} cannot be read: {error!r:.200}") from error
    if records != len(table):
        raise damaged(f"{name}.tsv lists {len(table)} examples, the records hold {records}")
    if size != had:
        raise damaged(f"the records of {name} have {size} bytes and had {had}")
    # TFDS opens no split without examples.
    source = builder.as_data_source(split=name) if len(table) else ()
    return Split(name=name, table=table, source=source)


def read_table(path: Path) -> Table:
    """Read the table that `write_table` wrote."""
    broken = CorpusError(f"{path} is not a whole table of contents of this version: prepare again")
    try:
        *lines, end = path.read_text(encoding="utf-8").split("\n")
        header, *rows = [line.split("\t") for line in lines or [""]]
        if end or tuple(header) != COLUMNS or any(len(row) != len(COLUMNS) for row in rows):
            raise broken
        columns: dict[str, Any] = dict.fromkeys(COLUMNS, ())
        columns |= dict(zip(COLUMNS, zip(*rows, strict=True), strict=False))
        for name in COUNTS:
            columns[name] = np.array(columns[name], np.int64)
            if (columns[name] < 0).any():
                raise broken
    except (ValueError, OverflowError):  # not UTF-8, or no number
        raise broken from None
    return Table(**columns)


def write_table(path: Path, rows: Iterable[Sequence[str | int]]) -> None:
    """Write the contents of a split. The texts have no tab or line break any more."""
    lines = ["\t".join(map(str, row)) for row in [COLUMNS, *rows]]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)


@dataclass(frozen=True, kw_only=True)
class Example:
    """An utterance together with its samples."""

    utterance: Utterance
    audio: np.ndarray  # int16 [N]

    def row(self) -> tuple[str | int, ...]:
        said = self.utterance
        counts = (len(self.audio), len(said.words), len(said.phonemes))
        return (*counts, said.id, said.speaker, said.transcript, said.translation)


_TEXTS = ("id", "transcript", "translation", "speaker", "audio_origin", "translation_origin")


def record_features() -> Any:
    """Return the stored fields. Arrays are bytes: as lists of integers audio reads far slower."""
    import tensorflow_datasets as tfds

    text = tfds.features.Text
    array = functools.partial(tfds.features.Tensor, encoding=tfds.features.Encoding.BYTES)
    spans = array(shape=(None, 2), dtype=np.float32)
    return tfds.features.FeaturesDict(
        {
            "id": text(doc="unique within the corpus"),
            "audio": array(shape=(None,), dtype=np.int16, doc="16 kHz mono; empty: text only"),
            "transcript": text(),
            "translation": text(),
            "speaker": text(),
            "words": text(doc="aligned words, separated by spaces; empty: no alignment"),
            "word_ms": spans,
            "phonemes": text(doc="aligned phonemes, separated by spaces"),
            "phoneme_ms": spans,
            "audio_origin": text(doc="what was done to the audio; empty: nothing"),
            "translation_origin": text(doc="who wrote the translation; empty: the corpus"),
        }
    )


def encode(example: Example) -> dict[str, Any]:
    """Return the example as TFDS stores it."""
    utterance = example.utterance
    return {name: getattr(utterance, name) for name in _TEXTS} | {
        "audio": example.audio,
        "words": _texts(utterance.words),
        "word_ms": _times(utterance.words),
        "phonemes": _texts(utterance.phonemes),
        "phoneme_ms": _times(utterance.phonemes),
    }


def with_fixed_order(example: bytes) -> bytes:
    """Serialise an example the same in every process: protobuf orders its fields at random."""
    from tensorflow_datasets.proto import tf_example_pb2

    message = tf_example_pb2.Example.FromString(example)  # pyright: ignore[reportAttributeAccessIssue]
    return message.SerializeToString(deterministic=True)


def _texts(spans: Sequence[Span]) -> str:
    """Join the texts by spaces; a space inside one becomes an underscore."""
    return " ".join("_".join(span.text.split()) for span in spans)


def _times(spans: Sequence[Span]) -> np.ndarray:
    return np.array([(s.start_ms, s.end_ms) for s in spans], np.float32).reshape(-1, 2)


@dataclass(frozen=True, kw_only=True)
class ShardReport:
    """The result of one shard: rows of the table, skipped examples, and counts of changes."""

    rows: Sequence[Sequence[str | int]]  # as in COLUMNS
    skipped: Sequence[Skip]
    notes: dict[str, int]  # what was done to how many recordings that were kept


def summarise(
    reports: Mapping[str, Sequence[ShardReport]],
    skips: Iterable[Skip],
    preparation: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the numbers of a finished preparation."""
    notes: Counter[str] = Counter()
    for part in (part for parts in reports.values() for part in parts):
        notes.update(part.notes)
    return {
        "preparation": dict(preparation),
        "splits": {split: _split_numbers(parts) for split, parts in reports.items()},
        "skipped": dict(Counter(skip.reason for skip in skips).most_common()),
        "changed": dict(notes.most_common()),
    }


def _split_numbers(parts: Sequence[ShardReport]) -> dict[str, Any]:
    rows = [row for part in parts for row in part.rows]
    samples, words, phonemes = (sum(int(row[k]) for row in rows) for k in range(3))
    return {
        "sentences": len(rows),
        "hours": round(samples / RATE / 3600, 4),
        "speakers": len({row[COLUMNS.index("speaker")] for row in rows} - {""}),
        "timed_words": words,
        "timed_phonemes": phonemes,
        "skipped": sum(len(part.skipped) for part in parts),
    }


def skip_table(skips: Iterable[Skip]) -> str:
    """Return a table with a line for every example that was left out."""
    rows = [("id", "reason", "detail"), *((s.id, s.reason, s.detail) for s in skips)]
    return "".join("\t".join(" ".join(cell.split()) for cell in row) + "\n" for row in rows)


def describe(summary: Mapping[str, Any]) -> str:
    """Return the summary as text."""
    lines = ["  split            sentences     hours  speakers  timed words"]
    for split, numbers in summary["splits"].items():
        lines.append(
            f"  {split:15s} {numbers['sentences']:10,d} {numbers['hours']:9.2f} "
            f"{numbers['speakers']:9,d} {numbers['timed_words']:12,d}"
        )
    spoken = any(numbers["hours"] for numbers in summary["splits"].values())
    if spoken and not any(numbers["timed_words"] for numbers in summary["splits"].values()):
        lines.append(
            "  no utterance has word times: models that decide at words or phonemes "
            "(predecision.kind) need a corpus with them"
        )
    left_out, changed = summary["skipped"], summary["changed"]
    for what, counts in ((f"left out ({SKIPPED})", left_out), ("changed", changed)):
        if counts:
            lines.append(f"  {what}: " + ", ".join(f"{n:,} {why}" for why, n in counts.items()))
    return "\n".join(lines)


def split_digest(corpus: Path, split: str) -> str | None:
    """Return a digest of the table of a split; None if it does not exist."""
    table = corpus / f"{split}.tsv"
    return _digest(table, table.stat().st_mtime_ns) if table.exists() else None


@functools.cache
def _digest(table: Path, written: int) -> str:
    return hashlib.sha256(table.read_bytes()).hexdigest()[:16]


def record_used_data(run: Path, tables: Mapping[str, tuple[Path, str]]) -> None:
    """Write the digests of the data of a run; `tables` has a corpus and its split by role."""
    digests = {role: split_digest(corpus, split) for role, (corpus, split) in tables.items()}
    write_atomically(run / USED_DATA, json.dumps(digests, indent=2) + "\n")


def check_used_data(run: Path, tables: Mapping[str, tuple[Path, str]]) -> None:
    """Raise CorpusError if the corpus of a run has changed since it was recorded.

    A corpus that is built again from other texts under its old name looks the same from outside.
    Runs without a record and corpora that are gone are not compared.
    """
    if not (run / USED_DATA).exists():
        return
    recorded = read_object(run / USED_DATA)
    for role, (corpus, split) in tables.items():
        now = split_digest(corpus, split)
        if None not in (now, recorded.get(role)) and now != recorded[role]:
            raise CorpusError(
                f"{run} was trained on another {split} than {corpus} holds now: the corpus was "
                "built again under its old name. Restore the old one, or use another name for the "
                "run or the corpus"
            )
