"""Refuse evaluations that a run cannot do, and settings that would have no effect.

Every setting that is not the default is in the name of the results. One without effect would have
the scores of the default under another name, and a sweep over it would draw a flat line.
"""

from collections.abc import Iterator
from typing import Any

from simuljax.config.decoding import check_policy, without_effect
from simuljax.config.evaluation import Evaluation
from simuljax.config.fields import ConfigError
from simuljax.config.model import ModelConfig
from simuljax.config.options import given_options, options_in
from simuljax.decode.policy import PolicyError
from simuljax.runs.cascade import of_text

LIVE = ("read_ms", "policy", "gather", "force_finish", "avoid_eos_while_reading", "inside")
OF_SPEECH = ("read_ms", "predecision_ms", "units", "trailing", "inside", "audio")
FOLLOWING = ("then_k", "then_threshold")
SHARED = ("gather", "force_finish", "avoid_eos_while_reading")  # by both models of a cascade


def check(chosen: Evaluation) -> None:
    """Refuse settings that do not go together, before any run is opened."""
    if chosen.branch == "text" and chosen.mode == "live":
        raise ConfigError("--mode live needs speech; with --branch text use --mode streamed")
    if chosen.beam is not None and chosen.mode != "offline":
        raise ConfigError(
            f"--beam {chosen.beam.size} needs --mode offline, or --policy local-agreement: with "
            f"--mode {chosen.mode} committed words cannot be taken back"
        )
    given = given_options(chosen)
    for name, why in _idle_together(chosen):
        if name in given:
            raise ConfigError(f"{_option(chosen, name)} would change nothing: {why}")


def _idle_together(chosen: Evaluation) -> Iterator[tuple[str, str]]:
    policy = None if chosen.policy is None else chosen.policy.name
    units = getattr(chosen.policy, "units", None)
    rules = (
        (chosen.mode == "offline", LIVE, "--mode offline waits for the whole source"),
        (chosen.branch == "text", OF_SPEECH, "with --branch text there is no speech"),
        (chosen.branch == "text" and policy == "wait-k", ("step_ms",), "a unit of text is a word"),
        (chosen.then is None, FOLLOWING, "it belongs to the second run: give --then"),
        (units != "ctc", ("trailing",), "it is about words of a CTC head: give --units ctc"),
    )
    yield from ((name, why) for applies, names, why in rules if applies for name in names)


def check_model(chosen: Evaluation, model: ModelConfig) -> None:
    """Refuse a branch that the model does not have, and a policy that it cannot run."""
    if chosen.branch == "text" and model.text is None:
        raise ConfigError(f"{chosen.run} has no text branch: leave --branch text out")
    if chosen.branch == "speech" and model.speech is None:
        raise ConfigError(f"{chosen.run} has no speech branch: use --branch text")
    try:
        check_policy(chosen.policy, model, chosen.branch)
    except PolicyError as error:
        raise ConfigError(f"{chosen.run}: {error}") from None


def check_effects(chosen: Evaluation, model: ModelConfig, then: ModelConfig | None = None) -> None:
    """Refuse settings that this model does not have, or that change nothing for it and `then`."""
    check_model(chosen, model)
    idle = idle_settings(chosen, model)
    if then is not None:
        second = idle_of_text(chosen, then)
        idle = {name: why for name, why in idle.items() if name not in SHARED or name in second}
        idle |= {name: why for name, why in second.items() if name in FOLLOWING}
    for name, why in idle.items():
        option = _option(chosen, name)
        raise ConfigError(f"{chosen.run}: {option} would change nothing: it {why}; leave it out")


def idle_settings(chosen: Evaluation, model: ModelConfig) -> dict[str, str]:
    """Return the settings without effect on what the model writes, and when, with the reasons."""
    source = "whole" if chosen.mode == "offline" else "live"
    return without_effect(chosen.decoding(), model, source=source, branch=chosen.branch)


def idle_of_text(chosen: Evaluation, model: ModelConfig) -> dict[str, str]:
    """Return the same of the second model of a cascade, by the names of its options."""
    try:
        idle = idle_settings(of_text(chosen, model), model)
    except ValueError as error:
        raise ConfigError(f"{chosen.then}: {error}") from None
    own = {"k": "then_k", "threshold": "then_threshold"}
    named = {own.get(name, name): why for name, why in idle.items()}
    waits = model.monotonic.policy == "wait_k"
    if chosen.mode == "offline" and chosen.then_k is not None and not waits:
        named["then_k"] = "applies only to a live source"
    return named


def _option(chosen: Evaluation, name: str) -> str:
    value: Any = given_options(chosen).get(name)
    flag = options_in(chosen)[name].flag
    return flag if value is True else f"{flag} {value}"
