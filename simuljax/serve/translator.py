"""Any model, ready to use: whole recordings, or streams that are translated as they come.

translator = simuljax.load("en-de")  # or "runs/dar", or "ggml-tiny.bin"
print(translator.translate("talk.wav"))

stream = translator.stream()
for start in range(0, len(samples), 8_000):  # of a recording at 16 kHz
    for word in stream.push(samples[start : start + 8_000]):
        print(word.text, word.delay_ms)
print(stream.finish())
"""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from simuljax.audio import RATE, as_int16, read_audio
from simuljax.serve.bundled import parts_of
from simuljax.serve.engine import Engine
from simuljax.serve.session import Backend, Session, Stream, Word
from simuljax.train.run import Run, Which

Audio = str | Path | np.ndarray


class Translator:
    """A model and what it takes to use it. Runs, Whisper and cascades are kinds of it."""

    steps: tuple[int, ...] = ()  # updates of all checkpoints of ours
    languages: tuple[str, ...] = ()  # codes of those it understands; none where that is not known
    live_settings: Mapping[str, Any]  # of live streams, which may be of any length

    @property
    def name(self) -> str:
        raise NotImplementedError

    def translate(self, audio: Audio, *, rate: int = RATE, beam: int = 1) -> str:
        """Return the translation of a whole recording: a file, or mono samples at `rate`."""
        raise NotImplementedError

    def backend(self, **overrides: Any) -> Backend:
        """Return the model with these settings, compiled once for all streams that have them."""
        raise NotImplementedError

    def stream(self, **overrides: Any) -> Stream:
        """Return a live stream with these settings."""
        return Stream(self.backend(**overrides))

    def engine(
        self, *, streams: int = 64, waiting_ms: float = 10_000.0, **overrides: Any
    ) -> Engine:
        """Return up to so many live streams on this device; see `simuljax.serve.engine`."""
        return Engine(self.backend(**overrides), streams=streams, waiting_ms=waiting_ms)

    def stream_all(
        self, recordings: Sequence[Audio], *, streams: int = 16, **overrides: Any
    ) -> list[list[Word]]:
        """Return the words of recordings, each as a stream of its own would write them."""
        samples = [  # a stream may be empty
            samples_of(audio)
            if isinstance(audio, str | Path) or len(audio)
            else np.zeros(0, np.int16)
            for audio in recordings
        ]
        return stream_all(self.backend(**overrides), samples, streams=streams)


def samples_of(audio: Audio, rate: int = RATE) -> np.ndarray:
    """Return int16 samples at 16 kHz."""
    if isinstance(audio, str | Path):
        return read_audio(audio).samples
    return as_int16(np.asarray(audio), rate)


@dataclass(kw_only=True, eq=False)
class _Playback:
    """A recording that is pushed to its session a READ at a time."""

    session: Session
    samples: np.ndarray
    words: list[Word] = field(default_factory=list)
    pushed: int = 0
    computed_ms: float = 0.0

    def next(self) -> Any:
        while (read := self.session.next()) is None and not self.session.finished:
            size = self.session.push_size
            chunk = self.samples[self.pushed : self.pushed + size]
            self.pushed += len(chunk)
            self.session.push(chunk)
            if len(chunk) < size:
                self.session.finish()
        return read


def stream_all(
    backend: Backend, recordings: Sequence[np.ndarray], *, streams: int = 16
) -> list[list[Word]]:
    """Return the words of recordings, int16 at 16 kHz, each played to a stream of its own.

    READs of up to `streams` recordings are computed at once. `elapsed_ms` counts the whole of each
    step that a recording took part in.
    """
    playing = [_Playback(session=backend.open(), samples=each) for each in recordings]
    if not playing:
        return []
    free = list(range(min(streams, len(playing))))[::-1]
    rows, waiting, seated = backend.rows(len(free)), deque(playing), dict[int, _Playback]()
    while waiting or seated:
        while free and waiting:
            seated[free.pop()] = waiting.popleft()
        start = time.perf_counter()
        reads = {row: read for row, one in seated.items() if (read := one.next()) is not None}
        written = rows.step(reads) if reads else {}
        took_ms = (time.perf_counter() - start) * 1e3
        for row, result in written.items():
            one = seated[row]
            one.computed_ms += took_ms
            one.words += one.session.timed(one.session.commit(result), one.computed_ms)
        for row in [row for row, one in seated.items() if one.session.finished]:
            seated.pop(row)
            free.append(row)
    return [one.words for one in playing]


def batch_sizes(streams: int) -> tuple[int, ...]:
    """Return the numbers of rows that an encoder of whole sounds is compiled for: 1, 4, ..., all.

    On a CPU one: there, two rows take as long as two times one.
    """
    if jax.default_backend() == "cpu":
        return (1,)
    return (*(4**power for power in range(streams) if 4**power < streams), streams)


def batches(rows: Sequence[int], sizes: Sequence[int]) -> Iterator[tuple[list[int], int]]:
    """Yield parts of the rows, each with the size that it is padded to; sizes rise."""
    for k in range(0, len(rows), sizes[-1]):
        part = [*rows[k : k + sizes[-1]]]
        yield part, next(size for size in sizes if size >= len(part))


def load(
    model: str | Path, checkpoint: Which = "best", settings: Any = None, **how: Any
) -> Translator:
    """Return the translator of a run's directory, of a bundled model ("en-de"), or of Whisper.

    Whisper is a file: .pt, safetensors or ggml. "ASR+MT" is a cascade; ASR is a run or Whisper, MT
    a run. `checkpoint` of a run may be "best", "last", "averaged". Whisper has `settings`, a
    `WhisperStreaming`, and `how` as in `simuljax.models.whisper.load`.
    """
    return load_parts(parts_of(model), checkpoint, settings, **how)


def load_parts(
    parts: Sequence[Path | Run], checkpoint: Which = "best", settings: Any = None, **how: Any
) -> Translator:
    """Return the translator of a model, or of the two of a cascade; runs may be open already."""
    from simuljax.models import whisper
    from simuljax.serve.cascade import RECOGNISING, Cascade
    from simuljax.serve.run_translator import load_run
    from simuljax.serve.whisper import WhisperTranslator

    first, *then = parts
    if isinstance(first, Path) and is_whisper(first):
        usual = RECOGNISING if then else None
        loaded = WhisperTranslator(whisper.load(first, **how), settings or usual)
    else:
        loaded = load_run(first, checkpoint)
    return Cascade(loaded, load_run(then[0], checkpoint)) if then else loaded


def is_whisper(model: str | Path) -> bool:
    """Return True for weights of Whisper: a file, or a directory with such a file and no run."""
    path = Path(model)
    if path.is_file():
        return True
    is_run = (path / "features.json").exists()
    return path.is_dir() and not is_run and any(path.glob("*.safetensors*"))
