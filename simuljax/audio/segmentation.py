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
Samples = Int16[np.ndarray, " N"]


@dataclass(frozen=True, kw_only=True)
class Part:
    """Sound of a segment; the last part of it, if `ends`."""

    samples: Samples
    ends: bool = False


class Segmenter:
    """The segments of one stream."""

    def __init__(self, settings: Segmentation):
        self.settings = settings
        self.pause, self.lead = -(-settings.pause_ms // 10), -(-settings.lead_ms // 10)  # frames
        self.longest, self.search = round(settings.segment_s * 100), round(SEARCH_S * 100)
        self.rest = np.zeros(0, np.int16)  # less than a frame
        self.frames: deque[Samples] = deque()  # before speech, or held back
        self.levels: deque[float] = deque()  # of those that are held back
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
        return len(self.rest) + sum(map(len, self.frames))

    def push(self, samples: Samples) -> list[Part]:
        """Take more sound; return the parts of segments that are known now."""
        samples = np.concatenate([self.rest, samples])
        whole = len(samples) - len(samples) % FRAME
        self.rest, frames = samples[whole:], samples[:whole].reshape(-1, FRAME)
        power = np.square(frames / 32768).mean(-1) if len(frames) else np.zeros(0)
        levels = 10 * np.log10(np.maximum(power, 1e-12))
        parts = []
        for frame, level in zip(frames, levels.tolist(), strict=True):
            parts += self._take(frame, level)
        return _joined(parts)

    def finish(self) -> list[Part]:
        """Return the rest of a segment that has not ended; nothing more will come."""
        inside, kept = self.inside, [*self.frames, self.rest]
        self._begin_silence()
        self.rest = self.rest[:0]
        return [Part(samples=np.concatenate(kept), ends=True)] if inside else []

    def _take(self, frame: Samples, level: float) -> list[Part]:
        over = level - self._floor(level)
        if not self.inside:
            return self._wait(frame, over >= self.settings.speech_db)
        speech = over >= self.settings.speech_db - self.settings.hysteresis_db
        self.length += 1
        self.silent = 0 if speech else self.silent + 1
        if self.silent >= self.pause:
            kept = [*self.frames, frame]
            self._begin_silence()
            return [Part(samples=np.concatenate(kept), ends=True)]
        if self.length <= self.longest - self.search:
            return [Part(samples=frame)]
        self.frames.append(frame)
        self.levels.append(level)
        return self._force() if self.length >= self.longest else []

    def _wait(self, frame: Samples, speech: bool) -> list[Part]:
        """Keep what may be the lead of a segment; begin it with enough speech."""
        self.frames.append(frame)
        self.loud = self.loud + 1 if speech else 0
        if len(self.frames) > self.lead + ONSET:
            self.frames.popleft()
        if self.loud < ONSET:
            return []
        kept = np.concatenate(self.frames)
        self.length, self.loud = len(self.frames), 0
        self.frames.clear()
        return [Part(samples=kept)]

    def _force(self) -> list[Part]:
        """Cut at the quietest place of what is held back; the rest begins the next segment."""
        smooth = np.convolve(self.levels, np.ones(SMOOTH) / SMOOTH, "valid")
        cut = int(smooth.argmin()) + SMOOTH // 2
        kept, rest = [*self.frames][:cut], [*self.frames][cut:]
        silent = min(self.silent, len(rest))
        self._begin_silence()
        self.length, self.silent = len(rest), silent
        return [
            Part(samples=np.concatenate(kept), ends=True),
            Part(samples=np.concatenate(rest)),
        ]

    def _begin_silence(self) -> None:
        self.length = self.silent = self.loud = 0
        self.frames.clear()
        self.levels.clear()

    def _floor(self, level: float) -> float:
        """Return the noise floor with one more frame: the least level of the last FLOOR_S."""
        while self.floors and self.floors[-1][1] >= level:
            self.floors.pop()
        self.floors.append((self.count, level))
        self.count += 1
        if self.floors[0][0] < self.count - round(FLOOR_S * 100):
            self.floors.popleft()
        started = self.count > round(START_S * 100)
        return max(QUIET_DB, self.floors[0][1]) if started else QUIET_DB


def _joined(parts: list[Part]) -> list[Part]:
    """Join the parts of each segment."""
    found, open_parts = [], []
    for part in parts:
        open_parts.append(part.samples)
        if part.ends:
            found.append(Part(samples=np.concatenate(open_parts), ends=True))
            open_parts = []
    if open_parts:
        found.append(Part(samples=np.concatenate(open_parts)))
    return found
