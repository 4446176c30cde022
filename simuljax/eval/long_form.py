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

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from simuljax.errors import import_extra
from simuljax.eval.latency import length_adaptive_average_lagging, yaal
from simuljax.eval.logs import Record, RecordError, Unit, as_records, find_unit, read_text, units_in
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

    record: Record
    elapsed: tuple[float, ...]
    clipped_elapsed: tuple[float, ...]  # as StreamLAAL defines them
    talk_end_ms: float


def read_segments(times: Path | str, references: Path | str) -> list[Segment]:
    """Read segments: a YAML list of {wav, offset, duration} (seconds) and a text of as many lines.

    Both may be gzipped.
    """
    try:
        entries = parse_yaml(read_text(Path(times)))
    except ParseError as error:
        raise RecordError(f"{times}: {error}") from None
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
    whole = [part.record for part in parts]
    bleu, signature = corpus_bleu(whole, default_tokenizer(whole, unit))
    spoken = [part for part in parts if part.record.delays]

    def laal(part: SegmentRecord, times: Sequence[float]) -> float:
        record, times = part.record, [max(0.0, time) for time in times]
        reference = record.reference_length(unit)
        return length_adaptive_average_lagging(times, record.source_length, reference)

    def long_yaal(part: SegmentRecord, times: Sequence[float]) -> float:
        record, reference = part.record, part.record.reference_length(unit)
        return yaal(times, record.source_length, reference, source_end=part.talk_end_ms)

    return {
        "BLEU": bleu,
        "StreamLAAL": mean(laal(part, part.record.delays) for part in spoken),
        "StreamLAAL_CA": mean(laal(part, part.clipped_elapsed) for part in spoken),
        "LongYAAL": mean(long_yaal(part, part.record.delays) for part in spoken),
        "LongYAAL_CA": mean(long_yaal(part, part.elapsed) for part in spoken),
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
    import_extra("mweralign", "longform")


def minimum_error_cut(units: Sequence[str], references: Sequence[Sequence[str]]) -> list[int]:
    """Return the number of units of each reference in the cut of least edit distance.

    Case counts: mweralign ignores it, so words are replaced by numbers. Empty references get none.
    """
    align_texts = import_extra("mweralign", "longform").align_texts
    numbers: dict[str, int] = {}

    def spell(words: Sequence[str]) -> str:
        return " ".join(f"w{numbers.setdefault(word, len(numbers))}" for word in words)

    places = [k for k, reference in enumerate(references) if reference] or [0]
    lines = [spell(references[k]) or "nothing" for k in places]
    aligned = align_texts("\n".join(lines), spell(units)) if units else ""
    counts = [0] * len(references)
    for place, line in zip(places, aligned.split("\n"), strict=False):
        counts[place] = len(line.split())
    return counts


def _cut_talk(
    talk: Record | None, segments: Sequence[Segment], unit: Unit, cut: Cut
) -> list[SegmentRecord]:
    name = segments[0].talk
    if talk is None:
        raise RecordError(f"the segments of {name} are not together")
    units = units_in(talk.prediction, unit)
    if len(units) != len(talk.delays):
        raise RecordError(f"{name}: {len(units)} {unit}s but {len(talk.delays)} delays")
    counts = cut(units, [units_in(segment.reference, unit) for segment in segments])
    if len(counts) != len(segments) or sum(counts) != len(units):
        raise RecordError(f"{name}: {len(units)} {unit}s were cut into {sum(counts)}")
    end = max(segment.start_ms + segment.duration_ms for segment in segments)
    starts = [s.start_ms for s, count in zip(segments, counts, strict=True) for _ in range(count)]
    listened, clipped = (_listened(talk), _clipped(talk, starts)) if any(talk.elapsed) else ([], [])
    parts, begin = [], 0
    for segment, count in zip(segments, counts, strict=True):
        here, start = slice(begin, begin + count), segment.start_ms
        record = Record(
            prediction=(" " if unit == "word" else "").join(units[here]),
            reference=segment.reference,
            delays=tuple(delay - start for delay in talk.delays[here]),
            source_length=segment.duration_ms,
        )
        part = SegmentRecord(
            record=record,
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
    wav, times = entry["wav"], (entry["offset"], entry["duration"])
    known = all(isinstance(time, int | float) and 0 <= time < math.inf for time in times)
    if not isinstance(wav, str) or not known or not times[1]:
        raise RecordError(
            f"{path}: wav must be the name of a file, offset seconds from 0 on, and duration "
            f"seconds above 0, not {entry!r:.80}"
        )
    start, duration = (time * 1000 for time in times)
    return Segment(
        talk=Path(wav).name, reference=line.strip(), start_ms=start, duration_ms=duration
    )
