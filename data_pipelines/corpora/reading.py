"""What the readers of corpora share: lines and tables, shelves of audio files, and the listing."""

import difflib
import gzip
import math
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from data_pipelines.utterance import Clip, CorpusError, Listing, Skip, Span, Utterance

# The reasons for leaving an example out; few and fixed, so that they can be counted.
MALFORMED_ROW = "malformed row"
EMPTY_TEXT = "empty text"
MISSING_AUDIO = "missing audio file"
UNREADABLE_AUDIO = "unreadable audio file"
NO_DURATION = "duration is not positive"
NO_TIMES = "no times"
TOO_SHORT = "shorter than min_seconds"
EXCLUDED = "in the excluded file"
DUPLICATE_ID = "duplicate id"

# What libsndfile reads, in the order of preference when a recording is there in several formats.
AUDIO_SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3")


def split_name(told: str) -> str:
    """`valid` for validation, however a corpus calls it; other names with underscores."""
    return "valid" if told in ("dev", "val", "validation") else re.sub(r"\W", "_", told)


def refuse_layout(corpus: str, wanted: str, place: Path, tree: str) -> NoReturn:
    """Says what was looked for, where, what is there instead, and how the tree ought to look."""
    there = "nothing: it does not exist"
    if place.is_dir():
        names = sorted(entry.name for entry in place.iterdir())
        there = (", ".join(names[:8]) + (", ..." if len(names) > 8 else "")) or "an empty directory"
    elif place.exists():
        there = "a file"
    layout = "\n".join(f"    {line}" for line in tree.strip("\n").splitlines())
    raise CorpusError(f"{corpus}: no {wanted} in {place} (found {there}). Expected:\n{layout}")


def stream_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, gzipped or not, one at a time."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield from decode_lines(file, path)
    except (EOFError, gzip.BadGzipFile) as error:
        raise CorpusError(f"{path}: broken gzip file ({error}). Fetch it again.") from error


def decode_lines(lines: Iterable[bytes], path: Path) -> Iterator[str]:
    """UTF-8 text by lines that end at a line feed alone.

    A split of the decoded text, by str.splitlines, would break subtitles at U+2028 and U+0085.
    """
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise CorpusError(f"{path}, line {number}: not UTF-8. Convert the file.") from error
        yield text.rstrip("\r\n")


def read_text(path: Path) -> str:
    """All lines of a file, line ends made line feeds."""
    return "\n".join(stream_lines(path))


def read_lines(path: Path) -> list[str]:
    """The lines of a text file without surrounding blanks."""
    return [line.strip() for line in stream_lines(path)]


def read_parallel(*paths: Path) -> list[list[str]]:
    """The lines of files that must be equally long."""
    columns = [read_lines(path) for path in paths]
    check_counts(paths, columns)
    return columns


def check_counts(paths: Sequence[Path], columns: Sequence[Sequence[object]]) -> None:
    """Refuses what was read from these files if it is not equally long."""
    if len({len(column) for column in columns}) > 1:
        counts = ", ".join(f"{p} has {len(c)}" for p, c in zip(paths, columns, strict=True))
        raise CorpusError(f"Line counts differ: {counts}. One of the files is cut short or edited.")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a table: where it stands, `FILE:LINE`, and its cells by column."""

    where: str
    cells: Mapping[str, str] | None  # None: more or fewer cells than the header has


def check_columns(
    where: str, header: Sequence[str], required: Iterable[str], known: Sequence[str] = ()
) -> None:
    """Refuses a table that lacks a column, or has an unknown one if the known ones are given."""
    for column in header if known else ():
        if column not in known:
            close = difflib.get_close_matches(column, known, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Known are {', '.join(known)}."
            raise CorpusError(f"{where}: unknown column {column!r}. {hint}")
    missing = [column for column in required if column not in header]
    if missing:
        raise CorpusError(f"{where}: no column {', '.join(missing)}; the columns are {header}.")


def read_table(
    path: Path,
    required: Iterable[str],
    *,
    known: Sequence[str] = (),
    backslashes: Literal["literal", "escape"] = "literal",
) -> Iterator[Row]:
    """Rows of a tab-separated file with a header; quotes mean themselves, empty lines nothing."""
    lines = stream_lines(path)
    header = next(lines, "").split("\t")
    check_columns(str(path), header, required, known)
    for number, line in enumerate(lines, start=2):
        if not line:
            continue
        cells = _unescape(line) if backslashes == "escape" and "\\" in line else line.split("\t")
        whole = dict(zip(header, map(str.strip, cells), strict=False))
        yield Row(where=f"{path.name}:{number}", cells=whole if len(cells) == len(header) else None)


def _unescape(line: str) -> list[str]:
    cells = re.split(r"(?<!\\)\t", line)
    return [re.sub(r"\\(.)", r"\1", cell) for cell in cells]


def seconds(text: str) -> float:
    """A finite number of seconds; ValueError for anything else."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a time")
    return value


def parse_spans(text: str) -> tuple[Span, ...]:
    """`word@start-end word@start-end ...` with times in seconds; ValueError if it is not that."""
    return tuple(_parse_span(item) for item in text.split())


def _parse_span(item: str) -> Span:
    word, _, times = item.rpartition("@")
    start, _, end = times.partition("-")
    return make_span(word, seconds(start), seconds(end))


def make_span(text: str, start_s: float, end_s: float) -> Span:
    """A span from times in seconds; to the microsecond, so that 0.216 s is 216.0 ms."""
    if not text or not 0 <= start_s <= end_s:
        raise ValueError(f"{text!r} from {start_s} s to {end_s} s is not a word and its time")
    return Span(text=text, start_ms=round(start_s * 1e3, 3), end_ms=round(end_s * 1e3, 3))


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """The audio files of a directory or of a zip archive, by their names without the suffix."""

    place: Path
    names: Mapping[str, str]

    def clip(
        self, stem: str, *, offset_s: float = 0.0, duration_s: float | None = None
    ) -> Clip | None:
        """The clip of that file, or None if the file is not here."""
        name = self.names.get(stem)
        if name is None:
            return None
        if self.place.suffix == ".zip":
            return Clip(path=self.place, member=name, offset_s=offset_s, duration_s=duration_s)
        return Clip(path=self.place / name, offset_s=offset_s, duration_s=duration_s)


def shelve(place: Path) -> Shelf:
    """Lists a directory or a zip archive once: cheaper than asking for each of 200,000 files."""
    names = _members(place) if place.suffix == ".zip" else [entry.name for entry in place.iterdir()]
    best: dict[str, str] = {}
    for suffix in reversed(AUDIO_SUFFIXES):
        best |= {Path(n).stem: n for n in names if n.lower().endswith(suffix)}
    return Shelf(place=place, names=best)


def _members(archive: Path) -> list[str]:
    try:
        with zipfile.ZipFile(archive) as opened:
            return opened.namelist()
    except zipfile.BadZipFile as error:
        raise CorpusError(f"{archive}: not a whole zip archive. Fetch it again.") from error


def collect(
    corpus: str,
    splits: Mapping[str, Iterable[Utterance | Skip]],
    *,
    transcripts: Literal["required", "optional"] = "required",
) -> Listing:
    """Parts utterances from skips; empty texts and repeated ids become skips here."""
    kept: dict[str, list[Utterance]] = {split: [] for split in splits}
    skipped: list[Skip] = []
    seen: set[str] = set()
    for split, entries in splits.items():
        for entry in entries:
            checked = _check(entry, seen, transcripts)
            if isinstance(checked, Skip):
                skipped.append(checked)
            else:
                seen.add(checked.id)
                kept[split].append(checked)
    if not any(kept.values()):
        raise CorpusError(f"{corpus}: not one usable example. {_summary(skipped)}")
    return Listing(splits={s: found for s, found in kept.items() if found}, skipped=skipped)


def _check(entry: Utterance | Skip, seen: set[str], transcripts: str) -> Utterance | Skip:
    if isinstance(entry, Skip):
        return entry
    if not entry.translation:
        return Skip(id=entry.id, reason=EMPTY_TEXT, detail="translation")
    if not entry.transcript and transcripts == "required":
        return Skip(id=entry.id, reason=EMPTY_TEXT, detail="transcript")
    if entry.id in seen:
        return Skip(id=entry.id, reason=DUPLICATE_ID, detail="an earlier example has this id")
    return entry


def _summary(skipped: Sequence[Skip]) -> str:
    if not skipped:
        return "The files are empty."
    counts = Counter(skip.reason for skip in skipped).most_common()
    told = ", ".join(f"{n} x {reason}" for reason, n in counts)
    return f"Left out: {told}; the first is {skipped[0].id} ({skipped[0].detail})."
