"""Write a live translation as speech, as subtitles and as a log record."""

import json
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from simuljax.eval.logs import Record
from simuljax.serve.session import Word
from simuljax.voice import Player, Timeline, Voice

_LINE, _LINES = 42, 2  # characters in a line of a subtitle, and lines
_SPAN_S = 2.0  # from the first word of a subtitle to its last
_SHORTEST_S, _LONGEST_S, _CHARACTERS_PER_S = 1.0, 6.0, 17.0


@dataclass(frozen=True, kw_only=True)
class Utterance:
    """A piece of speech; seconds from the start of the source."""

    text: str
    ready_s: float  # its words were committed
    start_s: float
    end_s: float
    speed: float


class Speaker:
    """Speak committed words into a file (`track`), through a loudspeaker (`player`), or both.

    Speech starts after the words are committed and the voice has synthesised them; `Timeline` sets
    the place and the speed. `notes` gets one line of JSON for every `Utterance`.
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
        self._free_s = 0.0  # when the voice has synthesised all before

    @property
    def end_s(self) -> float:
        """Return the end of the speech so far."""
        return self.timeline.duration

    def say(self, text: str, ready_s: float) -> Utterance:
        """Speak text that was committed at `ready_s`, after the speech so far."""
        start = time.perf_counter()
        speed = self.timeline.speed(ready_s)
        samples = self.voice.speak(text, speed=speed)
        self._free_s = max(self._free_s, ready_s) + time.perf_counter() - start
        placed = self.timeline.place(samples, self._free_s, speed=speed)
        if self.player is not None:
            self.player.play(samples)
        utterance = Utterance(
            text=text,
            ready_s=round(ready_s, 3),
            start_s=round(placed.start_s, 3),
            end_s=round(placed.end_s, 3),
            speed=round(speed, 3),
        )
        if self.notes is not None:
            print(json.dumps(asdict(utterance), ensure_ascii=False), file=self.notes, flush=True)
        return utterance

    def finish(self) -> None:
        """Wait for the loudspeaker."""
        if self.player is not None:
            self.player.close()

    def close(self) -> None:
        """Close the files at once."""
        self.timeline.close()
        if self.notes is not None:
            self.notes.close()


@dataclass(frozen=True, kw_only=True)
class Subtitle:
    """A text on the screen; seconds from the start of the source."""

    text: str
    start_s: float
    end_s: float


def write_srt(path: Path, words: Sequence[Word]) -> None:
    """Write the words as SubRip subtitles, timed by the sound before each word."""
    blocks = (
        f"{number}\n{_srt_time(s.start_s)} --> {_srt_time(s.end_s)}\n{s.text}\n"
        for number, s in enumerate(subtitles(words), 1)
    )
    path.write_text("\n".join(blocks), encoding="utf-8")


def subtitles(words: Sequence[Word]) -> Iterator[Subtitle]:
    """Yield subtitles that show no word before it was committed, and never two at a time.

    start = max(delay of its last word, end of the subtitle before)
    end   = start + clip(characters / 17, 1 s, 6 s)
    """
    end_s = 0.0
    for group in _groups(words):
        text = " ".join(word.text for word in group)
        start_s = max(group[-1].delay_ms / 1000, end_s)
        end_s = start_s + min(max(len(text) / _CHARACTERS_PER_S, _SHORTEST_S), _LONGEST_S)
        lines = textwrap.wrap(text, _LINE, break_on_hyphens=False)
        yield Subtitle(text="\n".join(lines), start_s=start_s, end_s=end_s)


def _groups(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Split words at the ends of sentences, after two full lines, and where they come later."""
    group: list[Word] = []
    for word in words:
        text = " ".join(w.text for w in (*group, word))
        if group and (
            len(textwrap.wrap(text, _LINE, break_on_hyphens=False)) > _LINES
            or word.delay_ms - group[0].delay_ms > _SPAN_S * 1000
            or group[-1].text.rstrip("\"'”’»)").endswith((".", "!", "?", "。", "！", "？"))
        ):
            yield group
            group = []
        group.append(word)
    if group:
        yield group


def _srt_time(seconds: float) -> str:
    whole, ms = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02},{ms:03}"


def log_record(words: Sequence[Word], source: str, recorded_s: float) -> Record:
    """Return SimulEval's record of a translation without a reference."""
    return Record(
        index=0,
        prediction=" ".join(word.text for word in words),
        delays=tuple(word.delay_ms for word in words),
        elapsed=tuple(word.elapsed_ms for word in words),
        source=source,
        source_length=recorded_s * 1000,
    )
