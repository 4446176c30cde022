"""A voice on a server that speaks ElevenLabs' protocol: theirs, or one of your own.

    POST {url}/v1/text-to-speech/{voice}?output_format=pcm_24000
    xi-api-key: KEY
    {"text": ..., "model_id": ..., "voice_settings": {"speed": ..., ...}, "language_code": ...}

The answer is the sound. What is said leaves this machine. The key is shown nowhere: not in the
voice's `repr`, nor in errors, and no redirect is followed with it.
"""

import io
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

import numpy as np
from jaxtyping import Int16

from simuljax.audio import AudioError, read_audio
from simuljax.voice.base import VoiceError, check_speed, nothing_said
from simuljax.voice.posting import Answer, Patience, post
from simuljax.voice.splitting import split

KEY = "ELEVENLABS_API_KEY"  # of the environment
_FORMAT = re.compile(r"(pcm|wav|mp3)_(\d+)(_\d+)?")
_SPEEDS = 0.7, 1.2  # that the protocol knows
_NO_SOUND = ("text/", "application/json", "application/problem+json", "image/", "video/")


@dataclass(frozen=True, kw_only=True)
class Http:
    """A voice by its name on the server; the key is `$ELEVENLABS_API_KEY` unless given.

    The protocol's speeds end at 0.7 and 1.2, so what is asked beyond is spoken at these.
    """

    voice: str
    url: str = "https://api.elevenlabs.io"
    key: str = field(default_factory=lambda: os.environ.get(KEY, ""), repr=False)
    model: str = "eleven_flash_v2_5"
    language: str | None = None
    """A code such as en, for models that can be told."""
    output_format: str = "pcm_24000"
    """pcm_RATE, wav_RATE or mp3_RATE_KBIT; the voice's rate is its RATE."""
    settings: Mapping[str, float | bool] = field(default_factory=dict)
    """Of the voice: stability, similarity_boost, style, ...; by default as the server has them."""
    characters: int = 2500
    """To a request; longer text is split at sentence ends."""
    patience: Patience = field(default_factory=Patience)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.key.strip())
        if not self.key:
            raise VoiceError(f"{self.url} wants a key: set {KEY}, or give key=")
        if not (self.key.isascii() and self.key.isprintable()):
            raise VoiceError("the key has characters that no key has: check how it was copied")
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise VoiceError(f"url is {self.url!r}; give one like https://api.elevenlabs.io")
        if not _FORMAT.fullmatch(self.output_format):
            raise VoiceError(
                f"output_format is {self.output_format!r}; give one like pcm_24000, wav_24000 or"
                " mp3_44100_128"
            )

    @property
    def rate(self) -> int:
        """Samples a second."""
        return int(self.output_format.split("_")[1])

    @property
    def name(self) -> str:
        """The server and its voice."""
        return f"{urlsplit(self.url).hostname} {self.voice}"

    def speak(self, text: str, *, speed: float = 1.0) -> Int16[np.ndarray, " N"]:
        """The text, in as many requests as its length needs."""
        check_speed(speed, 0.5, 2.0, "a server")
        if not any(character.isalnum() for character in text):
            return nothing_said(text, self.name, "")
        return np.concatenate([self._say(part, speed) for part in split(text, self.characters)])

    def _say(self, text: str, speed: float) -> Int16[np.ndarray, " N"]:
        address = f"{self.url.rstrip('/')}/v1/text-to-speech/{quote(self.voice, safe='')}"
        try:
            answer = post(
                f"{address}?output_format={self.output_format}",
                self._question(text, speed),
                {"xi-api-key": self.key, "Accept": "audio/*"},
                self.patience,
            )
            return self._samples(answer)
        except VoiceError as error:  # a server may repeat the key when it refuses it
            raise VoiceError(str(error).replace(self.key, "***")) from None

    def _question(self, text: str, speed: float) -> dict[str, object]:
        """Settings that are not sent are the voice's own, on the server."""
        slowest, fastest = _SPEEDS
        pace = {} if speed == 1 else {"speed": round(min(max(speed, slowest), fastest), 3)}
        settings = {**self.settings, **pace}
        question: dict[str, object] = {"text": text, "model_id": self.model}
        if settings:
            question["voice_settings"] = settings
        if self.language:
            question["language_code"] = self.language
        return question

    def _samples(self, answer: Answer) -> Int16[np.ndarray, " N"]:
        if answer.content_type.startswith(_NO_SOUND):
            raise VoiceError(
                f"{self.url} answers with {answer.content_type}, not with sound: {answer.body[:60]}"
            )
        if not answer.body:
            raise VoiceError(f"{self.url} answers with an empty body: check the voice and the text")
        if self.output_format.startswith("pcm_") and not answer.body.startswith(b"RIFF"):
            return self._raw(answer.body)
        try:
            return read_audio(io.BytesIO(answer.body), rate=self.rate).samples
        except AudioError as error:
            raise VoiceError(f"the sound from {self.url} cannot be read: {error}") from error

    def _raw(self, body: bytes) -> Int16[np.ndarray, " N"]:
        if len(body) % 2 or body.startswith((b"ID3", b"fLaC", b"OggS")):
            raise VoiceError(
                f"{self.url} was asked for {self.output_format} and answers with {len(body)} bytes"
                f" that are no 16-bit samples: {body[:8]!r}; ask for another output_format"
            )
        return np.frombuffer(body, "<i2").astype(np.int16)
