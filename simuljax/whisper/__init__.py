"""Whisper (Radford et al. 2022) in Flax: published weights, transcripts, English translations.

    whisper = load("ggml-tiny.bin")
    said = whisper.transcribe("talk.flac", task="translate", words="timed")

    samples -> log-mel        mel
    log-mel -> states         model: encoder
    states -> tokens          generate, beam: one compiled loop; rules: which tokens may come
    tokens -> text            tokenizer, bpe
    windows -> segments       decoding, transcribe
    tokens -> times of words  timing

Weights are read from `.pt`, safetensors and ggml files without running anything that is in them.
"""

from simuljax.whisper.checkpoint import WeightsError
from simuljax.whisper.config import PUBLISHED, Config, Dimensions
from simuljax.whisper.decoding import Context, Decoded, Decoding
from simuljax.whisper.languages import LANGUAGES
from simuljax.whisper.timing import TimedWord
from simuljax.whisper.tokenizer import Tokenizer
from simuljax.whisper.transcribe import Request, Segment, Transcription
from simuljax.whisper.whisper import Whisper, load

__all__ = [
    "LANGUAGES",
    "PUBLISHED",
    "Config",
    "Context",
    "Decoded",
    "Decoding",
    "Dimensions",
    "Request",
    "Segment",
    "TimedWord",
    "Tokenizer",
    "Transcription",
    "WeightsError",
    "Whisper",
    "load",
]
