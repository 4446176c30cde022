"""Any model, ready to use: whole recordings, or streams that are translated as they come.

translator = simuljax.load("en-de")  # or "runs/dar", or "ggml-tiny.bin"
print(translator.translate("talk.wav"))

stream = translator.stream()
for samples in microphone:
    for word in stream.push(samples):
        print(word.text, word.delay_ms)
print(stream.finish())
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simuljax.audio import RATE, as_int16, read_audio
from simuljax.serve.bundled import parts_of
from simuljax.serve.engine import Engine
from simuljax.serve.stream import Backend, Stream, Word, stream_all
from simuljax.train.run_params import Which

__all__ = ["Stream", "Translator", "Word", "is_whisper", "load"]

Audio = str | Path | np.ndarray


class Translator:
    """A model and what it takes to use it. Runs and Whisper are kinds of it."""

    steps: tuple[int, ...] = ()  # updates of all checkpoints of ours

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def languages(self) -> tuple[str, ...]:
        """Return the codes of the languages it understands; none where that is not known."""
        return ()

    @property
    def live_settings(self) -> dict[str, Any]:
        """Return the settings of live streams, which may be of any length."""
        return {}

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


def load(
    model: str | Path, checkpoint: Which = "best", settings: Any = None, **how: Any
) -> Translator:
    """Return the translator of a run's directory, of a bundled model ("en-de"), or of Whisper.

    Whisper is a file: .pt, safetensors or ggml. "ASR+MT" is a cascade; ASR is a run or Whisper, MT
    a run. `checkpoint` of a run may be "best", "last", "averaged". Whisper has `settings`, a
    `WhisperStreaming`, and `how` as in `simuljax.models.whisper.load`.
    """
    first, *then = parts_of(model)
    if then:
        from simuljax.serve.cascade import load as load_cascade

        return load_cascade(first, *then, checkpoint=checkpoint, settings=settings, **how)
    if is_whisper(first):
        from simuljax.models import whisper
        from simuljax.serve.whisper import WhisperTranslator

        return WhisperTranslator(whisper.load(first, **how), settings)
    from simuljax.serve.run_translator import load_run

    return load_run(first, checkpoint)


def is_whisper(model: str | Path) -> bool:
    """Return True for weights of Whisper: a file, or a directory with such a file and no run."""
    path = Path(model)
    if path.is_file():
        return True
    is_run = (path / "features.json").exists()
    return path.is_dir() and not is_run and any(path.glob("*.safetensors*"))
