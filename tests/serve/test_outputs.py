"""A live translation: its terminal, keys, pipe, speech, subtitles and log records."""

import functools
import io
import json
import re
import time
import wave
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len

from simuljax.decode.policies import (
    AlignAtt,
    Confidence,
    Consensus,
    Greedy,
    LocalAgreement,
    Offline,
)
from simuljax.eval.logs import record_line
from simuljax.serve.live import Controls, after_key
from simuljax.serve.outputs import (
    PlainText,
    Screen,
    Speaker,
    clock,
    display_for,
    log_record,
    printable,
    status,
    subtitle_file,
    subtitles,
)
from simuljax.serve.session import Word
from simuljax.serve.whisper import WhisperStreaming

TEXT = "and so my fellow americans ask not what your country can do for you"
SETTINGS, HELP = "consensus 0.50  window 1 s", "p policy  +/- threshold  w window  q finish"


def word(text, delay=0.0) -> Word:
    return Word(text=text, delay_ms=delay, elapsed_ms=delay + 5)


def pipeline(pending="", spoken_s=None, level_db=-24.4) -> Any:
    stream = SimpleNamespace(pending=pending)
    speaker = SimpleNamespace(end_s=spoken_s) if spoken_s is not None else None
    level = {"level_db": level_db, "recorded_s": 8.3, "lag_s": 2.1}
    return SimpleNamespace(stream=stream, speaker=speaker, **level)


def show(display, words=(), pending="") -> None:
    display.show(words, pipeline(pending, level_db=-20), SETTINGS, HELP)


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


def test_only_changes_are_written_and_closing_without_a_word_leaves_nothing():
    terminal = Terminal()
    screen = Screen(terminal)
    show(screen, pending="perhaps")
    before = terminal.getvalue()
    show(screen, pending="perhaps")
    assert terminal.getvalue() == before
    show(screen, pending="b")
    assert terminal.getvalue() != before
    screen.close()
    assert terminal.shown == []


LINES = {
    "commit": "a b|c|d",
    "recording": "a b c d",
    "word": "    delay_ms   elapsed_ms  word"
    "|        1000         1005  a|        1000         1005  b"
    "|        2000         2005  c|        2000         2005  d",
}


@pytest.mark.parametrize(("line_per", "lines"), LINES.items())
def test_a_pipe_gets_the_words(line_per, lines):
    out = io.StringIO()
    display = display_for(out, line_per)
    show(display, [word("a", 1000), word("b", 1000), word("c", 2000.4)], "d")
    show(display)
    show(display, [word("d", 2000.4)])
    display.close()
    assert out.getvalue().splitlines() == lines.split("|")


def test_no_space_is_written_where_the_script_has_none():
    out, terminal = io.StringIO(), Terminal()
    for display in (PlainText(out, "recording"), Screen(terminal)):
        show(display, [word("我"), word("都")], "好")
        assert isinstance(display, PlainText) or terminal.shown[0] == "我都好"
        show(display, [word("好。", 10)])
        display.close()
    assert out.getvalue() == "我都好。\n" and terminal.shown == ["我都好。"]


def test_a_dumb_terminal_gets_plain_text(monkeypatch):
    tty = type("Tty", (io.StringIO,), {"isatty": lambda _: True})
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(display_for(tty()), PlainText)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(display_for(tty()), Screen)


def test_a_whole_picture():
    terminal = Terminal()
    screen = Screen(terminal)
    words, state = [word(text) for text in ["ask", "not", "what"]], pipeline("your country", 599)
    screen.show(words, state, "offline  window 1 s", HELP)
    below = "[######....] -24 dB  0:08  lag 2.1 s  voice 9:59  offline  window 1 s"
    assert terminal.shown == ["ask not what your country", below, HELP]
    assert "\x1b[2myour country\x1b[0m" in terminal.getvalue()  # dim


@pytest.mark.parametrize("width", [4, 31])
@pytest.mark.parametrize("pending", ["", "a long one " * 40, "x" * 99, "你好世界" * 30])
def test_no_line_is_wider_than_the_terminal_and_pending_text_has_three(monkeypatch, width, pending):
    monkeypatch.setenv("COLUMNS", str(width))
    terminal = Terminal()
    show(Screen(terminal), [word("so")], pending)
    assert all(cell_len(line) <= width for line in terminal.shown)
    assert terminal.shown[0].startswith("so") and len(terminal.shown) <= 3 + 2


def test_small_things():
    assert printable("a\x1b[2Jb\nc\u009bd é你") == "a [2Jb c d é你"
    bars = [status(pipeline(level_db=db), "").split()[0] for db in (0, -30, -60, -100)]
    assert bars == ["[##########]", "[#####.....]", "[..........]", "[..........]"]
    assert [clock(s) for s in (0, 9.9, 61, 3723)] == ["0:00", "0:09", "1:01", "1:02:03"]


class Hum:
    """A voice that hums a tenth of a second for every word, faster if asked."""

    rate, name = 8_000, "hum"

    def speak(self, text: str, *, speed: float = 1.0) -> np.ndarray:
        return np.full(round(800 * len(text.split()) / speed), 1000, np.int16)


def test_pieces_come_when_they_are_ready_and_after_each_other(tmp_path):
    speaker = Speaker(Hum(), track=tmp_path / "a.wav", notes=tmp_path / "a.jsonl")
    first, second, third = (
        speaker.say(*piece) for piece in (("one two", 1.0), ("three", 1.05), ("four", 5.0))
    )
    speaker.finish()
    speaker.close()
    assert first.start_s == pytest.approx(1.0, abs=0.05) and first.start_s >= 1.0
    assert second.start_s == pytest.approx(first.end_s, abs=0.002) and second.speed == 1.0
    assert third.start_s == pytest.approx(5.0, abs=0.05)
    with wave.open(str(tmp_path / "a.wav")) as track:
        sound = np.frombuffer(track.readframes(track.getnframes()), np.int16)
    loud = np.flatnonzero(sound) / Hum.rate
    assert loud[0] == pytest.approx(first.start_s, abs=0.002)
    assert len(loud) == 4 * 800
    noted = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [note["text"] for note in noted] == ["one two", "three", "four"]
    assert [note["ready_s"] for note in noted] == [1.0, 1.05, 5.0]
    for note, placed in zip(noted, (first, second, third), strict=True):
        times = pytest.approx((placed.start_s, placed.end_s, placed.speed), abs=0.001)
        assert (note["start_s"], note["end_s"], note["speed"]) == times


def test_time_that_the_voice_takes_counts_and_late_text_is_spoken_faster():
    class Slow(Hum):
        def speak(self, text: str, *, speed: float = 1.0) -> np.ndarray:
            time.sleep(0.2)
            return super().speak(text, speed=speed)

    speaker = Speaker(Slow())
    assert speaker.say("one", 1.0).start_s >= 1.2
    assert speaker.say("word " * 60, 1.0).start_s >= 1.4, "it was still busy with the first"
    hurried = speaker.say("word " * 10, 2.0)
    speaker.close()
    assert hurried.speed == 1.25
    assert hurried.end_s - hurried.start_s == pytest.approx(0.8, abs=0.01)
    assert speaker.end_s == pytest.approx(hurried.end_s, abs=0.001)


def words(text: str, *delays_s: float) -> list[Word]:
    """Words with these delays; the last holds for the rest."""
    texts = text.split()
    delays = [*delays_s, *[delays_s[-1]] * len(texts)][: len(texts)]
    return [
        Word(text=t, delay_ms=1000 * d, elapsed_ms=0) for t, d in zip(texts, delays, strict=True)
    ]


def test_subtitles_break_at_sentences_full_lines_and_gaps():
    assert [text for _, _, text in subtitles(words("It is. Who (now?) says", 1.0))] == [
        "It is.",
        "Who (now?)",
        "says",
    ]
    german = subtitles(words("Das ist z. B. Dr. Kohl. Ja.", 1.0))
    assert [text for _, _, text in german] == ["Das ist z. B. Dr. Kohl.", "Ja."]
    shown = [text for _, _, text in subtitles(words("word " * 40, 1.0))]
    assert shown[0] == "\n".join(["word word word word word word word word"] * 2)
    assert " ".join(shown).split() == ["word"] * 40
    apart = subtitles(words("a b c d", 1.0, 2.9, 3.1, 9.0))
    assert [text for _, _, text in apart] == ["a b", "c", "d"]
    ((start, end, han),) = subtitles(words("好 " * 34, 1.0))
    assert (han, end - start) == ("好" * 21 + "\n" + "好" * 13, 4.0)


def test_a_subtitle_shows_no_word_before_it_was_committed_and_none_overlap():
    times = [times for *times, _ in subtitles(words("a b ac. d ed.", 1.0, 1.5, 2.0, 2.1, 9.0))]
    assert times == [[2.0, 3.0], [3.0, 4.0], [9.0, 10.0]]
    ((*long, _),) = subtitles(words("x" * 34, 5.0))
    assert long == [5.0, 7.0]


def test_the_file_is_subrip():
    assert subtitle_file(words("Grüße. End", 3661.25, 3700.0)) == (
        "1\n01:01:01,250 --> 01:01:02,250\nGrüße.\n\n2\n01:01:40,000 --> 01:01:41,000\nEnd\n"
    )


def test_the_log_record_is_simulevals():
    said = [Word(text=t, delay_ms=d, elapsed_ms=d + 5) for t, d in (("so", 1000.0), ("it", 2000.0))]
    record = json.loads(record_line(log_record(said, "talk.wav", 2.5)))
    assert record.pop("prediction") == "so it" and record.pop("prediction_length") == 2
    assert record.pop("delays") == [1000.0, 2000.0] and record.pop("elapsed") == [1005.0, 2005.0]
    source = {"source": "talk.wav", "source_length": 2500.0}
    assert record == {"index": 0, "reference": None, **source}
    chinese = log_record([word("沒有", 1), word("OK", 2), word("辦法。", 3)], "talk.wav", 2.5)
    assert (chinese.prediction, chinese.delays) == ("沒有 OK 辦法。", (1, 1, 2, 2, 3, 3, 3))


def after(keys: str, settings: WhisperStreaming) -> WhisperStreaming:
    return functools.reduce(after_key, keys, settings)


def test_p_cycles_through_the_policies_and_keeps_a_threshold():
    start = WhisperStreaming(policy=Confidence(threshold=0.7))
    kept = [Confidence(threshold=0.7), Consensus(threshold=0.7)]
    cycle = [*kept, AlignAtt(), LocalAgreement(), Offline(), Greedy(), Confidence()]
    assert [after("p" * times, start).policy for times in range(7)] == cycle


@pytest.mark.parametrize(
    ("keys", "before", "policy"),
    [
        ("+", Consensus(), Consensus(threshold=0.55)),
        ("=", Consensus(), Consensus(threshold=0.55)),
        ("--_", Confidence(), Confidence(threshold=0.35)),
        ("+" * 30 + "-" * 10, Consensus(), Consensus(threshold=0.5)),  # at most 1
        ("-", AlignAtt(), AlignAtt(frames=20)),
        ("-" * 9, AlignAtt(), AlignAtt(frames=0)),
        ("+", LocalAgreement(), LocalAgreement(agree=3)),
        ("-", LocalAgreement(), LocalAgreement()),
        ("+-xq\n?", Greedy(), Greedy()),
    ],
)
def test_plus_and_minus(keys, before, policy):
    assert after(keys, WhisperStreaming(policy=before)).policy == policy


def test_w_is_one_second_or_two():
    assert [after("w" * n, WhisperStreaming()).window_s for n in range(3)] == [1.0, 2.0, 1.0]
    assert after("w", WhisperStreaming(window_s=0.5)).window_s == 1.0


def test_the_status_line_names_the_policy():
    for policy, text in (
        (Offline(), "offline"),
        (Confidence(by="log_probability"), "confidence 0.50 log_probability"),
        (AlignAtt(), "alignatt 25"),
        (LocalAgreement(), "local-agreement 2"),
    ):
        controls = Controls(SimpleNamespace(), WhisperStreaming(policy=policy))  # pyright: ignore[reportArgumentType]
        assert controls.status == f"{text}  window 1 s"


def test_keys_reach_the_stream():
    changes = []
    session = SimpleNamespace(change=changes.append)
    controls = Controls(SimpleNamespace(session=session), WhisperStreaming())  # pyright: ignore[reportArgumentType]
    for keys in ("", "x", "+w"):
        controls.press(keys)
    wanted = WhisperStreaming(policy=Consensus(threshold=0.55), window_s=2.0)
    assert changes == [wanted]
    assert controls.status == "consensus 0.55  window 2 s"
