"""Read and write logs in SimulEval's format: one JSON object per line, one line per utterance.

    index, prediction, delays, elapsed, prediction_length, reference, source, source_length

`delays` and `elapsed` have one entry per unit of the prediction: words, or characters for
languages written without spaces. Times are milliseconds; for a text source, words read. Logs of
SimulEval 1.0 end predictions in `</s>` with an entry of its own. The reader stores it apart, so
that a record looks the same for both versions.

A log may be gzipped, and it may be a member of an archive that holds the logs of many evaluations:

    experiments/results/NAME/logs.tar.xz       members are called RUN/EVALUATION/instances.log
    experiments/results/NAME:RUN/EVALUATION    names one of them wherever a log is expected
"""

import functools
import io
import json
import lzma
import tarfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Integral, Real
from pathlib import Path
from typing import Literal

from simuljax.errors import SimuljaxError, unknown
from simuljax.parsing import ParseError, parse_json, unpack_gzip, unpack_xz

END = "</s>"
NAME = "instances.log"
LOGS = (NAME, f"{NAME}.gz")  # names of a log in the directory of an evaluation
ARCHIVE = "logs.tar.xz"
LONGEST = 1e10  # ms, 115 days: a time beyond is a mistake
Unit = Literal["word", "char"]


class RecordError(SimuljaxError):
    """A log or a line of it that cannot be scored."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """The words committed for one utterance, and when."""

    prediction: str  # without </s>
    delays: tuple[float, ...]  # of the words or characters alone
    source_length: float
    index: int | None = None
    elapsed: tuple[float, ...] = ()  # the wall clock's version of `delays`, or nothing
    reference: str | None = None
    source: object = None  # a text, a path, or what a sound library says about the audio
    end_delay: float | None = None  # of </s>, where the log has it
    end_elapsed: float | None = None

    @property
    def has_text_source(self) -> bool:
        """Return True if `source` is a text and `source_length` counts its words."""
        return isinstance(self.source, str) and self.source_length == len(self.source.split())

    def reference_length(self, unit: Unit) -> int:
        """Count as SimulEval does: spaces + 1 (double spaces count), or characters with spaces.

        Without a reference, return the length of the prediction.
        """
        if self.reference is None:
            return len(self.delays)
        return len(self.reference.split(" ") if unit == "word" else self.reference.strip())

    def as_dict(self) -> dict[str, object]:
        delays, elapsed, prediction = [*self.delays], [*self.elapsed], self.prediction
        if self.end_delay is not None:
            delays.append(self.end_delay)
            elapsed += [] if self.end_elapsed is None else [self.end_elapsed]
            prediction = f"{prediction} {END}".strip()
        return {
            "index": self.index,
            "prediction": prediction,
            "delays": delays,
            "elapsed": elapsed,
            "prediction_length": len(delays),
            "reference": self.reference,
            "source": self.source,
            "source_length": self.source_length,
        }


def parse_record(entry: Mapping[str, object], where: str = "record") -> Record:
    """Check one entry of a log; `where` names it in an error."""
    if not isinstance(entry, Mapping):
        raise RecordError(f"{where}: not a JSON object but {entry!r:.40}")
    prediction = _text(entry, "prediction", where) or ""
    delays, elapsed = (_times(entry, key, where) for key in ("delays", "elapsed"))
    given = entry.get("source_length")
    length = _number(given)
    if length is None:
        raise RecordError(
            f"{where}: source_length must be a number up to {LONGEST:g}, not {given!r:.60}"
        )
    index = entry.get("index")
    if index is not None and not isinstance(index, Integral):
        raise RecordError(f"{where}: index must be a whole number, not {index!r}")
    ended = prediction.rstrip().endswith(END)
    if ended:
        prediction = prediction.rstrip().removesuffix(END).rstrip()
        ended = len(delays) not in (0, len(prediction.split()))  # it may be in the text alone
    return Record(
        index=None if index is None else int(index),
        prediction=prediction,
        delays=delays[:-1] if ended else delays,
        elapsed=elapsed[:-1] if ended else elapsed,
        end_delay=delays[-1] if ended else None,
        end_elapsed=elapsed[-1] if ended and elapsed else None,
        reference=_text(entry, "reference", where),
        source=entry.get("source"),
        source_length=length,
    )


def read_records(path: Path | str) -> list[Record]:
    """Read a log: a file, gzipped or not, the directory that has it, or ARCHIVE:MEMBER."""
    path = Path(path)
    if path.is_dir():
        path = log_in(path) or path / NAME
    return parse_log(read_text(path), str(path))


def log_in(folder: Path) -> Path | None:
    """Return the log of a directory, gzipped or not; None if it has none."""
    return next((folder / name for name in LOGS if (folder / name).is_file()), None)


def record_line(record: Record) -> str:
    """Return the line of the log, without its end; for writers of one utterance at a time."""
    return json.dumps(record.as_dict(), ensure_ascii=False)


def write_records(path: Path | str, records: Iterable[Record]) -> None:
    """Write a whole log."""
    text = "".join(record_line(record) + "\n" for record in records)
    Path(path).write_text(text, encoding="utf-8")


def as_records(entries: Iterable[Mapping[str, object] | Record]) -> list[Record]:
    """Parse records; of several with one index keep the last, as in a log that was resumed.

    If every reference is empty, the log has no references. A single empty one is a reference:
    SimulEval's count for it (1) and BLEU are defined.
    """
    unique: dict[object, Record] = {}
    for place, entry in enumerate(entries):
        record = entry
        if not isinstance(record, Record):
            record = parse_record(record, f"record {place}")
        unique[("place", place) if record.index is None else record.index] = record
    if any((record.reference or "").strip() for record in unique.values()):
        return list(unique.values())
    return [replace(record, reference=None) for record in unique.values()]


def find_unit(records: Iterable[Record]) -> Unit:
    """Return "char" if delays count the characters of more records than the words.

    A record with too many or too few delays has no say. SimulEval leaves spaces out when it counts
    the characters of a prediction.
    """
    spoken = [record for record in records if record.delays]
    words = sum(len(r.delays) == len(units_in(r.prediction, "word")) for r in spoken)
    characters = sum(len(r.delays) == len(units_in(r.prediction, "char")) for r in spoken)
    return "char" if characters > words else "word"


def units_in(text: str, unit: Unit) -> list[str]:
    """Return the units of a prediction that have delays: words, or characters without spaces."""
    words = text.split()
    return words if unit == "word" else [*"".join(words)]


def find_faults(records: Sequence[Record]) -> dict[str, int]:
    """Count the records whose times cannot be right, by what is wrong with them."""
    faults: Counter[str] = Counter()
    unit = find_unit(records)
    for record in records:
        delays, elapsed = record.delays, record.elapsed
        clocks = [delays] if record.has_text_source else [delays, elapsed]
        faults["a time below 0"] += any(time < 0 for times in clocks for time in times)
        faults["times that decrease"] += any(a > b for t in clocks for a, b in pairwise(t))
        count = len(units_in(record.prediction, unit))
        faults["more or fewer delays than words"] += len(delays) != count
        pairs = () if record.has_text_source else zip(elapsed, delays, strict=False)
        faults["elapsed below the delay"] += any(e < d - 1e-3 for e, d in pairs)
    return {fault: count for fault, count in faults.items() if count}


def write_archive(path: Path, logs: Mapping[str, bytes]) -> Path:
    """Write logs, given by member name; equal logs give equal bytes.

    Members are sorted by evaluation: logs of the same test set repeat its references, and xz finds
    repetitions within 64 MiB.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        lzma.open(path, "wb", preset=9) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name in sorted(logs, key=lambda name: name.split("/")[::-1]):
            member = tarfile.TarInfo(name)
            member.size = len(logs[name])
            archive.addfile(member, io.BytesIO(logs[name]))
    read_archive.cache_clear()
    return path


@functools.lru_cache(maxsize=4)
def read_archive(path: Path) -> Mapping[str, bytes]:
    """Return every log of an archive by member name."""
    try:
        held = unpack_xz(path.read_bytes())
        with tarfile.open(fileobj=io.BytesIO(held), mode="r:") as archive:
            files = (member for member in archive if not member.isdir())
            return {member.name: _member(held, member) for member in files}
    except FileNotFoundError:
        raise RecordError(f"there is no archive {path}") from None
    except (tarfile.TarError, ValueError, RecursionError) as error:
        raise RecordError(f"{path} is damaged: {error}") from None


def _member(held: bytes, member: tarfile.TarInfo) -> bytes:
    """Return the bytes of a file in a tar archive."""
    data = held[member.offset_data : member.offset_data + max(0, member.size)]
    if not member.isfile() or member.issparse() or len(data) != member.size:
        raise tarfile.ReadError(f"{member.name!r:.60} is not a whole file")
    return data


def split_member(path: Path | str) -> tuple[Path, str] | None:
    """Return (archive, member) of FOLDER:MEMBER or ARCHIVE:MEMBER; None for any other path."""
    place, colon, member = str(path).partition(":")
    archive = Path(place) / ARCHIVE if Path(place).is_dir() else Path(place)
    is_member = colon and archive.name.endswith(ARCHIVE) and archive.is_file()
    return (archive, member) if is_member else None


def parse_log(text: str, where: str) -> list[Record]:
    """Return the records of a log's text; `where` names it in errors."""
    records = []
    for number, line in enumerate(text.split("\n"), start=1):
        place = f"{where}, line {number}"
        if not line.strip():
            continue
        try:
            entry = parse_json(line)
        except ParseError as error:
            raise RecordError(f"{place}: {error}; was the writer killed?") from None
        records.append(parse_record(entry, place))
    if not records:
        raise RecordError(f"{where}: no records")
    return records


def read_text(path: Path) -> str:
    """Return a text that may be gzipped, or a member of an archive."""
    member = split_member(path)
    data = _read_member(*member) if member else path.read_bytes()
    try:
        if data.startswith(b"\x1f\x8b"):
            data = unpack_gzip(data)
        return data.decode("utf-8-sig")
    except ParseError as error:
        raise RecordError(f"{path}: {error}") from None
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}: not UTF-8 text ({error})") from None


def _read_member(archive: Path, member: str) -> bytes:
    """Return one log of an archive; `/instances.log` may be left out of the member's name."""
    logs = read_archive(archive)
    for name in (member, f"{member.rstrip('/')}/{NAME}"):
        if name in logs:
            return logs[name]
    short = [name.removesuffix(f"/{NAME}") for name in logs]
    raise RecordError(f"{archive}: {unknown(member, short)} Its first is {short[0]!r}.")


def _times(entry: Mapping[str, object], key: str, where: str) -> tuple[float, ...]:
    times = entry.get(key)
    if times is None and key == "elapsed":
        return ()
    values = [_number(time) for time in times] if isinstance(times, Iterable) else [None]
    if None in values:
        raise RecordError(
            f"{where}: {key} must be a list of numbers up to {LONGEST:g}, not {times!r:.60}"
        )
    return tuple(value for value in values if value is not None)


def _text(entry: Mapping[str, object], key: str, where: str) -> str | None:
    text = entry.get(key)
    if text is not None and not isinstance(text, str):
        raise RecordError(f"{where}: {key} must be a text, not {text!r:.60}")
    return text


def _number(value: object) -> float | None:
    """Return a Python number, from NumPy's too; None for anything else, NaN, or beyond LONGEST."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return None
    number = int(value) if isinstance(value, Integral) else float(value)
    return number if -LONGEST <= number <= LONGEST else None
