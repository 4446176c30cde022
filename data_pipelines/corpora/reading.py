"""The common part of all readers: lines and tables, indexes of audio files, and the listing."""

import difflib
import gzip
import io
import math
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import ClassVar, Literal, NoReturn

from data_pipelines.utterance import Clip, CorpusError, Listing, Skip, Span, Utterance
from simuljax.parsing import BoundedReader, ParseError

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

# Formats of libsndfile, in the order of preference if a recording exists in several.
AUDIO_SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3")


class SkipError(Exception):
    """The reason why an example is left out, and what was found."""

    def __init__(self, reason: str, detail: str):
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


@cache
def _metadata() -> dict[str, dict[str, str]]:
    import yaml

    return yaml.safe_load(Path(__file__).with_name("corpora.yaml").read_text(encoding="utf-8"))


class Reader:
    """The base of all readers; `corpora.yaml` has their descriptions and expected layouts."""

    name: ClassVar[str]

    @property
    def metadata(self) -> dict[str, str]:
        """Title, description, homepage, citation and layout; homepage and citation may be empty."""
        return _metadata()[self.name]

    def require(self, found: object, wanted: str, place: Path) -> None:
        """Raise CorpusError unless `found` is true."""
        if not found:
            self.refuse(wanted, place)

    def refuse(self, wanted: str, place: Path) -> NoReturn:
        """Raise CorpusError: what is missing, where, what is there instead, and the layout."""
        there = "nothing: it does not exist"
        if place.is_dir():
            names = sorted(entry.name for entry in place.iterdir())
            shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
            there = shown or "an empty directory"
        elif place.exists():
            there = "a file"
        layout = "\n".join(f"    {line}" for line in self.metadata["layout"].splitlines())
        raise CorpusError(
            f"{self.metadata['title']}: no {wanted} in {place} (found {there}). Expected:\n{layout}"
        )

    def present(self, place: Path, splits: Iterable[str]) -> list[str]:
        """Return those splits that have a directory; at least one must exist."""
        found = [split for split in splits if (place / split).is_dir()]
        self.require(found, f"directory {', '.join(splits)}", place)
        return found

    def require_files(self, *paths: Path) -> None:
        """Raise CorpusError unless all these files exist."""
        for path in paths:
            self.require(path.is_file(), f"file {path.name}", path.parent)

    def collect(
        self,
        splits: Mapping[str, Iterable[Utterance | Skip]],
        *,
        transcripts: Literal["required", "optional"] = "required",
    ) -> Listing:
        """Separate utterances from skips; empty texts and repeated ids become skips here."""
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
            raise CorpusError(
                f"{self.metadata['title']}: not one usable example. {_summary(skipped)}"
            )
        return Listing(splits={s: found for s, found in kept.items() if found}, skipped=skipped)


def split_name(name: str) -> str:
    """Return `valid` for validation, however a corpus calls it; other names with underscores."""
    return "valid" if name in ("dev", "val", "validation") else re.sub(r"\W", "_", name)


def stream_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, gzipped or not."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            if path.suffix == ".gz":
                file = io.BufferedReader(BoundedReader(file, path.stat().st_size))
            yield from decode_lines(file, path)
    except ParseError as error:
        raise CorpusError(f"{path}: {error}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CorpusError(f"{path}: broken gzip file ({error}). Fetch it again.") from error


def decode_lines(lines: Iterable[bytes], path: Path) -> Iterator[str]:
    """Decode UTF-8 lines, which end at a line feed alone.

    A split of the decoded text, by str.splitlines, would break subtitles at U+2028 and U+0085.
    """
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise CorpusError(f"{path}, line {number}: not UTF-8. Convert the file.") from error
        yield text.rstrip("\r\n")


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file without surrounding blanks."""
    return [line.strip() for line in stream_lines(path)]


def read_parallel(*paths: Path) -> list[list[str]]:
    """Return the lines of files that must be equally long."""
    columns = [read_lines(path) for path in paths]
    check_counts(paths, columns)
    return columns


def check_counts(paths: Sequence[Path], columns: Sequence[Sequence[object]]) -> None:
    """Raise CorpusError unless these files have equally many entries."""
    if len({len(column) for column in columns}) > 1:
        counts = ", ".join(f"{p} has {len(c)}" for p, c in zip(paths, columns, strict=True))
        raise CorpusError(f"Line counts differ: {counts}. One of the files is cut short or edited.")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a table: its place, `FILE:LINE`, and its cells by column."""

    where: str
    cells: Mapping[str, str] | None  # None: more or fewer cells than the header has


def check_columns(
    where: str, header: Sequence[str], required: Iterable[str], known: Sequence[str] = ()
) -> None:
    """Raise CorpusError for a missing column, and for an unknown one if `known` is given."""
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
    """Yield the rows of a tab-separated file with a header; quotes have no meaning."""
    lines = stream_lines(path)
    header = next(lines, "").split("\t")
    check_columns(str(path), header, required, known)
    for number, line in enumerate(lines, start=2):
        if not line:
            continue
        cells = line.split("\t")
        if backslashes == "escape" and "\\" in line:
            cells = re.sub(r"\\(.)|\t", lambda found: found[1] or "\n", line).split("\n")
        whole = dict(zip(header, map(str.strip, cells), strict=False))
        yield Row(where=f"{path.name}:{number}", cells=whole if len(cells) == len(header) else None)


def seconds(text: str) -> float:
    """Parse a finite number of seconds; raise ValueError for anything else."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a time")
    return value


def parse_segment(text: str) -> tuple[str, float, float]:
    """Parse `RECORDING START END` in seconds into recording, offset and duration."""
    recording, start, end = text.split()
    return recording, seconds(start), round(seconds(end) - seconds(start), 6)


def parse_spans(text: str) -> tuple[Span, ...]:
    """Parse `word@start-end word@start-end ...` with times in seconds, or raise ValueError."""
    items = [item.rpartition("@") for item in text.split()]
    return tuple(
        make_span(word, *map(seconds, times.partition("-")[::2])) for word, _, times in items
    )


def make_span(text: str, start_s: float, end_s: float) -> Span:
    """Make a span from times in seconds; to the microsecond, so that 0.216 s is 216.0 ms."""
    if not text or not 0 <= start_s <= end_s:
        raise ValueError(f"{text!r} from {start_s} s to {end_s} s is no word with a time")
    return Span(text=text, start_ms=round(start_s * 1e3, 3), end_ms=round(end_s * 1e3, 3))


@dataclass(frozen=True, kw_only=True)
class AudioIndex:
    """The audio files of a directory or of a zip archive, by their names without the suffix."""

    place: Path
    names: Mapping[str, str]

    def clip(self, stem: str, offset_s: float = 0.0, duration_s: float | None = None) -> Clip:
        """Return that file or a stretch of it; raise SkipError if it does not exist."""
        check_stretch(offset_s, duration_s)
        if stem not in self.names:
            raise SkipError(MISSING_AUDIO, f"{stem} in {self.place}")
        stretch, name = {"offset_s": offset_s, "duration_s": duration_s}, self.names[stem]
        if self.place.suffix == ".zip":
            return Clip(path=self.place, member=name, **stretch)
        return Clip(path=self.place / name, **stretch)


def check_stretch(offset_s: float, duration_s: float | None) -> None:
    """Raise SkipError for a stretch of audio that cannot exist."""
    if offset_s < 0 or (duration_s is not None and duration_s <= 0):
        raise SkipError(NO_DURATION, f"offset {offset_s}, duration {duration_s}")


def index_audio(place: Path) -> AudioIndex:
    """List a directory or a zip archive once: cheaper than a query for each of 200,000 files."""
    names = _members(place) if place.suffix == ".zip" else [entry.name for entry in place.iterdir()]
    best: dict[str, str] = {}
    for suffix in reversed(AUDIO_SUFFIXES):
        best |= {Path(n).stem: n for n in names if n.lower().endswith(suffix)}
    return AudioIndex(place=place, names=best)


def attempt(key: str, where: str, make: Callable[[], Utterance]) -> Utterance | Skip:
    """Return the utterance, or the reason why it is left out."""
    try:
        return make()
    except CorpusError:
        raise
    except SkipError as error:
        return Skip(id=key, reason=error.reason, detail=f"{where}: {error.detail}")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        detail = f"no {error}" if isinstance(error, KeyError) else str(error)
        return Skip(id=key, reason=MALFORMED_ROW, detail=f"{where}: {detail}")


def list_rows(
    rows: Iterable[Row],
    key_of: Callable[[Mapping[str, str]], str],
    make: Callable[[str, Mapping[str, str]], Utterance],
) -> Iterator[Utterance | Skip]:
    """Make an utterance of every row; one with the wrong number of cells is skipped."""
    for row in rows:
        if row.cells is None:
            yield Skip(id=row.where, reason=MALFORMED_ROW, detail="wrong number of cells")
        else:
            key = key_of(row.cells)
            yield attempt(key, row.where, partial(make, key, row.cells))


def group_rows(
    rows: Iterable[Row], split_of: Callable[[Mapping[str, str]], str], *first: str
) -> dict[str, list[Row]]:
    """Return rows by split, the named ones first; a malformed row goes to the first."""
    splits: dict[str, list[Row]] = {split: [] for split in first}
    for row in rows:
        split = split_name(split_of(row.cells)) if row.cells else first[0]
        splits.setdefault(split, []).append(row)
    return splits


def _members(archive: Path) -> list[str]:
    try:
        with zipfile.ZipFile(archive) as opened:
            return opened.namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise CorpusError(f"{archive}: not a whole zip archive. Fetch it again.") from error


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
    counted = ", ".join(f"{n} x {reason}" for reason, n in counts)
    return f"Left out: {counted}; the first is {skipped[0].id} ({skipped[0].detail})."
