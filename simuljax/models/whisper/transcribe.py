"""Recordings of any length, a window after the other; many side by side, a window each at a time.

A window begins where the last whole segment of the one before it ended. As in the original, the
floor of the spectrogram is that of the whole recording, and a window's frames after its end are 0;
a language is guessed from the first 30 s with silence after the end. Windows that are padded
to 10, 15, ... s only (`window="short"`) are spectrograms of their own, as those of a stream are.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

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
    encode_audio,
    encode_mel,
    is_silent,
    language_probs,
)
from simuljax.models.whisper.model import Memory, Model
from simuljax.models.whisper.spectrogram import Spectrogram, spectrogram
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


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request for recordings."""

    task: Task = "transcribe"  # or "translate": write English whatever is spoken
    language: str | None = None  # that is spoken; None: the likeliest in the first window
    prompt: str | Sequence[int] = ""  # text or tokens of what was said before
    condition: Literal["previous", "nothing"] = "previous"  # what later windows follow on
    words: Literal["none", "timed"] = "none"
    # "short" pads to the next 5 s only, which is faster and may change words.
    window: Literal["full", "short"] = "full"
    decoding: Decoding = field(default_factory=Decoding)


@dataclass(kw_only=True)
class _Progress:
    """Progress of transcribing a recording."""

    samples: np.ndarray
    language: str | None
    prompt: list[int]
    seek: int = 0  # samples
    segments: list[Segment] = field(default_factory=list)
    spectrogram: Spectrogram | None = None  # while it is being transcribed

    @property
    def left(self) -> np.ndarray:
        return self.samples[self.seek : self.seek + WINDOW_S * RATE]

    def log_mel(self, mels: int) -> Spectrogram:
        if self.spectrogram is None:
            self.spectrogram = spectrogram(self.samples, mels)
        return self.spectrogram


@dataclass(frozen=True, kw_only=True, eq=False)
class Whisper:
    """A model with its weights and its tokenizer."""

    model: Model
    tokenizer: Tokenizer

    @property
    def config(self) -> Config:
        """Return sizes, type, and the heads that tell times."""
        return self.model.config

    def transcribe(self, audio: Audio, *, rate: int = RATE, **request: Any) -> Transcription:
        """Transcribe a recording: a file, or mono samples (int16, or float in [-1, 1]) at `rate`.

        The fields of `Request` are given by name: `task="translate", words="timed"`.
        """
        return self.transcribe_all([audio], Request(**request), rate=rate)[0]

    def transcribe_all(
        self,
        recordings: Sequence[Audio],
        request: Request | None = None,
        *,
        rate: int = RATE,
        batch: int = 16,
    ) -> list[Transcription]:
        """Transcribe many recordings, up to `batch` of them at a time, a window of each."""
        request, tokenizer = request or Request(), self.tokenizer
        language = language_code(request.language) if request.language else None
        if not tokenizer.multilingual:
            if request.task == "translate" or language not in (None, "en"):
                raise SimuljaxError(
                    f"{self.config.name} transcribes English alone; load a multilingual model "
                    f"for {request.task!r} of {language or 'other languages'}"
                )
            language = "en"
        prompt = request.prompt
        if isinstance(prompt, str):  # it follows on other text: with a space before it
            prompt = tokenizer.encode(f" {prompt.strip()}") if prompt.strip() else []
        in_progress = [
            _Progress(samples=_samples(audio, rate), language=language, prompt=[*prompt])
            for audio in recordings
        ]
        rows = min(batch, len(in_progress))
        while waiting := [progress for progress in in_progress if len(progress.left) >= SHIFT]:
            self._round(waiting[:rows], rows, request)
        return [
            Transcription(
                text="".join(segment.text for segment in progress.segments).strip(),
                segments=tuple(progress.segments),
                language=progress.language or "en",
            )
            for progress in in_progress
        ]

    def likely_languages(self, memory: Memory) -> list[str]:
        """Return the likeliest language of each window."""
        codes, ids = self.tokenizer.language_codes, self.tokenizer.language_ids
        shared = {"start": self.tokenizer.start, "first": ids.start, "count": len(ids)}
        probs = np.asarray(language_probs(self.model, memory, **shared))
        return [codes[int(row.argmax())] for row in probs]

    def _round(self, in_progress: list[_Progress], rows: int, request: Request) -> None:
        """Transcribe one window of each."""
        tokenizer, options = self.tokenizer, request.decoding
        memory = self._encode(in_progress, rows, request)
        contexts = [
            Context(task=request.task, language=p.language or "en", prompt=tuple(p.prompt))
            for p in in_progress
        ]
        decoded = decode(self.model, tokenizer, memory, contexts, options)
        cut = [
            cut_window(tokenizer, result, len(progress.left), options)
            for result, progress in zip(decoded, in_progress, strict=True)
        ]
        words: list[list[TimedWord]] = [[] for _ in cut]
        if request.words == "timed":
            texts = [[i for segment in segments for i in segment.tokens] for segments, _ in cut]
            frames = [len(progress.left) // SHIFT for progress in in_progress]
            words = time_words(self.model, tokenizer, memory, texts, contexts, frames)
        for progress, result, (segments, used), own in zip(
            in_progress, decoded, cut, words, strict=True
        ):
            segments = share_words(segments, own, tokenizer)
            progress.segments += [_moved(segment, progress.seek / RATE) for segment in segments]
            progress.prompt += [token for segment in segments for token in segment.tokens]
            # After a text drawn at a high temperature, the next window had better start afresh.
            if request.condition == "nothing" or result.temperature > 0.5:
                progress.prompt = []
            progress.seek += used
            if len(progress.left) < SHIFT:
                progress.spectrogram = None  # done with

    def _encode(self, in_progress: list[_Progress], rows: int, request: Request) -> Memory:
        """Encode the windows; guess the languages that are not known."""
        guess = not all(progress.language for progress in in_progress)
        if request.window == "short":
            memory = encode_audio(self.model, stack([p.left for p in in_progress], rows, "short"))
            beginning = memory
        else:
            mels = [progress.log_mel(self.config.dimensions.mels) for progress in in_progress]
            windows = [mel.window(p.seek) for mel, p in zip(mels, in_progress, strict=True)]
            memory = encode_mel(self.model, _with_idle(windows, rows))
            beginning = memory
            if guess:
                first = [mel.beginning() for mel in mels]
                beginning = encode_mel(self.model, _with_idle(first, rows))
        if guess:
            guesses = zip(in_progress, self.likely_languages(beginning), strict=False)
            for progress, language in guesses:
                progress.language = progress.language or language
        return memory


def _with_idle(windows: Sequence[np.ndarray], rows: int) -> np.ndarray:
    """Stack spectrograms of windows [rows, 3000, mels]; rows beyond them are 0."""
    return np.stack([*windows, *[np.zeros_like(windows[0])] * (rows - len(windows))])


def _samples(audio: Audio, rate: int) -> np.ndarray:
    return as_int16(audio, rate) if isinstance(audio, np.ndarray) else read_audio(audio).samples


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
