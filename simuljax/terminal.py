"""`simuljax translate`: words on the terminal as they are committed."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

from simuljax.audio.sources import Pace, microphone, sound_file, standard_input
from simuljax.cache import enable_compilation_cache
from simuljax.live import Stream, Translator, Word, load


@dataclass(frozen=True, kw_only=True)
class Listening:
    """What is heard, and how words are shown."""

    run: Annotated[Path, tyro.conf.Positional]
    """The directory of a trained run."""
    audio: Annotated[str | None, tyro.conf.Positional] = None
    """A sound file, or - for raw samples on standard input (16-bit little-endian mono, 16 kHz)."""
    mic: bool = False
    """Listen to the microphone; Ctrl-C ends."""
    pace: Pace = "fast"
    """A file as fast as it goes, or at the speed it was spoken."""
    timeline: bool = False
    """A line for every word, with what had been heard when it was written."""
    offline: bool = False
    """Hear the whole file first, then translate it."""
    beam: int = 1
    """Hypotheses that are followed at once, with --offline."""
    checkpoint: Literal["best", "last", "averaged"] = "best"
    sentences: Literal["one", "many"] = "many"
    """Whether speech goes on after the model has ended a sentence."""
    read_ms: int | None = None
    """Speech to a READ; by default the step between decisions."""
    predecision_ms: int | None = None
    """Step between decisions; by default as trained."""
    threshold: float = 0.5
    """On the probability of writing."""


def translate_command(chosen: Listening) -> Callable[[], None]:
    """Translate speech live: words appear as they are committed."""
    if chosen.mic == (chosen.audio is not None):
        print("simuljax: give a sound file, -, or --mic", file=sys.stderr)
        raise SystemExit(2)
    if chosen.beam > 1 and not chosen.offline:
        print("simuljax: --beam needs --offline: committed words stay", file=sys.stderr)
        raise SystemExit(2)
    return lambda: translate(chosen)


def translate(chosen: Listening) -> None:
    """Loads the run, listens, shows."""
    enable_compilation_cache()
    translator = load(chosen.run, chosen.checkpoint)
    if chosen.offline and chosen.audio not in (None, "-"):
        print(translator.translate(chosen.audio, beam=chosen.beam))
        return
    stream = _stream(translator, chosen)
    chunk = stream.listener.read
    try:
        for samples in heard(chosen, chunk):
            show(stream.push(samples), chosen)
    except KeyboardInterrupt:
        pass
    show(stream.finish(), chosen)
    if not chosen.timeline:
        print()


def _stream(translator: Translator, chosen: Listening) -> Stream:
    return translator.stream(
        sentences=chosen.sentences,
        read_ms=chosen.read_ms,
        predecision_ms=chosen.predecision_ms,
        threshold=chosen.threshold,
    )


def show(words: list[Word], chosen: Listening) -> None:
    """On one line, or with times one below the other."""
    for word in words:
        if chosen.timeline:
            print(f"{word.delay_ms:9.0f} ms {word.elapsed_ms:9.0f} ms  {word.text}", flush=True)
        else:
            print(word.text, end=" ", flush=True)


def heard(chosen: Listening, chunk: int) -> Iterator[np.ndarray]:
    """Samples in pieces of `chunk`."""
    if chosen.mic:
        return microphone(chunk)
    if chosen.audio == "-":
        return standard_input(chunk)
    assert chosen.audio is not None
    return sound_file(chosen.audio, chunk, chosen.pace)
