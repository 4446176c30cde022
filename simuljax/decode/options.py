"""The choices of decoding that are not the model's."""

import math
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import jax.numpy as jnp

from simuljax.decode.policies import Policy, PolicyError, WaitK
from simuljax.nn.monotonic import Monotonic
from simuljax.nn.pointers import Rule
from simuljax.text import Words

Gather = Literal["any", "majority", "mean"]


@dataclass(frozen=True, kw_only=True)
class LengthLimit:
    """At most ratio * source + constant tokens, end-of-sentence included.

    The source counts in encoder states, as far as it has been heard.
    """

    ratio: float = 1.5
    constant: int = 10

    def of(self, states: int) -> int:
        """The limit for so many states."""
        return int(self.ratio * states) + self.constant


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """The same 1 to `longest` tokens may stand `times` times in a row, and not once more."""

    longest: int = 4
    times: int = 3

    def __post_init__(self) -> None:
        if min(self.longest, self.times) < 1:
            raise ValueError(f"{self}: longest and times are from 1")

    @property
    def window(self) -> int:
        """How many tokens back that can be seen."""
        return self.longest * (self.times + 1) - 1


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """CAAT's beam: hypotheses inside a group, and those that live on after it (1: committed)."""

    inside: int = 5  # 1: greedy
    across: int = 1
    longest: int = 32  # labels in a group while the source is live

    def __post_init__(self) -> None:
        if not 1 <= self.across <= self.inside or self.longest < 1:
            raise ValueError(f"{self}: needs 1 <= across <= inside, and longest from 1")


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """When to write, and what not to.

    `gather`: the decoder reads if `any` head waits, if the `majority` of all heads of all layers
    does, or if the `mean` of their probabilities of writing, each at the decision where the head
    stands, is below the threshold. A head that is overruled attends as from the last decision.

    `policy` decides in place of the heads, for models that were trained offline.

    While the source is live, `force_finish` lets end-of-sentence write nothing and read on, and
    `avoid_eos_while_reading` takes the best other token in its place.
    """

    gather: Gather = "any"
    threshold: float = 0.5  # on the probability of writing
    k: int | None = None  # of wait-k; None: the middle of what the model was trained for
    force_finish: bool = False
    avoid_eos_while_reading: bool = False
    limit: LengthLimit = field(default_factory=LengthLimit)
    repetition: Repetition | None = None
    blocks: Blocks = field(default_factory=Blocks)  # of CAAT
    policy: Policy | None = None  # None: as the model decides; an offline one waits for the end

    def __post_init__(self) -> None:
        if self.gather not in get_args(Gather):
            raise ValueError(f"gather is {self.gather!r}; choose one of {get_args(Gather)}")
        if not 0 < self.threshold < 1:
            raise ValueError(f"threshold is {self.threshold}; it lies between 0 and 1")
        if self.k is not None and self.k < 1:
            raise ValueError(f"k is {self.k}; wait-k reads at least 1 unit before it writes")

    def rule(self, monotonic: Monotonic, words: Words | None = None) -> Rule:
        """What of this is an array, so that a sweep over it compiles once.

        Policies that count words need what ids say about them.
        """
        k = sum(monotonic.wait_k) // 2 if self.k is None else self.k
        energy = jnp.float32(math.log(self.threshold / (1 - self.threshold)))
        if isinstance(self.policy, WaitK) and words is None:
            raise PolicyError("WaitK counts words: give words=Words.of(source, target) too")
        arrays = {} if self.policy is None else self.policy.arrays()
        return Rule(**{"energy": energy, "k": jnp.int32(k), "words": words} | arrays)

    def fixed(self) -> "Decoding":
        """The rest, which is compiled in."""
        policy = None if self.policy is None else self.policy.fixed()
        return replace(self, threshold=0.5, k=None, policy=policy)
