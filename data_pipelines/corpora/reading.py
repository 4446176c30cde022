"""The common part of all readers: lines and tables, indexes of audio files, and the listing."""

import difflib
import gzip
import math
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn

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

# Formats of libsndfile, in the order of preference if a recording exists in several.
AUDIO_SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3")


@cache
def _metadata() -> dict[str, dict[str, str]]:
    import yaml

    return yaml.safe_load(Path(__file__).with_name("corpora.yaml").read_text(encoding="utf-8"))


class Reader:
    """The base of all readers; `corpora.yaml` has their descriptions and expected layouts."""

    name: ClassVar[str]

    @property
    def description(self) -> str:
        """One sentence about the corpus, for TFDS."""
        return _metadata()[self.name]["description"]

    @property
    def homepage(self) -> str:
        """The web page of the corpus; may be empty."""
        return _metadata()[self.name]["homepage"]

    @property
    def citation(self) -> str:
        """The BibTeX entry of the corpus; may be empty."""
        return _metadata()[self.name]["citation"]

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
        title, tree = (_metadata()[self.name][key] for key in ("title", "layout"))
        layout = "\n".join(f"    {line}" for line in tree.splitlines())
        raise CorpusError(f"{title}: no {wanted} in {place} (found {there}). Expected:\n{layout}")

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
            title = _metadata()[self.name]["title"]
            raise CorpusError(f"{title}: not one usable example. {_summary(skipped)}")
        return Listing(splits={s: found for s, found in kept.items() if found}, skipped=skipped)


def split_name(name: str) -> str:
    """Return `valid` for validation, however a corpus calls it; other names with underscores."""
    return "valid" if name in ("dev", "val", "validation") else re.sub(r"\W", "_", name)


def stream_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, gzipped or not."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield from decode_lines(file, path)
    except (EOFError, gzip.BadGzipFile) as error:
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


def read_text(path: Path) -> str:
    """Return a file as text with line feeds."""
    return "\n".join(stream_lines(path))


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
        cells = _unescape(line) if backslashes == "escape" and "\\" in line else line.split("\t")
        whole = dict(zip(header, map(str.strip, cells), strict=False))
        yield Row(where=f"{path.name}:{number}", cells=whole if len(cells) == len(header) else None)


def _unescape(line: str) -> list[str]:
    cells = re.split(r"(?<!\\)\t", line)
    return [re.sub(r"\\(.)", r"\1", cell) for cell in cells]


def seconds(text: str) -> float:
    """Parse a finite number of seconds; raise ValueError for anything else."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a time")
    return value


def parse_spans(text: str) -> tuple[Span, ...]:
    """Parse `word@start-end word@start-end ...` with times in seconds, or raise ValueError."""
    return tuple(_parse_span(item) for item in text.split())


def _parse_span(item: str) -> Span:
    word, _, times = item.rpartition("@")
    start, _, end = times.partition("-")
    return make_span(word, seconds(start), seconds(end))


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

    def clip(
        self, stem: str, *, offset_s: float = 0.0, duration_s: float | None = None
    ) -> Clip | None:
        """Return the clip of that file, or None if there is no such file."""
        name = self.names.get(stem)
        if name is None:
            return None
        if self.place.suffix == ".zip":
            return Clip(path=self.place, member=name, offset_s=offset_s, duration_s=duration_s)
        return Clip(path=self.place / name, offset_s=offset_s, duration_s=duration_s)


def index_audio(place: Path) -> AudioIndex:
    """List a directory or a zip archive once: cheaper than a query for each of 200,000 files."""
    names = _members(place) if place.suffix == ".zip" else [entry.name for entry in place.iterdir()]
    best: dict[str, str] = {}
    for suffix in reversed(AUDIO_SUFFIXES):
        best |= {Path(n).stem: n for n in names if n.lower().endswith(suffix)}
    return AudioIndex(place=place, names=best)


def timed_clip(
    key: str, audio: AudioIndex, stem: str, offset: float, duration: float, where: str
) -> Clip | Skip:
    """Return a stretch of a recording, or the reason why the example is skipped."""
    if offset < 0 or duration <= 0:
        return Skip(id=key, reason=NO_DURATION, detail=where)
    clip = audio.clip(stem, offset_s=offset, duration_s=duration)
    return clip or missing_audio(key, stem, audio)


def missing_audio(key: str, name: str, audio: AudioIndex) -> Skip:
    """Skip an example whose audio file does not exist."""
    return Skip(id=key, reason=MISSING_AUDIO, detail=f"{name} in {audio.place}")


def make_utterance(key: str, audio: Clip | Skip, **fields: Any) -> Utterance | Skip:
    """Return the utterance of a clip; a skip stays one."""
    return audio if isinstance(audio, Skip) else Utterance(id=key, audio=audio, **fields)


def list_rows(
    rows: Iterable[Row], make: Callable[[str, Mapping[str, str]], Utterance | Skip]
) -> Iterator[Utterance | Skip]:
    """Make an utterance of every row; one with the wrong number of cells is skipped."""
    for row in rows:
        if row.cells is None:
            yield Skip(id=row.where, reason=MALFORMED_ROW, detail="wrong number of cells")
        else:
            yield make(row.where, row.cells)


def _members(archive: Path) -> list[str]:
    try:
        with zipfile.ZipFile(archive) as opened:
            return opened.namelist()
    except zipfile.BadZipFile as error:
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
