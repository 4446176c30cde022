"""Policies by their names, and whether one can be had with a model."""

import dataclasses
from typing import Any, Literal

from simuljax.decode.policies import (
    AlignAtt,
    EDAtt,
    FixedSteps,
    History,
    LocalAgreement,
    Policy,
    PolicyError,
    WaitK,
)
from simuljax.models import config

NAMES: dict[str, type[Policy]] = {
    "wait-k": WaitK,
    "fixed-steps": FixedSteps,
    "local-agreement": LocalAgreement,
    "align-att": AlignAtt,
    "ed-att": EDAtt,
}
PolicyName = Literal["wait-k", "fixed-steps", "local-agreement", "align-att", "ed-att"]


def make_policy(name: str, options: dict[str, Any]) -> Policy:
    """A policy by name; of the options, those that are None are as usual."""
    if name not in NAMES:
        raise PolicyError(f"there is no policy {name!r}: choose one of {', '.join(NAMES)}")
    kind, given = NAMES[name], {k: v for k, v in options.items() if v is not None}
    known = {field.name: field for field in dataclasses.fields(kind)}
    for option in given:
        if option not in known:
            raise PolicyError(f"{name} has no {option}: it has {', '.join(known)}")
    missing = dataclasses.MISSING
    lacks = [n for n, field in known.items() if field.default is missing and n not in given]
    if lacks:
        raise PolicyError(f"{name} needs {' and '.join(lacks)}")
    return kind(**given)


def check_policy(policy: Policy | None, model: config.Translator, branch: str = "speech") -> None:
    """Refuses a policy that means nothing for this model."""
    if policy is None:
        return
    name, own = type(policy).__name__, model.monotonic.policy
    if own != "offline" and not (own == "wait_k" and isinstance(policy, WaitK)):
        raise PolicyError(
            f"{name} is for models that were trained offline, and this one decides by itself "
            f"(monotonic.policy is {own!r}): leave the policy out"
        )
    if model.decoder == "caat" and isinstance(policy, AlignAtt | EDAtt):
        raise PolicyError(f"{name} looks at attention, of which a CAAT's joiner tells none")
    if branch == "text" and isinstance(policy, FixedSteps):
        raise PolicyError("FixedSteps counts milliseconds, and a text has none: use WaitK")
    counts = branch == "speech" and isinstance(policy, WaitK) and policy.units == "ctc"
    if counts and (model.speech is None or model.speech.ctc_after is None):
        raise PolicyError(
            "WaitK(units='ctc') counts the words that a CTC head hears, and the model has none "
            "(speech.ctc_after): use units='fixed'"
        )
    if isinstance(policy, AlignAtt | EDAtt) and (policy.layer or 1) > model.decoder_layers:
        raise PolicyError(f"layer is {policy.layer} and the decoder has {model.decoder_layers}")


def usual_history(policy: Policy | None, model: config.Translator) -> History:
    """What becomes of targets when more has been heard, if nobody says.

    A streaming encoder keeps its states, and a stream over it its targets.
    """
    if policy is None:
        return "recomputed"
    streams = model.speech is not None and model.speech.kind == "streaming"
    return "kept" if streams and policy.is_incremental else policy.history
