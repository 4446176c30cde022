"""Adapt trained runs and Whisper to live translation."""

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from simuljax.audio import RATE
from simuljax.cache import announce_compilation, show_status
from simuljax.decode.policies import (
    AlignAtt,
    Confidence,
    Consensus,
    Greedy,
    LocalAgreement,
    Offline,
)
from simuljax.decode.policy import Policy
from simuljax.models import whisper
from simuljax.serve.session import Word
from simuljax.serve.stream import Stream
from simuljax.serve.whisper import WhisperStreaming, WhisperTranslator

# In the order of the key p, from low to high latency.
_KINDS = (Greedy, Confidence, Consensus, AlignAtt, LocalAgreement, Offline)
WHISPER_POLICIES: dict[str, type[Policy]] = {kind.name: kind for kind in _KINDS}
# The number that + and - change: its step and its range.
_NUMBERS = {
    "threshold": (0.05, 0.0, 1.0),
    "frames": (5, 0, 1500),
    "agree": (1, 2, 30),
}
_WINDOWS_S = 1.0, 2.0
_COMPILATION_S = 5.0  # for each decoder layer, on two cores


class LiveRun:
    """The live stream of a trained run."""

    line_per: Literal["commit", "recording"] = "recording"
    keys = ""
    pending = ""

    def __init__(self, stream: Stream, settings: str = ""):
        self.stream, self.settings = stream, settings
        self._pushed = 0

    @property
    def settled_s(self) -> float:
        """Return the seconds that were pushed."""
        return self._pushed / RATE

    def push(self, samples: np.ndarray) -> list[Word]:
        """Translate more sound."""
        words = self.stream.push(samples)
        self._pushed += len(samples)
        return words

    def finish(self) -> list[Word]:
        """Return the words that were still to come."""
        return self.stream.finish()

    def press(self, key: str) -> None:
        """Ignore the key: the settings of a run are fixed."""


class LiveWhisper:
    """The live stream of a Whisper model; keys change its policy and its window."""

    line_per: Literal["commit", "recording"] = "commit"
    keys = "p policy  +/- threshold  w window"

    def __init__(self, translator: WhisperTranslator):
        self.stream, self.current = translator.stream(), translator.settings

    @property
    def pending(self) -> str:
        """Return the text of the last hypothesis that is not committed."""
        return self.stream.pending

    @property
    def settled_s(self) -> float:
        """Return the seconds that left the buffer."""
        return self.stream.settled_s

    @property
    def settings(self) -> str:
        """Return the policy and the window."""
        return f"{describe(self.current.policy)}  window {self.current.window_s:g} s"

    def push(self, samples: np.ndarray) -> list[Word]:
        """Translate more sound."""
        return self.stream.push(samples)

    def finish(self) -> list[Word]:
        """Return the words that were still to come."""
        return self.stream.finish()

    def press(self, key: str) -> None:
        """Change the settings from the next window on."""
        changed = after_key(self.current, key)
        if changed != self.current:
            self.current = changed
            self.stream.change(changed)


def load_whisper(
    path: Path, settings: WhisperStreaming, dtype: Literal["float32", "bfloat16"]
) -> WhisperTranslator:
    """Load and compile a Whisper model."""
    show_status(f"loading {path.name} ...")
    translator = WhisperTranslator(whisper.load(path, dtype=dtype), settings)
    config = translator.whisper.config
    estimate = _COMPILATION_S * config.dimensions.text_layers
    with announce_compilation(f"{config.name} {dtype} {settings.padding}", about_s=estimate):
        translator.backend().compile()
    return translator


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
    kinds = list(WHISPER_POLICIES.values())
    following = kinds[(kinds.index(type(policy)) + 1) % len(kinds)]
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
    """Return the name of a policy, its number and what is not the default, for the status line."""
    defaults = {field.name: field.default for field in dataclasses.fields(policy)}
    parts = [
        f"{value:.2f}" if isinstance(value, float) else str(value)
        for name, value in _values(policy).items()
        if name in _NUMBERS or value != defaults[name]
    ]
    return " ".join([policy.name, *parts])


def _values(policy: Policy) -> dict[str, Any]:
    return {field.name: getattr(policy, field.name) for field in dataclasses.fields(policy)}
