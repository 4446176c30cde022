"""The command `simuljax translate`: live translation with any model."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from simuljax.cache import announce_compilation, enable_compilation_cache, show_status
from simuljax.cli.interpret import WhisperOptions, languages, live_whisper
from simuljax.config.decoding import Decoding, check_policy, without_effect
from simuljax.config.fields import setting
from simuljax.config.model import ModelConfig
from simuljax.config.options import given_options, options_of
from simuljax.decode.policies import Consensus
from simuljax.decode.policy import Policy, PolicyError
from simuljax.errors import SimuljaxError
from simuljax.models import whisper as whisper_models
from simuljax.serve.audio_io import input_devices
from simuljax.serve.live import run as run_live
from simuljax.serve.live_models import LiveRun
from simuljax.serve.live_options import LiveOptions, check_options, check_source
from simuljax.serve.pipeline import LiveError
from simuljax.serve.run import RunError, open_run
from simuljax.serve.translator import is_whisper, load

# What --offline goes with; the other options are about streams.
OFFLINE = {"audio", "to", "offline", "beam", "checkpoint", "spoken", "dtype"}
# Options of runs that Whisper has too.
_SHARED = {"policy", "offline", "beam"}
_COMPILATION_S = 20.0


@dataclass(frozen=True, kw_only=True)
class DecodingOptions(Decoding):
    """The options of trained runs; Whisper has some of them."""

    offline: bool = setting(False, help="Translate the whole file at once.")
    checkpoint: Literal["best", "last", "averaged"] = setting("best", help="Which checkpoint.")
    sentences: Literal["one", "many"] = setting(
        "many", help="Stop after the first sentence, or go on."
    )


def translate_command(
    *,
    model: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")] = None,
    live: LiveOptions,
    run: DecodingOptions,
    whisper: WhisperOptions,
) -> Callable[[], None]:
    """Translate speech live: words appear as they are committed.

    Args:
        model: The directory of a trained run, or a Whisper file (.pt, safetensors, ggml).
        live: Sources and outputs.
        run: Decoding with a trained run; Whisper has --policy, --threshold, --offline and --beam.
        whisper: Decoding with a Whisper model.
    """
    if live.devices:
        return lambda: print(input_devices())
    if model is None:
        raise LiveError("give a model: the directory of a trained run, or a Whisper file")
    check_source(live)
    if not model.exists():
        raise LiveError(f"there is no model {model}")
    try:
        if run.offline:
            return _offline(model, live, run, whisper)
        if is_whisper(model):
            _refuse_beam(run)
            return live_whisper(model, live, whisper, whisper_policy(model, run))
        return _live_run(model, live, run, whisper)
    except ValueError as error:
        raise error if isinstance(error, SimuljaxError) else LiveError(str(error)) from None


def given(options: Any) -> dict[str, Any]:
    """Return the options that are not at their defaults."""
    if isinstance(options, Decoding):
        return given_options(options)
    values = {
        field.name: (getattr(options, field.name), field.default) for field in fields(options)
    }
    return {name: value for name, (value, default) in values.items() if value != default}


def _refuse(options: Any, allowed: set[str], reason: str) -> None:
    for name in given(options).keys() - allowed:
        raise LiveError(f"{_option(name)} {reason}")


def _refuse_beam(decoding: DecodingOptions) -> None:
    if decoding.beam is not None and not decoding.offline:
        raise LiveError("--beam needs --offline or, for a run, --policy local-agreement")


def whisper_policy(model: Path, decoding: DecodingOptions) -> Policy:
    """Return the policy of a Whisper model; refuse the options that it does not have."""
    own = {"threshold"} if decoding.policy is None else set(options_of(type(decoding.policy)))
    _refuse(decoding, _SHARED | own, f"is for trained runs; {model} is a Whisper model")
    if decoding.policy is not None and decoding.policy.beam > 1:
        raise LiveError(f"--beam is for trained runs; {model} is a Whisper model")
    return decoding.policy or Consensus(threshold=decoding.threshold)


def _option(name: str) -> str:
    return "--from" if name == "spoken" else f"--{name.replace('_', '-')}"


def _offline(
    model: Path, options: LiveOptions, decoding: DecodingOptions, whisper: WhisperOptions
) -> Callable[[], None]:
    """Check the options of --offline; return the translation of a whole file."""
    if options.is_live:
        raise LiveError("--offline translates a whole file: give a sound file")
    for group in (options, decoding, whisper):
        _refuse(group, OFFLINE, "is for live translation: leave it out with --offline")
    audio, beam = str(options.audio), 1 if decoding.beam is None else decoding.beam.size
    if not is_whisper(model):
        _refuse(whisper, set(), f"is for Whisper models; {model} is a run")
        open_run(model)
        check_options(options, model)

        def translate_run() -> None:
            enable_compilation_cache()
            print(load(model, decoding.checkpoint).translate(audio, beam=beam))

        return translate_run
    _refuse(decoding, _SHARED, f"is for trained runs; {model} is a Whisper model")
    _, spoken, task = languages(options.to, whisper.spoken)
    check_options(options, model)

    def translate_whisper() -> None:
        enable_compilation_cache()
        settings = whisper_models.Decoding(beams=beam)
        loaded = whisper_models.load(model, dtype=whisper.dtype)
        result = loaded.transcribe(audio, task=task, language=spoken, decoding=settings)
        print(result.text.strip())

    return translate_whisper


def _live_run(
    model: Path, options: LiveOptions, decoding: DecodingOptions, whisper: WhisperOptions
) -> Callable[[], None]:
    """Check the options; return the live translation with a trained run."""
    _refuse(whisper, set(), f"is for Whisper models; {model} is a run")
    _refuse_beam(decoding)
    check_run(model, decoding, open_run(model).model)
    check_options(options, model)

    def load_model() -> LiveRun:
        show_status(f"loading {model.name} ...")
        translator = load(model, decoding.checkpoint)
        with announce_compilation(str(model.resolve()), about_s=_COMPILATION_S):
            stream = translator.stream(
                sentences=decoding.sentences,
                read_ms=decoding.read_ms,
                predecision_ms=decoding.predecision_ms,
                decoding=decoding.decoding(),
            )
        return LiveRun(stream, decoding.policy.name if decoding.policy else "")

    def command() -> None:
        enable_compilation_cache()
        run_live(options, load_model)

    return command


def check_run(run: Path, decoding: DecodingOptions, model: ModelConfig) -> None:
    """Refuse settings that this run does not have or that would have no effect."""
    chosen = decoding.decoding()
    try:
        check_policy(chosen.policy, model)
    except PolicyError as error:
        raise RunError(f"{run}: {error}") from None
    for name, why in without_effect(chosen, model).items():
        raise RunError(f"{run}: {_option(name)} would change nothing: it {why}; leave it out")
