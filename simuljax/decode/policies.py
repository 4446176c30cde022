"""Policies for models that were trained offline: when to write what they would write.

    WaitK             a word more is written for each word heard, k behind (Papi et al. 2022)
    FixedSteps        (k, s, N): N tokens after k ms, and then every s ms (Nguyen et al. 2021)
    LocalAgreement    what the last hypotheses of all that was heard agree on (Liu et al. 2020)
    AlignAtt          until the next token is aligned with the last states (Papi et al. 2023)
    EDAtt             until it attends too much to the last states (Papi et al. 2023)

These are the choices; what decides is in `judging`, on plain arrays. Numbers that a sweep may vary
are arrays in a `Rule`; `fixed` is what remains to be compiled in. While the source is live, all but
wait-k drop an end-of-sentence, and read; wait-k does as the flags of `Decoding` say.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import jax.numpy as jnp

from simuljax.audio import RATE
from simuljax.errors import SimuljaxError

History = Literal["recomputed", "kept"]
Scores = Literal["paper", "release"]
Convention = Literal["papi", "stacl"]


class PolicyError(SimuljaxError):
    """A policy that cannot be had, or not with this model."""


@dataclass(frozen=True, kw_only=True)
class _Policy:
    """What a policy has unless it says otherwise."""

    history: ClassVar[History] = "recomputed"  # of targets, for encoders that hear all anew
    drops_end: ClassVar[bool] = True  # whether end-of-sentence writes nothing while more may come

    @property
    def read_ms(self) -> int | None:
        """Speech to a READ; None: as without a policy."""
        return None

    @property
    def first_read_ms(self) -> int | None:
        """Speech to the first READ; None: as to the others."""
        return None

    @property
    def is_incremental(self) -> bool:
        """Whether it can go on from READ to READ with a streaming encoder."""
        return True

    def arrays(self) -> dict[str, Any]:
        """Fields of `Rule`."""
        return {}

    def fixed(self) -> "_Policy":
        """With other values in place of those in `arrays`."""
        return self


@dataclass(frozen=True, kw_only=True)
class WaitK(_Policy):
    """Target word n, from 0, is begun once n + k units have been heard (`stacl`), or more (`papi`).

    A unit is `step_ms` of speech (`fixed`), or a word in the collapsed argmax of the CTC head, of
    which the `trailing` one may be unfinished; of a text, a word. A token that continues a word
    needs no unit, one that begins a word needs it, and so does end-of-sentence.
    """

    k: int
    units: Literal["fixed", "ctc"] = "fixed"
    step_ms: int = 280  # to a READ, too
    convention: Convention = "papi"
    trailing: Literal["count", "leave"] = "count"
    drops_end: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.k < 0:
            raise PolicyError(f"k is {self.k}; wait-k waits for 0 units or more")
        _check_ms(step_ms=self.step_ms)
        _check_choices(self, units=("fixed", "ctc"), convention=get_args(Convention))
        _check_choices(self, trailing=("count", "leave"))

    @property
    def read_ms(self) -> int:
        """Units are counted as often as one may come."""
        return self.step_ms

    @property
    def is_incremental(self) -> bool:
        """A stream carries no CTC head."""
        return self.units == "fixed"

    def arrays(self) -> dict[str, Any]:
        """k, and how much speech counts as a word."""
        return {"k": jnp.int32(self.k), "unit": jnp.int32(self.step_ms * RATE // 1000)}

    def fixed(self) -> "WaitK":
        """The way to count."""
        return dataclasses.replace(self, k=1, step_ms=1)


@dataclass(frozen=True, kw_only=True)
class FixedSteps(_Policy):
    """(k, s, N): g(t) = min(k + (t - 1) s, |X|) has been heard at step t, which writes N tokens.

    At most: what reaches the limit of length or the end of the sentence reads on. Targets stay as
    they were when written. With the source at its end, all is written.
    """

    first_ms: int  # k; frames of 10 ms in the paper
    step_ms: int  # s
    tokens: int  # N
    history: ClassVar[History] = "kept"

    def __post_init__(self) -> None:
        _check_ms(first_ms=self.first_ms, step_ms=self.step_ms)
        if self.tokens < 1:
            raise PolicyError(f"tokens is {self.tokens}; a step writes up to 1 or more")

    @property
    def read_ms(self) -> int:
        """s."""
        return self.step_ms

    @property
    def first_read_ms(self) -> int:
        """k."""
        return self.first_ms

    @property
    def is_incremental(self) -> bool:
        """Every step encodes all that was heard."""
        return False

    def arrays(self) -> dict[str, Any]:
        """N."""
        return {"tokens": jnp.int32(self.tokens)}

    def fixed(self) -> "FixedSteps":
        """Nothing remains."""
        return FixedSteps(first_ms=1, step_ms=1, tokens=1)


@dataclass(frozen=True, kw_only=True)
class LocalAgreement(_Policy):
    """After every READ all that was heard is translated as if it were all there is.

    What the last `agree` of these hypotheses have in common from the beginning is committed, and
    every later one begins with it. A hypothesis is greedy, or the best of a `beam`.
    """

    agree: int = 2
    beam: int = 1

    def __post_init__(self) -> None:
        if self.agree < 2:
            raise PolicyError(f"agree is {self.agree}; at least 2 hypotheses can agree")
        if self.beam < 1:
            raise PolicyError(f"beam is {self.beam}; it holds at least 1 hypothesis")

    @property
    def is_incremental(self) -> bool:
        """Hypotheses are begun anew."""
        return False


@dataclass(frozen=True, kw_only=True)
class _Attention(_Policy):
    """What policies that look at attention have in common.

    `layer` is a decoder layer from 1, None the mean of all; `heads` one of its heads from 1, or
    their mean. The papers take the mean of the heads of layer 4 of 6. `scores` may be those of the
    authors' `release`, which leaves out the last state, on which attention piles up, and divides
    EDAtt's by their Euclidean norm.
    """

    frames: int
    layer: int | None = None
    heads: int | Literal["mean"] = "mean"
    scores: Scores = "paper"

    def __post_init__(self) -> None:
        if self.frames < 0:
            raise PolicyError(f"frames is {self.frames}; the last 0 states or more")
        for name in ("layer", "heads"):
            given = getattr(self, name)
            if isinstance(given, int) and given < 1:
                raise PolicyError(f"{name} is {given}; they count from 1")
        _check_choices(self, scores=get_args(Scores))
        if isinstance(self.heads, str):
            _check_choices(self, heads=("mean",))

    def arrays(self) -> dict[str, Any]:
        """How many states."""
        return {"frames": jnp.int32(self.frames)}

    def fixed(self) -> "_Attention":
        """Where to look."""
        return dataclasses.replace(self, frames=1)


@dataclass(frozen=True, kw_only=True)
class AlignAtt(_Attention):
    """Reads if the state that the next token attends to most is one of the last `frames`."""


@dataclass(frozen=True, kw_only=True)
class EDAtt(_Attention):
    """Reads if the attention of the next token on the last `frames` states adds up to `alpha`."""

    alpha: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha <= 0:
            raise PolicyError(f"alpha is {self.alpha}; a share of the attention, say 0.1")

    def arrays(self) -> dict[str, Any]:
        """How many states, and how much attention."""
        return super().arrays() | {"alpha": jnp.float32(self.alpha)}

    def fixed(self) -> "EDAtt":
        """Where to look."""
        return dataclasses.replace(self, frames=1, alpha=0.5)


Policy = WaitK | FixedSteps | LocalAgreement | AlignAtt | EDAtt


def _check_ms(**given: int) -> None:
    for name, ms in given.items():
        if ms < 1:
            raise PolicyError(f"{name} is {ms}; it takes 1 ms or more")


def _check_choices(policy: Any, **choices: tuple[str, ...]) -> None:
    for name, known in choices.items():
        if getattr(policy, name) not in known:
            raise PolicyError(f"{name} is {getattr(policy, name)!r}; choose one of {known}")
