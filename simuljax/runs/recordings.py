"""Translate a split with any model of `simuljax.load`, through its streams.

A Whisper file has no corpus, vocabulary or features of its own. Its utterances go through streams:
many at once, one at a time in real time, or whole. The corpus is a prepared one, or a folder with a
manifest (`data_pipelines.corpora.Manifest`), whose sound files are read as they are.
"""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines.corpora import Manifest
from data_pipelines.dataset import SUMMARY, Split, open_corpus
from data_pipelines.utterance import Clip
from simuljax.audio import RATE, read_audio
from simuljax.config.evaluation import Evaluation
from simuljax.config.fields import ConfigError
from simuljax.config.options import given_options, options_of
from simuljax.eval import Record
from simuljax.serve.session import Word
from simuljax.serve.translator import Translator

STREAMS = 16  # recordings at once
_SETTINGS = {  # of an evaluation, beside those of its policy
    *("run", "corpus", "split", "name", "mode", "first", "repeats"),
    *("policy", "read_ms", "task", "language"),
}


@dataclass(frozen=True, kw_only=True)
class Recording:
    """An utterance of a corpus, with its sound on disk."""

    id: str
    transcript: str
    translation: str
    read: Callable[[], np.ndarray]  # int16 samples at 16 kHz


@dataclass(frozen=True, kw_only=True)
class RecordingsSplit:
    """A model, a split, and how the split is translated."""

    model: Translator
    split: Sequence[Recording]
    chosen: Evaluation
    steps: tuple[int, ...] = ()  # no checkpoint of ours

    def __len__(self) -> int:
        return min(len(self.split), self.chosen.first or len(self.split))

    def records(self, done: Set[int]) -> Iterator[list[Record]]:
        """Yield the records of the utterances that are not done, some at a time."""
        left = [i for i in range(len(self)) if i not in done]
        size = STREAMS if self.chosen.mode == "streamed" else 1
        for start in range(0, len(left), size):
            some = left[start : start + size]
            sound = [self.split[i].read() for i in some]
            yield [
                self._record(i, samples, words)
                for i, samples, words in zip(some, sound, self._words(sound), strict=True)
            ]

    def _words(self, sound: Sequence[np.ndarray]) -> list[list[Word]]:
        overrides = stream_settings(self.chosen)
        if self.chosen.mode == "streamed":
            return self.model.stream_all(sound, streams=STREAMS, **overrides)
        (samples,) = sound
        if self.chosen.mode == "live":
            stream = self.model.stream(**overrides)
            size = stream.session.size
            chunks = [samples[i : i + size] for i in range(0, len(samples), size)]
            return [[*(word for chunk in chunks for word in stream.push(chunk)), *stream.finish()]]
        end = len(samples) * 1000 / RATE
        text = self.model.translate(samples).split()
        return [[Word(text=word, delay_ms=end, elapsed_ms=end) for word in text]]

    def _record(self, index: int, samples: np.ndarray, words: Sequence[Word]) -> Record:
        """Note the words; those committed together, such as a segment's, share their delay."""
        recording, live = self.split[index], self.chosen.mode == "live"
        each = [(text, word) for word in words for text in word.text.split()]
        transcribes = self.chosen.task == "transcribe"
        return Record(
            index=index,
            prediction=" ".join(text for text, _ in each),
            delays=tuple(word.delay_ms for _, word in each),
            elapsed=tuple(word.elapsed_ms for _, word in each) if live else (),
            reference=recording.transcript if transcribes else recording.translation,
            source=recording.id,
            source_length=len(samples) * 1000 / RATE,
        )


def check_settings(chosen: Evaluation) -> None:
    """Refuse settings that would have no effect on a model without a run of ours."""
    own = set() if chosen.policy is None else {*options_of(type(chosen.policy))}
    for name in given_options(chosen).keys() - _SETTINGS - own:
        flag = f"--{name.replace('_', '-')}"
        raise ConfigError(f"{flag} is for trained runs; {chosen.run} is a Whisper model")


def stream_settings(chosen: Evaluation) -> dict[str, Any]:
    """Return the settings of a stream that an evaluation gives; the model has the others."""
    given = {
        "policy": chosen.policy,
        "read_ms": chosen.read_ms,
        "task": chosen.task,
        "language": chosen.language,
    }
    return {name: value for name, value in given.items() if value is not None}


def open_recordings(corpus: Path, split: str) -> list[Recording]:
    """Return the utterances of a prepared corpus, or of a folder with a manifest."""
    if (corpus / SUMMARY).exists():
        held = open_corpus(corpus)[split]
        texts = zip(held.table.id, held.table.transcript, held.table.translation, strict=True)
        return [
            Recording(id=id_, transcript=said, translation=means, read=partial(_stored, held, i))
            for i, (id_, said, means) in enumerate(texts)
        ]
    listed = Manifest().read(corpus).splits
    if split not in listed:
        raise ConfigError(f"{corpus} has no split {split}; it has {', '.join(listed)}")
    return [
        Recording(
            id=each.id,
            transcript=each.transcript,
            translation=each.translation,
            read=partial(_read_clip, each.audio),
        )
        for each in listed[split]
        if isinstance(each.audio, Clip)
    ]


def _stored(split: Split, index: int) -> np.ndarray:
    (example,) = split.source.__getitems__([index])
    return example["audio"]


def _read_clip(clip: Clip) -> np.ndarray:
    if clip.member is not None:
        raise ConfigError(f"{clip.path} is an archive: run `simuljax prepare manifest` first")
    samples = read_audio(clip.path).samples
    start = round(clip.offset_s * RATE)
    end = None if clip.duration_s is None else start + round(clip.duration_s * RATE)
    return samples[start:end]
