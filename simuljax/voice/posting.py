"""A question to a server, asked again where that may help; the answer as bytes."""

import email.utils
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from simuljax.voice.base import VoiceError

_WAIT_S = 0.5  # before the second attempt; twice as long before each of the next
_SAID = 300  # characters of a server's own words in a message


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to wait for a server."""

    timeout_s: float = 20.0
    """For a connection, and for each part of the answer."""
    retries: int = 3
    """After the first attempt, if the trouble may pass: timeouts, lost connections, 429, 5xx."""
    longest_wait_s: float = 30.0
    """Between attempts; a server that asks for more (Retry-After) is given up."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came, and what the server says it is."""

    body: bytes
    content_type: str


class _PassingError(Exception):
    """Worth another attempt, after as many seconds as the server asks for."""

    def __init__(self, problem: str, wait_s: float | None = None):
        super().__init__(problem)
        self.wait_s = wait_s


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the headers, and with them a key, to wherever the server says."""

    def redirect_request(self, req, fp, code, msg, headers, newurl) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def post(
    url: str, question: Mapping[str, object], headers: Mapping[str, str], patience: Patience
) -> Answer:
    """The answer with status 200, or a `VoiceError` with the reason."""
    for attempt in range(patience.retries + 1):
        try:
            return _ask(url, question, headers, patience.timeout_s)
        except _PassingError as error:
            wait_s = _WAIT_S * 2**attempt if error.wait_s is None else error.wait_s
            if attempt == patience.retries or wait_s > patience.longest_wait_s:
                asked = f", and asks to wait {wait_s:g} s" if error.wait_s is not None else ""
                times = f"{attempt + 1} attempt{'s' if attempt else ''}"
                raise VoiceError(f"{url}: {error}{asked}; given up after {times}") from error
        time.sleep(wait_s)
    raise ValueError(f"retries is {patience.retries}; it must be 0 or more")


def _ask(
    url: str, question: Mapping[str, object], headers: Mapping[str, str], timeout_s: float
) -> Answer:
    sent = {**headers, "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(question).encode(), sent, method="POST")
    try:
        with _OPENER.open(request, timeout=timeout_s) as answer:
            return Answer(body=answer.read(), content_type=answer.headers.get_content_type())
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(url, error) from None
    except http.client.IncompleteRead as error:
        raise _PassingError(f"the answer broke off after {len(error.partial)} bytes") from error
    except TimeoutError as error:
        raise _PassingError(f"no answer within {timeout_s:g} s") from error
    except (urllib.error.URLError, ConnectionError, http.client.HTTPException) as error:
        if isinstance(getattr(error, "reason", None), TimeoutError):
            raise _PassingError(f"no connection within {timeout_s:g} s") from error
        raise _PassingError(f"no connection: {getattr(error, 'reason', error)}") from error


def _refusal(url: str, error: urllib.error.HTTPError) -> Exception:
    """A status other than 200: passing, or final."""
    problem = f"status {error.code} ({error.reason}){_server_says(error)}"
    if error.code in (408, 429) or error.code >= 500:
        return _PassingError(problem, _retry_after(error.headers.get("Retry-After")))
    if error.code in (401, 403):
        return VoiceError(f"{url}: {problem}: the key is not accepted, or not for this; check it")
    if error.code in (404, 405) or error.code // 100 == 3:
        return VoiceError(f"{url}: {problem}: check the address and the name of the voice")
    return VoiceError(f"{url}: {problem}: check the model and the settings")


def _server_says(error: urllib.error.HTTPError) -> str:
    """ElevenLabs explains itself as {"detail": {"message": ...}}; others write what they like."""
    try:
        said = error.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return ""
    try:
        detail = json.loads(said)["detail"]
        said = detail["message"] if isinstance(detail, dict) else json.dumps(detail)
    except (ValueError, KeyError, TypeError):
        pass
    said = " ".join(str(said).split())
    return f", which says {said[:_SAID]!r}" if said else ""


def _retry_after(value: str | None) -> float | None:
    """Seconds, from a header that gives them or a date."""
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
