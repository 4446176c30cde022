"""Whether an evaluation can be asked for: refused is what cannot be, and what would change nothing.

Every setting that is not as usual is in the name of the results. One without effect would have the
scores of the usual under another name, and a sweep over it would draw a curve of nothing.
"""

from dataclasses import fields
from pathlib import Path

from simuljax.config.evaluation import Evaluation
from simuljax.config.fields import ConfigError
from simuljax.config.model import ModelConfig, PreDecision
from simuljax.decode.options import Decoding, decides_early, without_effect
from simuljax.runs.cascade import of_text
from simuljax.runs.translate import check_model

COUNTS = ("read_ms", "first", "repeats", "frames")
CHECKPOINTS = ("best", "last", "averaged")
LIVE = ("read_ms", "policy", "gather", "force_finish", "avoid_eos_while_reading", "inside")
HEARD = ("read_ms", "predecision_ms", "units", "trailing", "inside", "audio")
FOLLOWING = ("then_k", "then_threshold")
SHARED = ("gather", "force_finish", "avoid_eos_while_reading")  # by both models of a cascade
USUAL = {field.name: field.default for field in fields(Evaluation)}


def check(chosen: Evaluation) -> None:
    """Refuses what no run can be asked, so that nothing need be opened to know."""
    if chosen.name is not None and Path(chosen.name).name != chosen.name:
        raise ConfigError(f"--name {chosen.name}: the name of a folder, without / or ..")
    for name in COUNTS:
        value = getattr(chosen, name)
        if value is not None and value < 1:
            raise ConfigError(f"{_option(chosen, name)}: it counts from 1")
    if chosen.checkpoint not in CHECKPOINTS:
        raise ConfigError(
            f"{_option(chosen, 'checkpoint')}: choose one of {', '.join(CHECKPOINTS)}"
        )
    if chosen.branch == "text" and chosen.mode == "live":
        raise ConfigError("a text has no clock: say --mode streamed")
    chosen.search()
    _check_numbers(chosen)
    _check_together(chosen)


def _check_numbers(chosen: Evaluation) -> None:
    try:
        chosen.decoding()
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(str(error)) from None
    try:
        Decoding(threshold=chosen.then_threshold)
    except ValueError as error:
        raise ConfigError(f"{_option(chosen, 'then_threshold')}: {error}") from None
    try:
        if chosen.predecision_ms is not None:
            PreDecision(step_ms=chosen.predecision_ms)
    except ValueError as error:
        raise ConfigError(f"{_option(chosen, 'predecision_ms')}: {error}") from None


def _check_together(chosen: Evaluation) -> None:
    rules = (
        (chosen.mode == "offline", LIVE, "with --mode offline all is heard before a word"),
        (chosen.branch == "text", HEARD, "with --branch text nothing is heard"),
        (
            chosen.branch == "text" and chosen.policy == "wait-k",
            ("step_ms",),
            "a unit of a text is a word",
        ),
        (chosen.then is None, FOLLOWING, "it is of the run that follows: give --then"),
        (chosen.units != "ctc", ("trailing",), "it is of words that are heard: give --units ctc"),
        (
            chosen.policy == "local-agreement",
            ("length_penalty",),
            "hypotheses that have to agree are compared as they are",
        ),
    )
    for applies, names, why in rules:
        for name in names if applies else ():
            if getattr(chosen, name) != USUAL[name]:
                raise ConfigError(f"{_option(chosen, name)} would change nothing: {why}")


def check_effects(chosen: Evaluation, model: ModelConfig, then: ModelConfig | None = None) -> None:
    """Refuses what this model has not, and what is nothing to it or to that which follows it."""
    check_model(chosen, model)
    idle = idle_settings(chosen, model)
    if then is not None:
        second = idle_of_text(chosen, then)
        idle = {name: why for name, why in idle.items() if name not in SHARED or name in second}
        idle |= {name: why for name, why in second.items() if name in FOLLOWING}
    if idle:
        name, why = next(iter(idle.items()))
        said = _option(chosen, "inside" if name == "blocks" else name)
        raise ConfigError(f"{chosen.run}: {said} would change nothing: it {why}; leave it out")


def idle_settings(chosen: Evaluation, model: ModelConfig) -> dict[str, str]:
    """Those without effect on what the model writes, and when; with the reasons."""
    source = "whole" if chosen.mode == "offline" else "live"
    idle = without_effect(chosen.decoding(), model, source=source, branch=chosen.branch)
    if chosen.read_ms is not None and not decides_early(chosen.decoding(), model):
        idle["read_ms"] = "is of what is written before the end, for which this model waits"
    if chosen.predecision_ms is not None and not _steps(chosen, model):
        idle["predecision_ms"] = "is of decisions in steps, and here nothing is decided in these"
    return idle


def idle_of_text(chosen: Evaluation, model: ModelConfig) -> dict[str, str]:
    """The same of the second model of a cascade, by the names that the settings have here."""
    try:
        idle = idle_settings(of_text(chosen, model), model)
    except ValueError as error:
        raise ConfigError(f"{chosen.then}: {error}") from None
    own = {"k": "then_k", "threshold": "then_threshold"}
    named = {own.get(name, name): why for name, why in idle.items()}
    if (
        chosen.mode == "offline"
        and chosen.then_k is not None
        and model.monotonic.policy != "wait_k"
    ):
        named["then_k"] = "is of waiting, and with --mode offline nothing waits"
    return named


def _steps(chosen: Evaluation, model: ModelConfig) -> bool:
    """Whether the step between decisions is that of the model's, or of the READs."""
    decoding = chosen.decoding()
    policy, windows = decoding.policy, model.predecision.kind == "fixed"
    if chosen.mode == "offline":
        return windows and model.decoder != "caat" and decides_early(decoding, model)
    reads = chosen.read_ms is None and (policy is None or policy.read_ms is None)
    return decides_early(decoding, model) and (reads or (windows and policy is None))


def _option(chosen: Evaluation, name: str) -> str:
    value = getattr(chosen, name)
    option = f"--{name.replace('_', '-')}"
    return option if value is True else f"{option} {value}"
