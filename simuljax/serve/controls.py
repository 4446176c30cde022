"""Change Whisper's policy and window with keys while it translates."""

import dataclasses
from dataclasses import replace
from typing import Any

from simuljax.decode.policies import (
    AlignAtt,
    Confidence,
    Consensus,
    Greedy,
    LocalAgreement,
    Offline,
)
from simuljax.decode.policy import Policy
from simuljax.serve.stream import Stream
from simuljax.serve.whisper import WhisperStreaming

# In the order of the key p, from low to high latency.
_POLICIES = (Greedy, Confidence, Consensus, AlignAtt, LocalAgreement, Offline)
# The number that + and - change: its step and its range.
_NUMBERS = {"threshold": (0.05, 0.0, 1.0), "frames": (5, 0, 1500), "agree": (1, 2, 30)}
_WINDOWS_S = 1.0, 2.0


class Controls:
    """The keys of a Whisper stream, and its settings for the status line."""

    help = "p policy  +/- threshold  w window"

    def __init__(self, stream: Stream, settings: WhisperStreaming):
        self.stream, self.settings = stream, settings

    @property
    def status(self) -> str:
        """Return the policy and the window."""
        return f"{describe(self.settings.policy)}  window {self.settings.window_s:g} s"

    def press(self, key: str) -> None:
        """Change the settings from the next window on; ignore other keys."""
        changed = after_key(self.settings, key)
        if changed != self.settings:
            self.settings = changed
            self.stream.change(changed)


def after_key(settings: WhisperStreaming, key: str) -> WhisperStreaming:
    """Return the settings after a key."""
    match key:
        case "p":
            return replace(settings, policy=next_policy(settings.policy))
        case "+" | "=":  # one key, with and without shift
            return replace(settings, policy=step_policy(settings.policy, 1))
        case "-" | "_":
            return replace(settings, policy=step_policy(settings.policy, -1))
        case "w":
            short, long = _WINDOWS_S
            return replace(settings, window_s=long if settings.window_s == short else short)
    return settings


def next_policy(policy: Policy) -> Policy:
    """Return the policy after this one; a threshold is kept where both have one."""
    kinds = [type(policy) is kind for kind in _POLICIES]
    following = _POLICIES[(kinds.index(True) + 1) % len(_POLICIES) if any(kinds) else 0]
    kept = {"threshold"} & _values(policy).keys() & {f.name for f in dataclasses.fields(following)}
    return following(**{name: getattr(policy, name) for name in kept})


def step_policy(policy: Policy, sign: int) -> Policy:
    """Return the policy with its number one step up or down, within its range."""
    for name in _NUMBERS.keys() & _values(policy).keys():
        step, low, high = _NUMBERS[name]
        value = round(getattr(policy, name) + sign * step, 2)
        return replace(policy, **{name: min(max(value, low), high)})
    return policy


def describe(policy: Policy) -> str:
    """Return the name of a policy, its number and what is not the default."""
    defaults = {field.name: field.default for field in dataclasses.fields(policy)}
    parts = [
        f"{value:.2f}" if isinstance(value, float) else str(value)
        for name, value in _values(policy).items()
        if name in _NUMBERS or value != defaults[name]
    ]
    return " ".join([policy.name, *parts])


def _values(policy: Policy) -> dict[str, Any]:
    return {field.name: getattr(policy, field.name) for field in dataclasses.fields(policy)}
