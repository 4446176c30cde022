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
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.audio.filterbank import Framing
from simuljax.audio.filterbank import split as split_frames
from simuljax.audio.log_mel import FFT, log_energies
from simuljax.models.whisper.config import HOP, RATE, WINDOW_S
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
from simuljax.models.whisper.timing import TimedWord, time_words
from simuljax.models.whisper.tokenizer import Task, Tokenizer

_SHORT_STEP_S, _SILENCE_S = 5, 1.0  # windows of few lengths, with some silence at the end
_SHORTEST_S = 10  # in less, Whisper writes what it hears twice
FRAMES = WINDOW_S * RATE // HOP  # of a window


@dataclass(frozen=True, kw_only=True, eq=False)
class Spectrogram:
    """Log-mel of a whole recording, as the original computes it."""

    mel: np.ndarray  # float32 [F, mels], with the frames that reach beyond the end
    frames: int  # that the recording has
    silence: float

    def window(self, seek: int) -> np.ndarray:
        """Return the frames [3000, mels] from `seek` samples on; 0 after the end."""
        return self._padded(self.mel[: self.frames][seek // HOP :], 0.0)

    def beginning(self) -> np.ndarray:
        """Return the first frames [3000, mels], with silence after the end."""
        return self._padded(self.mel, self.silence)

    def _padded(self, frames: np.ndarray, value: float) -> np.ndarray:
        frames = frames[:FRAMES]
        added = [(0, FRAMES - len(frames)), (0, 0)]
        return np.pad(frames, added, constant_values=np.float32(value))


def spectrogram(samples: np.ndarray, mels: int) -> Spectrogram:
    """Return the spectrogram of a recording, int16 at 16 kHz; 30 s at a time."""
    frames = len(samples) // HOP
    silent = np.zeros(FFT, np.int16)
    mirrored = np.pad(np.concatenate([samples, silent]), (FFT // 2, 0), mode="reflect")
    blocks, block = -(-(frames + FFT // HOP) // FRAMES), FRAMES * HOP
    mirrored = np.pad(mirrored, (0, max(0, blocks * block + FFT - len(mirrored))))
    parts = (mirrored[k * block : (k + 1) * block + FFT - HOP] for k in range(blocks))
    found = np.concatenate([np.asarray(_decades(part, mels)) for part in parts])
    found = found[: frames + FFT // HOP]
    floor = max(found.max() - 8, -10.0)
    mel = (np.maximum(found, floor) + 4) / 4
    return Spectrogram(mel=mel.astype(np.float32), frames=frames, silence=(floor + 4) / 4)


@partial(jax.jit, static_argnums=1)
def _decades(samples: jax.Array, mels: int) -> jax.Array:
    framing = Framing(length=FFT, shift=HOP)
    return log_energies(split_frames(samples.astype(jnp.float32) / 32768, framing), mels)


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
    """A request for recordings, beyond how windows are decoded."""

    task: Task = "transcribe"
    language: str | None = None  # None: the likeliest in the first window
    prompt: tuple[int, ...] = ()  # tokens of what was said before
    condition: Literal["previous", "nothing"] = "previous"  # what later windows follow on
    words: Literal["none", "timed"] = "none"
    window: Literal["full", "short"] = "full"  # short: to 10, 15, ... s


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


@dataclass(frozen=True, kw_only=True, eq=False)
class Transcriber:
    """A model with its tokenizer, for whole recordings."""

    model: Model
    tokenizer: Tokenizer

    def transcribe_samples(
        self, recordings: Sequence[np.ndarray], request: Request, options: Decoding, batch: int
    ) -> list[Transcription]:
        """Transcribe recordings, int16 at 16 kHz, at most `batch` of them at a time."""
        in_progress = [
            _Progress(
                samples=samples,
                language=request.language if self.tokenizer.multilingual else "en",
                prompt=list(request.prompt),
            )
            for samples in recordings
        ]
        rows = min(batch, len(in_progress))
        while waiting := [progress for progress in in_progress if len(progress.left) >= HOP]:
            self._round(waiting[:rows], rows, request, options)
        return [self._transcription(progress) for progress in in_progress]

    def _round(
        self, in_progress: list[_Progress], rows: int, request: Request, options: Decoding
    ) -> None:
        """Transcribe one window of each."""
        memory = self._encoded(in_progress, rows, request)
        contexts = [
            Context(
                task=request.task,
                language=progress.language or "en",
                prompt=tuple(progress.prompt),
            )
            for progress in in_progress
        ]
        decoded = decode(self.model, self.tokenizer, memory, contexts, options)
        cut = [
            cut_window(self.tokenizer, d, len(c.left), options)
            for d, c in zip(decoded, in_progress, strict=True)
        ]
        if request.words == "timed":
            cut = self._timed(cut, in_progress, contexts, memory)
        for progress, result, window in zip(in_progress, decoded, cut, strict=True):
            _move_on(progress, result, window, request)

    def _encoded(self, in_progress: list[_Progress], rows: int, request: Request) -> Memory:
        """Encode the windows; guess the languages that are not known."""
        if request.window == "short":
            memory = encode_audio(self.model, stack([c.left for c in in_progress], rows, "short"))
            self._guess_languages(in_progress, memory)
            return memory
        mels = self.model.config.dimensions.mels
        for progress in in_progress:
            progress.spectrogram = progress.spectrogram or spectrogram(progress.samples, mels)
        held = [(c, c.spectrogram) for c in in_progress if c.spectrogram is not None]
        if not all(progress.language for progress in in_progress):
            beginnings = stacked_mel([mel.beginning() for _, mel in held], rows)
            self._guess_languages(in_progress, encode_mel(self.model, beginnings))
        windows = stacked_mel([mel.window(progress.seek) for progress, mel in held], rows)
        return encode_mel(self.model, windows)

    def _guess_languages(self, in_progress: list[_Progress], memory: Memory) -> None:
        if all(progress.language for progress in in_progress):
            return
        for progress, guess in zip(in_progress, self.likely_languages(memory), strict=False):
            progress.language = progress.language or guess

    def likely_languages(self, memory: Memory) -> list[str]:
        """Return the likeliest language of each window."""
        codes = self.tokenizer.language_codes
        return [codes[int(row.argmax())] for row in self.language_probs(memory)]

    def language_probs(self, memory: Memory) -> np.ndarray:
        """Return P(language) [B, languages]."""
        ids = self.tokenizer.language_ids
        shared = {"start": self.tokenizer.start, "first": ids.start, "count": len(ids)}
        return np.asarray(language_probs(self.model, memory, **shared))

    def _timed(
        self,
        cut: list["Window"],
        in_progress: list[_Progress],
        contexts: list[Context],
        memory: Memory,
    ) -> list["Window"]:
        texts = [[i for segment in window.segments for i in segment.tokens] for window in cut]
        frames = [len(progress.left) // HOP for progress in in_progress]
        words = time_words(self.model, self.tokenizer, memory, texts, contexts, frames)
        return [
            replace(window, segments=_share_words(window.segments, found, self.tokenizer))
            for window, found in zip(cut, words, strict=True)
        ]

    def _transcription(self, progress: _Progress) -> Transcription:
        text = "".join(segment.text for segment in progress.segments).strip()
        return Transcription(
            text=text, segments=tuple(progress.segments), language=progress.language or "en"
        )


@dataclass(frozen=True, kw_only=True)
class Window:
    """Segments in seconds of their window, and how many samples of it are done with."""

    segments: tuple[Segment, ...]
    used: int


def stack(
    windows: Sequence[np.ndarray], rows: int, length: Literal["full", "short"] = "full"
) -> np.ndarray:
    """Stack windows [rows, N] with silence after each."""
    seconds = padded_s(max(map(len, windows)), length)
    stacked = np.zeros((rows, seconds * RATE), np.int16)
    for row, window in enumerate(windows):
        stacked[row, : len(window)] = window
    return stacked


def stacked_mel(windows: Sequence[np.ndarray], rows: int) -> np.ndarray:
    """Stack spectrograms of windows [rows, 3000, mels]; rows beyond them are 0."""
    stacked = np.zeros((rows, *windows[0].shape), np.float32)
    stacked[: len(windows)] = windows
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


def cut_window(tokenizer: Tokenizer, decoded: Decoded, samples: int, options: Decoding) -> Window:
    """Cut the text of a window of so many samples into segments.

    Each pair of timestamps ends a segment. Text after the last pair is left to the next window,
    which begins at that time; without a pair, and with a single timestamp at the end, all of the
    window is done with.
    """
    if is_silent(decoded, options):
        return Window(segments=(), used=samples)
    tokens, first = decoded.tokens, tokenizer.timestamps.start
    is_stamp = [token >= first for token in tokens]
    pairs = [k for k in range(1, len(tokens)) if is_stamp[k - 1] and is_stamp[k]]
    if not pairs:
        stamps = [token for token in tokens if token > first]
        end = tokenizer.seconds(stamps[-1]) if stamps else samples / RATE
        whole = _segment(tokenizer, decoded, slice(None), 0.0, end)
        return Window(segments=_with_text([whole]), used=samples)
    single = is_stamp[-2:] == [False, True]
    bounds = [0, *pairs, *([len(tokens)] if single else [])]
    segments = []
    for a, b in itertools.pairwise(bounds):
        start = tokenizer.seconds(tokens[a]) if is_stamp[a] else 0.0
        segments.append(
            _segment(tokenizer, decoded, slice(a, b), start, tokenizer.seconds(tokens[b - 1]))
        )
    end = round(tokenizer.seconds(tokens[bounds[-1] - 1]) * RATE)
    done = single or not 0 < end < samples  # never stand still
    return Window(segments=_with_text(segments), used=samples if done else end)


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


def _with_text(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Keep the segments that take time and have text."""
    return tuple(s for s in segments if s.end > s.start and s.text.strip())


def _share_words(
    segments: Sequence[Segment], words: Sequence[TimedWord], tokenizer: Tokenizer
) -> tuple[Segment, ...]:
    """Give each word to the segment of its first token."""
    shared, place, end = [], 0, 0
    for segment in segments:
        end += sum(token < tokenizer.end for token in segment.tokens)
        own: list[TimedWord] = []
        while words and place < end:
            own.append(words[0])
            place, words = place + len(words[0].tokens), words[1:]
        shared.append(replace(segment, words=tuple(own)))
    return tuple(shared)


def _move_on(progress: _Progress, decoded: Decoded, window: Window, request: Request) -> None:
    """Move a recording on after a window."""
    segments = [_moved(segment, progress.seek / RATE) for segment in window.segments]
    progress.segments += segments
    progress.prompt += [token for segment in segments for token in segment.tokens]
    # After a text drawn at a high temperature, the next window had better start afresh.
    if request.condition == "nothing" or decoded.temperature > 0.5:
        progress.prompt = []
    progress.seek += window.used
    if len(progress.left) < HOP:
        progress.spectrogram = None  # done with


def _moved(segment: Segment, offset: float) -> Segment:
    words = tuple(replace(w, start=w.start + offset, end=w.end + offset) for w in segment.words)
    return replace(segment, start=segment.start + offset, end=segment.end + offset, words=words)
