"""Policies by their names, and whether one can be had with a model."""

import dataclasses
from typing import Any, Literal

from simuljax.config.model import ModelConfig
from simuljax.decode.policies import AlignAtt, EDAtt, FixedSteps, WaitK, policy_class
from simuljax.decode.policy import History, Policy, PolicyError

# Options of a policy, and what they are called there; k is wait-k's, whoever decides.
OF_POLICY = {
    "units": "units",
    "step_ms": "step_ms",
    "convention": "convention",
    "trailing": "trailing",
    "first_ms": "first_ms",
    "tokens": "tokens",
    "agree": "agree",
    "last_frames": "frames",
    "alpha": "alpha",
    "layer": "layer",
    "heads": "heads",
    "scores": "scores",
}


def make_policy(name: str, options: dict[str, Any]) -> Policy:
    """A policy by name; of the options, those that are None are as usual."""
    kind, given = policy_class(name), {k: v for k, v in options.items() if v is not None}
    known = {field.name: field for field in dataclasses.fields(kind)}
    for option in given:
        if option not in known:
            raise PolicyError(f"{name} has no {option}: it has {', '.join(known)}")
    missing = dataclasses.MISSING
    lacks = [n for n, field in known.items() if field.default is missing and n not in given]
    if lacks:
        raise PolicyError(f"{name} needs {' and '.join(lacks)}")
    return kind(**given)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyOptions:
    """A policy as a command line names it."""

    k: int | None = None
    """Of wait-k."""
    policy: str | None = None
    """What decides for a model that was trained offline, which else waits for the end."""
    units: Literal["fixed", "ctc"] | None = None
    """Of wait-k: a stretch of speech, or a word that the CTC head hears."""
    step_ms: int | None = None
    """Of wait-k: speech to a unit, and to a READ; of fixed-steps: s."""
    convention: Literal["papi", "stacl"] | None = None
    """Of wait-k: the first word follows k + 1 units, or k."""
    trailing: Literal["count", "leave"] | None = None
    """Of wait-k: whether a word that may be unfinished has been heard."""
    first_ms: int | None = None
    """Of fixed-steps: k."""
    tokens: int | None = None
    """Of fixed-steps: N, the most tokens to a step."""
    agree: int | None = None
    """Of local-agreement: hypotheses that must agree."""
    last_frames: int | None = None
    """Of align-att and ed-att: states at the end of what was heard."""
    alpha: float | None = None
    """Of ed-att: how much attention on them makes it wait."""
    layer: int | None = None
    """Of align-att and ed-att: the decoder layer, from 1; by default the mean of all."""
    heads: int | None = None
    """Of align-att and ed-att: the head, from 1; by default the mean of all."""
    scores: Literal["paper", "release"] | None = None
    """Of align-att and ed-att: attention as in the papers, or as in their authors' code."""

    def chosen_policy(self, *, beam: int | None = None) -> Policy | None:
        """The policy with its options; None: the model decides. `beam` is of local agreement."""
        if self.policy is None:
            for name in OF_POLICY:
                if getattr(self, name) is not None:
                    raise PolicyError(
                        f"--{name.replace('_', '-')} is of a policy: give a --policy too"
                    )
            return None
        options = {of: getattr(self, name) for name, of in OF_POLICY.items()} | {"k": self.k}
        if self.policy == "local-agreement":
            options["beam"] = beam
        try:
            return make_policy(self.policy, options)
        except PolicyError as error:
            raise PolicyError(f"--policy {self.policy}: {error}") from None


def check_policy(policy: Policy | None, model: ModelConfig, branch: str = "speech") -> None:
    """Refuses a policy that means nothing for this model."""
    if policy is None:
        return
    name, own = policy.name, model.monotonic.policy
    if own != "offline" and not (own == "wait_k" and isinstance(policy, WaitK)):
        raise PolicyError(
            f"{name} is for models that were trained offline, and this one decides by itself "
            f"(monotonic.policy is {own!r}): leave the policy out"
        )
    if model.decoder == "caat" and "attention" in policy.needs:
        raise PolicyError(f"{name} needs cross-attention weights, and CAAT has none")
    for need in ("segments", "no_speech"):
        if need in policy.needs:
            raise PolicyError(f"{name} needs {need}, which only a Whisper model writes")
    if branch == "text" and isinstance(policy, FixedSteps):
        raise PolicyError("FixedSteps counts milliseconds, and a text has none: use WaitK")
    counts = branch == "speech" and "units" in policy.needs
    if counts and (model.speech is None or model.speech.ctc_after is None):
        raise PolicyError(
            "WaitK(units='ctc') counts the words that a CTC head hears, and the model has none "
            "(speech.ctc_after): use units='fixed'"
        )
    if isinstance(policy, AlignAtt | EDAtt) and (policy.layer or 1) > model.decoder_layers:
        raise PolicyError(f"layer is {policy.layer} and the decoder has {model.decoder_layers}")
    heads = 1 if model.decoder == "lstm" else model.width_of_decoder.heads
    if isinstance(policy, AlignAtt | EDAtt) and policy.heads != "mean" and policy.heads > heads:
        raise PolicyError(f"heads is {policy.heads} and a layer of the decoder has {heads}")


def usual_history(policy: Policy | None, model: ModelConfig) -> History:
    """What becomes of targets when more has been heard, if nobody says.

    A streaming encoder keeps its states, and a stream over it its targets.
    """
    if policy is None:
        return "recomputed"
    streams = model.speech is not None and model.speech.kind == "streaming"
    return "kept" if streams and policy.is_incremental else policy.history
