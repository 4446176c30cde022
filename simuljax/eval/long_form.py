"""Score whole talks: cut the output at the reference's segments and score each on its own.

    talk -> segments    minimum word error rate (Matusov et al. 2005), by the package mweralign
    StreamLAAL          LAAL of the segments, times from each segment's start (Papi et al. 2024)
    LongYAAL            YAAL of the segments; words count until the talk ends (Polák et al. 2025)

`elapsed` has all computation so far in it, but a listener waits only for that of the current words:
word i arrives at d_i + cost_i, cost_i = (e_i - d_i) - (e_{i-1} - d_{i-1}). The published scripts
differ in the rest, and each metric follows its own. StreamLAAL (2.0): words with equal e_i share a
cost; times before the segment's start are 0, and a shared cost is the difference of such clipped
times. LongYAAL (OmniSTEval): no word is earlier than the one before it; nothing is clipped.
"""

import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from simuljax.eval.latency import length_adaptive_average_lagging, yaal
from simuljax.eval.logs import Record, RecordError, Unit, as_records, find_unit, read_text
from simuljax.eval.scores import Entries, corpus_bleu, default_tokenizer, mean
from simuljax.parsing import ParseError, parse_yaml

Cut = Callable[[Sequence[str], Sequence[Sequence[str]]], list[int]]


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A sentence of the reference and its place in the talk."""

    talk: str  # name of the audio file, without its directory
    reference: str
    start_ms: float
    duration_ms: float


@dataclass(frozen=True, kw_only=True)
class SegmentRecord:
    """The words committed for one segment; times count from its start."""

    segment: Segment
    prediction: str
    delays: tuple[float, ...]
    elapsed: tuple[float, ...]
    clipped_elapsed: tuple[float, ...]  # as StreamLAAL defines them
    talk_end_ms: float  # from the segment's start

    @property
    def clipped_delays(self) -> tuple[float, ...]:
        """Return the delays, none before the segment's start."""
        return tuple(max(0.0, delay) for delay in self.delays)


def read_segments(times: Path | str, references: Path | str) -> list[Segment]:
    """Read segments: a YAML list of {wav, offset, duration} (seconds) and a text of as many lines.

    Both may be gzipped.
    """
    entries = _yaml(times)
    lines = read_text(Path(references)).removesuffix("\n").split("\n")
    if not isinstance(entries, list) or len(entries) != len(lines):
        count = len(entries) if isinstance(entries, list) else "no"
        raise RecordError(f"{times} has {count} segments, {references} has {len(lines)} lines")
    return [_segment(entry, line, times) for entry, line in zip(entries, lines, strict=True)]


def score_longform(
    records: Entries, segments: Sequence[Segment], cut: Cut | None = None
) -> dict[str, Any]:
    """Return BLEU, StreamLAAL, LongYAAL (and _CA, NaN without a clock), n, skipped, signature.

    n counts segments, skipped those without a word. `cut` may replace `minimum_error_cut`.
    """
    talks = as_records(records)
    unit = find_unit(talks)
    parts = resegment(talks, segments, unit=unit, cut=cut or minimum_error_cut)
    whole = [_as_record(part) for part in parts]
    bleu, signature = corpus_bleu(whole, default_tokenizer(whole, unit))
    spoken = [part for part in parts if part.delays]
    return {
        "BLEU": bleu,
        "StreamLAAL": mean(_laal(part, part.clipped_delays, unit) for part in spoken),
        "StreamLAAL_CA": mean(_laal(part, part.clipped_elapsed, unit) for part in spoken),
        "LongYAAL": mean(_yaal(part, part.delays, unit) for part in spoken),
        "LongYAAL_CA": mean(_yaal(part, part.elapsed, unit) for part in spoken),
        "n": len(parts),
        "skipped": len(parts) - len(spoken),
        "signature": signature,
    }


def resegment(
    talks: Sequence[Record], segments: Sequence[Segment], *, unit: Unit, cut: Cut
) -> list[SegmentRecord]:
    """Cut every talk at its segments, in the order of the segments."""
    by_name = {_name(talk): talk for talk in talks}
    wanted = {segment.talk for segment in segments}
    if len(by_name) != len(talks) or set(by_name) != wanted:
        odd = sorted(wanted.symmetric_difference(by_name)) or "a talk is there twice"
        raise RecordError(f"the log and the segments are not of the same talks: {odd}")
    parts = []
    for name, group in groupby(segments, key=lambda segment: segment.talk):
        parts += _cut_talk(by_name.pop(name, None), list(group), unit, cut)
    return parts


def check_cut() -> None:
    """Raise an error that names the package if long-form scores cannot be computed."""
    if importlib.util.find_spec("mweralign") is None:
        raise OSError("long-form scores need mweralign (GPL-3.0): pip install 'simuljax[longform]'")


def minimum_error_cut(units: Sequence[str], references: Sequence[Sequence[str]]) -> list[int]:
    """Return the number of units of each reference in the cut of least edit distance.

    Case counts: mweralign ignores it, so words are replaced by numbers.
    """
    check_cut()
    from mweralign import align_texts  # pyright: ignore[reportMissingImports]

    numbers: dict[str, int] = {}

    def spell(words: Sequence[str]) -> str:
        return " ".join(f"w{numbers.setdefault(word, len(numbers))}" for word in words)

    lines = [spell(reference) or "nothing" for reference in references]
    aligned = align_texts("\n".join(lines), spell(units)) if units else ""
    counts = [len(line.split()) for line in aligned.split("\n")]
    return (counts + [0] * len(references))[: len(references)]


def _cut_talk(
    talk: Record | None, segments: Sequence[Segment], unit: Unit, cut: Cut
) -> list[SegmentRecord]:
    name = segments[0].talk
    if talk is None:
        raise RecordError(f"the segments of {name} are not together")
    units = talk.prediction.split() if unit == "word" else [*"".join(talk.prediction.split())]
    if len(units) != len(talk.delays):
        raise RecordError(f"{name}: {len(units)} {unit}s but {len(talk.delays)} delays")
    counts = cut(units, [_units(segment.reference, unit) for segment in segments])
    if len(counts) != len(segments) or sum(counts) != len(units):
        raise RecordError(f"{name}: {len(units)} {unit}s were cut into {sum(counts)}")
    end = max(segment.start_ms + segment.duration_ms for segment in segments)
    starts = [s.start_ms for s, count in zip(segments, counts, strict=True) for _ in range(count)]
    listened, clipped = (_listened(talk), _clipped(talk, starts)) if talk.elapsed else ([], [])
    parts, begin = [], 0
    for segment, count in zip(segments, counts, strict=True):
        here, start = slice(begin, begin + count), segment.start_ms
        part = SegmentRecord(
            segment=segment,
            prediction=(" " if unit == "word" else "").join(units[here]),
            delays=tuple(delay - start for delay in talk.delays[here]),
            elapsed=tuple(time - start for time in listened[here]),
            clipped_elapsed=tuple(clipped[here]),
            talk_end_ms=end - start,
        )
        parts.append(part)
        begin += count
    return parts


def _listened(talk: Record) -> list[float]:
    """Return the time of each word with its computation; none is before the word before it."""
    times, last = [], (-math.inf, 0.0, 0.0)
    for delay, elapsed in zip(talk.delays, talk.elapsed, strict=True):
        time, spent_at, read = last
        last = (max(time, elapsed - spent_at + read), elapsed, delay)
        times.append(last[0])
    return times


def _clipped(talk: Record, starts: Sequence[float]) -> list[float]:
    """Return the same from each word's start, as StreamLAAL defines it."""
    times, cost, spent_at, read = [], 0.0, None, 0.0
    for delay, elapsed, start in zip(talk.delays, talk.elapsed, starts, strict=True):
        if elapsed != spent_at:
            cost = (elapsed - delay) - ((spent_at or 0.0) - read)
        times.append(max(0.0, delay + cost - start))
        cost = times[-1] - max(0.0, delay - start)
        spent_at, read = elapsed, delay
    return times


def _laal(part: SegmentRecord, times: Sequence[float], unit: Unit) -> float:
    reference = _as_record(part).reference_length(unit)
    return length_adaptive_average_lagging(times, part.segment.duration_ms, reference)


def _yaal(part: SegmentRecord, times: Sequence[float], unit: Unit) -> float:
    reference = _as_record(part).reference_length(unit)
    return yaal(times, part.segment.duration_ms, reference, source_end=part.talk_end_ms)


def _as_record(part: SegmentRecord) -> Record:
    return Record(
        prediction=part.prediction,
        reference=part.segment.reference,
        delays=part.delays,
        source_length=part.segment.duration_ms,
    )


def _units(reference: str, unit: Unit) -> list[str]:
    return reference.split() if unit == "word" else [*"".join(reference.split())]


def _name(talk: Record) -> str:
    """Return a talk's audio file: the source, or the first entry of SimulEval's list."""
    source = talk.source
    if isinstance(source, list | tuple) and source:
        source = source[0]
    if not isinstance(source, str):
        raise RecordError(f"record {talk.index}: source must name an audio file, not {source!r}")
    return Path(source).name


def _segment(entry: object, line: str, path: Path | str) -> Segment:
    if not isinstance(entry, Mapping) or not {"wav", "offset", "duration"} <= set(entry):
        raise RecordError(f"{path}: a segment needs wav, offset and duration, not {entry!r:.80}")
    wav, offset, duration = (entry[name] for name in ("wav", "offset", "duration"))
    if not isinstance(wav, str) or not (_is_time(offset) and _is_time(duration)):
        raise RecordError(
            f"{path}: wav must be the name of a file, offset and duration seconds from 0 on, not "
            f"{entry!r:.80}"
        )
    return Segment(
        talk=Path(wav).name,
        reference=line.strip(),
        start_ms=offset * 1000,
        duration_ms=duration * 1000,
    )


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < math.inf


def _yaml(path: Path | str) -> object:
    try:
        return parse_yaml(read_text(Path(path)))
    except ParseError as error:
        raise RecordError(f"{path}: {error}") from None
