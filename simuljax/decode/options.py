"""The choices of decoding that are not the model's."""

from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Literal, get_args

from simuljax.config.model import ModelConfig, Monotonic
from simuljax.decode.policy import Policy

Gather = Literal["any", "majority", "mean"]
Branch = Literal["speech", "text"]


@dataclass(frozen=True, kw_only=True)
class LengthLimit:
    """At most ratio * source + constant tokens, end-of-sentence included.

    The source counts in encoder states, as far as it has been heard.
    """

    ratio: float = 1.5
    constant: int = 10

    def __post_init__(self) -> None:
        if self.ratio < 0:
            raise ValueError(f"{self}: the ratio is from 0")

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
        if self.policy is not None and not isinstance(self.policy, Policy):
            raise ValueError(
                f"policy is {self.policy!r}; give one of simuljax.decode.policies, as WaitK(k=3)"
            )
        if not isinstance(self.threshold, Real) or not 0 < self.threshold < 1:
            raise ValueError(f"threshold is {self.threshold}; it lies between 0 and 1")
        if self.k is not None and self.k < 1:
            raise ValueError(f"k is {self.k}; wait-k reads at least 1 unit before it writes")

    def fixed(self) -> "Decoding":
        """Return the choices that are compiled in; `state.control_of` has the others."""
        policy = None if self.policy is None else self.policy.template()
        return replace(self, threshold=0.5, k=None, policy=policy)


def decides_early(decoding: Decoding, model: ModelConfig, branch: Branch = "speech") -> bool:
    """Whether anything can be written before the end of a source that comes by and by."""
    groups = model.decoder == "caat" and branch == "speech"
    return decoding.policy is not None or groups or _heads_decide(model.monotonic)


def _heads_decide(monotonic: Monotonic) -> bool:
    """Those that count words attend to everything, and leave the decision to a policy."""
    counts_words = monotonic.policy == "wait_k" and monotonic.counts == "words"
    return monotonic.policy != "offline" and not counts_words


def without_effect(
    decoding: Decoding,
    model: ModelConfig,
    *,
    source: Literal["live", "whole"] = "live",
    branch: Branch = "speech",
) -> dict[str, str]:
    """What is not as usual in these choices and yet changes nothing, with the reason."""
    own, live = model.monotonic, source == "live"
    learnt = own.policy == "learnt" and decoding.policy is None
    waits = own.policy == "wait_k" and _heads_decide(own) and decoding.policy is None
    caat = model.decoder == "caat" and decoding.policy is None and branch == "speech"
    flags = live and decides_early(decoding, model, branch) and not caat
    heads = f"is of heads that have learnt to decide, and here none has (policy {own.policy!r})"
    early = "is of tokens that may be written before the source ends, and here that is no choice"
    reasons = {
        "threshold": (learnt, heads),
        "gather": (learnt and live, heads if live else "is of heads that wait for more to come"),
        "k": (waits, "is of models that count tokens by wait-k, or of the policy wait-k"),
        "blocks": (caat and live, "is of CAAT, while it listens and no other policy decides"),
        "force_finish": (flags, early),
        "avoid_eos_while_reading": (flags, early),
    }
    usual = Decoding()
    return {
        name: why
        for name, (works, why) in reasons.items()
        if not works and getattr(decoding, name) != getattr(usual, name)
    }
