"""Cut a stream into segments of speech at its pauses, as the samples come.

A frame of 10 ms is speech by its level over the noise floor, with hysteresis: speech begins at

    level >= floor + speech_db                                 and goes on while
    level >= floor + speech_db - hysteresis_db,
    floor  = max(QUIET_DB, least level of the last FLOOR_S)    QUIET_DB in the first START_S

A segment begins lead_ms before its first frame of speech and ends with the pause_ms-th millisecond
without speech; the sound until the next one is left out. While a segment lasts, its sound is given
out as it comes. Only its last SEARCH_S before `segment_s` are held back: if no pause is found in
them either, the segment is cut at the quietest place there, and the next one begins with what is
after it.

Nothing depends on how the samples are cut into pieces; no more than SEARCH_S or lead_ms is kept.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int16

from simuljax.audio.waveform import RATE
from simuljax.config.segmentation import Segmentation

FRAME = RATE // 100  # samples
QUIET_DB = -70.0  # the lowest floor, in decibels of full scale
START_S, FLOOR_S, SEARCH_S = 1.0, 5.0, 2.0
ONSET = 3  # frames in a row that begin a segment: a click is shorter
SMOOTH = 10  # frames over which the quietest place is found
_START, _FLOOR = round(START_S * 100), round(FLOOR_S * 100)  # frames
Samples = Int16[np.ndarray, " N"]
Frames = Int16[np.ndarray, "F 160"]


@dataclass(frozen=True, kw_only=True)
class Part:
    """Sound of a segment; the last part of it, if `ends`."""

    samples: Samples
    ends: bool = False


Cut = Callable[[Frames], list[Part]]  # of frames that were not given out


class Segmenter:
    """The segments of one stream."""

    def __init__(self, settings: Segmentation):
        self.settings = settings
        self.pause, self.lead = -(-settings.pause_ms // 10), -(-settings.lead_ms // 10)  # frames
        self.longest, self.search = round(settings.segment_s * 100), round(SEARCH_S * 100)
        self.rest = np.zeros(0, np.int16)  # less than a frame
        self.kept = np.zeros((0, FRAME), np.int16)  # before speech, or held back
        self.levels: list[float] = []  # of frames that are held back
        self.floors: deque[tuple[int, float]] = deque()  # levels that may become the least
        self.count = 0  # frames in all
        self.length = 0  # frames of the segment
        self.silent = 0  # the last of these, without speech
        self.loud = 0  # frames of speech in a row, before a segment

    @property
    def inside(self) -> bool:
        """Return True in a segment."""
        return self.length > 0

    @property
    def held(self) -> int:
        """Return the samples that are kept."""
        return len(self.rest) + self.kept.size

    def push(self, samples: Samples) -> list[Part]:
        """Take more sound; return the parts of segments that are known now."""
        samples = np.concatenate([self.rest, samples])
        whole = len(samples) - len(samples) % FRAME
        self.rest, frames = samples[whole:], samples[:whole].reshape(-1, FRAME)
        parts, start = [], 0  # frames before `start` were given out
        for place, (level, over) in enumerate(self._over_floor(_levels(frames)), start=1):
            found = self._go_on(level, over) if self.length else self._begins(over)
            if found:
                parts += found(np.concatenate([self.kept, frames[start:place]]))
                self.kept, start = self.kept[:0], place
        if 0 < self.length <= self.longest - self.search:
            parts += [_part(frames[start:])] if start < len(frames) else []
        else:
            self.kept = np.concatenate([self.kept, frames[start:]])
            self.kept = self.kept if self.inside else self.kept[-self.lead - ONSET :]
        return _joined(parts)

    def finish(self) -> list[Part]:
        """Return the rest of a segment that has not ended; nothing more will come."""
        last = [Part(samples=np.concatenate([self.kept.reshape(-1), self.rest]), ends=True)]
        found = last if self.inside else []
        self._end(self.kept)
        self.kept, self.rest = self.kept[:0], self.rest[:0]
        return found

    def _begins(self, over: float) -> Cut | None:
        """Return what begins a segment, after enough speech."""
        self.loud = self.loud + 1 if over >= self.settings.speech_db else 0
        return self._begin if self.loud == ONSET else None

    def _go_on(self, level: float, over: float) -> Cut | None:
        """Return what is to be done with the frames of the segment that were not given out."""
        speech = over >= self.settings.speech_db - self.settings.hysteresis_db
        self.length += 1
        self.silent = 0 if speech else self.silent + 1
        if self.silent >= self.pause:
            return self._end
        if self.length <= self.longest - self.search:
            return self._give if self.length == self.longest - self.search else None
        self.levels.append(level)
        return self._force if self.length >= self.longest else None

    def _begin(self, frames: Frames) -> list[Part]:
        """Begin a segment with the sound before it."""
        frames = frames[-self.lead - ONSET :]
        self.length = len(frames)
        return [_part(frames)]

    def _give(self, frames: Frames) -> list[Part]:
        return [_part(frames)]

    def _end(self, frames: Frames) -> list[Part]:
        self.length = self.silent = self.loud = 0
        self.levels.clear()
        return [_part(frames, ends=True)]

    def _force(self, frames: Frames) -> list[Part]:
        """Cut at the quietest place of what is held back; the rest begins the next segment."""
        smooth = np.convolve(self.levels, np.ones(SMOOTH) / SMOOTH, "valid")
        cut, silent = int(smooth.argmin()) + SMOOTH // 2, self.silent
        ended = self._end(frames[:cut])
        self.length, self.silent = len(frames) - cut, min(silent, len(frames) - cut)
        return [*ended, _part(frames[cut:])]

    def _over_floor(self, levels: list[float]) -> Iterator[tuple[float, float]]:
        """Yield levels, and how far each is over the noise floor: the least of the last FLOOR_S."""
        floors = self.floors
        for level in levels:
            while floors and floors[-1][1] >= level:
                floors.pop()
            floors.append((self.count, level))
            self.count += 1
            if floors[0][0] < self.count - _FLOOR:
                floors.popleft()
            least = floors[0][1] if self.count > _START else QUIET_DB
            yield level, level - max(QUIET_DB, least)


def _levels(frames: Frames) -> list[float]:
    """Return the level of each frame in decibels of full scale."""
    samples = frames.astype(np.float64)
    power = np.einsum("fs,fs->f", samples, samples) / (FRAME * 32768**2)  # the sum is exact
    return (10 * np.log10(np.maximum(power, 1e-12))).tolist()


def _part(frames: Frames, *, ends: bool = False) -> Part:
    return Part(samples=frames.reshape(-1), ends=ends)


def _joined(parts: list[Part]) -> list[Part]:
    """Join the parts of each segment."""
    if len(parts) < 2:
        return parts
    found, open_parts = [], []
    for part in parts:
        open_parts.append(part.samples)
        if part.ends:
            found.append(Part(samples=np.concatenate(open_parts), ends=True))
            open_parts = []
    if open_parts:
        found.append(Part(samples=np.concatenate(open_parts)))
    return found
