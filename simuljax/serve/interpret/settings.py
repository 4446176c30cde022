"""How to interpret."""

from dataclasses import dataclass, field
from typing import Literal

from simuljax.models.whisper import Decoding
from simuljax.models.whisper.config import WINDOW_S
from simuljax.models.whisper.languages import language_code
from simuljax.models.whisper.tokenizer import Task
from simuljax.serve.interpret.guards import Guards
from simuljax.serve.interpret.hypothesis import InterpretError
from simuljax.serve.interpret.policies import Consensus, Policy


@dataclass(frozen=True, kw_only=True)
class Interpreting:
    """When to speak, of which sound, and how texts are written.

    Texts are drawn at temperature 0 alone: what is sampled differs from window to window, and from
    one batch to another.
    """

    policy: Policy = field(default_factory=Consensus)
    window_s: float = 1.0  # sound from one hypothesis to the next
    task: Task = "translate"  # into English; "transcribe": in the language that is spoken
    language: str | None = None  # that is spoken; None: the likeliest in the first seconds
    decoding: Decoding = field(default_factory=lambda: Decoding(temperatures=(0.0,)))
    most_s: float = 30.0  # of sound in the buffer
    prompt_tokens: int = 56  # of committed text that the next follows on; 0: none
    padding: Literal["full", "short"] = "full"  # short: windows of 5 s steps, faster and less sure
    behind: Literal["every", "latest"] = "every"  # latest: windows that are late are left out
    guards: Guards = field(default_factory=Guards)

    def __post_init__(self) -> None:
        if not 0.1 <= self.window_s <= WINDOW_S / 2:
            raise InterpretError(f"window_s is {self.window_s}; it lies in [0.1, {WINDOW_S // 2}]")
        if not 2 * self.window_s <= self.most_s <= WINDOW_S:
            raise InterpretError(
                f"most_s is {self.most_s}; it holds two windows, and Whisper hears {WINDOW_S} s"
            )
        if self.task not in ("translate", "transcribe"):
            raise InterpretError(f"task is {self.task!r}; choose 'translate' or 'transcribe'")
        if self.prompt_tokens < 0:
            raise InterpretError(f"prompt_tokens is {self.prompt_tokens}; 0 or more")
        if self.decoding.timestamps != "predict":
            raise InterpretError(
                "without timestamps there are no segments; leave them to 'predict'"
            )
        if self.language is not None:
            try:
                language_code(self.language)
            except ValueError as error:
                raise InterpretError(str(error)) from None
