"""One run of `simuljax interpret`, from the weights to the last file written."""

import os
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from types import FrameType

import numpy as np

from simuljax.audio import RATE
from simuljax.audio.sources import microphone, sound_file, standard_input
from simuljax.cache import enable_compilation_cache
from simuljax.eval.logs import Record, write_records
from simuljax.models.whisper import load
from simuljax.models.whisper.languages import language_code
from simuljax.serve.interpret.course import Window
from simuljax.serve.interpret.interpreter import Interpreter
from simuljax.serve.interpret.keys import Keys, after_key
from simuljax.serve.interpret.options import Interpretation, pace
from simuljax.serve.interpret.pipeline import Pipeline
from simuljax.serve.interpret.screen import Lines, Screen, screen_for
from simuljax.serve.interpret.settings import Interpreting
from simuljax.serve.interpret.speaker import Speaker
from simuljax.serve.interpret.view import HELP
from simuljax.serve.session import Word
from simuljax.voice import Espeak, Hibari, Http, Player, Voice, VoiceError, voice_for

TICK_S = 0.1
_FINISHING = "finishing what was heard; Ctrl-C leaves at once"


class Interrupt:
    """Ctrl-C, or SIGTERM: the first is noted as `asked`, the second is a `KeyboardInterrupt`."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> "Interrupt":
        self._before = [signal.signal(number, self._note) for number in self.SIGNALS]
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in zip(self.SIGNALS, self._before, strict=True):
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


def run(chosen: Interpretation, settings: Interpreting) -> None:
    """Loads, listens, shows, writes down."""
    try:  # what fails soonest comes first
        source, voice = _source(chosen), _voice(chosen)
        player = Player(voice.rate) if voice and chosen.play else None
        interpreter = _interpreter(chosen, settings)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    speaker = _speaker(chosen, voice, player) if voice else None
    pipeline = Pipeline(interpreter.stream(), source, speaker=speaker, pace=pace(chosen))
    try:
        try:
            pipeline.start()
            _follow(pipeline, settings, screen_for(sys.stdout))
        finally:
            _keep(chosen, pipeline)
    except KeyboardInterrupt:
        sys.stdout.flush()
        os._exit(130)  # a thread in the middle of a computation cannot be stopped otherwise
    if speaker is not None:
        speaker.close()
    if pipeline.error is not None:
        raise pipeline.error


def _follow(pipeline: Pipeline, settings: Interpreting, screen: Screen | Lines) -> None:
    """Shows what happens and obeys keys and signals, until all is said."""
    shown, done, leaving = 0, False, False
    with ExitStack() as stack:
        interrupt = stack.enter_context(Interrupt())
        keys = stack.enter_context(Keys()) if isinstance(screen, Screen) else None
        stack.callback(screen.close)
        while not done:
            done = pipeline.wait(TICK_S)
            pressed = keys.pressed() if keys else ""
            for key in pressed:
                settings = after_key(settings, key)
            if pressed:
                pipeline.change(settings)
            if not leaving and (interrupt.asked or "q" in pressed):
                leaving = True
                pipeline.finish()
            words = pipeline.words[shown:]
            shown += len(words)
            screen.show(words, pipeline.progress(), settings, _help(leaving, keys))


def _help(leaving: bool, keys: Keys | None) -> str:
    if leaving:
        return _FINISHING
    return HELP if keys is not None and keys.there else "Ctrl-C finishes"


def _interpreter(chosen: Interpretation, settings: Interpreting) -> Interpreter:
    """The model, compiled: the first words would be late otherwise."""
    assert chosen.model is not None
    enable_compilation_cache()
    _tell(f"loading {chosen.model.name} ...")
    interpreter = Interpreter(load(chosen.model, dtype=chosen.dtype), settings)
    _tell("compiling ...")
    some = tuple(interpreter.whisper.tokenizer.encode(" one two three four five six seven eight"))
    for prompt in ((), some[: settings.prompt_tokens]):
        window = Window(
            samples=np.zeros(RATE, np.int16), prompt=prompt, begun=(), language=settings.language
        )
        interpreter.write([window], settings)
    return interpreter


def _source(chosen: Interpretation) -> Generator[np.ndarray, None, None]:
    chunk = round(TICK_S * RATE)
    if chosen.mic:
        return microphone(chunk, chosen.device_id)
    if chosen.audio == "-":
        return standard_input(chunk)
    assert chosen.audio is not None
    return sound_file(chosen.audio, chunk, pace(chosen))


def _voice(chosen: Interpretation) -> Voice | None:
    """Who speaks, if anyone; ready to."""
    if not chosen.speaks:
        return None
    try:
        voice = named_voice(chosen)
        if not isinstance(voice, Http):
            voice.speak("one")  # loads what it needs
    except ImportError as error:
        raise VoiceError(str(error)) from error
    return voice


def named_voice(chosen: Interpretation) -> Voice:
    """As asked for, or as the language has it; nothing is loaded yet."""
    match chosen.voice:
        case "hibari":
            return Hibari()
        case "espeak":
            return Espeak(language_code(chosen.to))
        case "http":
            assert chosen.voice_name is not None
            return Http(voice=chosen.voice_name, url=chosen.voice_url)
        case None:
            return voice_for(language_code(chosen.to))


def _speaker(chosen: Interpretation, voice: Voice, player: Player | None) -> Speaker:
    return Speaker(voice, track=chosen.speak, player=player, notes=chosen.notes)


def _keep(chosen: Interpretation, pipeline: Pipeline) -> None:
    """Writes down what was said, and when."""
    if chosen.log is not None:
        name = "microphone" if chosen.mic else chosen.audio
        write_records(chosen.log, [record_of(pipeline.words, name, pipeline.heard_s)])


def record_of(words: Sequence[Word], source: str | None, heard_s: float) -> Record:
    """As SimulEval has it; nobody knows the reference."""
    return Record(
        index=0,
        prediction=" ".join(word.text for word in words),
        delays=tuple(word.delay_ms for word in words),
        elapsed=tuple(word.elapsed_ms for word in words),
        source=source,
        source_length=heard_s * 1000,
    )


def _tell(what: str) -> None:
    """On a line that the next takes the place of, for whoever waits at a terminal."""
    if sys.stderr.isatty():
        print(f"\r{what}\x1b[K", end="\r", file=sys.stderr, flush=True)
