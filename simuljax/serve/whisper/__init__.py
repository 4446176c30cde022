"""Streams of Whisper: hypotheses, guards against text that nobody said, sessions, translator."""

from simuljax.serve.whisper.hypothesis import Guards
from simuljax.serve.whisper.session import WhisperSession, WhisperStreaming, Window
from simuljax.serve.whisper.translator import WhisperTranslator

__all__ = [
    "Guards",
    "WhisperSession",
    "WhisperStreaming",
    "WhisperTranslator",
    "Window",
]
