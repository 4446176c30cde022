"""The command `simuljax interpret`: live translation with a Whisper model."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from simuljax.cache import enable_compilation_cache
from simuljax.config.decoding import PolicyConfig
from simuljax.config.fields import ConfigError, setting
from simuljax.decode.policies import POLICIES, Consensus
from simuljax.decode.policy import Policy
from simuljax.models.whisper import LANGUAGES
from simuljax.models.whisper.languages import language_code
from simuljax.models.whisper.tokenizer import Task
from simuljax.serve.audio_io import input_devices
from simuljax.serve.live import run as run_live
from simuljax.serve.live_models import LiveWhisper, load_whisper
from simuljax.serve.live_options import LiveOptions, check_options, check_sound_file, check_source
from simuljax.serve.pipeline import LiveError
from simuljax.serve.whisper import WhisperStreaming

_WEIGHTS = """\
Whisper's weights come from
  https://huggingface.co/openai/whisper-tiny     model.safetensors and tokenizer.json
  https://huggingface.co/ggerganov/whisper.cpp   ggml-tiny.bin, not quantised
  https://github.com/openai/whisper              tiny.pt, with multilingual.tiktoken beside it
and likewise for base, small, medium, large-v3 and turbo."""


@dataclass(frozen=True, kw_only=True)
class WhisperOptions:
    """The options of Whisper models alone."""

    spoken: Annotated[str | None, tyro.conf.arg(name="from")] = None
    """Whisper: the language that is spoken; by default the model detects it."""
    window: float = 1.0
    """Whisper: seconds of sound from one hypothesis to the next."""
    padding: Literal["full", "short"] = "full"
    """Whisper: pad the sound to 30 s, as in training, or to the next 5 s: faster, less accurate."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Whisper: the type to compute in."""


@dataclass(frozen=True, kw_only=True)
class WhisperPolicy(PolicyConfig):
    """The policy of a Whisper model."""

    policy: Policy = setting(  # pyright: ignore[reportIncompatibleVariableOverride]
        Consensus(),
        help=f"When to commit words: {', '.join(POLICIES)}, or FILE.py:CLASS. Every policy has "
        "options of its own.",
        label="{}",
    )


def interpret_command(
    live: LiveOptions,
    whisper: WhisperOptions,
    decoding: WhisperPolicy,
    model: Path | None = None,
) -> Callable[[], None]:
    """Translate speech live with a Whisper model: `simuljax translate` with Whisper's defaults.

    Args:
        live: Sources and outputs.
        whisper: Languages, windows and policies.
        decoding: When to commit words.
        model: Whisper's weights: .pt, safetensors or ggml.
    """
    if live.devices:
        return lambda: print(input_devices())
    if model is None:
        check_source(live)
        check_sound_file(live)
        raise LiveError(f"give the model with --model. {_WEIGHTS}")
    return live_whisper(model, live, whisper, decoding.policy)


def live_whisper(
    model: Path,
    options: LiveOptions,
    whisper: WhisperOptions,
    policy: Policy,
) -> Callable[[], None]:
    """Check the options; return the live translation with a Whisper model."""
    to, settings = whisper_settings(options, whisper, policy)
    options = replace(options, to=to)
    check_source(options)
    if not model.exists():
        raise LiveError(f"there are no weights at {model}. {_WEIGHTS}")
    check_options(options, model)

    def command() -> None:
        enable_compilation_cache()
        run_live(options, lambda: LiveWhisper(load_whisper(model, settings, whisper.dtype)))

    return command


def whisper_settings(
    options: LiveOptions, whisper: WhisperOptions, policy: Policy
) -> tuple[str, WhisperStreaming]:
    """Return the code of the language to write, and the settings of the stream."""
    to, spoken, task = languages(options.to, whisper.spoken)
    try:
        settings = WhisperStreaming(
            policy=policy,
            window_s=whisper.window,
            task=task,
            language=spoken,
            padding=whisper.padding,
            behind="every" if options.source_pace == "fast" else "latest",
        )
    except ConfigError as error:
        raise LiveError(str(error).replace("WhisperStreaming.window_s", "--window")) from None
    return to, settings


def languages(to: str | None, spoken: str | None) -> tuple[str, str | None, Task]:
    """Return the codes of the languages to write and to hear, and the task of the model."""
    to = _language("--to", to or "en")
    spoken = None if spoken is None else _language("--from", spoken)
    if to == spoken:
        return to, spoken, "transcribe"
    if to != "en":
        raise LiveError(
            f"--to {to}: Whisper translates into English only. To transcribe {LANGUAGES[to]} "
            f"speech, add --from {to}"
        )
    return to, spoken, "translate"


def _language(option: str, given: str) -> str:
    try:
        return language_code(given)
    except ValueError as error:
        raise LiveError(f"{option}: {error}") from None
