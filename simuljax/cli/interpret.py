"""The command `simuljax interpret`: `simuljax translate` with a Whisper model."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from simuljax.cli.translate import RunOptions, WhisperOptions, whisper_command
from simuljax.config.decoding import PolicyConfig
from simuljax.config.fields import setting
from simuljax.decode.policies import POLICIES, Consensus, Policy
from simuljax.serve.live import LiveOptions, check_source
from simuljax.serve.pipeline import LiveError, input_devices
from simuljax.serve.translator import is_whisper

_WEIGHTS = """\
Whisper's weights come from
  https://huggingface.co/openai/whisper-tiny     model.safetensors and tokenizer.json
  https://huggingface.co/ggerganov/whisper.cpp   ggml-tiny.bin, not quantised
  https://github.com/openai/whisper              tiny.pt, with multilingual.tiktoken beside it
and likewise for base, small, medium, large-v3 and turbo."""


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
    live: LiveOptions, whisper: WhisperOptions, decoding: WhisperPolicy, model: Path | None = None
) -> Callable[[], None]:
    """Translate speech live with a Whisper model: `simuljax translate` with Whisper's defaults.

    Args:
        live: Sources and outputs.
        whisper: Languages and windows.
        decoding: When to commit words.
        model: Whisper's weights: .pt, safetensors or ggml.
    """
    if live.devices:
        return lambda: print(input_devices())
    check_source(live)
    if model is None:
        raise LiveError(f"give the model with --model. {_WEIGHTS}")
    if not is_whisper(model):
        raise LiveError(f"there are no weights at {model}. {_WEIGHTS}")
    return whisper_command([model], live, whisper, RunOptions(policy=decoding.policy), {})
