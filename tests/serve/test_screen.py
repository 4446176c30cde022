"""What a terminal, a pipe and a timeline show."""

import io
import os
import re
import termios

import pytest
from rich.cells import cell_len

from simuljax.serve.outputs import (
    PlainText,
    Screen,
    Timetable,
    clock,
    display_for,
    meter,
    printable,
)
from simuljax.serve.pipeline import Progress
from simuljax.serve.stream import Word
from tests.serve.live_fakes import on_terminal, read_until

TEXT = "and so my fellow americans ask not what your country can do for you"
SETTINGS, HELP = "consensus 0.50  window 1 s", "p policy  +/- threshold  w window  q finish"


def word(text, delay=0.0) -> Word:
    return Word(text=text, delay_ms=delay, elapsed_ms=delay + 5)


def progress(pending="", spoken_s=None, level_db=-24.4) -> Progress:
    return Progress(
        recorded_s=8.3,
        settled_s=6.2,
        level_db=level_db,
        loudest_db=-3.0,
        pending=pending,
        spoken_s=spoken_s,
    )


def show(display, words=(), pending="") -> None:
    display.show(words, progress(pending, level_db=-20), SETTINGS, HELP)


class Terminal(io.StringIO):
    """An endless terminal that knows the few commands we use."""

    def __init__(self):
        super().__init__()
        self.lines, self.row, self.column = [""], 0, 0

    def write(self, text: str) -> int:
        for part in re.findall(r"\x1b\[\??[\d;]*[A-Za-z]|.|\n", text):
            if part == "\x1b[1A":
                self.row -= 1
                assert self.row >= 0
            elif part == "\x1b[2K":
                self.lines[self.row] = ""
            elif part == "\r":
                self.column = 0
            elif part == "\n":
                self.row, self.column = self.row + 1, 0
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif not part.startswith("\x1b"):
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + part + line[self.column + 1 :]
                self.column += 1
        return super().write(text)

    @property
    def shown(self) -> list[str]:
        return [line.rstrip() for line in self.lines if line.strip()]


def test_words_stay_and_the_rest_is_redrawn(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    terminal = Terminal()
    screen = Screen(terminal)
    for number, text in enumerate(words := TEXT.split()):
        show(screen, [word(text)], " ".join(words[number + 1 :]))
        *whole, status, help = terminal.shown
        assert " ".join(whole) in TEXT
        assert (status, help) == ("[#######...] -20 dB", HELP[:20].rstrip())
    show(screen)
    text = ["and so my fellow", "americans ask not", "what your country", "can do for you"]
    assert terminal.shown[:-2] == text
    screen.close()
    assert terminal.shown == text


def test_nothing_is_written_when_nothing_changed():
    out = io.StringIO()
    screen = Screen(out)
    show(screen, [word("a")])
    before = out.getvalue()
    show(screen)
    assert out.getvalue() == before
    show(screen, pending="b")
    assert out.getvalue() != before


def test_closing_without_a_word_leaves_nothing():
    terminal = Terminal()
    screen = Screen(terminal)
    show(screen, pending="perhaps")
    screen.close()
    assert terminal.shown == []


@pytest.mark.parametrize(
    ("line_per", "text"), [("commit", "a b\nc\nd\n"), ("recording", "a b c d\n")]
)
def test_a_pipe_gets_the_words(line_per, text):
    out = io.StringIO()
    display = display_for(out, line_per=line_per)
    assert isinstance(display, PlainText)
    show(display, [word("a", 1), word("b", 1), word("c", 2)], "d")
    show(display)
    show(display, [word("d", 2)])
    display.close()
    assert out.getvalue() == text


def test_a_timeline_has_a_header_and_a_line_for_every_word():
    out = io.StringIO()
    display = display_for(out, timeline=True)
    show(display, [word("a", 1000), word("b c", 2000.4)])
    display.close()
    header, *rows = out.getvalue().splitlines()
    assert header.split() == ["delay_ms", "elapsed_ms", "word"] == Timetable.HEADER.split()
    assert [row.split(maxsplit=2) for row in rows] == [
        ["1000", "1005", "a"],
        ["2000", "2005", "b c"],
    ]
    assert {row.index(text) for row, text in zip(rows, ("a", "b c"), strict=True)} == {
        header.index("word")
    }


def test_a_dumb_terminal_gets_plain_text(monkeypatch):
    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(display_for(Tty()), PlainText)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(display_for(Tty()), Screen)


def test_a_whole_picture():
    terminal = Terminal()
    screen = Screen(terminal)
    words, state = [word(text) for text in ["ask", "not", "what"]], progress("your country", 599)
    screen.show(words, state, "offline  window 1 s", HELP)
    status = "[######....] -24 dB  0:08  lag 2.1 s  voice 9:59  offline  window 1 s"
    assert terminal.shown == ["ask not what your country", status, HELP]
    assert "\x1b[2myour country\x1b[0m" in terminal.getvalue()  # dim


@pytest.mark.parametrize("width", [4, 10, 31, 200])
@pytest.mark.parametrize("pending", ["", "one", "a long one " * 40, "x" * 99, "你好世界" * 30])
def test_no_line_is_wider_than_the_terminal_and_pending_text_has_three(monkeypatch, width, pending):
    monkeypatch.setenv("COLUMNS", str(width))
    terminal = Terminal()
    show(Screen(terminal), [word("so")], pending)
    assert all(cell_len(line) <= width for line in terminal.shown)
    assert terminal.shown[0].startswith("so") and len(terminal.shown) <= 3 + 2


def test_small_things():
    assert printable("a\x1b[2Jb\nc\u009bd é你") == "a [2Jb c d é你"
    bars = [meter(db) for db in (0, -30, -60, -100)]
    assert bars == ["[##########]", "[#####.....]", "[..........]", "[..........]"]
    assert [clock(s) for s in (0, 9.9, 61, 3723)] == ["0:00", "0:09", "1:01", "1:02:03"]


CHILD = """
import sys, time
from simuljax.serve.outputs import Keys
try:
    with Keys() as keys:
        assert keys.available
        print("listening", flush=True)
        pressed = ""
        while "!" not in pressed:
            pressed += keys.pressed()
            time.sleep(.01)
        print("got", pressed, flush=True)
        raise RuntimeError
except RuntimeError:
    print("left", flush=True)
sys.stdin.readline()
"""


@pytest.mark.slow
def test_keys_come_without_enter_and_the_terminal_is_restored():
    process, terminal = on_terminal("-c", CHILD)
    modes = termios.tcgetattr(terminal)[3]
    assert modes & termios.ICANON and modes & termios.ECHO
    read_until(terminal, "listening")
    changed = termios.tcgetattr(terminal)[3]
    assert not changed & termios.ICANON and not changed & termios.ECHO
    assert changed & termios.ISIG, "Ctrl-C has to stay a signal"
    os.write(terminal, b"p+w!")
    assert "got p+w!" in read_until(terminal, "left")
    assert termios.tcgetattr(terminal)[3] == modes
    os.write(terminal, b"\n")
    assert process.wait(60) == 0
    os.close(terminal)
