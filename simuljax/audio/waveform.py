"""From an audio file or an array to 16-bit mono samples at one rate.

A corpus of a thousand talks has a few files that are not what they should be. Each is an
`AudioError` with one of few reasons, so that the reasons can be counted, and a detail.

The decoder plays a WAV or Ogg file that was cut off (a download that broke, a full disk) as a
shorter recording without an error. The containers themselves know better (`cut_off`): most headers
state how many bytes follow, and the last page of an Ogg stream is marked as the last.

Resampling is a polyphase low-pass filter at the exact ratio of the rates. A sample of the output
depends on a few samples of the input around it, so a stream gives what the whole recording gives.
"""

import contextlib
import functools
import io
import lzma
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import soundfile
from jaxtyping import Float, Int16, Real
from scipy import signal

from simuljax.config.segmentation import MS
from simuljax.errors import SimuljaxError

RATE = 1000 * MS
Stream = io.BufferedReader | io.BytesIO

# A program that streams a file and cannot go back writes the largest number, or one near 2 GiB.
_UNKNOWN_SIZE = 0x7FFFF000  # of sox; arecord and ffmpeg write more
_UNKNOWN_LONG_SIZE = 2**64 - 1
_LARGEST_PAGE = 27 + 255 + 255 * 255  # of an Ogg stream: header, table of segments, segments
_LAST_PAGE = 4  # the flag of the page that ends a stream


def cut_off(stream: Stream) -> str:
    """Describe what is missing at the end of the file; "" if nothing is, or none can tell."""
    stream.seek(0)
    head = stream.read(1024)
    if head[:4] in (b"RIFF", b"RF64"):
        return _missing_chunk(stream, "<", b"data")
    if head[:4] == b"FORM":
        return _missing_chunk(stream, ">", b"SSND")
    if head[:4] == b"OggS":
        return _missing_page(stream)
    return _missing_bytes(_stated_size(head), stream.seek(0, io.SEEK_END))


def _missing_bytes(stated: int, here: int) -> str:
    if here >= stated:
        return ""
    return f"cut off: its header promises {stated} bytes, {here} are there"


def _stated_size(head: bytes) -> int:
    """Return the size of a Wave64, Sun or NIST file by its header; 0 if it does not tell."""
    if head[:4] == b"riff" and len(head) >= 24:
        return struct.unpack_from("<Q", head, 16)[0] % _UNKNOWN_LONG_SIZE
    if head[:4] == b".snd" and len(head) >= 12:
        start, size = struct.unpack_from(">II", head, 4)
        return start + size if size < _UNKNOWN_SIZE else 0
    if head[:8] != b"NIST_1A\n" or b"embedded" in head:  # compressed
        return 0
    fields = dict(re.findall(rb"^(\w+) -i (\d{1,18})$", head, re.MULTILINE))
    names = (b"sample_count", b"sample_n_bytes", b"channel_count")
    samples = math.prod(int(fields.get(name, b"0")) for name in names)
    start = head[8:16].strip()
    return int(start) + samples if samples and start.isdigit() else 0


def _missing_chunk(stream: Stream, order: str, samples: bytes) -> str:
    """Compare the size of the data chunk with the bytes in the file."""
    end, at, long_size = stream.seek(0, io.SEEK_END), 12, 0
    while at + 8 <= end:
        stream.seek(at)
        name, size = struct.unpack(order + "4sI", stream.read(8))
        if name == b"ds64":  # of RF64
            (long_size,) = struct.unpack("<8xQ", stream.read(16).ljust(16, b"\0"))
        if name == samples:
            known = size if size < _UNKNOWN_SIZE else long_size % _UNKNOWN_LONG_SIZE
            return _missing_bytes(known, end - at - 8)
        at += 8 + size + size % 2
    return "cut off: it ends before its samples begin"


def _missing_page(stream: Stream) -> str:
    """Check the last page of an Ogg stream: marked as last, and complete."""
    end = stream.seek(0, io.SEEK_END)
    stream.seek(max(0, end - 2 * _LARGEST_PAGE))
    tail = stream.read()
    page = tail[tail.rfind(b"OggS") :]
    if len(page) < 27 or not page[5] & _LAST_PAGE:
        return "cut off: the last page of its Ogg stream is missing"
    segments = page[27 : 27 + page[26]]
    if len(segments) < page[26] or len(page) < 27 + len(segments) + sum(segments):
        return "cut off inside the last page of its Ogg stream"
    return ""


def resample(samples: Float[np.ndarray, " N"], source: int, rate: int) -> Float[np.ndarray, " M"]:
    """Resample a whole recording."""
    if source == rate:
        return samples
    common = math.gcd(source, rate)
    up, down = rate // common, source // common
    return signal.resample_poly(samples, up, down, window=_low_pass(up, down, samples.dtype))


@functools.lru_cache(maxsize=64)
def _low_pass(up: int, down: int, dtype: np.dtype) -> np.ndarray:
    """Return the filter that `resample_poly` would design anew with every call."""
    most = max(up, down)
    shape: Any = ("kaiser", 5.0)
    return np.asarray(signal.firwin(20 * most + 1, 1 / most, window=shape), dtype)


Reason = Literal[
    "no such file",
    "corrupt audio",
    "truncated",
    "no samples",
    "not finite",
    "not samples",
    "opposite channels",
]

_SLACK_S = 0.1  # transcripts round, and compressed formats count their frames loosely
_RATES = range(1_000, 1_000_000)  # outside, a header is broken rather than unusual
_LARGEST_RATIO = 48_000  # of the reduced ratio of two rates: the filter has 20 taps for each
_FRAMES_PER_BYTE = 2_000  # beyond what any coder makes of silence, a header is broken
_CANCELLED = 1e-4  # of the power of its channels: their mean is 40 dB below them
_BLOCK = 1 << 24  # frames that are decoded at once
_LOUDEST = 1.1  # a decoder overshoots ±1 a little; samples on another scale are far beyond
# Sphere files (NIST) carry the suffix .wav in some of the oldest corpora.
_FORMATS = {
    ".wav": ("WAV", "WAVEX", "RF64", "NIST"),
    ".flac": ("FLAC",),
    ".mp3": ("MP3",),
    ".ogg": ("OGG",),
    ".opus": ("OGG",),
}


@runtime_checkable
class Readable(Protocol):
    """An open binary file, or a member of a zip archive."""

    def read(self, size: int = -1, /) -> bytes: ...


class AudioError(SimuljaxError):
    """Audio that cannot be used: `reason` is one of few, `detail` says what was found."""

    def __init__(self, reason: Reason, detail: str):
        super().__init__(f"{reason}: {detail}")
        self.reason: Reason = reason
        self.detail = detail


@dataclass(frozen=True, kw_only=True, eq=False)
class Waveform:
    """Mono samples at the rate that was asked for, and what the file held."""

    samples: Int16[np.ndarray, " N"]
    source_rate: int
    channels: int


def read_audio(
    file: str | Path | Readable,
    *,
    offset_s: float = 0.0,
    duration_s: float | None = None,
    rate: int = RATE,
) -> Waveform:
    """Read a file from `offset_s`, average its channels, resample to `rate`; or raise `AudioError`.

    Only the stretch is decoded, by seeking (Opus decodes the first 80 ms after a seek not bit for
    bit as in one pass). A stretch that ends up to 0.1 s after the file does is shortened. Silence
    is fine; float samples beyond ±1 are clipped.
    """
    name = str(file if isinstance(file, str | Path) else getattr(file, "name", "the audio"))
    with _binary(file, name) as stream:
        if missing := cut_off(stream):
            raise AudioError("corrupt audio", f"{name} is {missing}.")
        size = stream.seek(0, io.SEEK_END)
        stream.seek(0)
        with _decoder(stream, name) as sound:
            start, count = _stretch(sound, name, offset_s, duration_s)
            if count > _FRAMES_PER_BYTE * size:
                promise = f"{name} promises {count} frames in {size} bytes."
                raise AudioError("corrupt audio", promise)
            samples = _decode(sound, name, start, count)
            source_rate, channels = sound.samplerate, sound.channels
    mono = resample(_averaged(_finite(samples, name), name), source_rate, rate)
    return Waveform(samples=_to_int16(mono), source_rate=source_rate, channels=channels)


def as_int16(samples: Real[np.ndarray, "..."], rate: int) -> Int16[np.ndarray, " N"]:
    """Convert mono samples at `rate`, int16 or float in [-1, 1], to int16 at 16 kHz."""
    return _to_int16(resample(_checked(samples, rate), rate, RATE))


class Incoming:
    """Mono samples that arrive in pieces at `rate`; in all the same as `as_int16`."""

    def __init__(self, rate: int = RATE):
        _check_rate(rate)
        self.rate, common = rate, math.gcd(rate, RATE)
        self.up, self.down = RATE // common, rate // common
        # The filter reaches 10 of the slower rate's samples to either side, in the input's.
        self.reach = 0 if rate == RATE else -(-10 * max(self.up, self.down) // self.up) + 1
        self.held = np.zeros(0, np.float32)  # input that may still be needed
        self.given = 0  # samples of the output that `held` would give again

    def push(self, samples: Real[np.ndarray, "..."]) -> Int16[np.ndarray, " N"]:
        """Return the samples at 16 kHz that no later input can change."""
        samples = np.asarray(samples)
        if samples.dtype == np.int16 and samples.ndim == 1 and self.rate == RATE:
            return samples.copy()
        self.held = np.concatenate([self.held, _checked(samples, self.rate)])
        return self._give(len(self.held) - self.reach)

    def given_by(self, received: int) -> int:
        """Return the samples at 16 kHz in all that `push` gives when so many have come."""
        return max(0, -(-(received - self.reach) * self.up // self.down))

    def finish(self) -> Int16[np.ndarray, " N"]:
        return self._give(len(self.held))

    def _give(self, known: int) -> Int16[np.ndarray, " N"]:
        """Return the output up to `known` samples of `held`, without earlier output."""
        end = max(-(-known * self.up // self.down), self.given)
        out = resample(self.held, self.rate, RATE)[self.given : end]
        # Whole periods of the filter, of which the output needs nothing any more, are forgotten.
        periods = max(0, end * self.down // self.up - self.reach) // self.down
        self.held = self.held[periods * self.down :]
        self.given = end - periods * self.up
        return _to_int16(out)


def _checked(samples: Real[np.ndarray, "..."], rate: int) -> Float[np.ndarray, " N"]:
    """Return mono samples as float in [-1, 1], or raise an error that describes them."""
    samples = np.asarray(samples)
    if samples.ndim != 1:
        raise AudioError("not samples", f"shape {samples.shape}; give one channel, [N].")
    _check_rate(rate)
    if samples.size == 0:
        raise AudioError("no samples", "the array is empty.")
    if samples.dtype == np.int16:
        return samples.astype(np.float32) / 32768
    if not np.issubdtype(samples.dtype, np.floating):
        raise AudioError("not samples", f"{samples.dtype}; give int16, or float in [-1, 1].")
    samples = _finite(samples.astype(np.float32), "the array")
    if (peak := float(np.abs(samples).max())) > _LOUDEST:
        detail = f"float samples reach {peak:g}; scale them to [-1, 1] (int16 values: / 32768)."
        raise AudioError("not samples", detail)
    return samples


def _check_rate(rate: int) -> None:
    if not _is_usable(rate):
        detail = f"a rate of {rate!r}; give samples per second, like {RATE}."
        raise AudioError("not samples", detail)


def _is_usable(rate: int) -> bool:
    """Return True for a rate that exists, and that a filter of reasonable length converts."""
    known = isinstance(rate, Integral) and rate in _RATES
    return known and rate // math.gcd(rate, RATE) <= _LARGEST_RATIO


def _binary(file: str | Path | Readable, name: str) -> Stream:
    """Return a seekable byte stream. An open file, perhaps in an archive, is read whole."""
    if isinstance(file, str | Path):
        try:
            return open(file, "rb")
        except OSError as error:
            raise AudioError("no such file", f"{name}: {error.strerror}.") from error
    try:
        return io.BytesIO(file.read())
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
        raise AudioError("corrupt audio", f"{name} cannot be read: {error}") from error


@contextlib.contextmanager
def _decoder(stream: Stream, name: str) -> Iterator[soundfile.SoundFile]:
    """Return the decoder for these bytes, which must match the suffix."""
    suffix = Path(name).suffix.lower()
    try:
        sound = soundfile.SoundFile(stream)
    except soundfile.LibsndfileError as error:
        raise AudioError("corrupt audio", f"{name}: {error.error_string}") from error
    except TypeError as error:  # a suffix that stands for samples without any header
        raise AudioError("corrupt audio", f"{name} has no header; convert it to WAV.") from error
    with sound:
        if sound.format not in _FORMATS.get(suffix, (sound.format,)):
            detail = f"{name} holds {sound.format}, not {suffix[1:]}; rename or convert it."
            raise AudioError("corrupt audio", detail)
        if not _is_usable(sound.samplerate):
            detail = f"{name} says it has {sound.samplerate} samples a second."
            raise AudioError("corrupt audio", detail)
        yield sound


def _stretch(
    sound: soundfile.SoundFile, name: str, offset_s: float, duration_s: float | None
) -> tuple[int, int]:
    """Return first frame and number of frames, which must be in the file."""
    if sound.frames >= 2**62:  # the decoder's way to say that it does not know
        detail = f"{name} does not say how long it is; write it again, for example as WAV."
        raise AudioError("corrupt audio", detail)
    length_s = sound.frames / sound.samplerate
    if not 0 <= offset_s < length_s or (duration_s is not None and not duration_s > 0):
        stretch = f"{'all' if duration_s is None else duration_s} from {offset_s} s"
        raise AudioError("no samples", f"{name} has {length_s:.3f} s; asked for {stretch}.")
    if duration_s is not None and offset_s + duration_s > length_s + _SLACK_S:
        detail = f"{name} ends at {length_s:.3f} s, its stretch at {offset_s + duration_s:.3f} s."
        raise AudioError("truncated", detail)
    start = round(offset_s * sound.samplerate)
    wanted = sound.frames if duration_s is None else round(duration_s * sound.samplerate)
    if (count := min(wanted, sound.frames - start)) < 1:
        raise AudioError("no samples", f"{name}: the stretch is shorter than one sample.")
    return start, count


def _decode(
    sound: soundfile.SoundFile, name: str, start: int, count: int
) -> Float[np.ndarray, "N channels"]:
    """Decode to float32, which holds 16 and 24 bit samples exactly."""
    try:
        sound.seek(start)
        starts = range(0, count, _BLOCK)
        sizes = (min(_BLOCK, count - done) for done in starts)
        blocks = [sound.read(size, dtype="float32", always_2d=True) for size in sizes]
        samples = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
    except soundfile.LibsndfileError as error:
        raise AudioError("corrupt audio", f"{name}: {error.error_string}") from error
    slack = _SLACK_S * sound.samplerate if sound.format == "MP3" else 0
    if len(samples) < count - slack or not len(samples):
        detail = f"{name} promises {count} frames from frame {start}, {len(samples)} are there."
        raise AudioError("corrupt audio", detail)
    return samples


def _finite(samples: Float[np.ndarray, "..."], name: str) -> Float[np.ndarray, "..."]:
    if not np.isfinite(samples).all():
        first = int(np.argwhere(~np.isfinite(samples))[0, 0])
        raise AudioError("not finite", f"{name} has NaN or infinity at sample {first}.")
    return samples


def _averaged(samples: Float[np.ndarray, "N channels"], name: str) -> Float[np.ndarray, " N"]:
    mono = samples.mean(1)
    if np.vdot(mono, mono) * samples.shape[1] < _CANCELLED * np.vdot(samples, samples):
        detail = f"the mean of all channels of {name} is silence; keep one of them."
        raise AudioError("opposite channels", detail)
    return mono


def _to_int16(samples: Float[np.ndarray, " N"]) -> Int16[np.ndarray, " N"]:
    return np.clip(np.rint(samples * 32768), -32768, 32767).astype(np.int16)
