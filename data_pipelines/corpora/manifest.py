"""The generic manifest: any corpus, as tab-separated tables or JSON lines that name its audio."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import ClassVar, Literal

from data_pipelines.corpora import reading
from data_pipelines.corpora.reading import Reader, Row, SkipError, make_span, seconds
from data_pipelines.utterance import Clip, Listing, Skip, Span, Utterance
from simuljax.parsing import ParseError, parse_json

COLUMNS = (
    *("id", "split", "audio", "member", "offset_s", "duration_s"),
    *("transcript", "translation", "speaker", "words"),
)
HALF = re.compile(r"[\ud800-\udfff]")  # of a surrogate pair: UTF-8 has none


@dataclass(frozen=True, kw_only=True)
class Manifest(Reader):
    """Your own corpus, from files with one example a line.

    A `.tsv` has a header and tab-separated cells (no quoting); each line of a `.jsonl` is an
    object. A file without a column `split` is the split it is named after (`dev` and `val` are
    valid). Columns:

    - audio: a sound file, or a zip archive with `member`; relative to the manifest's directory
    - offset_s: where the example starts in it, in seconds; 0 if absent or empty
    - duration_s: how long it is, in seconds; to the end of the file if absent or empty
    - transcript: the words said; a corpus without transcripts leaves out the column
    - translation: required, except for `task="transcription"`
    - speaker: a name
    - words: `word@start-end word@start-end ...`, or JSON `[["word", start, end], ...]`, in
    seconds from the start of the example
    - id: unique; by default the file and the number of the line, `train.tsv:2`
    """

    name: ClassVar[str] = "manifest"

    source: str = ""
    """Language spoken; for the record only."""
    target: str = ""
    """Language of the translation; for the record only."""
    task: Literal["translation", "transcription"] = "translation"
    """With `transcription` the translation of an example is its transcript."""

    def read(self, root: Path) -> Listing:
        """List one file, or all files of a directory whose names end in .tsv or .jsonl."""
        files = [root]
        if not root.is_file():
            found = sorted(root.iterdir()) if root.is_dir() else []
            files = [path for path in found if path.suffix in (".tsv", ".jsonl")]
        self.require(files, "file *.tsv or *.jsonl", root)
        splits: dict[str, list[Utterance | Skip]] = {}
        for path in files:
            for split, entry in self._list(path):
                splits.setdefault(split, []).append(entry)
        return self.collect(splits, transcripts="optional")

    def _list(self, path: Path) -> Iterator[tuple[str, Utterance | Skip]]:
        needed = ("audio", "transcript" if self.task == "transcription" else "translation")
        if path.suffix == ".jsonl":
            rows = _json_rows(path, needed)
        else:
            rows = reading.read_table(path, needed, known=COLUMNS)
        is_file = cache(Path.is_file)  # many examples share a recording
        for row in rows:
            cells = row.cells or {}
            split = reading.split_name(cells.get("split") or path.stem)
            key = cells.get("id") or row.where
            make = partial(self._utterance, key, row.cells, path.parent, is_file)
            yield split, reading.attempt(key, row.where, make)

    def _utterance(
        self, key: str, cells: Mapping[str, str] | None, home: Path, is_file: Callable[[Path], bool]
    ) -> Utterance:
        if cells is None:
            raise ValueError("wrong number of cells, no JSON object, or half a surrogate pair")
        if not cells["audio"]:
            raise ValueError("audio is empty")
        audio, transcript = home / cells["audio"], cells.get("transcript")
        translation = cells["translation"] if self.task == "translation" else cells["transcript"]
        offset = seconds(cells.get("offset_s") or "0")
        duration = seconds(cells["duration_s"]) if cells.get("duration_s") else None
        words = _words(cells.get("words", ""))
        reading.check_stretch(offset, duration)
        if transcript == "":
            raise SkipError(reading.EMPTY_TEXT, "transcript")
        if not is_file(audio):
            raise SkipError(reading.MISSING_AUDIO, str(audio))
        member = cells.get("member") or None
        return Utterance(
            id=key,
            transcript=transcript or "",
            translation=translation,
            audio=Clip(path=audio, member=member, offset_s=offset, duration_s=duration),
            speaker=cells.get("speaker", ""),
            words=words,
        )


def _json_rows(path: Path, required: tuple[str, ...]) -> Iterator[Row]:
    """Yield each object as the row that a table would have."""
    for number, line in enumerate(reading.stream_lines(path), start=1):
        if not line.strip():
            continue
        try:
            value = parse_json(line)
        except ParseError:
            value = None
        if isinstance(value, dict):
            reading.check_columns(f"{path}, line {number}", list(value), required, known=COLUMNS)
        cells = {k: _cell(v) for k, v in value.items()} if isinstance(value, dict) else None
        if cells and HALF.search("".join(cells.values())):
            cells = None
        yield Row(where=f"{path.name}:{number}", cells=cells)


def _cell(value: object) -> str:
    if isinstance(value, str):
        return value.strip()
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _words(text: str) -> tuple[Span, ...]:
    if not text.startswith("["):
        return reading.parse_spans(text)
    try:
        return tuple(make_span(word, float(a), float(b)) for word, a, b in parse_json(text))
    except TypeError as error:
        raise ValueError(f"words are not [[word, start, end], ...]: {error}") from error
