"""`simuljax translate`: words on the terminal as they are committed."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

from simuljax.audio import RATE, AudioError, read_audio
from simuljax.live import MS, Stream, Translator, Word, load
from simuljax.train.cache import enable_compilation_cache


@dataclass(frozen=True, kw_only=True)
class Listening:
    """What is heard, and how words are shown."""

    run: Annotated[Path, tyro.conf.Positional]
    """The directory of a trained run."""
    audio: Annotated[str | None, tyro.conf.Positional] = None
    """A sound file, or - for raw samples on standard input (16-bit little-endian mono, 16 kHz)."""
    mic: bool = False
    """Listen to the microphone; Ctrl-C ends."""
    pace: Literal["fast", "real"] = "fast"
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
        yield from microphone(chunk)
    elif chosen.audio == "-":
        yield from standard_input(chunk)
    else:
        assert chosen.audio is not None
        samples, start = read_audio(chosen.audio).samples, time.perf_counter()
        for first in range(0, len(samples), chunk):
            piece = samples[first : first + chunk]
            if chosen.pace == "real":
                due = (first + len(piece)) / RATE
                time.sleep(max(0.0, due - (time.perf_counter() - start)))
            yield piece


def standard_input(chunk: int) -> Iterator[np.ndarray]:
    """Raw samples as they come; an odd byte at the end is no sample."""
    waiting = b""
    while data := os.read(sys.stdin.fileno(), 2 * chunk):
        waiting += data
        whole = len(waiting) - len(waiting) % 2
        if whole:
            yield np.frombuffer(waiting[:whole], "<i2").astype(np.int16)
        waiting = waiting[whole:]
    if waiting:
        raise AudioError("truncated", "standard input ended in the middle of a sample (one byte)")


def microphone(chunk: int) -> Iterator[np.ndarray]:
    """The default input device, until Ctrl-C."""
    try:
        import sounddevice  # pyright: ignore[reportMissingImports]
    except (ImportError, OSError) as error:
        raise AudioError(
            "not samples",
            f"there is no way to a microphone here ({error}): pip install 'simuljax[mic]', or "
            "translate a file",
        ) from error
    try:
        with sounddevice.RawInputStream(
            samplerate=RATE, channels=1, dtype="int16", blocksize=chunk
        ) as source:
            while True:
                data, lost = source.read(chunk)
                if lost:
                    print(f"\n[some sound was lost: the last {chunk // MS} ms]", file=sys.stderr)
                yield np.frombuffer(bytes(data), np.int16)
    except sounddevice.PortAudioError as error:
        raise AudioError("not samples", f"the microphone cannot be opened: {error}") from error
