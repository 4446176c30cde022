"""Speakers in real time for `/stream`: what loads a server in `simuljax profile serve`.

    python -m simuljax.serve.web.client ws://127.0.0.1:8000/stream < job.json

The job is a `Job` as JSON; the answer, on standard output, has the times that the clients saw. It
runs in processes of its own, without JAX, so that clients take no time from the server's process.
"""

import asyncio
import contextlib
import json
import sys
import time
from dataclasses import dataclass
from typing import Any

import websockets
from websockets.asyncio.client import connect


@dataclass(frozen=True, kw_only=True)
class Job:
    """Hold the settings of a group of clients."""

    clients: int
    chunk_ms: int
    utterance_s: float  # after which a speaker ends, and another comes
    warm_up_s: float  # whose times are not kept
    seconds: float
    recording: str | None = None  # raw PCM16 at 16 kHz; by default noise
    first: int = 0  # number of the first client, so that they do not speak together
    total: int = 1


class Speaker:
    """One client: utterances one after the other, each in a session of its own."""

    def __init__(self, url: str, job: Job, sound: bytes, number: int, start: float):
        self.url, self.job, self.sound, self.number = url, job, sound, number
        self.start = start + job.chunk_ms / 1000 * number / job.total
        self.keep_from, self.until = start + job.warm_up_s, start + job.warm_up_s + job.seconds
        self.words: list[float] = []  # ms from the push to the word
        self.reads: list[float] = []  # ms from the push to the end of the READ
        self.late: list[float] = []  # ms of pushes behind their time
        self.refused, self.read_ms = 0, 0.0
        self.first_word: float | None = None  # on the system's monotonic clock, in s

    async def run(self) -> dict[str, Any]:
        """Speak until the time is over; return what was seen."""
        await asyncio.sleep(max(0.0, self.start - time.monotonic()))
        share = (self.number + 1) / self.job.total  # the first utterances end one after the other
        seconds = self.job.utterance_s * share
        while time.monotonic() < self.until:
            try:
                await self._utter(max(seconds, self.job.chunk_ms / 1000))
            except (OSError, websockets.WebSocketException):
                self.refused += 1
                await asyncio.sleep(1.0)
            seconds = self.job.utterance_s
        seen = ("words", "reads", "late", "refused", "read_ms", "first_word")
        return {name: getattr(self, name) for name in seen}

    async def _utter(self, seconds: float) -> None:
        options: dict[str, Any] = {"compression": None, "open_timeout": 60, "ping_interval": None}
        async with connect(f"{self.url}?detail=1", **options) as socket:
            pushed: list[tuple[float, float]] = []  # ms of sound, and when
            listening = asyncio.create_task(self._listen(socket, pushed))
            begun, size = time.monotonic(), self.job.chunk_ms * 32
            for count in range(1, int(seconds * 1000 / self.job.chunk_ms) + 1):
                due = begun + count * self.job.chunk_ms / 1000  # when it has been spoken
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if time.monotonic() > self.until or listening.done():
                    break
                place = (count * size) % max(len(self.sound) - size, 1) & ~1
                pushed.append((count * self.job.chunk_ms, time.monotonic()))
                await socket.send(self.sound[place : place + size])
                self._keep(self.late, due)
            with contextlib.suppress(websockets.ConnectionClosed):
                await socket.send('{"type": "finish"}')
            await asyncio.wait_for(listening, 60)

    async def _listen(self, socket: Any, pushed: list[tuple[float, float]]) -> None:
        kept = {"word": self.words, "read": self.reads}
        with contextlib.suppress(websockets.ConnectionClosed):
            async for message in socket:
                frame = json.loads(message)
                kind = frame["type"]
                if kind == "session":
                    self.read_ms = frame["read_ms"]
                elif kind == "error":
                    self.refused += 1
                elif kind in kept:
                    if kind == "word" and self.first_word is None:
                        self.first_word = time.monotonic()
                    at = next((t for ms, t in pushed if ms >= frame["delay_ms"] - 1e-6), None)
                    if at is not None:
                        self._keep(kept[kind], at)

    def _keep(self, times: list[float], since: float) -> None:
        """Note the ms since a moment, after the warm-up."""
        if time.monotonic() > self.keep_from:
            times.append(round((time.monotonic() - since) * 1e3, 2))


async def run(url: str, job: Job) -> list[dict[str, Any]]:
    """Return what every client has seen."""
    if job.recording:
        with open(job.recording, "rb") as file:
            sound = file.read()
    else:
        import numpy as np

        random = np.random.default_rng(job.first)
        loud = np.repeat(random.uniform(0, 9000, 400), 1600)
        sound = (random.normal(size=len(loud)) * loud).clip(-32768, 32767).astype("<i2").tobytes()
    start = time.monotonic() + 1.0
    numbers = range(job.first, job.first + job.clients)
    return await asyncio.gather(*(Speaker(url, job, sound, n, start).run() for n in numbers))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(sys.argv[1], Job(**json.load(sys.stdin))))))
