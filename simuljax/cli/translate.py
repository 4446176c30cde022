"""The command `simuljax translate`: live translation with any model."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from simuljax.cache import announce_compilation, enable_compilation_cache, show_status
from simuljax.cli.interpret import WhisperOptions, languages, live_whisper
from simuljax.config.model import ModelConfig, PreDecision
from simuljax.decode.choosing import PolicyOptions, check_policy
from simuljax.decode.options import Decoding, without_effect
from simuljax.decode.policies import PolicyError
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
_SHARED = {"policy", "threshold", "offline", "beam"}
_COMPILATION_S = 20.0


@dataclass(frozen=True, kw_only=True)
class DecodingOptions(PolicyOptions):
    """The options of trained runs; Whisper has some of them."""

    policy: str | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    """What decides when to write. Of a run that was trained offline: wait-k, fixed-steps,
    local-agreement, alignatt or edatt; by default it waits for the end. Of Whisper: greedy,
    confidence, consensus (default), alignatt, local-agreement or offline. A class of your own:
    path/to/file.py:Class."""
    threshold: float | None = None
    """The least probability of writing, or of --policy confidence and consensus; by default 0.5."""
    offline: bool = False
    """Translate the whole file at once."""
    beam: int = 1
    """Beam size, with --offline or --policy local-agreement."""
    checkpoint: Literal["best", "last", "averaged"] = "best"
    """The checkpoint of the run."""
    sentences: Literal["one", "many"] = "many"
    """Stop after the first sentence, or go on."""
    read_ms: int | None = None
    """Milliseconds of speech per READ; by default the pre-decision step."""
    predecision_ms: int | None = None
    """Pre-decision step in milliseconds; by default as trained."""
    force_finish: bool = False
    """End-of-sentence before the end of the sound reads on."""
    avoid_eos_while_reading: bool = False
    """Replace end-of-sentence before the end of the sound by the next best token."""

    def decoding(self) -> Decoding:
        """Return the settings of decoding; raise ValueError for those that cannot be."""
        return Decoding(
            threshold=0.5 if self.threshold is None else self.threshold,
            k=self.k if self.policy is None else None,
            force_finish=self.force_finish,
            avoid_eos_while_reading=self.avoid_eos_while_reading,
            policy=self.chosen_policy(beam=self.beam),
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
            _refuse(run, _SHARED, f"is for trained runs; {model} is a Whisper model")
            _refuse_beam(run)
            policy = run.policy or "consensus"
            return live_whisper(model, live, whisper, policy, run.threshold)
        return _live_run(model, live, run, whisper)
    except ValueError as error:
        raise error if isinstance(error, SimuljaxError) else LiveError(str(error)) from None


def given(options: Any) -> dict[str, Any]:
    """Return the options that are not at their defaults."""
    values = {
        field.name: (getattr(options, field.name), field.default) for field in fields(options)
    }
    return {name: value for name, (value, default) in values.items() if value != default}


def _refuse(options: Any, allowed: set[str], reason: str) -> None:
    for name in given(options).keys() - allowed:
        raise LiveError(f"{_option(name)} {reason}")


def _refuse_beam(decoding: DecodingOptions) -> None:
    if decoding.beam > 1 and (decoding.policy != "local-agreement" or decoding.offline):
        raise LiveError("--beam needs --offline or, for a run, --policy local-agreement")


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
    if decoding.beam < 1:
        raise LiveError(f"--beam is {decoding.beam}; it must be at least 1")
    audio = str(options.audio)
    if not is_whisper(model):
        _refuse(whisper, set(), f"is for Whisper models; {model} is a run")
        open_run(model)
        check_options(options, model)

        def translate_run() -> None:
            enable_compilation_cache()
            print(load(model, decoding.checkpoint).translate(audio, beam=decoding.beam))

        return translate_run
    _refuse(decoding, _SHARED, f"is for trained runs; {model} is a Whisper model")
    _, spoken, task = languages(options.to, whisper.spoken)
    check_options(options, model)

    def translate_whisper() -> None:
        enable_compilation_cache()
        settings = whisper_models.Decoding(beams=decoding.beam)
        loaded = whisper_models.load(model, dtype=whisper.dtype)
        result = loaded.transcribe(audio, task=task, language=spoken, decoding=settings)
        print(result.text.strip())

    return translate_whisper


def _live_run(
    model: Path, options: LiveOptions, decoding: DecodingOptions, whisper: WhisperOptions
) -> Callable[[], None]:
    """Check the options; return the live translation with a trained run."""
    _refuse(whisper, {"frames", "hypotheses"}, f"is for Whisper models; {model} is a run")
    decoding = _with_aliases(decoding, whisper)
    check_decoding(decoding)
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
        return LiveRun(stream, decoding.policy or "")

    def command() -> None:
        enable_compilation_cache()
        run_live(options, load_model)

    return command


def _with_aliases(decoding: DecodingOptions, whisper: WhisperOptions) -> DecodingOptions:
    """Read --frames as --last-frames and --hypotheses as --agree."""
    frames = whisper.frames if decoding.last_frames is None else decoding.last_frames
    agree = whisper.hypotheses if decoding.agree is None else decoding.agree
    return replace(decoding, last_frames=frames, agree=agree)


def check_decoding(decoding: DecodingOptions) -> None:
    """Refuse settings that no run has."""
    _refuse_beam(decoding)
    for name in ("beam", "read_ms"):
        value = getattr(decoding, name)
        if value is not None and value < 1:
            raise LiveError(f"{_option(name)} is {value}; it must be at least 1")
    decoding.decoding()
    if decoding.predecision_ms is not None:
        try:
            PreDecision(step_ms=decoding.predecision_ms)
        except ValueError as error:
            raise LiveError(f"--predecision-ms {decoding.predecision_ms}: {error}") from None


def check_run(run: Path, decoding: DecodingOptions, model: ModelConfig) -> None:
    """Refuse settings that this run does not have or that would have no effect."""
    chosen = decoding.decoding()
    try:
        check_policy(chosen.policy, model)
    except PolicyError as error:
        raise RunError(f"{run}: {error}") from None
    for name, why in without_effect(chosen, model).items():
        raise RunError(f"{run}: {_option(name)} would change nothing: it {why}")
