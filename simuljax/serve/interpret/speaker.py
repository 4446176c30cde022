"""Committed words, said aloud: into a file, through a loudspeaker, or both.

A piece is ready for the voice when its last word is committed; it can be heard after the voice has
made its sound, which counts. `Timeline` says where it comes then, and how fast it is spoken.
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from simuljax.voice import Player, Timeline, Voice


@dataclass(frozen=True, kw_only=True)
class Spoken:
    """A piece that was said; seconds from the start of the source."""

    text: str
    ready_s: float  # its words were committed
    start_s: float
    end_s: float
    speed: float


class Speaker:
    """A voice and where it is heard.

    `track` is the sound file, `notes` gets a line of JSON for every piece (`Spoken`).
    """

    def __init__(
        self,
        voice: Voice,
        *,
        track: Path | None = None,
        player: Player | None = None,
        notes: Path | None = None,
    ):
        self.voice, self.player = voice, player
        self.timeline = Timeline(voice.rate, track)
        self.notes: TextIO | None = notes.open("w", encoding="utf-8") if notes else None
        self._free_s = 0.0

    @property
    def until_s(self) -> float:
        """When all that is placed will have been said."""
        return self.timeline.duration

    def say(self, text: str, ready_s: float) -> Spoken:
        """Says what was committed at `ready_s`, after what it said before."""
        begin = time.perf_counter()
        speed = self.timeline.speed(ready_s)
        samples = self.voice.speak(text, speed=speed)
        self._free_s = max(self._free_s, ready_s) + time.perf_counter() - begin
        placed = self.timeline.place(samples, self._free_s, speed=speed)
        if self.player is not None:
            self.player.play(samples)
        spoken = Spoken(
            text=text,
            ready_s=round(ready_s, 3),
            start_s=round(placed.start_s, 3),
            end_s=round(placed.end_s, 3),
            speed=round(speed, 3),
        )
        if self.notes is not None:
            print(json.dumps(asdict(spoken), ensure_ascii=False), file=self.notes, flush=True)
        return spoken

    def finish(self) -> None:
        """Waits until the loudspeaker has said the rest."""
        if self.player is not None:
            self.player.close()

    def close(self) -> None:
        """The files are whole; nothing is waited for."""
        self.timeline.close()
        if self.notes is not None:
            self.notes.close()
