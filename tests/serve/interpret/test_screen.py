"""A terminal that is redrawn, followed by a small one of our own; plain lines elsewhere."""

import io
import re

from simuljax.serve.interpret import Interpreting
from simuljax.serve.interpret.pipeline import Progress
from simuljax.serve.interpret.screen import Lines, Screen, redrawn, screen_for
from simuljax.serve.session import Word

TEXT = "and so my fellow americans ask not what your country can do for you"


class Display:
    """What stands on an endless terminal after the few commands that we use."""

    def __init__(self):
        self.lines, self.row, self.column = [""], 0, 0

    def write(self, text: str) -> None:
        for part in re.findall(r"\x1b\[\d*[A-Za-z]|.|\n", text):
            if part.endswith("A") and part.startswith("\x1b"):
                self.row -= int(part[2:-1])
                assert self.row >= 0
            elif part == "\x1b[J":
                self.lines = [*self.lines[: self.row], self.lines[self.row][: self.column]]
            elif part == "\r":
                self.column = 0
            elif part == "\n":
                self.row, self.column = self.row + 1, 0
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif not part.startswith("\x1b"):
                line = self.lines[self.row]
                self.lines[self.row] = line[: self.column] + part + line[self.column + 1 :]
                self.column += 1

    def flush(self) -> None:
        pass


def word(text, delay=0.0) -> Word:
    return Word(text=text, delay_ms=delay, elapsed_ms=delay)


def progress(hypothesis="") -> Progress:
    return Progress(
        heard_s=1, pushed_s=1, done_s=0, level_db=-20, hypothesis=hypothesis, spoken_s=None
    )


def test_words_stay_and_the_rest_is_redrawn(monkeypatch):
    monkeypatch.setenv("COLUMNS", "21")
    display = Display()
    screen = Screen(display)  # pyright: ignore[reportArgumentType]
    for number, text in enumerate(words := TEXT.split()):
        following = " ".join(words[number + 1 :])
        screen.show([word(text)], progress(following), Interpreting())
        whole = " ".join(display.lines[:-2])
        assert whole.removesuffix("…") in TEXT or number == 0
        assert display.lines[-2].startswith("[#######...] -20")
        assert display.lines[-1].startswith("p policy")
    screen.show([], progress(), Interpreting())
    lines = ["and so my fellow", "americans ask not", "what your country", "can do for you"]
    assert display.lines == [*lines, "[#######...] -20 dB ", "p policy  +/- thresh"]
    screen.close()
    assert display.lines == [*lines, ""]


def test_nothing_is_written_when_nothing_changed():
    out = io.StringIO()
    screen = Screen(out)
    screen.show([word("a")], progress(), Interpreting())
    before = out.getvalue()
    screen.show([], progress(), Interpreting())
    assert out.getvalue() == before
    screen.show([], progress("b"), Interpreting())
    assert out.getvalue() != before


def test_closing_without_a_word_leaves_nothing():
    display = Display()
    screen = Screen(display)  # pyright: ignore[reportArgumentType]
    screen.show([], progress("perhaps"), Interpreting())
    screen.close()
    assert display.lines == [""]


def test_what_redraws():
    assert redrawn(0, [], ["x", "y"]) == "\r\x1b[Jx\ny"
    assert redrawn(3, ["full"], ["x", "y", "z"]) == "\x1b[2A\r\x1b[Jfull\nx\ny\nz"


def test_elsewhere_words_committed_at_once_are_a_line():
    out = io.StringIO()
    screen = screen_for(out)
    assert isinstance(screen, Lines)
    screen.show([word("a", 1), word("b", 1), word("c", 2)], progress("d"), Interpreting())
    screen.show([], progress("d"), Interpreting())
    screen.close()
    assert out.getvalue() == "a b\nc\n"


def test_a_terminal_that_understands_nothing_gets_lines(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(screen_for(Terminal()), Lines)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(screen_for(Terminal()), Screen)
