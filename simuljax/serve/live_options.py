"""Declare and check the options that every live translation has, whatever the model."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from simuljax.audio import read_audio
from simuljax.serve.audio_io import Pace, check_microphone
from simuljax.serve.pipeline import LiveError
from simuljax.voice import Espeak, Hibari, Http, Voice, voice_for

_PROBE_S = 0.1  # of a file, read to see that it is sound


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
        """Return True if there is speech output."""
        return self.speak is not None or self.play

    @property
    def is_live(self) -> bool:
        """Return True if the sound comes from a pipe or a microphone."""
        return self.mic or self.audio == "-"

    @property
    def source_pace(self) -> Pace:
        """Return the pace as given, or as the source has it."""
        return self.pace or ("real" if self.is_live else "fast")

    @property
    def speech_notes(self) -> Path | None:
        """Return the file for the times of speech."""
        if self.log is None or not self.speaks:
            return None
        return self.log.parent / f"{self.log.stem}.speech.jsonl"


def check_options(options: LiveOptions, model: Path) -> None:
    """Refuse bad sources, outputs and voices before the model is loaded."""
    check_source(options)
    check_sound_file(options)
    _check_outputs(options, model)
    _check_voice(options)
    if options.mic:
        check_microphone(options.device_id)
    elif options.audio not in (None, "-"):
        read_audio(options.audio, duration_s=_PROBE_S)


def check_source(options: LiveOptions) -> None:
    """Refuse options of the source that do not go together."""
    if options.mic == (options.audio is not None):
        raise LiveError("give a sound file, -, or --mic")
    if options.device is not None and not options.mic:
        raise LiveError("--device is for --mic")
    if options.mic and options.pace is not None:
        raise LiveError("--pace is for files and -; a microphone has its own pace")
    if options.audio == "-" and sys.stdin.isatty():
        raise LiveError("- reads samples from a pipe, but standard input is the keyboard")


def check_sound_file(options: LiveOptions) -> None:
    """Refuse a sound file that does not exist."""
    if options.audio not in (None, "-") and not Path(options.audio).is_file():
        raise LiveError(f"there is no sound file {options.audio}")


def _check_outputs(options: LiveOptions, model: Path) -> None:
    """Refuse outputs that would overwrite an input or another output."""
    taken = [("the sound to translate", _sound_path(options)), *_model_files(model)]
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
            if other is not None and _same_file(out, other):
                raise LiveError(f"{option} {out} is also {what}: give another file")
        taken.append((f"the output of {option}", out))


def _sound_path(options: LiveOptions) -> Path | None:
    if options.audio is None:
        return None
    return Path("/dev/stdin" if options.audio == "-" else options.audio)


def _model_files(model: Path) -> Iterator[tuple[str, Path]]:
    files = model.iterdir() if model.is_dir() else [model]
    yield from (("a file of the model", file) for file in files)


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
    if not options.speaks:
        return
    if options.voice == "hibari" and options.to not in (None, "en"):
        raise LiveError(f"--voice hibari speaks English, not {options.to!r}: use --voice espeak")
    if options.voice in (None, "espeak") and options.to is None:
        raise LiveError("speech output needs the language of the translation: add --to de")
    if options.voice == "http":
        make_voice(options)  # checks the key; no request is sent


def make_voice(options: LiveOptions) -> Voice:
    """Return the voice that was asked for, or the default of the language."""
    if options.voice == "hibari":
        return Hibari()
    if options.voice == "http":
        assert options.voice_name is not None
        return Http(voice=options.voice_name, url=options.voice_url)
    assert options.to is not None
    return Espeak(options.to) if options.voice == "espeak" else voice_for(options.to)
