"""Logs in SimulEval's format: one JSON object a line, one line an utterance.

    index, prediction, delays, elapsed, prediction_length, reference, source, source_length

`delays` and `elapsed` have an entry for every unit of the prediction: words, or characters for
languages written without spaces. Times are milliseconds; for a text source, words read. Logs of
SimulEval 1.0 end predictions in `</s>` with an entry of its own: here it is taken off and kept
apart, so that a record looks the same wherever it comes from.
"""

import gzip
import io
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Literal

from simuljax.errors import SimuljaxError

END = "</s>"
NAME = "instances.log"
LOGS = (NAME, f"{NAME}.gz")  # what a log is called in the directory of an evaluation
Unit = Literal["word", "char"]


class RecordError(SimuljaxError):
    """A log, or a line of it, that cannot be scored; says where and why."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What was committed when, for one utterance."""

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
        """Whether `source` is the text that `source_length` counts the words of."""
        return isinstance(self.source, str) and self.source_length == len(self.source.split())

    def reference_length(self, unit: Unit) -> int:
        """As SimulEval counts: spaces + 1 (double spaces count), or characters with spaces.

        Without a reference, the length of the prediction.
        """
        if self.reference is None:
            return len(self.delays)
        return len(self.reference.split(" ") if unit == "word" else self.reference.strip())

    def as_dict(self) -> dict[str, object]:
        """The record as the log has it."""
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
    """A record from what stands in a log; `where` is for the error."""
    prediction = _text(entry, "prediction", where) or ""
    delays, elapsed = (_times(entry, key, where) for key in ("delays", "elapsed"))
    length = _number(entry.get("source_length"))
    if length is None:
        value = entry.get("source_length")
        raise RecordError(f"{where}: source_length must be a number, not {value!r:.60}")
    index = entry.get("index")
    if index is not None and not isinstance(index, int):
        raise RecordError(f"{where}: index must be a whole number, not {index!r}")
    ended = prediction.rstrip().endswith(END)
    if ended:
        prediction = prediction.rstrip().removesuffix(END).rstrip()
        ended = len(delays) not in (0, len(prediction.split()))  # it may be in the text alone
    return Record(
        index=index,
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
    """The records of a log, gzipped or not, or of the directory that has it."""
    path = Path(path)
    if path.is_dir():
        path = log_in(path) or path / NAME
    records = []
    for number, line in enumerate(_text_of(path).split("\n"), start=1):
        where = f"{path}, line {number}"
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except json.JSONDecodeError as error:
            raise RecordError(f"{where}: not JSON ({error}); was the writer killed?") from None
        if not isinstance(entry, dict):
            raise RecordError(f"{where}: not a JSON object but {line[:40]!r}")
        records.append(parse_record(entry, where))
    if not records:
        raise RecordError(f"{path}: no records")
    return records


def log_in(folder: Path) -> Path | None:
    """The log of a directory, gzipped or not, if it has one."""
    return next((folder / name for name in LOGS if (folder / name).is_file()), None)


def record_line(record: Record) -> str:
    """The line of the log, without its end; for writers that add one utterance at a time."""
    return json.dumps(record.as_dict(), ensure_ascii=False)


def write_records(path: Path | str, records: Iterable[Record]) -> None:
    """Write a log whole."""
    text = "".join(record_line(record) + "\n" for record in records)
    Path(path).write_text(text, encoding="utf-8")


def as_records(entries: Iterable[Mapping[str, object] | Record]) -> list[Record]:
    """Parsed records; of several with one index the last counts, as in a log that was resumed.

    If every reference is empty, nobody knew any, and there are none. One among others is a
    reference that is empty: SimulEval's count for it (1) and BLEU have a meaning.
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
    """Characters if the delays count them in every record, and are not words as well; else words.

    SimulEval leaves spaces out when it counts the characters of a prediction.
    """
    spoken = [record for record in records if record.delays]
    words = all(len(r.delays) == len(r.prediction.split()) for r in spoken)
    characters = all(len(r.delays) == len("".join(r.prediction.split())) for r in spoken)
    return "char" if characters and not words else "word"


def _text_of(path: Path) -> str:
    data = path.read_bytes()
    try:
        if data.startswith(b"\x1f\x8b"):
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read()
        return data.decode("utf-8")
    except (EOFError, OSError) as error:
        raise RecordError(f"{path}: the gzip file is damaged ({error})") from None
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}: not UTF-8 text ({error})") from None


def _times(entry: Mapping[str, object], key: str, where: str) -> tuple[float, ...]:
    times = entry.get(key)
    if times is None and key == "elapsed":
        return ()
    values = [_number(time) for time in times] if isinstance(times, Iterable) else [None]
    numbers = tuple(value for value in values if value is not None)
    if len(numbers) < len(values):
        raise RecordError(f"{where}: {key} must be a list of numbers, not {times!r:.60}")
    return numbers


def _text(entry: Mapping[str, object], key: str, where: str) -> str | None:
    text = entry.get(key)
    if text is not None and not isinstance(text, str):
        raise RecordError(f"{where}: {key} must be a text, not {text!r:.60}")
    return text


def _number(value: object) -> float | None:
    """A Python number, of NumPy's too; None for what is none, or not finite."""
    if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return int(value) if isinstance(value, Integral) else float(value)
