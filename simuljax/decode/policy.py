"""The protocol of read/write policies: what one is asked, what it is told, what it answers.

A class of your own needs a name, its numbers as fields, and one method. `--policy file.py:Class`
uses it, as do experiment files and `translator.stream(policy=...)`:

    @dataclass(frozen=True, kw_only=True)
    class Patient(Policy):
        name: ClassVar[str] = "patient"
        needs: ClassVar[tuple[Need, ...]] = ("attention",)
        share: float = setting(0.2, help="Share of the source.", label="share{:g}", above=0, high=1)

        def should_read(self, step: Step) -> Any:
            attended = step.attention.mean((0, -2)).argmax(-1)
            return attended >= (1 - self.share) * step.states
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from simuljax.config.fields import ConfigError, check

History = Literal["recomputed", "kept"]
Need = Literal["attention", "words", "units", "samples", "log_probability", "no_speech", "segments"]


class PolicyError(ConfigError):
    """A policy that does not exist, or that this model cannot run."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Everything that is known of the next units, of shape [...], before they are committed.

    A unit is a token, or where a model commits words or segments, one of these. A field is None
    where the policy does not need it (`Policy.needs`) or the model does not have it.
    """

    ended: Any  # bool: the source has ended
    states: Any  # int32: encoder states of the source so far
    since_read: Any  # int32: units committed since the last READ
    token: Any = None  # int32: the next token
    samples: Any = None  # int32: samples of speech heard
    units: Any = None  # int32: words in the source, as read or as a CTC head hears them
    words: Any = None  # int32: words of the target begun before this unit
    begins_word: Any = None  # bool: the unit does not just continue a word
    attention: Any = None  # float32 [layers, ..., heads, states]: cross-attention of the unit
    log_probability: Any = None  # float32: of the unit
    no_speech: Any = None  # float32: probability that nobody speaks


@dataclass(frozen=True, kw_only=True)
class Hypotheses:
    """The last hypotheses of B streams, the newest last, as arrays (NumPy's on the host)."""

    units: Any  # int32 [B, A, N]: equal numbers are equal units; negative where there is none
    step: Step | None = None  # [B, N]: what is known of the newest hypothesis
    texts: tuple[tuple[str, ...], ...] = ()  # of A hypotheses, their units; B is 1


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Decide after every READ how much of what the model would write is committed.

    Override `should_read` to decide before each token, or `commit` to decide on whole hypotheses.
    Fields are declared with `setting`. Numbers among them arrive as arrays inside a compiled step,
    so that a sweep over them compiles once; fields named in `static` do not.
    """

    name: ClassVar[str] = ""
    needs: ClassVar[Any] = ()  # tuple[Need, ...], or a property
    unit: ClassVar[Literal["word", "segment"]] = "word"  # of models that commit no single tokens
    history: ClassVar[History] = "recomputed"  # of targets, if the encoder starts anew each READ
    drops_end: ClassVar[bool] = True  # end-of-sentence is not written while the source is live
    static: ClassVar[tuple[str, ...]] = ()  # numbers that shapes depend on
    looks_back: ClassVar[Any] = 0  # hypotheses before the newest that `commit` sees
    beam: ClassVar[Any] = 1  # hypotheses that are followed at once

    def __post_init__(self) -> None:
        check(self, PolicyError)

    def should_read(self, step: Step) -> Any:
        """Return bool [...]: the next unit has to wait until more of the source is there."""
        raise NotImplementedError(f"{type(self).__name__} overrides neither should_read nor commit")

    def commit(self, hypotheses: Hypotheses) -> Any:
        """Return int [B]: units of the newest hypothesis to commit while the source is live."""
        reads = self.should_read(hypotheses.step)  # pyright: ignore[reportArgumentType]
        return (reads.astype(int).cumsum(-1) == 0).sum(-1)

    @property
    def compares_hypotheses(self) -> bool:
        """Return True if whole hypotheses are judged, not tokens one by one."""
        return type(self).commit is not Policy.commit

    @property
    def is_incremental(self) -> bool:
        """Return True if it can go on from READ to READ with a streaming encoder."""
        return not self.compares_hypotheses

    @property
    def read_ms(self) -> int | None:
        """Return the speech to a READ; None: as without a policy."""
        return None

    @property
    def first_read_ms(self) -> int | None:
        """Return the speech to the first READ; None: as to the others."""
        return None

    def numbers(self) -> dict[str, Any]:
        """Return the fields that are arrays in a compiled step."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {
            name: value
            for name, value in given.items()
            if isinstance(value, int | float)
            and not isinstance(value, bool)
            and name not in self.static
        }

    def with_numbers(self, numbers: dict[str, Any]) -> "Policy":
        """Return the policy with other values, arrays perhaps, unchecked."""
        made = object.__new__(type(self))
        for field in dataclasses.fields(self):
            value = numbers.get(field.name, getattr(self, field.name))
            object.__setattr__(made, field.name, value)
        return made

    def template(self) -> "Policy":
        """Return what a program is compiled for: the policy without its numbers."""
        return self.with_numbers(dict.fromkeys(self.numbers(), 0))
