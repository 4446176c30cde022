"""The command `simuljax translate`: live translation with any model."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from simuljax.cache import enable_compilation_cache
from simuljax.config.decoding import Decoding, Sentences, Stammer, check_policy, without_effect
from simuljax.config.fields import ConfigError, setting
from simuljax.config.model import ModelConfig
from simuljax.config.options import (
    from_options,
    given_options,
    options_in,
    options_of,
    to_options,
)
from simuljax.decode.policies import Consensus, Policy, PolicyError
from simuljax.models.whisper.tokenizer import LANGUAGES, Task, language_code
from simuljax.serve.bundled import DEFAULT, NAME, parts_of, target_language
from simuljax.serve.cascade import RECOGNISING, check_translator
from simuljax.serve.live import LiveOptions, check_options, check_source, load_stream, run_live
from simuljax.serve.pipeline import LiveError, input_devices
from simuljax.serve.translator import is_whisper, load_parts
from simuljax.serve.whisper import WhisperStreaming
from simuljax.serve.whisper.translator import check_whisper_policy
from simuljax.train.run import RunError, open_run

# What --offline goes with; the other options are about streams.
_OFFLINE = ["audio", "to", "offline", "checkpoint", "spoken", "dtype", "beam", "length_penalty"]


@dataclass(frozen=True, kw_only=True)
class RunOptions(Decoding):
    """The options of trained runs; Whisper has some of them."""

    offline: bool = setting(False, help="Translate the whole file at once.")
    checkpoint: Literal["best", "last", "averaged"] = setting("best", help="Which checkpoint.")
    sentences: Sentences = setting(
        "pauses",
        help="Cut the stream at pauses, go on after each sentence, or stop after the first.",
        label="{}",
        applies=("a live source", "speech"),
    )
    given: frozenset[str] = frozenset()  # options that the arguments name, their default or not


@dataclass(frozen=True, kw_only=True)
class WhisperOptions:
    """The options of Whisper models alone."""

    spoken: Annotated[str | None, tyro.conf.arg(name="from")] = None
    """Whisper: the language that is spoken; by default the model detects it."""
    window: float | None = None
    """Whisper: seconds of sound from one hypothesis to the next; by default 1, in a cascade 0.5."""
    padding: Literal["full", "short"] | None = None
    """Whisper: pad the sound to 30 s, as in training, or to 10, 15, ... s, which is faster; by
    default full, in a cascade short."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Whisper: the type to compute in."""


def translate_command(
    *,
    model: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")] = None,
    then_k: int | None = None,
    live: LiveOptions,
    run: RunOptions,
    whisper: WhisperOptions,
) -> Callable[[], None]:
    """Translate speech live: words appear as they are committed.

    Args:
        model: The directory of a trained run, a bundled model (en-de, the default), a Whisper file
            (.pt, safetensors, ggml), or a cascade of a recogniser and a translator of text
            (ASR+MT): a run or Whisper, and a run.
        then_k: Lag of wait-k of a cascade's second run, in words.
        live: Sources and outputs.
        run: Decoding with a trained run; Whisper has --policy, --offline and --beam.
        whisper: Decoding with a Whisper model.
    """
    if live.devices:
        return lambda: print(input_devices())
    if model is None or (live.audio is None and not live.mic and not _is_model(model)):
        live = live if model is None else replace(live, audio=str(model))
        model = Path(DEFAULT)
    check_source(live)
    parts = parts_of(model)
    for part in parts:
        if not part.exists():
            raise LiveError(f"there is no model {part}")
    if run.offline and live.is_live:
        raise LiveError("--offline translates a whole file: give a sound file")
    if run.offline:
        reason = "is for live translation: leave it out with --offline"
        _refuse(reason, live, run, whisper, allowed=_OFFLINE)
    if run.beam is not None and not run.offline:
        raise LiveError("--beam needs --offline or, for a run, --policy local-agreement")
    if then_k is not None and (run.offline or len(parts) == 1):
        raise LiveError("--then-k is for live translation with a cascade, ASR+MT: leave it out")
    if then_k is not None and then_k < 1:
        raise LiveError(f"--then-k is {then_k}; it must be at least 1")
    settings: dict[str, Any] = {} if then_k is None else {"translating": {"k": then_k}}
    if is_whisper(parts[0]):
        return whisper_command(parts, live, whisper, run, settings)
    _refuse(f"is for Whisper models; {model} is a run", whisper)
    live = replace(live, to=_target(live, parts[-1]))
    opened = open_run(parts[0])  # a cascade streams as its recogniser does
    if not run.offline:
        check_run(parts[0], run, opened.model)
        settings["decoding"] = with_stored(run, opened.decoding).decoding()
    load_model = partial(load_parts, [opened, *parts[1:]], run.checkpoint)
    return _command(parts, live, run, load_model, settings)


def _is_model(given: Path) -> bool:
    """Return True if the one argument of the command is a model and not a sound file."""
    weights = (".pt", ".bin", ".safetensors")
    named = NAME.fullmatch(str(given)) or "+" in str(given)
    return given.is_dir() or given.suffix in weights or (bool(named) and not given.is_file())


def _refuse(reason: str, *groups: Any, allowed: Collection[str] = ()) -> None:
    """Refuse options that are given and not allowed."""
    for options in groups:
        if isinstance(options, RunOptions):
            known, values = options_in(options), given_options(options)
            given = [name for name, value in values.items() if value != known[name].usual]
        else:
            given = [f.name for f in fields(options) if getattr(options, f.name) != f.default]
        for name in given:
            if name not in allowed:
                raise LiveError(f"{_option(name)} {reason}")


def _option(name: str) -> str:
    return "--from" if name == "spoken" else f"--{name.replace('_', '-')}"


def with_stored(run: RunOptions, stored: Decoding) -> RunOptions:
    """Return the options, with those that a run is stored with where none is given."""
    usual = {} if run.policy is not None else given_options(stored)
    chosen = {k: v for k, v in to_options(run).items() if k in {*run.given, *given_options(run)}}
    return from_options(RunOptions, usual | chosen) if usual else run


def check_run(run: Path, options: RunOptions, model: ModelConfig) -> None:
    """Refuse settings that this run does not have or that would have no effect."""
    chosen = options.decoding()
    try:
        check_policy(chosen.policy, model)
    except PolicyError as error:
        raise RunError(f"{run}: {error}") from None
    for name, why in without_effect(chosen, model).items():
        raise RunError(f"{run}: {_option(name)} would change nothing: it {why}; leave it out")


def whisper_command(
    parts: Sequence[Path],
    live: LiveOptions,
    whisper: WhisperOptions,
    run: RunOptions,
    stream: dict[str, Any],
) -> Callable[[], None]:
    """Check the options; return the translation with Whisper, or of what it recognises."""
    first, *then = parts
    opened: list[Any] = [first]
    allowed = {"policy", "offline", "beam", *options_of(Stammer)}
    allowed |= {"checkpoint"} if then else set() if run.policy else {"threshold"}
    allowed |= set() if run.policy is None else {*options_of(type(run.policy))}
    reason = f"is for trained runs; {first} is a Whisper model"
    if then and "k" not in allowed and "k" in given_options(run):
        raise LiveError(f"--k {reason}; the lag of its translator is --then-k")
    _refuse(reason, run, allowed=allowed)
    if run.policy is not None and run.policy.beam > 1:
        raise LiveError(f"--beam {reason}")
    if then:
        usual = replace(RECOGNISING, policy=run.policy or RECOGNISING.policy)
        settings, to = _with_options(usual, live, whisper), _target(live, then[0])
        opened.append(open_run(then[0]))
        check_translator(opened[1])
    else:
        policy = run.policy or Consensus(threshold=run.threshold)
        to, settings = whisper_settings(live, whisper, policy)
    check_whisper_policy(settings.policy)
    settings, live = replace(settings, stammer=run.stammer), replace(live, to=to)
    how = {"settings": settings, "dtype": whisper.dtype}
    load_model = partial(load_parts, opened, run.checkpoint, **how)
    return _command(parts, live, run, load_model, stream, None if then else settings)


def _target(live: LiveOptions, model: Path) -> str | None:
    """Return the language to write; refuse one that a bundled model does not write."""
    known = target_language(model)
    if known and live.to not in (None, known) and _language("--to", live.to) != known:
        raise LiveError(f"--to {live.to}: the model writes {known}; leave --to out")
    return known or live.to


def whisper_settings(
    live: LiveOptions, whisper: WhisperOptions, policy: Policy
) -> tuple[str, WhisperStreaming]:
    """Return the code of the language to write, and the settings of the stream."""
    to = _language("--to", live.to or "en")
    spoken = None if whisper.spoken is None else _language("--from", whisper.spoken)
    task: Task = "transcribe" if to == spoken else "translate"
    if task == "translate" and to != "en":
        raise LiveError(
            f"--to {to}: Whisper translates into English only. To transcribe {LANGUAGES[to]} "
            f"speech, add --from {to}"
        )
    return to, _with_options(WhisperStreaming(policy=policy, task=task), live, whisper)


def _with_options(
    usual: WhisperStreaming, live: LiveOptions, whisper: WhisperOptions
) -> WhisperStreaming:
    """Return the settings with what the options say."""
    spoken = whisper.spoken
    try:
        return replace(
            usual,
            window_s=usual.window_s if whisper.window is None else whisper.window,
            language=None if spoken is None else _language("--from", spoken),
            padding=whisper.padding or usual.padding,
            behind="every" if live.source_pace == "fast" else "latest",
        )
    except ConfigError as error:
        raise LiveError(str(error).replace("WhisperStreaming.window_s", "--window")) from None


def _language(option: str, given: str) -> str:
    try:
        return language_code(given)
    except ValueError as error:
        raise LiveError(f"{option}: {error}") from None


def _command(
    parts: Sequence[Path],
    live: LiveOptions,
    run: RunOptions,
    load_model: Callable[[], Any],
    settings: dict[str, Any],
    keys: WhisperStreaming | None = None,
) -> Callable[[], None]:
    """Return the translation of the whole file, or live; `keys` change settings of Whisper."""
    check_options(live, parts[0])
    if not run.offline:
        load = partial(load_stream, parts, load_model, settings, live.source_pace)
        return partial(run_live, live, load, keys)

    def translate_file() -> None:
        enable_compilation_cache()
        print(load_model().translate(str(live.audio), beam=run.beam or 1).strip())

    return translate_file
