"""The work on one shard of a corpus: read or synthesise the audio, check it, store it.

A shard is the unit of resuming. It is written beside its place and moved there when it is whole;
its report is written last, so a shard with a report is finished. Its bytes depend on its
utterances alone, whichever process works on it.
"""

import contextlib
import json
import os
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter

from data_pipelines.augment import Augmented, Effects, augment_utterance
from data_pipelines.record import Record, encode, features, in_order
from data_pipelines.synthesis import Synthesiser
from data_pipelines.utterance import Clip, Skip, Span, Utterance, Voice
from simuljax.audio import RATE, AudioError, Recording, read_audio
from simuljax.text import clean


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What an example must keep to."""

    min_seconds: float = 0.1
    max_seconds: float = float("inf")


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A stretch of a split, and where it and its report are to be written."""

    path: Path
    report: Path
    utterances: Sequence[Utterance]
    limits: Limits
    transcribed: bool  # whether the split has transcripts at all


@dataclass(frozen=True, kw_only=True)
class ShardReport:
    """What became of a shard's utterances."""

    rows: Sequence[Sequence[str | int]]  # as in `prepared.COLUMNS`
    skipped: Sequence[Skip]
    notes: dict[str, int]  # what was done to how many recordings, and they were kept


def read_report(path: Path) -> ShardReport:
    """The report of a finished shard."""
    fields = json.loads(path.read_text(encoding="utf-8"))
    return ShardReport(**fields | {"skipped": [Skip(**skip) for skip in fields["skipped"]]})


def write_shard(shard: Shard) -> None:
    """Works through a shard."""
    rows, skipped, notes = [], [], Counter()
    unfinished = shard.path.with_name(f".{shard.path.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    writer, stored = ArrayRecordWriter(str(unfinished), "group_size:1"), features()
    for result in records(shard, notes):
        if isinstance(result, Skip):
            skipped.append(result)
        else:
            writer.write(in_order(stored.serialize_example(encode(result))))
            rows.append(_row(result))
    writer.close()
    os.replace(unfinished, shard.path)
    report = ShardReport(rows=rows, skipped=skipped, notes=dict(sorted(notes.items())))
    write_whole(shard.report, json.dumps(asdict(report), ensure_ascii=False))


def _row(record: Record) -> tuple[str | int, ...]:
    said = record.utterance
    counts = (len(record.audio), len(said.words), len(said.phonemes))
    return (*counts, said.id, said.speaker, said.transcript, said.translation)


def records(shard: Shard, notes: Counter[str]) -> Iterator[Record | Skip]:
    """Every utterance of the shard with its audio, or why it is left out."""
    with contextlib.ExitStack() as stack:
        fetch = _Fetch(notes=notes, stack=stack, archives={}, synthesiser=Synthesiser())
        for listed in shard.utterances:
            texts = ("id", "speaker", "transcript", "translation")
            utterance = replace(listed, **{name: clean(getattr(listed, name)) for name in texts})
            reason = _empty(utterance, shard.transcribed)
            yield (
                Skip(id=utterance.id, reason=reason)
                if reason
                else _checked(fetch(utterance), shard.limits)
            )


def _empty(utterance: Utterance, transcribed: bool) -> str | None:
    if not utterance.translation:
        return "empty translation"
    return "empty transcript" if transcribed and not utterance.transcript else None


def _checked(result: Record | Skip, limits: Limits) -> Record | Skip:
    if isinstance(result, Skip) or result.utterance.audio is None:
        return result
    seconds = len(result.audio) / RATE
    if limits.min_seconds <= seconds <= limits.max_seconds:
        return result
    reason = "too short" if seconds < limits.min_seconds else "too long"
    return Skip(id=result.utterance.id, reason=reason, detail=f"{seconds:.2f} s")


@dataclass(frozen=True, kw_only=True)
class _Fetch:
    """Brings an utterance's audio from wherever it comes; archives stay open for the shard."""

    notes: Counter[str]
    stack: contextlib.ExitStack
    archives: dict[Path, zipfile.ZipFile]
    synthesiser: Synthesiser

    def __call__(self, utterance: Utterance) -> Record | Skip:
        match utterance.audio:
            case None:
                return Record(utterance=utterance, audio=np.zeros(0, np.int16))
            case Voice() as voice:
                return self.synthesise(utterance, voice)
            case Augmented(source=source, effects=effects):
                plain = self(replace(utterance, audio=source))
                return plain if isinstance(plain, Skip) else _through(plain, effects)
            case Clip() as clip:
                return self.read(utterance, clip)

    def read(self, utterance: Utterance, clip: Clip) -> Record | Skip:
        """The clip, unless something is wrong with it."""
        try:
            recording = self.open(clip)
        except AudioError as error:
            where = f"{clip.path}{f' ({clip.member})' if clip.member else ''}"
            return Skip(id=utterance.id, reason=error.reason, detail=f"{where}: {error.detail}")
        if recording.source_rate != RATE:
            self.notes[f"resampled from {recording.source_rate} Hz"] += 1
        if recording.channels != 1:
            self.notes[f"mixed down from {recording.channels} channels"] += 1
        end_ms = len(recording.samples) * 1000 / RATE
        words, phonemes = (_within(s, end_ms) for s in (utterance.words, utterance.phonemes))
        inside = replace(utterance, words=words, phonemes=phonemes)
        return Record(utterance=inside, audio=recording.samples)

    def open(self, clip: Clip) -> Recording:
        """The samples of a clip, out of its file or its archive."""
        stretch = {"offset_s": clip.offset_s, "duration_s": clip.duration_s}
        if clip.member is None:
            return read_audio(clip.path, **stretch)
        try:
            if clip.path not in self.archives:
                self.archives[clip.path] = self.stack.enter_context(zipfile.ZipFile(clip.path))
            member = self.archives[clip.path].open(clip.member)
        except KeyError as error:
            raise AudioError("no such file", f"{clip.member} is not in the archive") from error
        except (OSError, zipfile.BadZipFile, RuntimeError) as error:  # RuntimeError: encrypted
            raise AudioError("corrupt audio", f"the archive cannot be read: {error}") from error
        with member:
            return read_audio(member, **stretch)

    def synthesise(self, utterance: Utterance, voice: Voice) -> Record | Skip:
        """The transcript as the voice says it, with the times of its words and phonemes."""
        speech = self.synthesiser.speak(utterance, voice)
        if isinstance(speech, Skip):
            return speech
        spoken = replace(utterance, words=speech.words, phonemes=speech.phonemes)
        return Record(utterance=spoken, audio=speech.samples)


def _within(spans: Sequence[Span], end_ms: float) -> tuple[Span, ...]:
    """No time is beyond the end of the audio, whatever an alignment says."""
    return tuple(
        replace(span, start_ms=min(span.start_ms, end_ms), end_ms=min(span.end_ms, end_ms))
        for span in spans
    )


def _through(record: Record, effects: Effects) -> Record:
    said = record.utterance
    speech = augment_utterance(record.audio, said.words, said.phonemes, effects)
    changed = replace(said, words=speech.words, phonemes=speech.phonemes)
    return Record(utterance=changed, audio=speech.samples)


def write_whole(path: Path, text: str) -> None:
    """Writes a file so that it is there whole or not at all."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)
