"""Parameters that change while one listens: a key, and the settings after it."""

import os
import select
import termios
import tty
from dataclasses import replace
from types import TracebackType

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

STEP, FRAMES = 0.05, 5
_WINDOWS_S = 1.0, 2.0


def after_key(interpreting: Interpreting, key: str) -> Interpreting:
    """The settings after a key; unchanged where it means nothing."""
    match key:
        case "p":
            return replace(interpreting, policy=next_policy(interpreting.policy))
        case "+" | "=":  # the same key, with and without shift
            return replace(interpreting, policy=stricter(interpreting.policy, 1))
        case "-" | "_":
            return replace(interpreting, policy=stricter(interpreting.policy, -1))
        case "w":
            short, long = _WINDOWS_S
            return replace(interpreting, window_s=long if interpreting.window_s == short else short)
    return interpreting


def next_policy(policy: Policy) -> Policy:
    """From hasty to patient, and round again; a threshold is kept where both have one."""
    match policy:
        case Greedy():
            return Confidence()
        case Confidence():
            return Consensus(threshold=policy.threshold)
        case Consensus():
            return AlignAtt()
        case AlignAtt():
            return LocalAgreement()
        case LocalAgreement():
            return Offline()
        case Offline():
            return Greedy()


def stricter(policy: Policy, sign: int) -> Policy:
    """The number of the policy a step up or down, within what it can be."""
    match policy:
        case Confidence() | Consensus():
            threshold = min(max(policy.threshold + sign * STEP, 0.0), 1.0)
            return replace(policy, threshold=round(threshold, 2))
        case AlignAtt():
            return replace(policy, frames=max(policy.frames + sign * FRAMES, 0))
        case LocalAgreement():
            return replace(policy, hypotheses=max(policy.hypotheses + sign, 2))
    return policy


class Keys:
    """Keys as they are pressed, without Enter; the terminal is as before after the `with`.

    They come from the terminal itself, so that standard input may be sound. Where there is none, or
    it belongs to another process now, no key ever comes. Ctrl-C stays a signal.
    """

    def __enter__(self) -> "Keys":
        self._terminal: int | None = None
        try:
            terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
        except OSError:
            return self
        if os.tcgetpgrp(terminal) != os.getpgrp():
            os.close(terminal)
            return self
        self._before = termios.tcgetattr(terminal)
        self._terminal = terminal
        tty.setcbreak(terminal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._terminal is not None:
            termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._before)
            os.close(self._terminal)
            self._terminal = None

    @property
    def there(self) -> bool:
        """Whether keys can come."""
        return self._terminal is not None

    def pressed(self) -> str:
        """All since the last time, in order."""
        if self._terminal is None or not select.select([self._terminal], [], [], 0)[0]:
            return ""
        return os.read(self._terminal, 64).decode(errors="ignore")
