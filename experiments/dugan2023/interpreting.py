"""An interpreter on recordings: what it says, how good that is and how late.

A cell is one way to interpret the recordings of one language. Its folder has

    config.json       what was done
    instances.log     all recordings, side by side: words and delays, for `simuljax score`
    aware-N.log       some recordings, one at a time: `elapsed` is the clock's time, see `play`
    scores.json

What was interpreted before an interruption is not interpreted again: it waits in *.log.part.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from experiments.dugan2023.recordings import Recording
from simuljax.audio import RATE
from simuljax.config.fields import ConfigError
from simuljax.config.json import differences, read_json, to_json, write_json
from simuljax.eval import Record, write_records
from simuljax.eval.logs import NAME as LOG
from simuljax.runs.evaluate import whole_lines, write_lines
from simuljax.serve.session import Word
from simuljax.serve.whisper import WhisperStreaming, WhisperTranslator

Progress = Callable[[float], object]  # told seconds of sound
Listen = Callable[[Sequence[Recording]], Iterator[list[Record]]]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One way to interpret the recordings of one language."""

    row: str  # the policy, as the table has it
    interpreting: WhisperStreaming
    recordings: tuple[Recording, ...]
    folder: Path
    aware: int = 0  # recordings that are also played one at a time
    repeats: int = 1  # how often
    batch: int = 16

    @property
    def language(self) -> str:
        """Spoken in the recordings."""
        return self.recordings[0].language

    @property
    def runs(self) -> list[Path]:
        """The logs with a clock."""
        return [
            self.folder / f"aware-{i + 1}.log" for i in range(self.repeats if self.aware else 0)
        ]

    @property
    def waiting(self) -> list[Path]:
        """The logs that are not there yet."""
        return [log for log in (self.folder / LOG, *self.runs) if not log.exists()]


def begin(cell: Cell, model: str) -> None:
    """Makes sure that what is in the folder already is of this cell, or makes the folder."""
    files = [recording.file.name for recording in cell.recordings]
    policy: Any = to_json(cell.interpreting)
    policy["policy"]["name"] = cell.interpreting.policy.name
    what = {"model": model, "row": cell.row, "interpreting": policy, "recordings": files}
    path = cell.folder / "config.json"
    if not path.exists():
        cell.folder.mkdir(parents=True, exist_ok=True)
        write_json(path, what)
        return
    other = differences(read_json(path), what)
    if other:
        raise ConfigError(
            f"{cell.folder} holds something else ({'; '.join(other)}): write --to another folder, "
            "or remove that one"
        )


def interpret(cell: Cell, interpreter: WhisperTranslator, progress: Progress) -> None:
    """Writes the logs of a cell that are not there yet."""
    if not (cell.folder / LOG).exists():
        _write(cell.folder / LOG, _side_by_side(cell, interpreter, progress), cell, progress)
    waiting = [log for log in cell.runs if not log.exists()]
    if waiting:
        _warm_up(cell, interpreter)
    for log in waiting:
        _write(log, _alone(interpreter, progress), cell, progress, cell.recordings[: cell.aware])


def _write(
    log: Path,
    listen: Listen,
    cell: Cell,
    progress: Progress,
    recordings: Sequence[Recording] | None = None,
) -> None:
    """A log, from where it was left."""
    recordings = cell.recordings if recordings is None else recordings
    part = log.with_name(log.name + ".part")
    records = {record.index: record for record in whole_lines(part)}
    progress(sum(record.source_length for record in records.values()) / 1000)
    with part.open("w", encoding="utf-8") as file:
        write_lines(file, records.values())
        for some in listen([r for r in recordings if r.index not in records]):
            write_lines(file, some)
            records |= {record.index: record for record in some}
    write_records(part, [records[recording.index] for recording in recordings])
    part.rename(log)


def _side_by_side(cell: Cell, interpreter: WhisperTranslator, progress: Progress) -> Listen:
    """In groups of about equal length, since a group takes as long as its longest."""

    def listen(recordings: Sequence[Recording]) -> Iterator[list[Record]]:
        sound = {recording.index: recording.samples for recording in recordings}
        ordered = sorted(recordings, key=lambda recording: -len(sound[recording.index]))
        for first in range(0, len(ordered), cell.batch):
            group = ordered[first : first + cell.batch]
            together = [sound.pop(one.index) for one in group]
            said = interpreter.stream_all(together, streams=cell.batch, progress=progress)
            each = zip(group, said, together, strict=True)
            yield [record_of(one, words, len(samples)) for one, words, samples in each]

    return listen


def _alone(interpreter: WhisperTranslator, progress: Progress) -> Listen:
    def listen(recordings: Sequence[Recording]) -> Iterator[list[Record]]:
        for one in recordings:
            samples = one.samples
            yield [record_of(one, play(interpreter, samples), len(samples), clock="noted")]
            progress(len(samples) / RATE)

    return listen


def _warm_up(cell: Cell, interpreter: WhisperTranslator) -> None:
    """What is compiled on the way is no latency; programs differ with lengths: all are played."""
    for recording in cell.recordings[: cell.aware]:
        play(interpreter, recording.samples)


def play(interpreter: WhisperTranslator, samples: np.ndarray) -> list[Word]:
    """A recording as if it were live: `elapsed_ms` is when a listener gets the word.

    Window k has come at a_k, and computing on it takes c_k. Meanwhile the speaker goes on:

        done_k = max(a_k, done_{k-1}) + c_k

    SimulEval, for which nobody speaks while it computes, would add up all c_k.
    """
    stream, size = interpreter.stream(), round(interpreter.settings.window_s * RATE)
    words, done = [], 0.0
    for start in [*range(0, len(samples), size), None]:
        chunk = samples[:0] if start is None else samples[start : start + size]
        heard = len(samples) if start is None else start + len(chunk)
        before = time.perf_counter()
        some = stream.finish() if start is None else stream.push(chunk)
        spent = (time.perf_counter() - before) * 1000
        done = max(done, heard * 1000 / RATE) + spent
        words += [Word(text=w.text, delay_ms=w.delay_ms, elapsed_ms=done) for w in some]
    return words


def record_of(
    recording: Recording,
    words: Sequence[Word],
    samples: int,
    clock: Literal["noted", "ignored"] = "ignored",
) -> Record:
    """What was said, for the log; side by side there is no clock of one recording."""
    each = [(text, word) for word in words for text in word.text.split()]
    return Record(
        index=recording.index,
        prediction=" ".join(text for text, _ in each),
        delays=tuple(word.delay_ms for _, word in each),
        elapsed=tuple(word.elapsed_ms for _, word in each) if clock == "noted" else (),
        reference=recording.reference,
        source=recording.file.name,
        source_length=samples * 1000 / RATE,
    )
