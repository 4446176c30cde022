"""Run a live translation: follow the pipeline, obey keys and signals, write the outputs.

`simuljax translate` and `simuljax interpret` share all of this.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Generator
from types import FrameType
from typing import Protocol

import numpy as np

from simuljax.audio import RATE
from simuljax.eval.logs import write_records
from simuljax.serve import audio_io
from simuljax.serve.live_options import LiveOptions, make_voice
from simuljax.serve.outputs import Speaker, log_record, write_srt
from simuljax.serve.pipeline import LiveStream, Pipeline, Progress
from simuljax.serve.screen import Display, Keys, Screen, clock, display_for
from simuljax.voice import Http, Player, Voice

TICK_S = 0.1
_FINISHING = "finishing; Ctrl-C leaves at once"
_WARN_AFTER_S, _SECONDS_PER_WORD = 120.0, 20.0


class KeyControls(Protocol):
    """Settings that keys change while a stream runs."""

    help: str  # for the last line of the screen

    @property
    def status(self) -> str:
        """Return the settings for the status line."""
        ...

    def press(self, key: str) -> None:
        """Change a setting."""
        ...


def run(options: LiveOptions, load: Callable[[], tuple[LiveStream, KeyControls | None]]) -> None:
    """Translate the source to its end; write the outputs even if an error or Ctrl-C comes first.

    Plain text has a line per commit for streams with controls, which commit segments.
    """
    source, voice = _source(options), _loaded_voice(options)
    player = Player(voice.rate) if voice and options.play else None
    stream, controls = load()  # last: it takes longest
    speaker = None
    if voice is not None:
        speaker = Speaker(voice, track=options.speak, player=player, notes=options.speech_notes)
    pipeline = Pipeline(stream, source, speaker=speaker, pace=options.source_pace)
    with contextlib.suppress(AttributeError):  # not a file: something else was put in its place
        sys.stdout.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
    try:
        try:
            pipeline.start()
            line_per = "commit" if controls else "recording"
            display = display_for(sys.stdout, timeline=options.timeline, line_per=line_per)
            _follow(pipeline, controls, display)
        finally:
            _write_outputs(options, pipeline)
    except KeyboardInterrupt:
        sys.stdout.flush()
        os._exit(130)  # a thread in the middle of a computation cannot be stopped otherwise
    if speaker is not None:
        speaker.close()
    if pipeline.error is not None:
        raise pipeline.error


def _source(options: LiveOptions) -> Generator[np.ndarray, None, None]:
    chunk = round(TICK_S * RATE)
    if options.mic:
        return audio_io.microphone(chunk, options.device_id)
    if options.audio == "-":
        return audio_io.standard_input(chunk)
    assert options.audio is not None
    return audio_io.sound_file(options.audio, chunk, options.source_pace)


def _loaded_voice(options: LiveOptions) -> Voice | None:
    if not options.speaks:
        return None
    voice = make_voice(options)
    if not isinstance(voice, Http):
        voice.speak("one")  # loads the engine
    return voice


def _follow(pipeline: Pipeline, controls: KeyControls | None, display: Display) -> None:
    """Show the progress and obey keys and signals until the end."""
    shown, done, leaving, warned, warning = 0, False, False, False, None
    with contextlib.ExitStack() as stack:
        interrupt = stack.enter_context(Interrupt())
        keys = stack.enter_context(Keys()) if isinstance(display, Screen) else None
        stack.callback(display.close)
        while not done:
            done = pipeline.wait(TICK_S)
            pressed = keys.pressed() if keys else ""
            if controls is not None:
                for key in pressed:
                    controls.press(key)
            if not leaving and (interrupt.requested or "q" in pressed):
                leaving = True
                pipeline.finish()
            words, progress = pipeline.words[shown:], pipeline.progress()
            shown += len(words)
            warning = few_words(progress, shown)
            status = controls.status if controls else ""
            display.show(words, progress, status, _help(leaving, warning, controls, keys))
            if warning and not warned and keys is None:
                warned = True
                print(f"simuljax: {warning}", file=sys.stderr)
    if warning and not warned:  # the screen has shown it; its last line is gone
        print(f"simuljax: {warning}", file=sys.stderr)


def few_words(progress: Progress, words: int) -> str | None:
    """Return a warning if minutes of sound gave hardly any words."""
    seconds = progress.recorded_s
    if seconds < _WARN_AFTER_S or words * _SECONDS_PER_WORD >= seconds:
        return None
    return (
        f"{words} words in {clock(seconds)} of sound (loudest {progress.loudest_db:.0f} dB): check "
        "the sound, its language and the model"
    )


def _help(
    leaving: bool, warning: str | None, controls: KeyControls | None, keys: Keys | None
) -> str:
    if leaving:
        return _FINISHING
    if warning is not None:
        return warning
    if keys is None or not keys.available:
        return "Ctrl-C finishes"
    return f"{controls.help}  q finish" if controls else "q finish"


class Interrupt:
    """Note the first Ctrl-C or SIGTERM; raise `KeyboardInterrupt` at the second."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> "Interrupt":
        self._before = [signal.signal(number, self._note) for number in self.SIGNALS]
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in zip(self.SIGNALS, self._before, strict=True):
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


def _write_outputs(options: LiveOptions, pipeline: Pipeline) -> None:
    words = list(pipeline.words)
    if options.srt is not None:
        write_srt(options.srt, words)
    if options.log is not None:
        name = "microphone" if options.mic else str(options.audio)
        write_records(options.log, [log_record(words, name, pipeline.recorded_s)])
