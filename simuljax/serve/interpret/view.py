"""What a terminal shows: committed words, what may come next, and a line about the state.

    And so my fellow Americans ask not what your        <- full lines stay, and scroll away
    country can do for you ask what you can            <- committed, then (dim) the hypothesis
    [######....] -24 dB  0:08  lag 2.1 s  consensus 0.50  window 1 s
    p policy  +/- threshold  w window  q finish

Everything here is a function of what is to be shown; `screen` puts it on a terminal. Lines are
never wider than the terminal, or it would wrap them and lose count.
"""

import unicodedata
from dataclasses import dataclass

from simuljax.serve.interpret.pipeline import Progress
from simuljax.serve.interpret.policies import (
    AlignAtt,
    Confidence,
    Consensus,
    Greedy,
    LocalAgreement,
    Offline,
    Policy,
)
from simuljax.serve.interpret.settings import Interpreting

DIM, PLAIN = "\x1b[2m", "\x1b[0m"
HELP = "p policy  +/- threshold  w window  q finish"
_QUIET_DB, _CELLS = -60.0, 10
_HYPOTHESIS_LINES = 3


@dataclass(frozen=True, kw_only=True)
class Shown:
    """All that a picture is made of."""

    rest: str  # committed words of the line that is not full
    progress: Progress
    interpreting: Interpreting
    help: str = HELP  # or what happens: finishing


def live_lines(shown: Shown, width: int) -> list[str]:
    """The lines that change, for a terminal of so many columns."""
    room = max(width - 1, 1)
    return [
        *words_line(shown.rest, shown.progress.hypothesis, room),
        clipped(status(shown.progress, shown.interpreting), room),
        f"{DIM}{clipped(shown.help, room)}{PLAIN}",
    ]


def words_line(rest: str, hypothesis: str, width: int) -> list[str]:
    """Committed words and, dim behind them, what the model would say next."""
    used = columns(rest) + 1 if rest else 0
    first, *more = wrapped(hypothesis, width, used) or [""]
    if len(more) > _HYPOTHESIS_LINES - 1:
        more = more[: _HYPOTHESIS_LINES - 1]
        more[-1] = clipped(more[-1], width - 1) + "…"
    between = " " if rest and first else ""
    return [f"{rest}{between}{_dim(first)}", *map(_dim, more)]


def status(progress: Progress, interpreting: Interpreting) -> str:
    """How loud, how long, how late, and by which rule."""
    parts = [
        f"{meter(progress.level_db)} {max(progress.level_db, -99):3.0f} dB",
        clock(progress.heard_s),
        f"lag {lag_s(progress):.1f} s",
        policy_text(interpreting.policy),
        f"window {interpreting.window_s:g} s",
    ]
    if progress.spoken_s is not None:
        parts.insert(3, f"voice {clock(progress.spoken_s)}")
    return "  ".join(parts)


def lag_s(progress: Progress) -> float:
    """Sound that was heard and that more may be said of."""
    return max(progress.heard_s - progress.done_s, 0.0)


def meter(level_db: float) -> str:
    """From -60 dB to the loudest."""
    full = round(_CELLS * min(max(1 - level_db / _QUIET_DB, 0.0), 1.0))
    return f"[{'#' * full}{'.' * (_CELLS - full)}]"


def clock(seconds: float) -> str:
    """1:02:03, or 2:03."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def policy_text(policy: Policy) -> str:
    """Its name and its number."""
    match policy:
        case Greedy():
            return "greedy"
        case Offline():
            return "offline"
        case Confidence(by="no_speech"):
            return f"confidence {policy.threshold:.2f}"
        case Confidence():
            return f"confidence {policy.threshold:.2f} by log-probability"
        case Consensus():
            return f"consensus {policy.threshold:.2f}"
        case AlignAtt():
            return f"align-att {policy.frames}"
        case LocalAgreement():
            return f"local-agreement {policy.hypotheses}"


def printable(text: str) -> str:
    """Without what a terminal would obey instead of showing."""
    return "".join(c if c.isprintable() else " " for c in text)


def columns(text: str) -> int:
    """How wide a terminal shows it: 2 for Chinese characters, 0 for accents of their own."""
    return sum(map(_wide, text))


def clipped(text: str, width: int) -> str:
    """As much of it as fits."""
    used = 0
    for place, character in enumerate(text):
        used += _wide(character)
        if used > width:
            return text[:place]
    return text


def wrapped(text: str, width: int, used: int = 0) -> list[str]:
    """Lines of at most `width` columns, the first with `used` of them taken.

    Broken at spaces; a word that is wider than a line is broken where the line ends.
    """
    lines, line = [], ""
    room = width - used
    for word in text.split():
        joined = f"{line} {word}" if line else word
        if columns(joined) <= room:
            line = joined
            continue
        if line or used:
            lines.append(line)
        line, room, used = word, width, 0
        while columns(line) > width and (head := clipped(line, width)):
            lines.append(head)
            line = line[len(head) :]
    return [*lines, line] if line else lines


def _dim(text: str) -> str:
    return f"{DIM}{text}{PLAIN}" if text else ""


def _wide(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
