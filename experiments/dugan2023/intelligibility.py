"""Whether what a voice says can be understood: Whisper writes down what it hears.

    python -m experiments.dugan2023.intelligibility LINES.txt --model ggml-tiny.bin --first 200
    python -m experiments.dugan2023.intelligibility WRITTEN.txt --references REFERENCES.txt --model ...

Says each line of a text file (.gz too), transcribes it, and prints the word error rate against
that line. Less than 10 % is wanted on well-written English. With --references the same voice says
these as well: what an interpreter wrote should be understood as well as they are, to 3 points.

Both sides are compared as `simuljax.eval.word_errors` has it: lower case, no punctuation, hyphens
as spaces, numbers as they stand ("two" is not "2"). Errors are summed over all lines, then divided
by all words. A line that the voice cannot say counts with all its words. --window short pads a line
to the next 5 s in place of Whisper's 30 s.
"""

import gzip
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

from simuljax.eval.word_errors import edits, normalise
from simuljax.models.whisper import Request, Whisper, load
from simuljax.voice import Espeak, Hibari, Voice, VoiceError

WORST = 5  # lines that are shown


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Who says what to whom."""

    lines: Annotated[Path, tyro.conf.Positional]
    """A text file, a line each."""
    model: Path
    """Whisper's weights."""
    references: Path | None = None
    """What the lines are translations of, in the voice's language."""
    voice: Literal["hibari", "espeak"] = "hibari"
    language: str = "en"
    """Of the lines; hibari speaks English alone."""
    speed: float = 1.0
    first: int | None = None
    """Lines; by default all."""
    batch: int = 8
    window: Literal["full", "short"] = "full"


@dataclass(frozen=True, kw_only=True)
class Understood:
    """A line, and what was heard of it."""

    line: str
    heard: str
    seconds: float  # of speech

    @property
    def words(self) -> list[str]:
        """That should be heard."""
        return normalise(self.line)

    @property
    def errors(self) -> int:
        """Words substituted, left out or added."""
        return edits(self.words, normalise(self.heard))


def main(chosen: Chosen) -> None:
    """Prints the error rates."""
    voice = Hibari() if chosen.voice == "hibari" else Espeak(chosen.language)
    whisper = load(chosen.model)
    print(f"{voice.name} at speed {chosen.speed:g}, heard by Whisper {whisper.config.name}")
    rate = report("lines", listen(voice, whisper, read(chosen.lines, chosen.first), chosen))
    if chosen.references:
        known = read(chosen.references, chosen.first)
        other = report("references", listen(voice, whisper, known, chosen))
        print(f"difference  {rate - other:+.2f} points")


def read(path: Path, first: int | None) -> list[str]:
    """The lines that have words."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return [line for line in text.decode().splitlines() if normalise(line)][:first]


def listen(
    voice: Voice, whisper: Whisper, lines: Sequence[str], chosen: Chosen
) -> list[Understood]:
    """Says all, some at a time, and tells how far it is."""
    request = Request(language=chosen.language, condition="nothing", window=chosen.window)
    done: list[Understood] = []
    start = time.perf_counter()
    for at in range(0, len(lines), chosen.batch):
        some = lines[at : at + chosen.batch]
        sounds = [say(voice, line, chosen.speed) for line in some]
        heard = whisper.transcribe_all(sounds, request=request, batch=chosen.batch, rate=voice.rate)
        done += [
            Understood(line=line, heard=said.text, seconds=len(sound) / voice.rate)
            for line, sound, said in zip(some, sounds, heard, strict=True)
        ]
        took = time.perf_counter() - start
        print(f"\r{len(done)} of {len(lines)}, {took:.0f} s", end="", flush=True)
    print()
    return done


def say(voice: Voice, line: str, speed: float) -> np.ndarray:
    """The line; a moment's silence where there is nothing the voice can say."""
    try:
        samples = voice.speak(line, speed=speed)
    except VoiceError as error:
        print(f"\n{error}")
        samples = np.zeros(0, np.int16)
    return samples if len(samples) else np.zeros(voice.rate, np.int16)


def report(name: str, understood: Sequence[Understood]) -> float:
    """The word error rate in percent, and the lines that were understood worst."""
    errors, words = sum(u.errors for u in understood), sum(len(u.words) for u in understood)
    whole = sum(u.errors == 0 for u in understood)
    rate, minutes = 100 * errors / words, sum(u.seconds for u in understood) / 60
    print(
        f"{name:10}  WER {rate:.2f} %: {errors} errors in {words} words;"
        f" {whole} of {len(understood)} lines without one; {minutes:.1f} min of speech"
    )
    for one in sorted(understood, key=lambda u: -u.errors)[:WORST]:
        print(f"  {one.errors:3} said   {one.line}\n      heard  {one.heard}")
    return rate


if __name__ == "__main__":
    main(tyro.cli(Chosen, description=__doc__))
