"""Recordings of any length, a window after the other.

A window begins where the last whole segment of the one before it ended. As in the original, the
floor of the spectrogram is that of the whole recording, and a window's frames after its end are 0;
a language is guessed from the first 30 s with silence after the end.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from simuljax.audio import RATE, as_int16, read_audio
from simuljax.audio.filterbank import SHIFT
from simuljax.errors import SimuljaxError
from simuljax.models.whisper.config import WINDOW_S, Config
from simuljax.models.whisper.decoding import (
    Context,
    Decoded,
    Decoding,
    decode,
    encode_mel,
    is_silent,
    language_probs,
)
from simuljax.models.whisper.model import Memory, Model
from simuljax.models.whisper.spectrogram import spectrogram
from simuljax.models.whisper.timing import TimedWord, time_words
from simuljax.models.whisper.tokenizer import Task, Tokenizer, language_code

Audio = str | Path | np.ndarray

_SHORT_STEP_S, _SILENCE_S = 5, 1.0  # windows of few lengths, with some silence at the end
_SHORTEST_S = 10  # in less, Whisper writes what it hears twice


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Some words between two timestamps, in seconds of the recording."""

    start: float
    end: float
    text: str
    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]  # of the tokens
    words: tuple[TimedWord, ...] = ()  # where times of words were asked for
    # What is known of the window that the segment is of:
    temperature: float
    no_speech_prob: float
    avg_logprob: float
    compression_ratio: float


@dataclass(frozen=True, kw_only=True)
class Transcription:
    """A transcript, or its translation into English."""

    text: str
    segments: tuple[Segment, ...]
    language: str  # that was spoken

    @property
    def words(self) -> tuple[TimedWord, ...]:
        return tuple(word for segment in self.segments for word in segment.words)


@dataclass(frozen=True, kw_only=True, eq=False)
class Whisper:
    """A model with its weights and its tokenizer."""

    model: Model
    tokenizer: Tokenizer

    @property
    def config(self) -> Config:
        """Return sizes, type, and the heads that tell times."""
        return self.model.config

    def transcribe(
        self,
        audio: Audio,
        *,
        rate: int = RATE,
        task: Task = "transcribe",
        language: str | None = None,
        words: Literal["none", "timed"] = "none",
        decoding: Decoding | None = None,
    ) -> Transcription:
        """Transcribe a recording: a file, or mono samples (int16, or float in [-1, 1]) at `rate`.

        Args:
            audio: The recording.
            rate: Of samples.
            task: `translate` writes English, whatever is spoken.
            language: The one that is spoken; by default the likeliest in the first window.
            words: `timed` adds their times.
            decoding: How each window is decoded.
        """
        tokenizer, options = self.tokenizer, decoding or Decoding()
        spoken = self._spoken(task, language)
        samples = (
            as_int16(audio, rate) if isinstance(audio, np.ndarray) else read_audio(audio).samples
        )
        mel = spectrogram(samples, self.config.dimensions.mels)
        segments: list[Segment] = []
        prompt: tuple[int, ...] = ()
        seek = 0  # samples
        while (left := min(len(samples) - seek, WINDOW_S * RATE)) >= SHIFT:
            if spoken is None:
                (spoken,) = self.likely_languages(encode_mel(self.model, mel.beginning()[None]))
            memory = encode_mel(self.model, mel.window(seek)[None])
            context = Context(task=task, language=spoken, prompt=prompt)
            (result,) = decode(self.model, tokenizer, memory, [context], options)
            found, used = cut_window(tokenizer, result, left, options)
            if words == "timed":
                texts = [[token for segment in found for token in segment.tokens]]
                given = (self.model, tokenizer, memory, texts, [context], [left // SHIFT])
                found = share_words(found, time_words(*given)[0], tokenizer)
            segments += [_moved(segment, seek / RATE) for segment in found]
            # After a text drawn at a high temperature, the next window had better start afresh.
            following = (*prompt, *(token for segment in found for token in segment.tokens))
            prompt = () if result.temperature > 0.5 else following
            seek += used
        text = "".join(segment.text for segment in segments).strip()
        return Transcription(text=text, segments=tuple(segments), language=spoken or "en")

    def _spoken(self, task: Task, language: str | None) -> str | None:
        """Return the code of the language, if it is known; refuse what the model cannot do."""
        code = language_code(language) if language else None
        if self.tokenizer.multilingual:
            return code
        if task == "translate" or code not in (None, "en"):
            raise SimuljaxError(
                f"{self.config.name} transcribes English alone; load a multilingual model "
                f"for {task!r} of {code or 'other languages'}"
            )
        return "en"

    def likely_languages(self, memory: Memory) -> list[str]:
        """Return the likeliest language of each window."""
        codes, ids = self.tokenizer.language_codes, self.tokenizer.language_ids
        shared = {"start": self.tokenizer.start, "first": ids.start, "count": len(ids)}
        probs = np.asarray(language_probs(self.model, memory, **shared))
        return [codes[int(row.argmax())] for row in probs]


def stack(
    windows: Sequence[np.ndarray], rows: int, length: Literal["full", "short"] = "full"
) -> np.ndarray:
    """Stack windows [rows, N] with silence after each."""
    seconds = padded_s(max(map(len, windows)), length)
    stacked = np.zeros((rows, seconds * RATE), np.int16)
    for row, window in enumerate(windows):
        stacked[row, : len(window)] = window
    return stacked


def padded_s(samples: int, window: Literal["full", "short"]) -> int:
    """Return the seconds of the window for so many samples."""
    if window == "full":
        return WINDOW_S
    longest = max(_SHORTEST_S, samples / RATE + _SILENCE_S)
    return min(WINDOW_S, _SHORT_STEP_S * math.ceil(longest / _SHORT_STEP_S))


def with_prefix(decoded: Decoded, prefix: Sequence[int]) -> Decoded:
    """Put the prefix, which is certain, before the tokens."""
    return replace(
        decoded,
        tokens=(*prefix, *decoded.tokens),
        log_probs=(*(0.0 for _ in prefix), *decoded.log_probs),
    )


def cut_window(
    tokenizer: Tokenizer, decoded: Decoded, samples: int, options: Decoding
) -> tuple[list[Segment], int]:
    """Cut the text of a window of so many samples into segments; return the samples done with.

    Each pair of timestamps ends a segment. Text after the last pair is left to the next window,
    which begins at that time; without a pair, and with a single timestamp at the end, all of the
    window is done with. Segments that take no time or have no text are left out.
    """
    if is_silent(decoded, options):
        return [], samples
    tokens, first = decoded.tokens, tokenizer.timestamps.start
    is_stamp = [token >= first for token in tokens]
    pairs = [k for k in range(1, len(tokens)) if is_stamp[k - 1] and is_stamp[k]]
    if not pairs:
        stamps = [token for token in tokens if token > first]
        end = tokenizer.seconds(stamps[-1]) if stamps else samples / RATE
        parts, done = [(slice(None), 0.0, end)], True
    else:
        single = is_stamp[-2:] == [False, True]
        bounds = [0, *pairs, *([len(tokens)] if single else [])]
        parts = [
            (
                slice(a, b),
                tokenizer.seconds(tokens[a]) if is_stamp[a] else 0.0,
                tokenizer.seconds(tokens[b - 1]),
            )
            for a, b in itertools.pairwise(bounds)
        ]
        end = parts[-1][2]
        done = single or not 0 < round(end * RATE) < samples  # never stand still
    segments = [_segment(tokenizer, decoded, *part) for part in parts]
    segments = [s for s in segments if s.end > s.start and s.text.strip()]
    return segments, samples if done else round(end * RATE)


def _segment(
    tokenizer: Tokenizer, decoded: Decoded, part: slice, start: float, end: float
) -> Segment:
    tokens = decoded.tokens[part]
    return Segment(
        start=start,
        end=end,
        text=tokenizer.decode(tokens),
        tokens=tokens,
        log_probs=decoded.log_probs[part][: len(tokens)],
        temperature=decoded.temperature,
        no_speech_prob=decoded.no_speech_prob,
        avg_logprob=decoded.avg_logprob,
        compression_ratio=decoded.compression_ratio,
    )


def share_words(
    segments: Sequence[Segment], words: Sequence[TimedWord], tokenizer: Tokenizer
) -> list[Segment]:
    """Give each word to the segment of its first token."""
    shared, place, end = [], 0, 0
    for segment in segments:
        end += sum(token < tokenizer.end for token in segment.tokens)
        own: list[TimedWord] = []
        while words and place < end:
            own.append(words[0])
            place, words = place + len(words[0].tokens), words[1:]
        shared.append(replace(segment, words=tuple(own)))
    return shared


def _moved(segment: Segment, offset: float) -> Segment:
    words = tuple(replace(w, start=w.start + offset, end=w.end + offset) for w in segment.words)
    return replace(segment, start=segment.start + offset, end=segment.end + offset, words=words)
