"""Where committed words are shown: a terminal that is redrawn, or plain lines."""

import os
import shutil
from collections.abc import Sequence
from typing import TextIO

from simuljax.serve.interpret.pipeline import Progress
from simuljax.serve.interpret.settings import Interpreting
from simuljax.serve.interpret.view import HELP, Shown, live_lines, printable, wrapped
from simuljax.serve.session import Word


class Lines:
    """A line for the words that were committed at once: for files, pipes and other programs."""

    def __init__(self, out: TextIO):
        self.out = out

    def show(
        self, words: Sequence[Word], progress: Progress, interpreting: Interpreting, help: str = ""
    ) -> None:
        """Only the words."""
        at_once: dict[float, list[str]] = {}
        for word in words:
            at_once.setdefault(word.delay_ms, []).append(word.text)
        for texts in at_once.values():
            print(" ".join(texts), file=self.out, flush=True)

    def close(self) -> None:
        """Nothing is left to do."""


class Screen:
    """A terminal: full lines of words scroll away, the lines below them are redrawn."""

    def __init__(self, out: TextIO):
        self.out = out
        self._rest = ""
        self._live: list[str] = []

    def show(
        self,
        words: Sequence[Word],
        progress: Progress,
        interpreting: Interpreting,
        help: str = HELP,
    ) -> None:
        """New words and the state."""
        width = shutil.get_terminal_size().columns
        said = " ".join([self._rest, *(printable(word.text) for word in words)])
        *full, self._rest = wrapped(said, max(width - 1, 1)) or [""]
        shown = Shown(rest=self._rest, progress=progress, interpreting=interpreting, help=help)
        live = live_lines(shown, width)
        if full or live != self._live:
            self._write(redrawn(len(self._live), full, live))
            self._live = live

    def close(self) -> None:
        """Leaves the words and takes the rest away."""
        self._write(redrawn(len(self._live), [self._rest] if self._rest else [], []))
        self._live, self._rest = [], ""

    def _write(self, text: str) -> None:
        self.out.write(text)
        self.out.flush()


def redrawn(before: int, full: Sequence[str], live: Sequence[str]) -> str:
    """What takes `before` live lines away, writes lines that stay, and the live ones below them.

    The cursor stands at the end of the last live line, before and after.
    """
    up = f"\x1b[{before - 1}A" if before > 1 else ""
    return f"{up}\r\x1b[J" + "".join(f"{line}\n" for line in full) + "\n".join(live)


def screen_for(out: TextIO) -> Screen | Lines:
    """A terminal that understands us, or whatever else `out` is."""
    if out.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return Screen(out)
    return Lines(out)
