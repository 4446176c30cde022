"""Recordings of any length, a window after the other.

A window begins where the last whole segment of the one before it ended. As in the original, the
floor of the spectrogram is that of the whole recording, and a window's frames after its end are 0;
a language is guessed from the first 30 s with silence after the end. Windows that are padded
to the next 5 s only (`short`), as those of a stream may be, are spectrograms of their own.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    encode_mel,
    is_silent,
    language_probs,
)
from simuljax.models.whisper.model import Memory, Model
from simuljax.models.whisper.tokenizer import Task, Tokenizer

_SHORT_STEP_S, _SILENCE_S = 5, 1.0  # windows of few lengths, with some silence at the end
FRAMES = WINDOW_S * RATE // HOP  # of a window
Padding = Literal["full", "short"]


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
    """Some words between two timestamps, in seconds."""

    start: float
    end: float
    text: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Transcription:
    """A transcript, or its translation into English."""

    text: str
    segments: tuple[Segment, ...]
    language: str  # that was spoken


def transcribe(
    model: Model,
    tokenizer: Tokenizer,
    samples: np.ndarray,
    task: Task,
    language: str | None,
    options: Decoding,
) -> Transcription:
    """Transcribe a recording, int16 at 16 kHz; without a language, in the likeliest."""
    segments: list[Segment] = []
    prompt: list[int] = []
    seek, language = 0, language if tokenizer.multilingual else "en"
    mel = spectrogram(samples, model.config.dimensions.mels) if len(samples) >= HOP else None
    while mel is not None and len(samples) - seek >= HOP:
        if language is None:
            probs = languages(model, tokenizer, encode_mel(model, mel.beginning()[None]))
            language = tokenizer.language_codes[int(probs[0].argmax())]
        context = Context(task=task, language=language, prompt=tuple(prompt))
        memory = encode_mel(model, mel.window(seek)[None])
        (decoded,) = decode(model, tokenizer, memory, [context], options)
        left = min(len(samples) - seek, WINDOW_S * RATE)
        window = cut_window(tokenizer, decoded, left, options)
        at = seek / RATE
        segments += [replace(s, start=s.start + at, end=s.end + at) for s in window.segments]
        prompt += [token for segment in window.segments for token in segment.tokens]
        if decoded.temperature > 0.5:  # the next window had better start afresh
            prompt = []
        seek += window.used
    text = "".join(segment.text for segment in segments).strip()
    return Transcription(text=text, segments=tuple(segments), language=language or "en")


def languages(model: Model, tokenizer: Tokenizer, memory: Memory) -> np.ndarray:
    """Return P(language) [B, languages]."""
    ids = tokenizer.language_ids
    shared = {"start": tokenizer.start, "first": ids.start, "count": len(ids)}
    return np.asarray(language_probs(model, memory, **shared))


@dataclass(frozen=True, kw_only=True)
class Window:
    """Segments in seconds of their window, and how many samples of it are done with."""

    segments: tuple[Segment, ...]
    used: int


def stack(windows: Sequence[np.ndarray], rows: int, padding: Padding = "full") -> np.ndarray:
    """Stack windows [rows, N] with silence after each."""
    seconds = padded_s(max(map(len, windows)), padding)
    stacked = np.zeros((rows, seconds * RATE), np.int16)
    for row, window in enumerate(windows):
        stacked[row, : len(window)] = window
    return stacked


def padded_s(samples: int, padding: Padding) -> int:
    """Return the seconds of the window for so many samples."""
    if padding == "full":
        return WINDOW_S
    longest = samples / RATE + _SILENCE_S
    return min(WINDOW_S, _SHORT_STEP_S * math.ceil(longest / _SHORT_STEP_S))


def with_prefix(decoded: Decoded, prefix: Sequence[int]) -> Decoded:
    """Put the prefix, which is certain, before the tokens."""
    return replace(
        decoded,
        tokens=(*prefix, *decoded.tokens),
        log_probs=(*(0.0 for _ in prefix), *decoded.log_probs),
    )


def cut_window(tokenizer: Tokenizer, decoded: Decoded, samples: int, options: Decoding) -> Window:
    """Cut the text of a window of so many samples into segments that take time and have text.

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
        return Window(segments=_segments(tokenizer, [(tokens, 0.0, end)]), used=samples)
    single = is_stamp[-2:] == [False, True]
    bounds = [0, *pairs, *([len(tokens)] if single else [])]
    parts = []
    for a, b in itertools.pairwise(bounds):
        start = tokenizer.seconds(tokens[a]) if is_stamp[a] else 0.0
        parts.append((tokens[a:b], start, tokenizer.seconds(tokens[b - 1])))
    end = round(tokenizer.seconds(tokens[bounds[-1] - 1]) * RATE)
    done = single or not 0 < end < samples  # never stand still
    return Window(segments=_segments(tokenizer, parts), used=samples if done else end)


def _segments(
    tokenizer: Tokenizer, parts: Sequence[tuple[tuple[int, ...], float, float]]
) -> tuple[Segment, ...]:
    """Return those parts (tokens, start, end) that take time and have text."""
    made = [
        Segment(start=start, end=end, text=tokenizer.decode(tokens), tokens=tokens)
        for tokens, start, end in parts
    ]
    return tuple(
        segment for segment in made if segment.end > segment.start and segment.text.strip()
    )
