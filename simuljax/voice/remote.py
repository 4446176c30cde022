"""A voice on a server with ElevenLabs' protocol: theirs, or one of your own.

    POST {url}/v1/text-to-speech/{voice}?output_format=pcm_24000
    xi-api-key: KEY
    {"text": ..., "model_id": ..., "voice_settings": {"speed": ...}}

The answer is the sound. The text leaves this machine. The key appears in no `repr` and no error,
and no redirect is followed with it.
"""

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

import numpy as np
from jaxtyping import Int16

from simuljax.voice.base import VoiceError, check_speed, no_sound, split

KEY = "ELEVENLABS_API_KEY"  # of the environment
_MODEL, _FORMAT, _RATE = "eleven_flash_v2_5", "pcm_24000", 24_000
_SPEEDS = 0.7, 1.2  # of the protocol
_CHARACTERS = 2500  # in a request; longer text is split at sentence ends
_TIMEOUT_S = 20.0  # for a connection, and for each part of the answer
_RETRIES = 3  # after timeouts, lost connections, 429 and 5xx
_FIRST_WAIT_S = 0.5  # before the second attempt; doubled before each of the next
_LONGEST_WAIT_S = 30.0  # a server that asks for more (Retry-After) is an error
_QUOTED = 300  # characters of a server's message
_CHECK = {401: "the key", 403: "the key", 404: "the address and the name of the voice"}


@dataclass(frozen=True, kw_only=True)
class Http:
    """A voice by its name on the server; the key is `$ELEVENLABS_API_KEY` unless given.

    The protocol has speeds from 0.7 to 1.2; speeds beyond are spoken at these.
    """

    voice: str
    url: str = "https://api.elevenlabs.io"
    key: str = field(default_factory=lambda: os.environ.get(KEY, ""), repr=False)
    rate: int = field(default=_RATE, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.key.strip())
        if not self.key:
            raise VoiceError(f"{self.url} needs a key: set {KEY}, or give key=")
        if not (self.key.isascii() and self.key.isprintable()):
            raise VoiceError("the key has characters that no key has: check how it was copied")
        if not _is_address(self.url):
            raise VoiceError(f"url is {self.url!r}; give one like https://api.elevenlabs.io")

    @property
    def name(self) -> str:
        return f"{urlsplit(self.url).hostname} {self.voice}"

    def speak(self, text: str, *, speed: float = 1.0) -> Int16[np.ndarray, " N"]:
        """Return the text as sound, in as many requests as its length needs."""
        check_speed(speed, 0.5, 2.0, "a server")
        if not any(character.isalnum() for character in text):
            return no_sound(text, self.name, "")
        return np.concatenate([self._speak(part, speed) for part in split(text, _CHARACTERS)])

    def _speak(self, text: str, speed: float) -> Int16[np.ndarray, " N"]:
        url = f"{self.url.rstrip('/')}/v1/text-to-speech/{quote(self.voice, safe='')}"
        question: dict[str, object] = {"text": text, "model_id": _MODEL}
        if speed != 1:
            pace = round(min(max(speed, _SPEEDS[0]), _SPEEDS[1]), 3)
            question["voice_settings"] = {"speed": pace}
        request = urllib.request.Request(
            f"{url}?output_format={_FORMAT}",
            json.dumps(question).encode(),
            {"xi-api-key": self.key, "Accept": "audio/*", "Content-Type": "application/json"},
            method="POST",
        )
        try:
            kind, body = _post(request)
        except VoiceError as error:  # a server may repeat the key in its message
            raise VoiceError(str(error).replace(self.key, "***")) from None
        text_like = kind.startswith(("text/", "application/json"))
        if text_like or not body or len(body) % 2 or _is_file(kind, body):
            raise VoiceError(
                f"{self.url} was asked for {_FORMAT} and answers with {len(body)} bytes of {kind}"
                f" that are no 16-bit samples: {body[:60]!r}"
            )
        return np.frombuffer(body, "<i2").astype(np.int16)


def _is_address(url: str) -> bool:
    """Return True for http(s), a host, and a port if one is given."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    return known and bool(parts.hostname) and not any(map(str.isspace, url))


def _is_file(kind: str, body: bytes) -> bool:
    """Return True for the beginning of a sound file; an MP3 without a tag needs its type too."""
    is_mp3 = body[0] == 0xFF and body[1] & 0xE6 == 0xE2  # layer 3: samples may begin with FF FF
    is_mp3 = is_mp3 and kind in ("audio/mpeg", "audio/mp3")
    return is_mp3 or body.startswith((b"RIFF", b"OggS", b"fLaC", b"ID3"))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follow no redirect, which would carry the key to another server."""

    def redirect_request(self, req, fp, code, msg, headers, newurl) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def _post(request: urllib.request.Request) -> tuple[str, bytes]:
    """Return content type and body of the answer; retry errors that may pass."""
    attempt = 0
    while True:
        wait_s = _FIRST_WAIT_S * 2**attempt
        try:
            with _OPENER.open(request, timeout=_TIMEOUT_S) as answer:
                return answer.headers.get_content_type(), answer.read()
        except urllib.error.HTTPError as error:
            with error:
                said = " ".join(_message(error).decode(errors="replace").split())[:_QUOTED]
            problem = f"status {error.code} ({error.reason}), which says {said!r}"
            if error.code != 429 and error.code < 500:
                check = _CHECK.get(error.code, "the address, the voice and the settings")
                raise VoiceError(f"{request.full_url}: {problem}: check {check}") from None
            asked = error.headers.get("Retry-After", "")
            if asked.strip().isdecimal():
                wait_s, problem = float(asked), f"{problem}, and asks to wait {asked} s"
        except (OSError, http.client.HTTPException) as error:  # a timeout is an OSError too
            problem = f"no whole answer: {getattr(error, 'reason', error)}"
        attempt += 1
        if attempt > _RETRIES or wait_s > _LONGEST_WAIT_S:
            raise VoiceError(f"{request.full_url}: {problem}; gave up (attempt {attempt})")
        time.sleep(wait_s)


def _message(error: urllib.error.HTTPError) -> bytes:
    """Return what a server says about an error; nothing if that is cut off."""
    try:
        return error.read()
    except (OSError, http.client.HTTPException):
        return b""
