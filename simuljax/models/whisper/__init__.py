"""Whisper (Radford et al. 2022) in Flax: published weights, transcripts, English translations.

    whisper = load("ggml-tiny.bin")
    said = whisper.transcribe("talk.flac", task="translate", words="timed")

    samples -> log-mel        spectrogram, model: windows of their own
    log-mel -> states         model: encoder
    states -> tokens          generate: one compiled loop, and which tokens may come
    tokens -> text            tokenizer
    windows -> segments       decoding, transcribe
    tokens -> times of words  timing
    files -> parameters       weights, export

Weights are read from `.pt`, safetensors and ggml files without running anything that is in them.
"""

from simuljax.models.tensor_file import WeightsError
from simuljax.models.whisper.decoding import Context, Decoded, Decoding
from simuljax.models.whisper.tokenizer import LANGUAGES, Tokenizer
from simuljax.models.whisper.transcribe import Request, Whisper
from simuljax.models.whisper.weights import load

__all__ = [
    "LANGUAGES",
    "Context",
    "Decoded",
    "Decoding",
    "Request",
    "Tokenizer",
    "WeightsError",
    "Whisper",
    "load",
]
