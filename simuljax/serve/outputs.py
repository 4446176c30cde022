"""Give out a live translation: on a terminal or as plain text, as speech, subtitles, a log record.

And so my fellow Americans ask not what your        <- full lines stay and scroll away
country can do for you ask what you can             <- committed words, then (dim) pending text
[######....] -24 dB  0:08  lag 2.1 s  consensus 0.50  window 1 s
p policy  +/- threshold  w window  q finish
"""

import contextlib
import itertools
import json
import os
import select
import termios
import textwrap
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from simuljax.eval.logs import Record
from simuljax.eval.spacing import is_unspaced, join_words, space_between, timed_units
from simuljax.serve.pipeline import Pipeline
from simuljax.serve.session import Word
from simuljax.text.sentences import ends_sentence
from simuljax.voice import Placed, Player, Timeline, Voice

_QUIET_DB, _METER_CELLS = -60.0, 10
_TEXT_LINES = 3  # of the last committed words and pending text
_LINE, _LINES = 42, 2  # characters in a line of a subtitle, and lines
_SPAN_S = 2.0  # from the first word of a subtitle to its last
_SHORTEST_S, _LONGEST_S, _CHARACTERS_PER_S = 1.0, 6.0, 17.0


class Speaker:
    """Speak committed words into a file (`track`), through a loudspeaker (`player`), or both.

    Speech starts after the words are committed and the voice has synthesised them; `Timeline` sets
    the place and the speed. `notes` gets a line of JSON for every piece: its text, its times in
    seconds from the start of the source, and its speed.
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
        self.notes = notes.open("w", encoding="utf-8") if notes else None
        self._free_s = 0.0  # when the voice has synthesised all before

    @property
    def end_s(self) -> float:
        return self.timeline.duration

    def say(self, text: str, ready_s: float) -> Placed:
        """Speak text that was committed at `ready_s`, after the speech so far; return its place."""
        start = time.perf_counter()
        speed = self.timeline.speed(ready_s)
        samples = self.voice.speak(text, speed=speed)
        self._free_s = max(self._free_s, ready_s) + time.perf_counter() - start
        placed = self.timeline.place(samples, self._free_s, speed=speed)
        if self.player is not None:
            self.player.play(samples)
        if self.notes is not None:
            times = {"ready_s": ready_s, **asdict(placed)}
            note = {"text": text} | {name: round(value, 3) for name, value in times.items()}
            print(json.dumps(note, ensure_ascii=False), file=self.notes, flush=True)
        return placed

    def finish(self) -> None:
        if self.player is not None:
            self.player.close()

    def close(self) -> None:
        self.timeline.close()
        if self.notes is not None:
            self.notes.close()


def subtitle_file(words: Sequence[Word], shape: str = "srt") -> str:
    """Return the words as SubRip or WebVTT subtitles, timed by the sound before each word."""
    blocks, mark = (["WEBVTT\n"], ".") if shape == "vtt" else ([], ",")
    for number, (start_s, end_s, text) in enumerate(subtitles(words), 1):
        times = f"{_clock(start_s, mark)} --> {_clock(end_s, mark)}"
        blocks.append((f"{number}\n" if shape == "srt" else "") + f"{times}\n{text}\n")
    return "\n".join(blocks)


def subtitles(words: Sequence[Word]) -> Iterator[tuple[float, float, str]]:
    """Yield (start, end, text) that show no word before it was committed, and never two at a time.

    start = max(delay of its last word, end of the subtitle before)
    end   = start + clip(characters / 17, 1 s, 6 s), each as two in a script without spaces
    """
    end_s = 0.0
    for group in _groups(words):
        text = join_words(word.text for word in group)
        size = len(text) * _width_of_letters(text)
        start_s = max(group[-1].delay_ms / 1000, end_s)
        end_s = start_s + min(max(size / _CHARACTERS_PER_S, _SHORTEST_S), _LONGEST_S)
        yield start_s, end_s, "\n".join(_wrapped(text))


def _groups(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Split words at the ends of sentences, after two full lines, and where they come later."""
    group: list[Word] = []
    for word in words:
        text = join_words(w.text for w in (*group, word))
        if group and (
            len(_wrapped(text)) > _LINES
            or word.delay_ms - group[0].delay_ms > _SPAN_S * 1000
            or ends_sentence(group[-1].text)
        ):
            yield group
            group = []
        group.append(word)
    if group:
        yield group


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _LINE // _width_of_letters(text), break_on_hyphens=False)


def _width_of_letters(text: str) -> int:
    return 2 if is_unspaced(text) else 1


def _clock(seconds: float, mark: str) -> str:
    whole, ms = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{mark}{ms:03}"


def log_record(words: Sequence[Word], source: str, recorded_s: float) -> Record:
    """Return SimulEval's record of a translation without a reference."""
    prediction, units = timed_units((word.text, word) for word in words)
    return Record(
        index=0,
        prediction=prediction,
        delays=tuple(word.delay_ms for word in units),
        elapsed=tuple(word.elapsed_ms for word in units),
        source=source,
        source_length=recorded_s * 1000,
    )


class PlainText:
    """Committed words alone, for files and pipes: on one line, or a line per commit or word.

    The line of a word has the sound before it and the time until it was written.
    """

    HEADER = "    delay_ms   elapsed_ms  word"

    def __init__(self, out: TextIO, line_per: Literal["word", "commit", "recording"]):
        self.out, self.line_per = out, line_per
        self._last = ""  # word of the line
        if line_per == "word":
            print(self.HEADER, file=out, flush=True)

    def show(self, words: Sequence[Word], pipeline: Pipeline, settings: str, help: str) -> None:
        if self.line_per == "word":
            for word in words:
                line = f"{word.delay_ms:12.0f} {word.elapsed_ms:12.0f}  {word.text}"
                print(line, file=self.out, flush=True)
            return
        for _, commit in itertools.groupby(words, lambda word: word.delay_ms):
            texts = [word.text for word in commit]
            text = space_between(self._last, texts[0]) + join_words(texts)
            print(text, end="\n" if self.line_per == "commit" else "", file=self.out, flush=True)
            self._last = texts[-1] if self.line_per == "recording" else ""

    def close(self) -> None:
        if self.line_per == "recording":
            print(file=self.out, flush=True)


class Screen:
    """A terminal: full lines of words scroll away, the lines below them are redrawn."""

    def __init__(self, out: TextIO):
        self.console = Console(file=out, force_terminal=True, highlight=False, legacy_windows=False)
        self.live = Live(
            console=self.console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self.live.start()
        self._line = ""  # committed words of the last line
        self._shown: tuple[str, ...] = ()

    def show(self, words: Sequence[Word], pipeline: Pipeline, settings: str, help: str) -> None:
        text = Text(join_words([self._line, *(printable(word.text) for word in words)]).strip())
        *full, last = text.wrap(self.console, self.console.width) or [Text()]
        self._line = last.plain.rstrip()
        pending = printable(pipeline.stream.pending).strip()
        shown = (self._line, pending, status(pipeline, settings), help)
        if not full and shown == self._shown:
            return
        self._shown = shown
        for line in full:
            self.console.print(line)
        whole = Text(self._line + space_between(self._line, pending)) + Text(pending, "dim")
        lines = whole.wrap(self.console, self.console.width)[:_TEXT_LINES]
        below = Text("\n".join(shown[2:]), no_wrap=True, overflow="crop")
        self.live.update(Group(*lines, below), refresh=True)

    def close(self) -> None:
        self.live.stop()
        if self._line:
            self.console.print(Text(self._line))
        self._line = ""


def display_for(
    out: TextIO, line_per: Literal["word", "commit", "recording"] = "recording"
) -> Screen | PlainText:
    """Return a display that fits: a terminal is redrawn, all else and tables get plain text."""
    if line_per != "word" and out.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return Screen(out)
    return PlainText(out, line_per)


def status(pipeline: Pipeline, settings: str) -> str:
    """Return the level from -60 dB to full scale, the time, the lag, the speech, the settings."""
    full = round(_METER_CELLS * min(max(1 - pipeline.level_db / _QUIET_DB, 0.0), 1.0))
    parts = [
        f"[{'#' * full}{'.' * (_METER_CELLS - full)}] {max(pipeline.level_db, -99):3.0f} dB",
        clock(pipeline.recorded_s),
        f"lag {pipeline.lag_s:.1f} s",
        f"voice {clock(pipeline.speaker.end_s)}" if pipeline.speaker else "",
        settings,
    ]
    return "  ".join(filter(None, parts))


def clock(seconds: float) -> str:
    """Return 1:02:03 or 2:03."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def printable(text: str) -> str:
    """Replace control characters, which a terminal would execute, by spaces."""
    return "".join(c if c.isprintable() else " " for c in text)


@contextlib.contextmanager
def keyboard() -> Iterator[Callable[[], str] | None]:
    """Give a function that returns the keys since its last call, which need no Enter.

    Keys come from the terminal itself, so that standard input may be sound; it is restored at the
    end. None without a terminal, or while another process has it. Ctrl-C stays a signal.
    """
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        yield None
        return

    def pressed() -> str:
        is_due = select.select([terminal], [], [], 0)[0]
        return os.read(terminal, 64).decode(errors="ignore") if is_due else ""

    try:
        if os.tcgetpgrp(terminal) != os.getpgrp():
            yield None
            return
        before = termios.tcgetattr(terminal)
        tty.setcbreak(terminal)
        try:
            yield pressed
        finally:
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)
    finally:
        os.close(terminal)
