"""An hour as one stream: whether memory stays, words come in time and no phrase begins to loop.

    python -m experiments.dugan2023.long_stream FOLDER --model ggml-tiny.bin --to runs/hour

FOLDER has recordings and manifest.tsv (experiments/dugan2023/recordings.py). They are pushed one after the
other into one stream as fast as the machine goes, each to its end, until so many minutes were
heard; if they do not suffice, they begin again. Then come minutes in which nobody speaks, each kind
in a stream of its own:

    silence    zeros
    white      noise at -30 dB of full scale
    pink       noise with a power of 1 / frequency, as loud
    syllables  the same, rising and falling as often as speech does: the model is asked about it
    voices     eight recordings at once, as loud: no speaker whom a listener could follow

TO.json has every minute, TO.txt what came out, TO.png memory, computation and lag over the minutes.
"""

import itertools
import math
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import jax
import numpy as np
import tyro
from tqdm import tqdm

from experiments.dugan2023.long_listening import Minute, Played, listen, nobody, playlist
from experiments.dugan2023.recordings import Recording, read_recordings
from experiments.dugan2023.table_1 import REFUSALS, ROWS
from simuljax.audio import RATE
from simuljax.cache import enable_compilation_cache
from simuljax.config.fields import ConfigError
from simuljax.config.json import write_json
from simuljax.eval.word_errors import Transcript, edits, matches, normalise, transcript
from simuljax.models import whisper
from simuljax.report.figures import BLUE, GREY, ORANGE, new_figure, save_figure
from simuljax.serve.whisper import WhisperStreaming, WhisperTranslator

SETTLED = 10  # minutes after which most programs are compiled
SPEECH = "speech"  # the stream in which somebody speaks
PHRASE = 6  # words of the longest phrase that is looked for
BAR = "{desc}: {percentage:3.0f}% of {total:.0f} s of sound, {elapsed}, {remaining} left"


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What is heard, and how."""

    folder: Annotated[Path, tyro.conf.Positional]
    """Recordings in one language, and manifest.tsv."""
    model: Path
    """Weights of Whisper: .pt, safetensors or ggml."""
    to: Path
    """The results, without .json, .txt and .png."""
    minutes: float = 60.0
    """Of speech, at least: the last recording is heard to its end."""
    nobody: float = 10.0
    """Minutes of each sound in which nobody speaks; 0: none."""
    policy: str = "local-agreement"
    """A row of experiments/dugan2023/table_1.py."""
    window: float = 2.0
    """Seconds from one hypothesis to the next."""
    chunk: float = 0.5
    """Seconds that are pushed at a time."""
    padding: Literal["full", "short"] = "full"
    """Of the model's windows: 30 s, or the next 5 s."""

    def __post_init__(self) -> None:
        if self.policy not in ROWS:
            known = ", ".join(ROWS)
            raise ConfigError(f"there is no policy {self.policy!r}; there are {known}")
        if not (0 < self.minutes < math.inf and 0 <= self.nobody < math.inf and self.chunk >= 0.01):
            raise ConfigError(
                f"--minutes {self.minutes}, --nobody {self.nobody}, --chunk {self.chunk}: minutes "
                "of speech are above 0, of nobody from 0, and a chunk from 0.01 s"
            )


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """The phrase of so many words that comes most often in a row."""

    phrase: str
    times: int


def run(chosen: Chosen) -> list[str]:
    """Hears all of it, writes the results and gives their lines."""
    recordings = read_recordings(chosen.folder)
    languages = sorted({recording.language for recording in recordings})
    if len(languages) > 1:
        raise ConfigError(f"{chosen.folder}: a stream is in one language, not in {languages}")
    played = playlist(recordings, chosen.minutes)
    interpreter = WhisperTranslator(whisper.load(chosen.model), interpreting(chosen, languages[0]))
    streams: dict[str, list[Minute]] = {}
    lines: list[str] = []
    for name, sound, seconds in _sounds(chosen, played, recordings):
        with tqdm(desc=name, total=seconds, bar_format=BAR) as bar:
            streams[name] = listen(interpreter.stream(), sound, chosen.chunk, bar.update)
        lines = write(chosen, played, streams)  # what is there is there, should the rest break
    return lines


def _sounds(
    chosen: Chosen, played: Sequence[Played], recordings: Sequence[Recording]
) -> Iterator[tuple[str, Iterable[np.ndarray], float]]:
    """Of every stream its name, its parts and its seconds."""
    speech = (one.recording.samples for one in played)
    yield SPEECH, speech, math.fsum(one.length_ms for one in played) / 1000
    for name, sound in nobody(recordings, chosen.nobody) if chosen.nobody else ():
        yield name, [sound], len(sound) / RATE


def interpreting(chosen: Chosen, language: str) -> WhisperStreaming:
    """How the stream is interpreted."""
    return WhisperStreaming(
        policy=ROWS[chosen.policy],
        window_s=chosen.window,
        task="transcribe",
        language=language,
        padding=chosen.padding,
    )


def growths_mb(minutes: Sequence[Minute], programs: Literal["new", "none"]) -> list[float]:
    """By how much memory rose in each minute that had new programs or none, once it is settled."""
    pairs = itertools.pairwise(minutes[SETTLED - 1 :])
    return [
        after.resident_mb - before.resident_mb
        for before, after in pairs
        if (after.programs > 0) == (programs == "new")
    ]


def repeated(words: Sequence[str]) -> dict[int, Repeated]:
    """For phrases of 1 to 6 words, the one that comes most often in a row."""
    found = {}
    for size in range(1, PHRASE + 1):
        best, run = Repeated(phrase="", times=0), 0
        for i in range(size - 1, len(words)):
            run = run + 1 if i >= size and words[i] == words[i - size] else 0
            if run // size + 1 > best.times:
                phrase = " ".join(words[i + 1 - size : i + 1])
                best = Repeated(phrase=phrase, times=run // size + 1)
        found[size] = best
    return found


def spoken(played: Iterable[Played]) -> Transcript:
    """All references, with the time in the stream at which each word had been said, or NaN."""
    words: list[str] = []
    times: list[float] = []
    for one in played:
        ends = [one.start_ms + end for end in one.recording.word_ends_ms]
        part = transcript(one.recording.reference, ends)
        words += part.words
        times += part.times_ms or [math.nan] * len(part.words)
    return Transcript(words=tuple(words), times_ms=tuple(times))


def written(minutes: Iterable[Minute]) -> Transcript:
    """All that was committed, and when."""
    words = [word for minute in minutes for word in minute.words]
    each = [(text, word.delay_ms) for word in words for text in normalise(word.text)]
    return Transcript(words=tuple(w for w, _ in each), times_ms=tuple(t for _, t in each))


def lags_s(reference: Transcript, said: Transcript) -> np.ndarray:
    """[N, 2]: of right words with a known time, when each was spoken, and how much later said."""
    pairs = matches(reference.words, said.words)
    times = [(reference.times_ms[i], said.times_ms[j]) for i, j in pairs]
    known = [(start, end - start) for start, end in times if not math.isnan(start)]
    return np.array(known).reshape(-1, 2) / 1000


def tell(minutes: Sequence[Minute], played: Sequence[Played]) -> list[str]:
    """What came of the speech, in lines."""
    said, reference = written(minutes), spoken(played)
    wrong = 100 * edits(reference.words, said.words) / max(len(reference.words), 1)
    sound = math.fsum(minute.sound_s for minute in minutes)
    lines = [
        f"{sound / 60:.1f} min of {_played(played)} in one stream",
        *_tell_machine(minutes),
        f"open         at most {max(m.open_s for m in minutes):.1f} s of sound not done with",
        f"quiet        at most {max(m.quiet_s for m in minutes):.1f} s without a word",
        f"words        {len(said.words)}, {len(said.words) / sound * 60:.0f} a minute; "
        f"WER {wrong:.1f} % of {len(reference.words)}",
    ]
    late = lags_s(reference, said)
    parts = {"lag": late[:, 0] >= 0, "  first 10 m": late[:, 0] < 600}
    parts["  last 10 m"] = late[:, 0] >= sound - 600
    lines += [f"{k:12} {_quantiles(late[part, 1])}" for k, part in parts.items() if part.any()]
    own = repeated(reference.words)
    for size, one in repeated(said.words).items():
        lines.append(f"in a row, {size}  {_times(one)}; in the references {_times(own[size])}")
    return lines


def _times(one: Repeated) -> str:
    return f"{one.times} times {one.phrase!r}" if one.times > 1 else "nothing"


def _played(played: Sequence[Played]) -> str:
    count = len({one.recording.index for one in played})
    again = f", {len(played) - count} of them heard again" if len(played) > count else ""
    return f"{count} recordings{again}"


def _tell_machine(minutes: Sequence[Minute]) -> list[str]:
    """Once most is compiled: of a stream that is long enough, from the eleventh minute on."""
    rest = minutes[SETTLED:] or minutes
    memory, arrays = [m.resident_mb for m in rest], [m.arrays_mb for m in minutes]
    spent = math.fsum(m.spent_s for m in rest) / math.fsum(m.sound_s for m in rest)
    return [
        f"from minute {len(minutes) - len(rest) + 1} on",
        f"  computing  {spent:.3f} s a second of sound, "
        f"{max(m.computed for m in rest):.3f} in the slowest minute",
        f"  behind     at most {max(m.behind_s for m in rest):.1f} s, had it come live",
        f"  memory     {min(memory):.0f} to {max(memory):.0f} MB, {memory[-1]:.0f} at the end",
        *_tell_growth(minutes),
        f"JAX's arrays {min(arrays):.1f} to {max(arrays):.1f} MB",
    ]


def _tell_growth(minutes: Sequence[Minute]) -> list[str]:
    """A program that is compiled stays; there are so many shapes of windows, and no more."""
    plain, new = growths_mb(minutes, "none"), growths_mb(minutes, "new")
    programs = sum(minute.programs for minute in minutes[SETTLED:])
    lines = []
    if plain:
        each = f"median {np.median(plain):+.3f} MB, at most {max(plain):+.2f} MB"
        lines.append(f"    {len(plain)} minutes without a new program: {each}")
    if new:
        found = f"{sum(new):+.1f} MB together"
        lines.append(f"    {len(new)} minutes with {programs} new programs: {found}")
    return lines


def _quantiles(seconds: np.ndarray) -> str:
    middle, most = np.quantile(seconds, [0.5, 0.95])
    found = f"median {middle:.1f} s, 95 % within {most:.1f} s, at most {seconds.max():.1f} s"
    return f"{found} ({len(seconds)} right words)"


def tell_nobody(name: str, minutes: Sequence[Minute]) -> str:
    """How much was said though nobody spoke."""
    sound = math.fsum(minute.sound_s for minute in minutes)
    spent = math.fsum(minute.spent_s for minute in minutes)
    text = " ".join(minute.text for minute in minutes if minute.words)
    found = f"{len(text.split())} words, computing {spent / sound:.3f} s a second"
    return f"{name:12} {sound / 60:.1f} min: {found}; {text[:200]!r}"


def draw(minutes: Sequence[Minute], late: np.ndarray, path: Path) -> Path:
    """Memory, lag and computation over the minutes."""
    figure = new_figure(8, 8)
    memory, times, computed = figure.subplots(3, 1, sharex=True)
    places = np.arange(len(minutes)) + 1
    memory.plot(places, [m.resident_mb for m in minutes], color=BLUE, label="resident")
    memory.plot(places, [m.arrays_mb for m in minutes], color=ORANGE, label="JAX's arrays")
    memory.set_ylabel("memory, MB")
    compiled = [place for place, m in zip(places, minutes, strict=True) if m.programs]
    memory.plot(compiled, np.zeros(len(compiled)), "|", color=GREY, label="new programs")
    times.plot(late[:, 0] / 60, late[:, 1], ".", color=GREY, markersize=2, label="lag of a word")
    times.plot(places, [m.open_s for m in minutes], color=BLUE, label="longest open sound")
    times.plot(places, [m.quiet_s for m in minutes], color=ORANGE, label="longest without a word")
    times.set_ylabel("seconds")
    computed.plot(places, [m.computed for m in minutes], color=BLUE, label="computing")
    computed.set_ylabel("seconds a second of sound")
    computed.set_xlabel("minutes heard")
    for axes in (memory, times, computed):
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower right", bbox_to_anchor=(1, 1))
    return save_figure(figure, path)


def write(
    chosen: Chosen, played: Sequence[Played], streams: Mapping[str, Sequence[Minute]]
) -> list[str]:
    """The results; of paths in the command only the names, since the rest is of this machine."""
    words = [Path(word).name if os.sep in word else word for word in sys.argv[1:]]
    command = f"python -m experiments.dugan2023.long_stream {shlex.join(words)}"
    device = f"{os.cpu_count()} CPU cores, {jax.devices()[0].device_kind}, jax {jax.__version__}"
    lines = tell(streams[SPEECH], played)
    lines += [tell_nobody(name, some) for name, some in streams.items() if name != SPEECH]
    chosen.to.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join([f"$ {command}", f"# {device}", *lines, ""])
    chosen.to.with_suffix(".txt").write_text(text, "utf-8")
    told = {
        "command": command,
        "device": device,
        "recordings": [one.recording.file.name for one in played],
        "minutes": {name: [*map(_row, minutes)] for name, minutes in streams.items()},
    }
    write_json(chosen.to.with_suffix(".json"), told)
    late = lags_s(spoken(played), written(streams[SPEECH]))
    draw(streams[SPEECH], late, chosen.to.with_suffix(".png"))
    return lines


def _row(minute: Minute) -> dict[str, float | str]:
    numbers = {key: round(x, 3) for key, x in vars(minute).items() if isinstance(x, float | int)}
    return numbers | {"text": minute.text}


def main() -> None:
    """The command."""
    enable_compilation_cache()
    try:
        lines = run(tyro.cli(Chosen, description=__doc__))
    except (*REFUSALS, OSError) as error:
        sys.exit(f"long_stream: {error}")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
