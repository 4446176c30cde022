"""`POST /v1/audio/translations` and `/transcriptions`: a file in, its text out.

A file is played to a stream as fast as the device takes it, in READs, so that its words and times
are those of a live speaker. Whisper translates or transcribes as the address says; a trained run
writes the language it was trained for.
"""

import asyncio
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import soundfile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from simuljax.audio import RATE, AudioError, read_audio
from simuljax.serve.outputs import subtitle_file, subtitles
from simuljax.serve.session import MS
from simuljax.serve.stream import Word
from simuljax.serve.web.hub import Hub
from simuljax.serve.web.sessions import LiveSession, Model, Refused

FORMATS = ("json", "text", "srt", "vtt", "verbose_json")
MOST_BYTES = 25 << 20  # as OpenAI has it
MOST_S, MOST_SAMPLES = 3600.0, 3600 * 48_000  # of all channels: a small file may hold much
UPLOAD_S = 120.0


async def translate_file(request: Request, hub: Hub, task: str) -> Response:
    """Answer a request; `task` is Whisper's."""
    form = await _form(request)
    shape = form.get("response_format") or "json"
    if shape not in FORMATS:
        raise Refused("format", f"response_format {shape!r:.40}: one of {', '.join(FORMATS)}")
    model = hub.model(form.get("model"))
    async with hub.decoders:
        samples = await asyncio.to_thread(_decoded, form["file"])
    session = hub.open(model, changes=_changes(model, task, form.get("language")))
    try:
        words = await _play(request, session, samples)
    finally:
        hub.close(session)
    return _response(shape, words, len(samples) / RATE, task, form.get("language"))


def _changes(model: Model, task: str, language: str | None) -> dict[str, str]:
    changes = {"language": language} if language else {}
    changes |= {"task": task} if model.languages else {}
    return changes | ({"behind": "every"} if model.skips else {})  # a file is never late


async def _form(request: Request) -> dict[str, Any]:
    """Return the fields; `file` as bytes."""
    length = request.headers.get("content-length", "")
    if not length.isdecimal():
        raise Refused("protocol", "a Content-Length is needed")
    if int(length) > MOST_BYTES:
        raise Refused("frame", f"more than {MOST_BYTES >> 20} MiB: send a shorter file")
    try:
        async with asyncio.timeout(UPLOAD_S), request.form(max_files=1, max_fields=20) as form:
            fields = {name: value for name, value in form.items() if isinstance(value, str)}
            file = form.get("file")
            if file is None or isinstance(file, str):
                raise Refused("protocol", "there is no part `file` with a file")
            return fields | {"file": await file.read()}
    except (HTTPException, MultiPartException, KeyError) as error:
        detail = getattr(error, "detail", error)
        raise Refused("protocol", f"not multipart/form-data: {detail}") from None
    except TimeoutError:
        raise Refused("slow", f"the file did not come within {UPLOAD_S:g} s") from None


def _decoded(data: bytes) -> np.ndarray:
    try:
        about = soundfile.info(io.BytesIO(data))
        if about.duration > MOST_S or about.frames * about.channels > MOST_SAMPLES:
            long = f"{about.duration / 60:.0f} minutes of sound, {about.channels} channels"
            raise Refused("frame", f"{long}: send less")
        return read_audio(io.BytesIO(data)).samples
    except (soundfile.LibsndfileError, AudioError) as error:
        raise Refused("audio", f"the file cannot be read: {error}") from None


async def _play(request: Request, session: LiveSession, samples: np.ndarray) -> list[Word]:
    async def push() -> None:
        size = max(1, int(session.model.read_ms * MS))
        for start in range(0, len(samples), size):
            await session.push(samples[start : start + size].astype("<i2").tobytes())
            if start % (size * 50) == 0 and await request.is_disconnected():
                session.fail(Refused("gone", "the client is gone"))
        session.finish()

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            session.fail(error if isinstance(error, Refused) else Refused("failure", str(error)))

    pushing = asyncio.create_task(push())
    pushing.add_done_callback(ended)
    try:
        return [word async for word in session.follow()]
    finally:
        pushing.cancel()
        await asyncio.gather(pushing, return_exceptions=True)


def _response(
    shape: str, words: Sequence[Word], seconds: float, task: str, language: str | None
) -> Response:
    text = " ".join(word.text for word in words)
    if shape == "json":
        return JSONResponse({"text": text})
    if shape == "verbose_json":
        segments = [
            {"id": number, "start": start_s, "end": end_s, "text": shown}
            for number, (start_s, end_s, shown) in enumerate(subtitles(words))
        ]
        spoken = [{"word": word.text, "delay_ms": word.delay_ms} for word in words]
        about = {"task": task, "language": language, "duration": seconds, "text": text}
        return JSONResponse({**about, "segments": segments, "words": spoken})
    if shape == "text":
        return PlainTextResponse(text + "\n")
    kind = "text/vtt" if shape == "vtt" else "application/x-subrip"
    return PlainTextResponse(subtitle_file(words, shape), media_type=kind)
