"""Run a live translation: check its options, follow the pipeline, obey keys and signals.

`simuljax translate` and `simuljax interpret` share all of this. Keys change Whisper's policy and
window while it translates.
"""

import contextlib
import functools
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from simuljax.audio import RATE, read_audio
from simuljax.cache import announce_compilation, enable_compilation_cache, show_status
from simuljax.decode.policies import (
    AlignAtt,
    Confidence,
    Consensus,
    Greedy,
    LocalAgreement,
    Offline,
    Policy,
)
from simuljax.eval.logs import write_records
from simuljax.serve.outputs import (
    PlainText,
    Screen,
    Speaker,
    clock,
    display_for,
    keyboard,
    log_record,
    subtitle_file,
)
from simuljax.serve.pipeline import (
    LiveError,
    Pace,
    Pipeline,
    Sound,
    check_microphone,
    microphone,
    sound_file,
    standard_input,
)
from simuljax.serve.session import Stream
from simuljax.serve.translator import Translator
from simuljax.serve.whisper import WhisperStreaming, WhisperTranslator
from simuljax.voice import Espeak, Hibari, Http, Player, Voice, voice_for

TICK_S = 0.1
_PROBE_S = 0.1  # of a file, read to see that it is sound
_RUN_COMPILATION_S, _LAYER_COMPILATION_S = 20.0, 8.0  # on two cores; per layer of Whisper
_FINISHING = "finishing; Ctrl-C leaves at once"
_WARN_AFTER_S, _WARN_NONE_AFTER_S, _SECONDS_PER_WORD = 120.0, 1.0, 20.0
# In the order of the key p, from low to high latency.
_POLICIES = (Greedy, Confidence, Consensus, AlignAtt, LocalAgreement, Offline)
_THRESHOLDS = Confidence, Consensus
# The number that + and - change: its step and its range.
_NUMBERS = {"threshold": (0.05, 0.0, 1.0), "frames": (5, 0, 1500), "agree": (1, 2, 30)}
_WINDOWS_S = 1.0, 2.0


@dataclass(frozen=True, kw_only=True)
class LiveOptions:
    """The options of a live translation that do not depend on the model."""

    audio: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="AUDIO")] = None
    """A sound file, or - for raw samples on standard input (16-bit little-endian mono, 16 kHz)."""
    mic: bool = False
    """Translate the microphone; Ctrl-C ends."""
    device: str | None = None
    """The input device, by number or part of its name; see --devices."""
    devices: bool = False
    """List the input devices and exit."""
    pace: Pace | None = None
    """Read a file as fast as possible (default) or at the speed it was spoken. - is real by
    default; fast is for a pipe that can wait."""
    timeline: bool = False
    """Print a line for every word: the sound before it, the time until it was written, the word."""
    srt: Path | None = None
    """Write subtitles to this file."""
    log: Path | None = None
    """Write a SimulEval record without a reference to this file; with speech, its times go to a
    .speech.jsonl beside it."""
    to: str | None = None
    """The language of the translation; Whisper writes English, or the language that is spoken."""
    speak: Path | None = None
    """Write the translation as speech to this WAV file."""
    play: bool = False
    """Play the translation as speech."""
    voice: Literal["hibari", "espeak", "http"] | None = None
    """The voice; by default hibari for English and espeak for other languages."""
    voice_name: str | None = None
    """The name of the voice on the server, with --voice http."""
    voice_url: str = "https://api.elevenlabs.io"
    """The server, with --voice http; its key is $ELEVENLABS_API_KEY."""

    @property
    def device_id(self) -> int | str | None:
        """Return the input device as the sound library names it."""
        return int(self.device) if self.device and self.device.isdecimal() else self.device

    @property
    def speaks(self) -> bool:
        return self.speak is not None or self.play

    @property
    def is_live(self) -> bool:
        """Return True if the sound comes from a pipe or a microphone."""
        return self.mic or self.audio == "-"

    @property
    def source_pace(self) -> Pace:
        return self.pace or ("real" if self.is_live else "fast")

    @property
    def speech_notes(self) -> Path | None:
        if self.log is None or not self.speaks:
            return None
        return self.log.parent / f"{self.log.stem}.speech.jsonl"


def check_options(options: LiveOptions, model: Path) -> None:
    """Refuse bad sound, outputs and voices before the model is loaded."""
    _check_outputs(options, model)
    _check_voice(options)
    if options.mic:
        check_microphone(options.device_id)
    elif options.audio not in (None, "-"):
        read_audio(options.audio, duration_s=_PROBE_S)


def check_source(options: LiveOptions) -> None:
    """Refuse options of the source that do not go together, and a file that does not exist."""
    if options.mic == (options.audio is not None):
        raise LiveError("give a sound file, -, or --mic")
    if options.device is not None and not options.mic:
        raise LiveError("--device is for --mic")
    if options.mic and options.pace is not None:
        raise LiveError("--pace is for files and -; a microphone has its own pace")
    if options.audio == "-" and sys.stdin.isatty():
        raise LiveError("- reads samples from a pipe, but standard input is the keyboard")
    if options.audio not in (None, "-") and not Path(options.audio).is_file():
        raise LiveError(f"there is no sound file {options.audio}")


def _check_outputs(options: LiveOptions, model: Path) -> None:
    """Refuse outputs that would overwrite an input or another output."""
    files = model.iterdir() if model.is_dir() else [model]
    taken = [("a file of the model", file) for file in files]
    if options.audio is not None:
        sound = "/dev/stdin" if options.audio == "-" else options.audio
        taken.append(("the sound to translate", Path(sound)))
    outputs = {
        "--speak": options.speak,
        "--srt": options.srt,
        "--log": options.log,
        "beside --log,": options.speech_notes,
    }
    for option, out in outputs.items():
        if out is None:
            continue
        if not out.parent.is_dir():
            raise LiveError(f"{option} {out}: there is no directory {out.parent}")
        if out.is_dir():
            raise LiveError(f"{option} {out} is a directory; give a file")
        for what, other in taken:
            if _same_file(out, other):
                raise LiveError(f"{option} {out} is also {what}: give another file")
        taken.append((f"the output of {option}", out))


def _same_file(one: Path, other: Path) -> bool:
    """Return True for two names of one regular file, also through links or before it exists."""
    if one.exists() and other.exists():
        return one.is_file() and one.samefile(other)
    return one.resolve() == other.resolve()


def _check_voice(options: LiveOptions) -> None:
    if options.voice is not None and not options.speaks:
        raise LiveError("--voice is for speech output: add --speak FILE.wav or --play")
    if (options.voice == "http") != (options.voice_name is not None):
        raise LiveError("--voice http and --voice-name NAME, a voice of the server, go together")
    if options.voice != "http" and options.voice_url != LiveOptions.voice_url:
        raise LiveError("--voice-url is for --voice http: add it, or leave the server out")
    if not options.speaks:
        return
    if options.voice == "hibari" and options.to not in (None, "en"):
        raise LiveError(f"--voice hibari speaks English, not {options.to!r}: use --voice espeak")
    if options.voice in (None, "espeak") and options.to is None:
        raise LiveError("speech output needs the language of the translation: add --to de")
    if options.voice == "http":
        _voice(options)  # checks the key; no request is sent


def _voice(options: LiveOptions) -> Voice:
    """Return the voice that was asked for, or the default of the language."""
    if options.voice == "http":
        return Http(voice=options.voice_name or "", url=options.voice_url)
    if options.voice == "hibari":
        voice = Hibari()
    else:
        to = options.to or ""
        voice = Espeak(to) if options.voice == "espeak" else voice_for(to)
    voice.speak("one")  # loads the engine
    return voice


def load_stream(
    parts: Sequence[Path],
    load: Callable[[], Translator],
    settings: Mapping[str, Any],
    pace: Pace,
) -> Stream:
    """Load a model of these parts, and compile what its stream needs."""
    enable_compilation_cache()
    show_status(f"loading {' and '.join(part.name for part in parts)} ...")
    translator = load()
    recogniser = getattr(translator, "recogniser", translator)  # of a cascade
    is_whisper = isinstance(recogniser, WhisperTranslator)
    name, about_s = "+".join(str(part.resolve()) for part in parts), _RUN_COMPILATION_S
    if is_whisper:
        config = recogniser.whisper.config
        name = f"{translator.name} {config.dtype} {recogniser.settings.padding}"
        about_s = _LAYER_COMPILATION_S * config.dimensions.text_layers
    with announce_compilation(name, about_s=about_s):
        stream = translator.stream(**settings)
        if is_whisper or pace == "real":  # a file can wait, and may need less
            stream.backend.compile(1)
    return stream


def run_live(
    options: LiveOptions, load: Callable[[], Stream], settings: WhisperStreaming | None = None
) -> None:
    """Translate the source to its end; write the outputs even if an error or Ctrl-C comes first.

    Keys change the settings of Whisper, and plain text has a line per commit of its segments.
    """
    source, voice = _source(options), _voice(options) if options.speaks else None
    player = Player(voice.rate) if voice and options.play else None
    stream, speaker = load(), None  # last: it takes longest
    controls = Controls(stream, settings) if settings else None
    if voice is not None:
        speaker = Speaker(voice, track=options.speak, player=player, notes=options.speech_notes)
    pipeline = Pipeline(stream, source, speaker=speaker, pace=options.source_pace)
    with contextlib.suppress(AttributeError):  # not a file: something else was put in its place
        sys.stdout.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
    try:
        try:
            pipeline.start()
            line_per = "commit" if controls else "recording"
            display = display_for(sys.stdout, "word" if options.timeline else line_per)
            _follow(pipeline, controls, display)
        except Exception as error:  # nobody reads stdout any more, say
            pipeline.stop(error)
        finally:
            _write_outputs(options, pipeline)
    except KeyboardInterrupt:
        sys.stdout.flush()
        os._exit(130)  # a thread in the middle of a computation cannot be stopped otherwise
    if speaker is not None:
        speaker.close()
    if pipeline.error is not None:
        raise pipeline.error


def _source(options: LiveOptions) -> Sound:
    chunk = round(TICK_S * RATE)
    if options.mic:
        return microphone(chunk, options.device_id)
    if options.audio == "-":
        return standard_input(chunk)
    return sound_file(options.audio or "", chunk, options.source_pace)


def _follow(pipeline: Pipeline, controls: "Controls | None", display: Screen | PlainText) -> None:
    """Show the progress and obey keys and signals until the end."""
    shown, done, leaving, warned, warning = 0, False, False, False, None
    on_screen = isinstance(display, Screen)
    with contextlib.ExitStack() as stack:
        interrupted = stack.enter_context(_interrupts())
        pressed = stack.enter_context(keyboard()) if on_screen else None
        usual = f"{controls.help}  q finish" if controls else "q finish"
        stack.callback(display.close)
        while not done:
            done = pipeline.wait(TICK_S)
            keys = pressed() if pressed else ""
            if controls is not None:
                controls.press(keys)
            if not leaving and (interrupted or "q" in keys):
                leaving = True
                pipeline.finish()
            words = pipeline.words[shown:]
            shown += len(words)
            warning = few_words(pipeline, shown)
            help = _FINISHING if leaving else warning or (usual if pressed else "Ctrl-C finishes")
            display.show(words, pipeline, controls.status if controls else "", help)
            if warning and not warned and not on_screen:
                warned = True
                print(f"simuljax: {warning}", file=sys.stderr)
    warning = few_words(pipeline, shown, ended=pipeline.error is None)
    if warning and not warned:  # the screen has shown it; its last line is gone
        print(f"simuljax: {warning}", file=sys.stderr)


def few_words(pipeline: Pipeline, words: int, *, ended: bool = False) -> str | None:
    """Return a warning if minutes of sound gave hardly any words, or all of it gave none."""
    seconds = pipeline.recorded_s
    patience_s = _WARN_NONE_AFTER_S if ended and not words else _WARN_AFTER_S
    if seconds < patience_s or words * _SECONDS_PER_WORD >= seconds:
        return None
    return (
        f"{words} words in {clock(seconds)} of sound (loudest {pipeline.loudest_db:.0f} dB): check "
        "the sound, its language and the model"
    )


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Give the list that the first Ctrl-C or SIGTERM is put in; the second one interrupts."""
    noted: list[int] = []

    def note(number: int, _: object) -> None:
        if noted:
            raise KeyboardInterrupt
        noted.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write_outputs(options: LiveOptions, pipeline: Pipeline) -> None:
    words = list(pipeline.words)
    if options.srt is not None:
        options.srt.write_text(subtitle_file(words), encoding="utf-8")
    if options.log is not None:
        name = "microphone" if options.mic else str(options.audio)
        write_records(options.log, [log_record(words, name, pipeline.recorded_s)])


class Controls:
    """The keys of a Whisper stream, and its settings for the status line."""

    help = "p policy  +/- threshold  w window"

    def __init__(self, stream: Stream, settings: WhisperStreaming):
        self.stream, self.settings = stream, settings

    @property
    def status(self) -> str:
        """Return the policy's name, its number and what is not the default; the window."""
        policy = self.settings.policy
        parts = [
            f"{value:.2f}" if isinstance(value, float) else str(value)
            for field in fields(policy)
            if (value := getattr(policy, field.name)) != field.default or field.name in _NUMBERS
        ]
        return f"{' '.join([policy.name, *parts])}  window {self.settings.window_s:g} s"

    def press(self, keys: str) -> None:
        """Change the settings from the next window on; ignore other keys."""
        changed = functools.reduce(after_key, keys, self.settings)
        if changed != self.settings:
            self.settings = changed
            self.stream.session.change(changed)  # pyright: ignore[reportAttributeAccessIssue]


def after_key(settings: WhisperStreaming, key: str) -> WhisperStreaming:
    """Return the settings after a key."""
    match key:
        case "p":
            return replace(settings, policy=_next_policy(settings.policy))
        case "+" | "=":  # one key, with and without shift
            return replace(settings, policy=_step_policy(settings.policy, 1))
        case "-" | "_":
            return replace(settings, policy=_step_policy(settings.policy, -1))
        case "w":
            short, long = _WINDOWS_S
            return replace(settings, window_s=long if settings.window_s == short else short)
    return settings


def _next_policy(policy: Policy) -> Policy:
    """Return the policy after this one; a threshold is kept where both have one."""
    place = _POLICIES.index(type(policy)) if type(policy) in _POLICIES else -1
    following = _POLICIES[(place + 1) % len(_POLICIES)]
    if isinstance(policy, _THRESHOLDS) and issubclass(following, _THRESHOLDS):
        return following(threshold=policy.threshold)
    return following()


def _step_policy(policy: Policy, sign: int) -> Policy:
    """Return the policy with its number one step up or down, within its range."""
    for name, (step, low, high) in _NUMBERS.items():
        if hasattr(policy, name):
            value = round(getattr(policy, name) + sign * step, 2)
            return replace(policy, **{name: min(max(value, low), high)})
    return policy
