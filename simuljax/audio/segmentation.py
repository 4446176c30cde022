"""Cut a stream into segments of speech at its pauses, as the samples come.

A frame of 10 ms is speech by its level over the noise floor, with hysteresis: speech begins at

    level >= floor + speech_db                                 and goes on while
    level >= floor + speech_db - HYSTERESIS_DB,
    floor  = max(QUIET_DB, least level of the last FLOOR_S)    QUIET_DB in the first START_S

A segment begins LEAD_MS before its first frame of speech and ends with the pause_ms-th millisecond
without speech; the sound until the next one is left out. While a segment lasts, its sound is given
out as it comes. Only its last SEARCH_S before `segment_s` are held back: if no pause is found in
them either, the segment is cut at the quietest place there, and the next one begins with what is
after it.

Nothing depends on how the samples are cut into pieces; no more than SEARCH_S or LEAD_MS is kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int16

from simuljax.audio.waveform import RATE
from simuljax.config.segmentation import Segmentation

FRAME = RATE // 100  # samples
QUIET_DB = -70.0  # the lowest floor, in decibels of full scale
HYSTERESIS_DB = 4.0
START_S, FLOOR_S, SEARCH_S = 1.0, 5.0, 2.0
LEAD_MS = 200
ONSET = 3  # frames in a row that begin a segment: a click is shorter
SMOOTH = 10  # frames over which the quietest place is found
_START, _FLOOR = round(START_S * 100), round(FLOOR_S * 100)  # frames
Samples = Int16[np.ndarray, " N"]
Frames = Int16[np.ndarray, "F 160"]
Levels = Float64[np.ndarray, " F"]


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
        self.begins_at, self.goes_on_at = settings.speech_db, settings.speech_db - HYSTERESIS_DB
        self.pause, self.lead = -(-settings.pause_ms // 10), LEAD_MS // 10  # frames
        self.longest, self.search = round(settings.segment_s * 100), round(SEARCH_S * 100)
        self.rest = np.zeros(0, np.int16)  # less than a frame
        self.kept = np.zeros((0, FRAME), np.int16)  # before speech, or held back
        self.levels: list[float] = []  # of frames that are held back
        self.floors = np.full(_FLOOR - 1, np.inf)  # the least level from each frame on, until now
        self.count = 0  # frames in all
        self.length = 0  # frames of the segment
        self.silent = 0  # the last of these, without speech
        self.loud = 0  # frames of speech in a row, before a segment

    @property
    def inside(self) -> bool:
        return self.length > 0

    @property
    def held(self) -> int:
        return len(self.rest) + self.kept.size

    @property
    def missing(self) -> int:
        """Return the samples without which no segment can end."""
        if self.inside:
            frames = min(self.pause - self.silent, self.longest - self.length)
        else:  # it has to begin before
            frames = min(self.pause, self.longest - self.lead - ONSET)
        return max(0, frames * FRAME - len(self.rest))

    def push(self, samples: Samples) -> list[Part]:
        """Take more sound; return the parts of segments that are known now."""
        return self.push_pieces(samples, ())[0]

    def push_pieces(self, samples: Samples, ends: Sequence[int]) -> tuple[list[Part], list[int]]:
        """Take pieces of sound at once, that end at these places of the samples.

        Return the parts of segments, and the samples that a push of each piece would have given out
        by then.
        """
        before = len(self.rest)
        samples = np.concatenate([self.rest, samples]) if before else samples
        whole = len(samples) - len(samples) % FRAME
        self.rest, frames = samples[whole:], samples[:whole].reshape(-1, FRAME)
        parts, start = [], 0  # frames before `start` were given out
        given = [(0, 0, self._gives)]  # by a frame; True if what follows is given as it comes
        levels = _levels(frames)
        over = self._over_floor(levels)
        if self._goes_on_throughout(over):
            changes = []
        else:
            changes = zip(levels.tolist(), over.tolist(), strict=True)
        for place, (level, above) in enumerate(changes, start=1):
            found = self._go_on(level, above) if self.length else self._begins(above)
            if found:
                parts += found(np.concatenate([self.kept, frames[start:place]]))
                self.kept, start = self.kept[:0], place
                given.append((place, sum(len(part.samples) for part in parts), self._gives))
        if 0 < self.length <= self.longest - self.search:
            parts += [_part(frames[start:])] if start < len(frames) else []
        elif start < len(frames):
            self.kept = np.concatenate([self.kept, frames[start:]])
            self.kept = self.kept if self.inside else self.kept[-self.lead - ONSET :]
        return _joined(parts), [_given_by((before + end) // FRAME, given) for end in ends]

    @property
    def _gives(self) -> bool:
        """Return True if the next frame is given out as it comes, unless the segment ends."""
        return 0 < self.length < self.longest - self.search

    def finish(self) -> list[Part]:
        """Return the rest of a segment that has not ended; nothing more will come."""
        last = [Part(samples=np.concatenate([self.kept.reshape(-1), self.rest]), ends=True)]
        found = last if self.inside else []
        self._end(self.kept)
        self.kept, self.rest = self.kept[:0], self.rest[:0]
        return found

    def _goes_on_throughout(self, over: Levels) -> bool:
        """Return True, and count the frames, if surely no segment begins or ends in them."""
        if not self.length:
            if (over >= self.begins_at).any():
                return False
            self.loud = 0 if len(over) else self.loud
            return True
        length, silent = self.length + len(over), self.silent + len(over)
        if length >= self.longest - self.search or silent >= self.pause:
            return False
        speech = np.flatnonzero(over >= self.goes_on_at)
        self.length = length
        self.silent = len(over) - 1 - int(speech[-1]) if len(speech) else silent
        return True

    def _begins(self, over: float) -> Cut | None:
        """Return what begins a segment, after enough speech."""
        self.loud = self.loud + 1 if over >= self.begins_at else 0
        return self._begin if self.loud == ONSET else None

    def _go_on(self, level: float, over: float) -> Cut | None:
        """Return what is to be done with the frames of the segment that were not given out."""
        speech = over >= self.goes_on_at
        self.length += 1
        self.silent = 0 if speech else self.silent + 1
        if self.silent >= self.pause:
            return self._end
        if self.length <= self.longest - self.search:
            return self._give if self.length == self.longest - self.search else None
        self.levels.append(level)
        return self._force if self.length >= self.longest else None

    def _begin(self, frames: Frames) -> list[Part]:
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

    def _over_floor(self, levels: Levels) -> Levels:
        """Return how far each level is over the noise floor: the least of the last FLOOR_S."""
        if 0 < len(levels) < _FLOOR:
            return self._over_next(levels)
        parts = [levels[place : place + _FLOOR - 1] for place in range(0, len(levels), _FLOOR - 1)]
        return np.concatenate([levels[:0], *map(self._over_next, parts)])

    def _over_next(self, levels: Levels) -> Levels:
        """Do so for fewer levels than the floor is of; go on with these."""
        count, floors = len(levels), self.floors
        so_far = np.minimum.accumulate(levels)
        least = np.maximum(np.minimum(floors[:count], so_far), QUIET_DB)
        if self.count < _START:
            least[: _START - self.count] = QUIET_DB
        before = np.minimum(floors[count:], so_far[-1])
        self.floors = np.concatenate([before, np.minimum.accumulate(levels[::-1])[::-1]])
        self.count += count
        return levels - least


def _levels(frames: Frames) -> Levels:
    """Return the level of each frame in decibels of full scale."""
    samples = frames.astype(np.float64)
    power = np.einsum("fs,fs->f", samples, samples) / (FRAME * 32768**2)  # the sum is exact
    return 10 * np.log10(np.maximum(power, 1e-12))


def _given_by(frame: int, given: list[tuple[int, int, bool]]) -> int:
    """Return the samples that were given out when so many frames had come."""
    place, count, goes_on = next(each for each in reversed(given) if each[0] <= frame)
    return count + (frame - place) * FRAME * goes_on


def _part(frames: Frames, *, ends: bool = False) -> Part:
    return Part(samples=frames.reshape(-1), ends=ends)


def _joined(parts: list[Part]) -> list[Part]:
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
