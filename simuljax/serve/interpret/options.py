"""What can be asked of `simuljax interpret`, and the settings that it means."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from simuljax.audio.sources import Pace
from simuljax.models.whisper.languages import LANGUAGES, language_code
from simuljax.models.whisper.tokenizer import Task
from simuljax.serve.interpret.hypothesis import InterpretError
from simuljax.serve.interpret.policies import (
    AlignAtt,
    Confidence,
    Consensus,
    Greedy,
    LocalAgreement,
    Offline,
    Policy,
)
from simuljax.serve.interpret.settings import Interpreting

PolicyName = Literal["greedy", "confidence", "consensus", "align-att", "local-agreement", "offline"]
VoiceName = Literal["hibari", "espeak", "http"]
# Which policies an option is for.
_MEANT_FOR: dict[str, tuple[PolicyName, ...]] = {
    "threshold": ("confidence", "consensus"),
    "by": ("confidence",),
    "frames": ("align-att",),
    "hypotheses": ("local-agreement",),
}


@dataclass(frozen=True, kw_only=True)
class Interpretation:
    """What is heard, when something is said, and where it goes."""

    audio: Annotated[str | None, tyro.conf.Positional] = None
    """A sound file, or - for raw samples on standard input (16-bit little-endian mono, 16 kHz)."""
    mic: bool = False
    """Listen to the microphone; Ctrl-C ends."""
    device: str | None = None
    """The input device, by number or part of its name; see --devices."""
    devices: bool = False
    """List the input devices, and nothing else."""
    model: Path | None = None
    """Whisper's weights: .pt, safetensors or ggml."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """To compute in."""
    to: str = "en"
    """The language to write: English, or the one that is spoken, which is then transcribed."""
    spoken: Annotated[str | None, tyro.conf.arg(name="from")] = None
    """The language that is spoken; by default the model finds out."""
    policy: PolicyName = "consensus"
    """When something is said."""
    threshold: float | None = None
    """Of confidence or consensus, 0 to 1; by default 0.5."""
    by: Literal["no_speech", "log_probability"] | None = None
    """What confidence is judged by; by default no_speech."""
    frames: int | None = None
    """AlignAtt: the last states, 20 ms each, that words must not attend to; by default 25."""
    hypotheses: int | None = None
    """Local agreement: how many in a row must agree; by default 2."""
    window: float = 1.0
    """Seconds from one hypothesis to the next."""
    padding: Literal["full", "short"] = "full"
    """Sound is filled up to 30 s, as in training, or to the next 5 s: faster and less sure."""
    speak: Path | None = None
    """Say it into this WAV file."""
    play: bool = False
    """Say it through the loudspeaker."""
    voice: VoiceName | None = None
    """Who speaks; by default hibari for English and espeak for other languages."""
    voice_name: str | None = None
    """The name of the voice on the server, with --voice http."""
    voice_url: str = "https://api.elevenlabs.io"
    """The server, with --voice http; its key is $ELEVENLABS_API_KEY."""
    log: Path | None = None
    """Write a SimulEval record here, without a reference; with speech, its times go to a
    .speech.jsonl beside it."""
    pace: Pace | None = None
    """A file as fast as it goes (default), or at the speed it was spoken. For -, real is the
    default; fast is for a pipe that can wait, every window of which is then heard."""

    @property
    def device_id(self) -> int | str | None:
        """The input device as the sound library names it."""
        return int(self.device) if self.device and self.device.isdecimal() else self.device

    @property
    def speaks(self) -> bool:
        """Whether there is speech out."""
        return self.speak is not None or self.play

    @property
    def notes(self) -> Path | None:
        """Where the times of speech go."""
        if self.log is None or not self.speaks:
            return None
        return self.log.parent / f"{self.log.stem}.speech.jsonl"


def interpreting(chosen: Interpretation) -> Interpreting:
    """The settings; those that cannot be are an `InterpretError`."""
    to, spoken = _language("--to", chosen.to), chosen.spoken
    spoken = _language("--from", spoken) if spoken is not None else None
    try:
        return _settings(chosen, to, spoken)
    except InterpretError as error:
        raise InterpretError(_by_option(str(error))) from None


def _settings(chosen: Interpretation, to: str, spoken: str | None) -> Interpreting:
    return Interpreting(
        policy=_policy(chosen),
        window_s=chosen.window,
        task=_task(to, spoken),
        language=spoken,
        padding=chosen.padding,
        behind="every" if pace(chosen) == "fast" else "latest",
    )


def _by_option(problem: str) -> str:
    """Names what was typed: what is wrong with `window_s` is wrong with --window."""
    field, _, rest = problem.partition(" ")
    options = {"window_s": "window"} | {name: name for name in _MEANT_FOR}
    return f"--{options[field]} {rest}" if field in options else problem


def pace(chosen: Interpretation) -> Pace:
    """As asked for, or as the source has it."""
    if chosen.pace is not None:
        return chosen.pace
    return "real" if chosen.mic or chosen.audio == "-" else "fast"


def _language(option: str, given: str) -> str:
    try:
        return language_code(given)
    except ValueError as error:
        raise InterpretError(f"{option}: {error}") from None


def _task(to: str, spoken: str | None) -> Task:
    if to == spoken:
        return "transcribe"
    if to != "en":
        raise InterpretError(
            f"Whisper translates into English only, not into {LANGUAGES[to]}; to write down "
            f"{LANGUAGES[to]} speech as it is, add --from {to}"
        )
    return "translate"


def _policy(chosen: Interpretation) -> Policy:
    given = {name: getattr(chosen, name) for name in _MEANT_FOR}
    settings = {name: value for name, value in given.items() if value is not None}
    for name in settings:
        if chosen.policy not in (meant := _MEANT_FOR[name]):
            raise InterpretError(
                f"--{name} is for --policy {' or '.join(meant)}; {chosen.policy} has none"
            )
    kinds: dict[PolicyName, type[Policy]] = {
        "greedy": Greedy,
        "confidence": Confidence,
        "consensus": Consensus,
        "align-att": AlignAtt,
        "local-agreement": LocalAgreement,
        "offline": Offline,
    }
    return kinds[chosen.policy](**settings)
