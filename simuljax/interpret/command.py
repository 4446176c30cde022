"""`simuljax interpret`: an offline model listens, and what it says appears and is spoken."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from simuljax.audio.sources import input_devices
from simuljax.interpret import session
from simuljax.interpret.hypothesis import InterpretError
from simuljax.interpret.options import Interpretation, interpreting
from simuljax.whisper.languages import LANGUAGES, language_code

_WEIGHTS = """\
Whisper's weights come from
  https://huggingface.co/openai/whisper-tiny     model.safetensors and tokenizer.json
  https://huggingface.co/ggerganov/whisper.cpp   ggml-tiny.bin, not quantised
  https://github.com/openai/whisper              tiny.pt, with multilingual.tiktoken beside it
and likewise for base, small, medium, large-v3 and turbo."""


def interpret_command(chosen: Interpretation) -> Callable[[], None]:
    """Interpret speech live with Whisper: text, and speech if wanted."""
    if chosen.devices:
        return lambda: print(input_devices())
    try:
        settings = interpreting(chosen)
    except InterpretError as error:
        refuse(str(error))
    _check(chosen)
    return lambda: session.run(chosen, settings)


def refuse(problem: str) -> NoReturn:
    """Bad use."""
    print(f"simuljax: {problem}", file=sys.stderr)
    raise SystemExit(2)


def _check(chosen: Interpretation) -> None:
    """Refuses what does not go together, before anything is loaded."""
    if chosen.mic == (chosen.audio is not None):
        refuse("give a sound file, -, or --mic")
    if chosen.device is not None and not chosen.mic:
        refuse("--device is for --mic")
    if chosen.mic and chosen.pace is not None:
        refuse("--pace is for files and -; a microphone has its own")
    if chosen.audio == "-" and sys.stdin.isatty():
        refuse("- is for samples from a pipe, and standard input is the keyboard")
    if chosen.audio not in (None, "-") and not Path(chosen.audio or "").is_file():
        refuse(f"there is no sound file {chosen.audio}")
    if chosen.model is None:
        refuse(f"give the model with --model. {_WEIGHTS}")
    if not chosen.model.exists():
        refuse(f"there are no weights at {chosen.model}. {_WEIGHTS}")
    _check_voice(chosen)
    for out in (chosen.speak, chosen.log):
        if out is not None and not out.parent.is_dir():
            refuse(f"there is no directory {out.parent} for {out.name}")


def _check_voice(chosen: Interpretation) -> None:
    if chosen.voice is not None and chosen.speak is None and not chosen.play:
        refuse("--voice is for speech out: add --speak FILE.wav or --play")
    if chosen.voice == "hibari" and language_code(chosen.to) != "en":
        refuse(f"hibari speaks English, not {LANGUAGES[language_code(chosen.to)]}: --voice espeak")
    if (chosen.voice == "http") != (chosen.voice_name is not None):
        refuse("--voice http and --voice-name NAME, the voice on the server, go together")
