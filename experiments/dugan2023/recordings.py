"""A folder of recordings with references: what an interpreter is evaluated on.

FOLDER/manifest.tsv is UTF-8 text, columns separated by tabs, the first line their names:

    file        the recording, relative to the folder
    language    that is spoken in it, a code or name that Whisper knows
    reference   what should be written: its translation, or its transcript
    segments    optional: START-END of each sentence in seconds, with spaces between them; the
                reference then has as many parts, separated by " | "
    ends        optional: the second at which each word of the reference has been spoken, with
                spaces between them; for transcripts

Other columns are ignored. There are no quotes: a cell is what stands between two tabs.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simuljax.audio import read_audio
from simuljax.config.fields import ConfigError
from simuljax.models.whisper.languages import language_code

FILE = "manifest.tsv"
NEEDED = ("file", "language", "reference")
BETWEEN = " | "  # segments of a reference


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A sentence of the reference, and when it is spoken."""

    text: str
    start_ms: float
    end_ms: float


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A line of the manifest."""

    index: int
    file: Path
    language: str
    reference: str
    segments: tuple[Segment, ...] = ()
    ends_ms: tuple[float, ...] = ()  # of the words of the reference

    @property
    def samples(self) -> np.ndarray:
        """The sound, int16 at 16 kHz."""
        return read_audio(self.file).samples

    @property
    def word_ends_ms(self) -> tuple[float, ...]:
        """When each word had been spoken: as told, or evenly spread over its sentence.

        Nothing if the manifest has neither.
        """
        if self.ends_ms:
            return self.ends_ms
        times = []
        for segment in self.segments:
            count = len(segment.text.split())
            step = (segment.end_ms - segment.start_ms) / max(count, 1)
            times += [segment.start_ms + step * (i + 1) for i in range(count)]
        return tuple(times)


def read_recordings(folder: Path) -> list[Recording]:
    """The recordings of a folder; whatever is wrong is told with its file and line."""
    path = folder / FILE
    if not path.is_file():
        raise ConfigError(f"{path} is missing: it names recordings, languages and references")
    try:
        header, *lines = path.read_text(encoding="utf-8-sig").rstrip("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text ({error})") from None
    names = header.split("\t")
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise ConfigError(f"{path}, line 1: no column {missing[0]!r}, but {names}")
    recordings = []
    for number, line in enumerate(lines, start=2):
        if line.strip():
            where = f"{path}, line {number}"
            cells = dict(zip(names, _cells(line, len(names), where), strict=True))
            recordings.append(_recording(cells, len(recordings), folder, where))
    _check_once(path, recordings)
    return recordings


def _cells(line: str, count: int, where: str) -> list[str]:
    cells = [cell.strip() for cell in line.rstrip("\r").split("\t")]
    if len(cells) != count:
        raise ConfigError(f"{where}: {len(cells)} columns, the first line has {count}")
    return cells


def _recording(cells: dict[str, str], index: int, folder: Path, where: str) -> Recording:
    file = folder / cells["file"]
    if not cells["file"] or not file.is_file():
        raise ConfigError(f"{where}: there is no recording {file}")
    if not cells["reference"]:
        raise ConfigError(f"{where}: the reference is empty")
    try:
        language = language_code(cells["language"])
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None
    segments = _segments(cells, where)
    texts = [segment.text for segment in segments] or [cells["reference"]]
    reference = " ".join(" ".join(texts).split())
    ends = tuple(_seconds(end, where) for end in cells.get("ends", "").split())
    if ends and len(ends) != len(reference.split()):
        raise ConfigError(f"{where}: {len(reference.split())} words but {len(ends)} ends")
    return Recording(
        index=index,
        file=file,
        language=language,
        reference=reference,
        segments=segments,
        ends_ms=ends,
    )


def _segments(cells: dict[str, str], where: str) -> tuple[Segment, ...]:
    times = cells.get("segments", "").split()
    if not times:
        return ()
    texts = [text.strip() for text in cells["reference"].split(BETWEEN)]
    if len(texts) != len(times):
        problem = f"{len(times)} segments, but the reference has {len(texts)} parts"
        raise ConfigError(f"{where}: {problem} (they are separated by {BETWEEN!r})")
    segments = []
    for text, time in zip(texts, times, strict=True):
        start, _, end = time.partition("-")
        begin, stop = _seconds(start, where), _seconds(end, where)
        if stop < begin:
            raise ConfigError(f"{where}: the segment {time!r} ends before it begins")
        segments.append(Segment(text=text, start_ms=begin, end_ms=stop))
    return tuple(segments)


def _seconds(text: str, where: str) -> float:
    """In ms."""
    try:
        value = float(text) * 1000
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ConfigError(f"{where}: {text!r} is no time in seconds") from None
    return value


def _check_once(path: Path, recordings: list[Recording]) -> None:
    if not recordings:
        raise ConfigError(f"{path}: no recordings")
    seen: set[Path] = set()
    for recording in recordings:
        if recording.file in seen:
            raise ConfigError(f"{path}: {recording.file.name} is there twice")
        seen.add(recording.file)
