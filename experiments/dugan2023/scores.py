"""Scores of what an interpreter said, from the logs of a cell (see interpreting.py).

    translate     BLEU; AL and its kin in both clocks
    transcribe    WER on normalised text (simuljax/eval/word_errors.py), and the lag: of the words
                  that are right, the mean of (written - spoken), if the manifest says when words
                  were spoken
    AL_off_by_one AL as the paper's code computes it (simuljax/eval/latency.py)
    speech_*      when the output would be heard, spoken by a voice (simuljax/eval/speech_out.py)

Scores under "computation_aware" are those by the clock, of the recordings that were played alone.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from experiments.dugan2023.interpreting import Cell
from experiments.dugan2023.recordings import Recording
from simuljax.config.json import write_json
from simuljax.eval import Record, average_runs, read_records, score
from simuljax.eval.latency import off_by_one_average_lagging
from simuljax.eval.logs import NAME as LOG
from simuljax.eval.speech_out import Piece, speech_latency
from simuljax.eval.word_errors import lags, normalise, transcript, word_error_rate
from simuljax.voice import Timeline, Voice

Times = Literal["delays", "elapsed"]


def scores_of(cell: Cell, voice: Voice | None = None) -> dict[str, Any]:
    """From the logs of a cell; those with a clock under "computation_aware", means over runs."""
    records = read_records(cell.folder / LOG)
    by_index = {recording.index: recording for recording in cell.recordings}
    transcribes = cell.interpreting.task == "transcribe"
    scores = score(records) | {"AL_off_by_one": _off_by_one(records, "delays")}
    scores["source_minutes"] = math.fsum(r.source_length for r in records) / 60_000
    if transcribes:
        scores |= _errors(records, by_index, "delays")
    runs = [read_records(log) for log in cell.runs]
    if runs:
        clocked = [_clocked(run, by_index if transcribes else {}, voice) for run in runs]
        own = [name for name in clocked[0] if name.startswith(("AL_", "WER", "lag", "speech_"))]
        means = {name: _mean(run[name] for run in clocked) for name in own}
        scores["computation_aware"] = average_runs(clocked) | means
    write_json(cell.folder / "scores.json", scores)
    return scores


def _clocked(
    records: Sequence[Record], by_index: Mapping[int, Recording], voice: Voice | None
) -> dict[str, Any]:
    scores = score(records, computation_aware=True)
    scores["AL_off_by_one"] = _off_by_one(records, "elapsed")
    if by_index:
        scores |= _errors(records, by_index, "elapsed")
    if voice is not None:
        spoken = [speech_latency(speak(r, voice), r.source_length) for r in records]
        for name in ("start_offset", "end_offset", "token_delay"):
            scores[f"speech_{name}"] = _mean(getattr(one, name) for one in spoken)
    return scores


def speak(record: Record, voice: Voice) -> list[Piece]:
    """The words of a record as they would be heard: those committed together in one piece.

    Synthesis takes its time, and is asked for one piece after the other.
    """
    pieces, at, words = [], 0, record.prediction.split()
    free = 0.0  # when the voice has made the piece before
    with Timeline(voice.rate) as timeline:
        while at < len(words):
            same = at
            while same < len(words) and record.elapsed[same] == record.elapsed[at]:
                same += 1
            ready = max(record.elapsed[at] / 1000, free)
            before, speed = time.perf_counter(), timeline.speed(ready)
            sound = voice.speak(" ".join(words[at:same]), speed=speed)
            free = ready + time.perf_counter() - before
            placed = timeline.place(sound, free, speed=speed)
            start, end = placed.start_s * 1000, placed.end_s * 1000
            pieces.append(Piece(delay_ms=record.delays[at], start_ms=start, end_ms=end))
            at = same
    return pieces


def _off_by_one(records: Iterable[Record], times: Times) -> float:
    return _mean(
        off_by_one_average_lagging(
            getattr(record, times), record.source_length, record.reference_length("word")
        )
        for record in records
    )


def _errors(
    records: Sequence[Record], by_index: Mapping[int, Recording], times: Times
) -> dict[str, float]:
    """WER in percent; the mean lag of right words in ms, where it is known when they were said."""
    late: list[float] = []
    for record in records:
        ends = by_index[record.index or 0].word_ends_ms
        if ends and record.prediction:
            spoken = transcript(record.reference or "", ends)
            late += lags(spoken, transcript(record.prediction, getattr(record, times)))
    pairs = [
        (normalise(record.reference or ""), normalise(record.prediction)) for record in records
    ]
    return {"WER": word_error_rate(pairs), "lag": _mean(late)}


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan
