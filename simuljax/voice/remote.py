"""A voice on a server with ElevenLabs' protocol: theirs, or one of your own.

    POST {url}/v1/text-to-speech/{voice}?output_format=pcm_24000
    xi-api-key: KEY
    {"text": ..., "model_id": ..., "voice_settings": {"speed": ...}}

The answer is the sound. The text leaves this machine. The key appears in no `repr` and no error,
and no redirect is followed with it.
"""

import email.utils
import http.client
import io
import json
import os
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

import numpy as np
from jaxtyping import Int16

from simuljax.audio import AudioError, read_audio
from simuljax.parsing import parse_json
from simuljax.voice.base import VoiceError, check_speed, no_sound, split

KEY = "ELEVENLABS_API_KEY"  # of the environment
_MODEL, _FORMAT, _RATE = "eleven_flash_v2_5", "pcm_24000", 24_000
_SPEEDS = 0.7, 1.2  # of the protocol
_NOT_SOUND = ("text/", "application/json", "application/problem+json", "image/", "video/")
_CHARACTERS = 2500  # in a request; longer text is split at sentence ends
_TIMEOUT_S = 20.0  # for a connection, and for each part of the answer
_RETRIES = 3  # after timeouts, lost connections, 429 and 5xx
_FIRST_WAIT_S = 0.5  # before the second attempt; doubled before each of the next
_LONGEST_WAIT_S = 30.0  # a server that asks for more (Retry-After) is an error
_QUOTED = 300  # characters of a server's message


@dataclass(frozen=True, kw_only=True)
class Http:
    """A voice by its name on the server; the key is `$ELEVENLABS_API_KEY` unless given.

    The protocol has speeds from 0.7 to 1.2; speeds beyond are spoken at these.
    """

    voice: str
    url: str = "https://api.elevenlabs.io"
    key: str = field(default_factory=lambda: os.environ.get(KEY, ""), repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.key.strip())
        if not self.key:
            raise VoiceError(f"{self.url} needs a key: set {KEY}, or give key=")
        if not (self.key.isascii() and self.key.isprintable()):
            raise VoiceError("the key has characters that no key has: check how it was copied")
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise VoiceError(f"url is {self.url!r}; give one like https://api.elevenlabs.io")

    @property
    def rate(self) -> int:
        """Return the sample rate of its sound."""
        return _RATE

    @property
    def name(self) -> str:
        """Return the server and its voice."""
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
            return self._samples(*_post(request))
        except VoiceError as error:  # a server may repeat the key in its message
            raise VoiceError(str(error).replace(self.key, "***")) from None

    def _samples(self, content_type: str, body: bytes) -> Int16[np.ndarray, " N"]:
        if content_type.startswith(_NOT_SOUND):
            raise VoiceError(f"{self.url} answers with {content_type}, not with sound: {body[:60]}")
        if not body:
            raise VoiceError(f"{self.url} answers with an empty body: check the voice and the text")
        if body.startswith(b"RIFF"):  # a WAV with the samples
            try:
                return read_audio(io.BytesIO(body), rate=_RATE).samples
            except AudioError as error:
                raise VoiceError(f"the sound from {self.url} cannot be read: {error}") from error
        if len(body) % 2 or body.startswith((b"ID3", b"fLaC", b"OggS")):
            raise VoiceError(
                f"{self.url} was asked for {_FORMAT} and answers with {len(body)} bytes that are no"
                f" 16-bit samples: {body[:8]!r}"
            )
        return np.frombuffer(body, "<i2").astype(np.int16)


class _TemporaryError(Exception):
    """Worth another attempt, after as many seconds as the server asks for."""

    def __init__(self, problem: str, wait_s: float | None = None):
        super().__init__(problem)
        self.wait_s = wait_s


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follow no redirect, which would carry the key to another server."""

    def redirect_request(self, req, fp, code, msg, headers, newurl) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def _post(request: urllib.request.Request) -> tuple[str, bytes]:
    """Return content type and body of the answer; retry errors that may pass."""
    for attempt in range(_RETRIES + 1):
        try:
            return _answer(request)
        except _TemporaryError as error:
            wait_s = _FIRST_WAIT_S * 2**attempt if error.wait_s is None else error.wait_s
            if attempt == _RETRIES or wait_s > _LONGEST_WAIT_S:
                asked = f", and asks to wait {wait_s:g} s" if error.wait_s is not None else ""
                raise VoiceError(
                    f"{request.full_url}: {error}{asked}; gave up (attempt {attempt + 1})"
                ) from error
            time.sleep(wait_s)
    raise AssertionError("the last attempt returns or raises")


def _answer(request: urllib.request.Request) -> tuple[str, bytes]:
    try:
        with _OPENER.open(request, timeout=_TIMEOUT_S) as answer:
            return answer.headers.get_content_type(), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            raise _status_error(request.full_url, error) from None
    except http.client.IncompleteRead as error:
        raise _TemporaryError(f"the answer broke off after {len(error.partial)} bytes") from error
    except TimeoutError as error:
        raise _TemporaryError(f"no answer within {_TIMEOUT_S:g} s") from error
    except (urllib.error.URLError, ConnectionError, http.client.HTTPException) as error:
        if isinstance(getattr(error, "reason", None), TimeoutError):
            raise _TemporaryError(f"no connection within {_TIMEOUT_S:g} s") from error
        raise _TemporaryError(f"no connection: {getattr(error, 'reason', error)}") from error


def _status_error(url: str, error: urllib.error.HTTPError) -> Exception:
    """Return the error for a status other than 200, temporary or final."""
    problem = f"status {error.code} ({error.reason}){_message(error)}"
    if error.code in (408, 429) or error.code >= 500:
        return _TemporaryError(problem, _retry_after(error.headers.get("Retry-After")))
    if error.code in (401, 403):
        return VoiceError(f"{url}: {problem}: the key is not accepted, or not for this; check it")
    if error.code in (404, 405) or error.code // 100 == 3:
        return VoiceError(f"{url}: {problem}: check the address and the name of the voice")
    return VoiceError(f"{url}: {problem}: check the model and the settings")


def _message(error: urllib.error.HTTPError) -> str:
    """Quote the server: ElevenLabs' {"detail": {"message": ...}}, or the text of the body."""
    try:
        text = error.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return ""
    try:
        detail = parse_json(text)["detail"]
        text = detail["message"] if isinstance(detail, dict) else json.dumps(detail)
    except (ValueError, KeyError, TypeError):
        pass
    text = " ".join(str(text).split())
    return f", which says {text[:_QUOTED]!r}" if text else ""


def _retry_after(value: str | None) -> float | None:
    """Return seconds, from a header with seconds or a date."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        date = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    aware = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (aware - datetime.now(UTC)).total_seconds())
