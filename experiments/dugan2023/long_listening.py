"""A stream that is pushed for an hour, measured minute by minute, and sounds without a speaker."""

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from resource import getpagesize

import jax
import numpy as np

from experiments.dugan2023.recordings import Recording
from simuljax.audio import RATE
from simuljax.config.fields import ConfigError
from simuljax.profile.measure import counted_programs
from simuljax.serve.session import Word
from simuljax.serve.stream import Stream

MINUTE = 60.0
VOICES = 8
STATM = Path("/proc/self/statm")  # Linux: pages, the second number those that are resident
Progress = Callable[[float], object]  # told seconds of sound


@dataclass(frozen=True, kw_only=True)
class Played:
    """A recording in the stream."""

    recording: Recording
    start_ms: float
    length_ms: float


@dataclass(frozen=True, kw_only=True)
class Push:
    """A chunk, and what came of it. Seconds."""

    start_s: float  # of the stream
    sound_s: float
    spent_s: float  # computing
    open_s: float  # sound, this included, of which more could be said when it came
    behind_s: float  # from the chunk's end until all was done with it, had it come live
    quiet_s: float  # since words were last committed
    words: tuple[Word, ...]


@dataclass(frozen=True, kw_only=True)
class Minute:
    """A minute of the stream; of times, the longest. Memory is that at its end."""

    sound_s: float
    spent_s: float
    resident_mb: float
    arrays_mb: float  # of JAX
    programs: int  # compiled, or read from the cache on disk
    open_s: float
    behind_s: float
    quiet_s: float
    words: tuple[Word, ...]

    @property
    def computed(self) -> float:
        """Seconds per second of sound."""
        return self.spent_s / self.sound_s if self.sound_s else math.nan

    @property
    def text(self) -> str:
        """What was committed in it."""
        return " ".join(word.text for word in self.words)


def playlist(recordings: Sequence[Recording], minutes: float) -> list[Played]:
    """Recordings in order, and again from the first, until the minutes are reached.

    None of them is empty: `read_audio` refuses what has no samples.
    """
    lengths: dict[int, float] = {}
    played, start = [], 0.0
    for recording in itertools.cycle(recordings):
        if recording.index not in lengths:
            lengths[recording.index] = len(recording.samples) * 1000 / RATE
        length = lengths[recording.index]
        played.append(Played(recording=recording, start_ms=start, length_ms=length))
        start += length
        if start >= minutes * MINUTE * 1000:
            break
    return played


def listen(
    stream: Stream, sound: Iterable[np.ndarray], chunk_s: float, progress: Progress
) -> list[Minute]:
    """Pushes all of it, and measures minute by minute. What `finish` gives is of the last."""
    minutes: list[Minute] = []
    pushes: list[Push] = []
    with counted_programs() as programs:
        for push in _pushes(stream, sound, round(chunk_s * RATE)):
            if push.sound_s and push.start_s >= MINUTE * (len(minutes) + 1):
                minutes.append(_minute(pushes, programs))
                pushes = []
            pushes.append(push)
            progress(push.sound_s)
        return [*minutes, _minute(pushes, programs)]


def _pushes(stream: Stream, sound: Iterable[np.ndarray], size: int) -> Iterator[Push]:
    heard, said_s, done_s = 0, 0.0, 0.0
    chunks = (part[i : i + size] for part in sound for i in range(0, len(part), size))
    for chunk in itertools.chain(chunks, [None]):
        start, heard = heard, heard + (0 if chunk is None else len(chunk))
        heard_s, settled_s = heard / RATE, stream.settled_s
        before = time.perf_counter()
        words = stream.finish() if chunk is None else stream.push(chunk)
        spent = time.perf_counter() - before
        done_s = max(done_s, heard_s) + spent
        quiet_s, said_s = heard_s - said_s, heard_s if words else said_s
        yield Push(
            start_s=start / RATE,
            sound_s=(heard - start) / RATE,
            spent_s=spent,
            open_s=heard_s - settled_s,
            behind_s=done_s - heard_s,
            quiet_s=quiet_s,
            words=tuple(words),
        )


def _minute(pushes: Sequence[Push], programs: list[float]) -> Minute:
    count = len(programs)
    programs.clear()
    return Minute(
        sound_s=math.fsum(push.sound_s for push in pushes),
        spent_s=math.fsum(push.spent_s for push in pushes),
        resident_mb=resident_mb(),
        arrays_mb=sum(array.nbytes for array in jax.live_arrays()) / 1e6,
        programs=count,
        open_s=max(push.open_s for push in pushes),
        behind_s=max(push.behind_s for push in pushes),
        quiet_s=max(push.quiet_s for push in pushes),
        words=tuple(word for push in pushes for word in push.words),
    )


def resident_mb() -> float:
    """Memory that the process has now."""
    try:
        pages = int(STATM.read_text().split()[1])
    except OSError as error:
        raise ConfigError(f"memory is read where Linux tells it: {error}") from None
    return pages * getpagesize() / 1e6


def nobody(recordings: Sequence[Recording], minutes: float) -> Iterator[tuple[str, np.ndarray]]:
    """Names and samples, int16, of sounds in which nobody speaks to the listener."""
    count, random = round(minutes * MINUTE * RATE), np.random.default_rng(0)
    white = random.standard_normal(count)
    yield "silence", np.zeros(count, np.int16)
    yield "white", as_loud(white)
    pink = _pink(white)
    yield "pink", as_loud(pink)
    turns = np.cumsum(random.uniform(3, 6, count // RATE + 2))  # so many syllables a second
    phase = np.interp(np.arange(count) / RATE, np.arange(len(turns)), 2 * np.pi * turns)
    yield "syllables", as_loud(pink * (0.5 - 0.5 * np.cos(phase)))
    voices = np.zeros(count)
    for one in itertools.islice(itertools.cycle(recordings), VOICES):
        samples = one.samples.astype(np.float64)
        voices += np.resize(samples / max(samples.std(), 1.0), count)
    yield "voices", as_loud(voices)


def _pink(white: np.ndarray) -> np.ndarray:
    """A power of 1 / frequency from 20 Hz on, and none below."""
    hertz = np.fft.rfftfreq(len(white), 1 / RATE)
    shaped = np.fft.rfft(white) * (hertz >= 20) / np.sqrt(np.maximum(hertz, 20))
    return np.fft.irfft(shaped, len(white))


def as_loud(sound: np.ndarray, db: float = -30.0) -> np.ndarray:
    """Its RMS at so many decibels of full scale."""
    rms = max(float(np.sqrt(np.mean(np.square(sound)))), 1e-9)
    return np.rint(sound / rms * 32768 * 10 ** (db / 20)).clip(-32768, 32767).astype(np.int16)
