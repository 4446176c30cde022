"""`simuljax interpret`: an offline model listens, and what it says appears and is spoken."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from simuljax.audio import read_audio
from simuljax.audio.sources import check_microphone, input_devices
from simuljax.models.whisper.languages import LANGUAGES, language_code
from simuljax.serve.interpret import session
from simuljax.serve.interpret.hypothesis import InterpretError
from simuljax.serve.interpret.options import Interpretation, interpreting

_WEIGHTS = """\
Whisper's weights come from
  https://huggingface.co/openai/whisper-tiny     model.safetensors and tokenizer.json
  https://huggingface.co/ggerganov/whisper.cpp   ggml-tiny.bin, not quantised
  https://github.com/openai/whisper              tiny.pt, with multilingual.tiktoken beside it
and likewise for base, small, medium, large-v3 and turbo."""
_NOTES = "beside --log,"
_BEGINNING_S = 0.1


def interpret_command(chosen: Interpretation) -> Callable[[], None]:
    """Interpret speech live with Whisper: text, and speech if wanted."""
    if chosen.devices:
        return lambda: print(input_devices())
    settings = interpreting(chosen)
    _check(chosen)
    return lambda: session.run(chosen, settings)


def _check(chosen: Interpretation) -> None:
    """Refuses what does not go together, before anything is loaded."""
    if chosen.mic == (chosen.audio is not None):
        raise InterpretError("give a sound file, -, or --mic")
    if chosen.device is not None and not chosen.mic:
        raise InterpretError("--device is for --mic")
    if chosen.mic and chosen.pace is not None:
        raise InterpretError("--pace is for files and -; a microphone has its own")
    if chosen.audio == "-" and sys.stdin.isatty():
        raise InterpretError("- is for samples from a pipe, and standard input is the keyboard")
    if chosen.audio not in (None, "-") and not Path(chosen.audio or "").is_file():
        raise InterpretError(f"there is no sound file {chosen.audio}")
    if chosen.model is None:
        raise InterpretError(f"give the model with --model. {_WEIGHTS}")
    if not chosen.model.exists():
        raise InterpretError(f"there are no weights at {chosen.model}. {_WEIGHTS}")
    _check_outputs(chosen)
    _check_voice(chosen)
    _check_sound(chosen)


def _check_outputs(chosen: Interpretation) -> None:
    """Nothing that is read is written over, and no file is written twice."""
    taken = list(_read_files(chosen))
    for option, out in (("--speak", chosen.speak), ("--log", chosen.log), (_NOTES, chosen.notes)):
        if out is None:
            continue
        if not out.parent.is_dir():
            raise InterpretError(f"there is no directory {out.parent} for {out.name}")
        if out.is_dir():
            raise InterpretError(f"{option} {out} is a directory; give a file")
        for what, other in taken:
            if _same_file(out, other):
                raise InterpretError(
                    f"{option} {out} is also {what}, which it would destroy: give another"
                )
        taken.append((f"what {option} writes", out))


def _read_files(chosen: Interpretation) -> Iterator[tuple[str, Path]]:
    """What the command reads: a name for people, and the file."""
    if chosen.audio is not None:
        yield "the sound to hear", Path("/dev/stdin" if chosen.audio == "-" else chosen.audio)
    if chosen.model is not None:
        files = chosen.model.iterdir() if chosen.model.is_dir() else [chosen.model]
        yield from (("a file of the model", file) for file in files)


def _same_file(one: Path, other: Path) -> bool:
    """By whatever names, links among them; the files need not be there yet. No device is one."""
    if one.exists() and other.exists():
        return one.is_file() and one.samefile(other)
    return one.resolve() == other.resolve()


def _check_sound(chosen: Interpretation) -> None:
    """The beginning of a file, or the microphone, can be heard."""
    if chosen.mic:
        check_microphone(chosen.device_id)
    elif chosen.audio not in (None, "-"):
        read_audio(chosen.audio or "", duration_s=_BEGINNING_S)


def _check_voice(chosen: Interpretation) -> None:
    if chosen.voice is not None and not chosen.speaks:
        raise InterpretError("--voice is for speech out: add --speak FILE.wav or --play")
    if chosen.voice == "hibari" and language_code(chosen.to) != "en":
        raise InterpretError(
            f"hibari speaks English, not {LANGUAGES[language_code(chosen.to)]}: --voice espeak"
        )
    if (chosen.voice == "http") != (chosen.voice_name is not None):
        raise InterpretError(
            "--voice http and --voice-name NAME, the voice on the server, go together"
        )
    if chosen.voice == "http":
        session.named_voice(chosen)  # the server is not asked yet
