"""Play recordings to streams: those of a Whisper file, long ones, or with the clock of a live one.

Recordings come from a prepared corpus, or from a folder with a manifest
(`data_pipelines.corpora.Manifest`), whose sound files are read as they are.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines.corpora import Manifest
from data_pipelines.dataset import SUMMARY, Split, open_corpus
from data_pipelines.utterance import Clip, Skip
from simuljax.audio import RATE, AudioError, read_audio
from simuljax.config.evaluation import Evaluation
from simuljax.config.fields import ConfigError
from simuljax.eval import Record
from simuljax.eval.long_form import Segment
from simuljax.eval.spacing import are_unspaced, timed_units
from simuljax.runs.split import check_source
from simuljax.serve.run_translator import RunTranslator
from simuljax.serve.session import Word
from simuljax.serve.translator import Translator

STREAMS = 16  # recordings at once


@dataclass(frozen=True, kw_only=True)
class Spoken:
    """An utterance of a corpus, with its sound on disk."""

    id: str
    transcript: str
    translation: str
    read: Callable[[], np.ndarray]  # int16 samples at 16 kHz


@dataclass(frozen=True, kw_only=True)
class RecordingsSplit:
    """A model, a split, and how its recordings are played to streams."""

    model: Translator
    split: Sequence[Spoken]
    chosen: Evaluation
    settings: dict[str, Any]  # of its streams

    @property
    def steps(self) -> tuple[int, ...]:
        return self.model.steps

    def __len__(self) -> int:
        return len(self.recordings)

    @cached_property
    def recordings(self) -> Sequence[Spoken]:
        """Return what is played: the first utterances, their neighbours, or joined ones."""
        split, chosen = self.split[: self.chosen.first], self.chosen
        if chosen.joined is not None:
            return join_recordings(split, chosen.joined, chosen.joined_pause_ms)
        if chosen.audio == "other":
            return [replace(each, read=split[i - 1].read) for i, each in enumerate(split)]
        return split

    def segments(self) -> list[Segment]:
        """Return the places of the utterances in the recordings that they are joined to."""
        joined, segments, start = self.chosen.joined, [], 0.0
        assert joined is not None
        for number, part in enumerate(self.split[: self.chosen.first]):
            start = 0.0 if number % joined == 0 else start
            duration = len(part.read()) * 1000 / RATE
            segment = Segment(
                talk=f"joined-{number // joined}",
                reference=self._reference(part),
                start_ms=start,
                duration_ms=duration,
            )
            segments.append(segment)
            start += duration + self.chosen.joined_pause_ms
        return segments

    @property
    def transcribes(self) -> bool:
        """Return True if the model writes the language that is spoken."""
        model = self.model
        if isinstance(model, RunTranslator):
            return model.run.config.data.task == "transcription"
        return self.chosen.task == "transcribe"  # never in a cascade

    @cached_property
    def unspaced(self) -> bool | None:
        """Return True if the references are written without spaces; None if there are none."""
        return are_unspaced(map(self._reference, self.recordings))

    def _reference(self, recording: Spoken) -> str:
        return recording.transcript if self.transcribes else recording.translation

    def source_of(self, index: int) -> str | None:
        """Return what the record of an utterance names as its source; None beyond the last."""
        return self.recordings[index].id if index < len(self) else None

    def records(self, done: Set[int]) -> Iterator[list[Record]]:
        """Yield the records of the utterances that are not done, some at a time."""
        left = [i for i in range(len(self)) if i not in done]
        size = STREAMS if self.chosen.mode == "streamed" else 1
        if self.chosen.mode == "live" and self.chosen.joined is None and left:
            # Not recorded: compiles every shape before the clock runs.
            self._words([max((self.recordings[i].read() for i in left), key=len)])
        for start in range(0, len(left), size):
            some = left[start : start + size]
            sound = [self.recordings[i].read() for i in some]
            yield [
                self._record(i, samples, words)
                for i, samples, words in zip(some, sound, self._words(sound), strict=True)
            ]

    def _words(self, sound: Sequence[np.ndarray]) -> list[list[Word]]:
        overrides = self.settings
        if self.chosen.mode == "streamed":
            return self.model.stream_all(sound, streams=STREAMS, **overrides)
        (samples,) = sound
        if self.chosen.mode == "live":
            return [play(self.model.stream(**overrides), samples)]
        end = len(samples) * 1000 / RATE
        text = self.model.translate(samples).split()
        return [[Word(text=word, delay_ms=end, elapsed_ms=end) for word in text]]

    def _record(self, index: int, samples: np.ndarray, words: Sequence[Word]) -> Record:
        """Note the words; those committed together, such as a segment's, share their delay."""
        recording, live = self.recordings[index], self.chosen.mode == "live"
        prediction, units = timed_units(((word.text, word) for word in words), self.unspaced)
        return Record(
            index=index,
            prediction=prediction,
            delays=tuple(word.delay_ms for word in units),
            elapsed=tuple(word.elapsed_ms for word in units) if live else (),
            reference=self._reference(recording),
            source=self.source_of(index) or "",
            source_length=len(samples) * 1000 / RATE,
        )


def play(stream: Any, sound: np.ndarray) -> list[Word]:
    """Push an utterance to a live stream, READ by READ, and return its words."""
    words, start = [], 0
    while start < len(sound):
        size = stream.session.push_size
        words += stream.push(sound[start : start + size])
        start += size
    return words + stream.finish()


def join_recordings(split: Sequence[Spoken], count: int, pause_ms: int) -> list[Spoken]:
    """Join every `count` recordings to one, with so much silence after each of them."""
    groups = [split[start : start + count] for start in range(0, len(split), count)]
    return [
        Spoken(
            id=f"joined-{number}",
            transcript=" ".join(part.transcript for part in parts),
            translation=" ".join(part.translation for part in parts),
            read=partial(_read_joined, parts, pause_ms),
        )
        for number, parts in enumerate(groups)
    ]


def _read_joined(parts: Sequence[Spoken], pause_ms: int) -> np.ndarray:
    pause = np.zeros(pause_ms * RATE // 1000, np.int16)
    return np.concatenate([sound for part in parts for sound in (part.read(), pause)])


def stream_settings(chosen: Evaluation) -> dict[str, Any]:
    """Return the settings of a stream that an evaluation gives; the model has the others."""
    names = ("policy", "read_ms", "task", "language", "stammer")
    return {name: value for name in names if (value := getattr(chosen, name)) is not None}


def open_recordings(corpus: Path, split: str, first: int | None = None) -> list[Spoken]:
    """Return the first utterances, or all, of a prepared corpus or of a folder with a manifest."""
    if (corpus / SUMMARY).exists() or not corpus.exists():
        held = open_corpus(corpus)[split]
        check_source(held, corpus, "speech", first)
        texts = zip(held.table.id, held.table.transcript, held.table.translation, strict=True)
        return [
            Spoken(id=id_, transcript=said, translation=means, read=partial(_stored, held, i))
            for i, (id_, said, means) in enumerate(islice(texts, first))
        ]
    return _open_manifest(corpus, split, first)


def _open_manifest(corpus: Path, split: str, first: int | None) -> list[Spoken]:
    """Return the utterances whose audio can be read; print how many others there are, and why."""
    listed, found, skipped = Manifest().read(corpus), [], []
    if split not in listed.splits:
        raise ConfigError(f"{corpus} has no split {split}; it has {', '.join(listed.splits)}")
    for each in listed.splits[split]:
        assert isinstance(each.audio, Clip)
        if len(found) == first:
            break
        read = partial(_read_clip, each.audio)
        try:
            read()
        except AudioError as error:
            skipped.append(Skip(id=each.id, reason=error.reason, detail=error.detail))
            continue
        texts = {"transcript": each.transcript, "translation": each.translation}
        found.append(Spoken(id=each.id, **texts, read=read))
    _report_skipped(f"{corpus}, all splits", listed.skipped)
    _report_skipped(f"{corpus}, split {split}", skipped)
    return found


def _report_skipped(where: str, skipped: Sequence[Skip]) -> None:
    if skipped:
        counts = Counter(skip.reason for skip in skipped).most_common()
        counted = ", ".join(f"{n:,} {reason}" for reason, n in counts)
        message = f"{where}: left out {counted}; the first is {skipped[0].id}"
        print(f"simuljax: warning: {message} ({skipped[0].detail})", file=sys.stderr)


def _stored(split: Split, index: int) -> np.ndarray:
    return split.read([index])[0]["audio"]


def _read_clip(clip: Clip) -> np.ndarray:
    if clip.member is not None:
        raise ConfigError(f"{clip.path} is an archive: run `simuljax prepare manifest` first")
    return read_audio(clip.path, offset_s=clip.offset_s, duration_s=clip.duration_s).samples
