"""Whatever a client does, the others' words stay what they are, and its row is free again."""

import asyncio
import base64
import contextlib
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import websockets
from websockets.sync.client import connect

import simuljax
from simuljax.serve.web.hub import Limits
from tests.serve.live_fakes import until
from tests.serve.web.servers import (
    alone,
    append,
    cut,
    frames,
    free_port,
    pieces_of,
    raw,
    running,
    small_run,
    sound,
    speak,
    texts_of,
    words_of,
)

LIMITS = Limits(load=1e9)


@contextlib.contextmanager
def bystander(live, seed: int = 7, seconds: float = 2.0):
    """Somebody who speaks while other things happen, and has to get the words of a stream."""
    pieces = [p for p in pieces_of(sound(seed, seconds), seed) if len(p)]
    expected, found = live.alone(pieces), []

    def client() -> None:
        with live.socket() as socket:
            for piece in pieces:
                socket.send(piece.tobytes())
                time.sleep(0.02)
            found.extend(words_of(speak(socket, [])))

    thread = threading.Thread(target=client)
    thread.start()
    yield
    thread.join(60)
    assert found == expected and expected


def test_a_full_server_refuses_and_takes_the_next_when_one_leaves(live):
    with contextlib.ExitStack() as stack:
        for seed in range(4):
            stack.enter_context(live.socket()).send(sound(seed, 0.3).tobytes())
        live.wait_for(4)
        with live.socket() as late:
            (only,) = frames(late)
            assert only["type"] == "error" and "all 4 streams" in only["message"]
            assert only["retry_after"] > 0 and late.close_code == 1013
        assert live.metric("simuljax_refused_total") >= 1
    assert live.empty()
    with live.socket() as socket:
        assert speak(socket, [sound(5, 0.3)])[-1] == {"type": "done"}


def test_a_device_that_is_late_takes_nobody_more(live, monkeypatch):
    """A step longer than a READ: those who are there are served, a new one is refused."""
    monkeypatch.setattr(live.hub, "limits", dataclasses.replace(LIMITS, load=0.9))
    with live.socket() as socket:
        socket.send(sound(1, 0.3).tobytes())
        live.wait_for()
        live.hub.cycles.values.clear()
        live.hub.lags.values.clear()
        for _ in range(20):
            live.hub.cycles.add(0.5)
        with live.socket() as late:
            (only,) = frames(late)
            assert "keep up" in only["message"] and late.close_code == 1013
        live.hub.cycles.values.clear()
        assert speak(socket, [sound(2, 0.3)])[-1] == {"type": "done"}
    assert live.empty()


def test_clients_that_are_killed_in_the_middle_of_a_word_leave_nothing(live):
    before = threading.active_count()
    with bystander(live):
        for number in range(12):
            with live.socket() as socket:
                socket.send(sound(number, 0.4).tobytes())
                if number % 2:
                    with contextlib.suppress(TimeoutError):
                        socket.recv(timeout=0.05)
                cut(socket)
    with live.socket("/v1/realtime") as socket:
        socket.recv(timeout=20)
        socket.send(append(sound(1, 0.5, 24_000)))
        cut(socket)
    assert live.empty() and threading.active_count() <= before + 2


def test_a_flood_is_held_back_and_heard(translator):
    """Twelve times more sound than may wait: the socket is not read on."""

    def unread_ms(one: Any) -> float:
        return one.received / 16 - one.stream.session.read_ms

    limits, samples = dataclasses.replace(LIMITS, waiting_ms=500.0), sound(11, 6.0)
    with running(translator, limits=limits) as live, live.socket() as socket:
        with ThreadPoolExecutor(1) as pool:
            received, most = pool.submit(speak, socket, np.array_split(samples, 12)), 0.0
            while not received.done():
                most = max([most, *map(unread_ms, live.hub.sessions)])
                time.sleep(0.002)
        assert texts_of(words_of(received.result())) == texts_of(live.alone([samples]))
        assert most < 500 + 1000  # what may wait, and a frame


BAD_FRAMES: list[tuple[str | bytes, str | None, int]] = [
    ("nonsense", "JSON", 1008),
    ("[]", "type", 1008),
    ('{"type": "begin"}', "begin", 1008),
    ("[" * 100_000, "JSON", 1008),
    (b"\0" * (1 << 20), "30 s", 1009),
    (b"\0" * ((1 << 20) + 2), None, 1009),
]


def test_bad_frames_are_cut_off_alone(live):
    with bystander(live, seconds=1.2):
        for frame, fact, code in BAD_FRAMES:
            with live.socket() as socket:
                socket.send(sound(1, 0.2).tobytes())
                socket.send(frame)
                received = frames(socket)
                assert socket.close_code == code, frame[:20]
                if fact:
                    assert received[-1]["type"] == "error" and fact in received[-1]["message"]
    assert live.empty()


def test_silent_clients_are_told_their_words_and_cut_off(translator):
    """One who sends silence is not idle."""
    limits = dataclasses.replace(LIMITS, idle_s=0.6, keep_s=0.3)
    samples = sound(3, 1.0)
    with running(translator, limits=limits) as live:
        with live.socket() as quiet, live.socket() as socket, live.socket("/v1/realtime") as other:
            socket.send(samples.tobytes())
            for piece in hiss(1.2):
                quiet.send(piece.tobytes())
                time.sleep(0.1)
            assert speak(quiet, []) == [{"type": "done"}]
            received = frames(socket)
            assert "no sound for 0.6 s" in received[-1]["message"]
            assert texts_of(words_of(received)) == texts_of(live.alone([samples]))
            assert frames(other)[-1]["error"]["code"] == "idle"
        with live.socket("/stream?session=" + "a" * 20) as socket:  # may come back, and does not
            socket.send(samples.tobytes())
            cut(socket)
        assert live.empty()
        assert live.metric("simuljax_sessions_cut_total") >= 1


def hiss(seconds: float, seed: int = 0) -> list[np.ndarray]:
    """A microphone in a silent room, in frames of 100 ms."""
    samples = np.random.default_rng(seed).normal(size=round(seconds * 16_000)) * 3
    return np.split(samples.astype(np.int16), round(seconds * 10))


def test_a_speech_of_nothing_is_done(live):
    with live.socket() as socket:
        assert speak(socket, []) == [{"type": "done"}]
    assert live.empty()


def test_ten_minutes_of_silence_give_no_words_and_take_no_memory(translator):
    """Much of it at once is held back, and goes on."""
    limits = dataclasses.replace(LIMITS, waiting_ms=2000.0)
    with running(translator, limits=limits) as live, live.socket() as socket:
        minute = [piece.tobytes() for piece in hiss(60.0)]
        threads, used = threading.active_count(), []
        with bystander(live):
            for _ in range(10):
                for piece in minute:
                    socket.send(piece)
                used.append(memory_mib())
        (session,) = live.hub.sessions
        assert speak(socket, []) == [{"type": "done"}]
        assert session.received == 600 * 16_000 and session.stream.session.read_samples == 0
        assert live.empty() and threading.active_count() <= threads
        assert used[-1] < used[1] + 20


def test_one_who_does_not_read_is_given_up(translator):
    """Its words are bounded: with more of them unread than are kept, the session ends."""
    limits = dataclasses.replace(LIMITS, words=3, send_s=0.5)
    with running(translator, limits=limits) as live:
        with live.socket(f"/stream?session={'b' * 20}") as socket:
            socket.send(sound(4, 2.0).tobytes())
            cut(socket)
            until(lambda: any(s.dropped for s in live.hub.sessions), 20)
        with live.socket(f"/stream?session={'b' * 20}") as socket:
            received = frames(socket)
            assert received[-1]["type"] == "error" and "3 words" in received[-1]["message"]
        assert live.empty()


def test_a_step_that_fails_ends_its_sessions_and_the_model_goes_on(live, monkeypatch):
    model = next(iter(live.hub.models.values()))
    with live.socket() as socket:
        monkeypatch.setattr(model.engine.rows, "step", lambda reads: 1 / 0)
        socket.send(sound(1, 0.5).tobytes())
        received = frames(socket)
        assert "the model failed" in received[-1]["message"] and socket.close_code == 1011
    with live.socket() as socket:
        pieces = [sound(2, 0.5)]
        assert words_of(speak(socket, pieces)) == live.alone(pieces)
    assert live.get("/healthz")[0] == 200 and live.empty()


def random_event(source: random.Random) -> str | bytes:
    """An event that is right, nearly right, or nothing at all."""
    kinds = ["session.update", "input_audio_buffer.append", "input_audio_buffer.commit"]
    kinds += ["input_audio_buffer.clear", "finish", "response.create", "", "\ud7ff"]
    values = [None, 0, -1, 1e300, "", "pcm16", [], {}, True, "AAAA", "x" * 3000, 24_000]

    def tree(depth: int):
        if depth == 0 or source.random() < 0.4:
            return source.choice(values)
        keys = ["audio", "input", "format", "rate", "transcription", "model", "language", "type"]
        return {source.choice(keys): tree(depth - 1) for _ in range(source.randrange(3))}

    chance = source.random()
    if chance < 0.15:
        return source.randbytes(source.randrange(2000))
    if chance < 0.25:
        return "".join(chr(source.randrange(32, 1000)) for _ in range(source.randrange(50)))
    event = {"type": source.choice(kinds), "session": tree(5), "event_id": source.choice(values)}
    if chance < 0.6:
        count = source.randrange(3000)
        event |= {"type": kinds[1], "audio": base64.b64encode(source.randbytes(count)).decode()}
    return json.dumps(event)


async def fuzz(live, path: str, seed: int, events: int) -> None:
    source, left = random.Random(seed), events
    while left:
        with contextlib.suppress(websockets.ConnectionClosed):
            given = {"compression": None, "close_timeout": 1}
            async with websockets.connect(live.url(path), **given) as socket:
                for _ in range(source.randrange(1, 120)):
                    if not left:
                        return
                    left -= 1
                    await socket.send(random_event(source))
                    if source.random() < 0.02:
                        socket.transport.abort()


def fuzz_all(live, events: int) -> None:
    async def run() -> None:
        paths = ("/v1/realtime", "/stream")
        await asyncio.gather(*(fuzz(live, p, s, events) for s, p in enumerate(paths)))

    asyncio.run(run())
    assert live.empty(30)


def test_random_events(live):
    """Of each protocol, twice: the second time takes no more memory and leaves no thread."""
    with bystander(live):
        fuzz_all(live, 75)
    before, threads = memory_mib(), threading.active_count()
    with bystander(live):
        fuzz_all(live, 75)
    assert live.get("/healthz")[0] == 200
    assert memory_mib() < before + 60 and threading.active_count() <= threads + 2


def memory_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def test_a_drain_waits_for_who_speaks_and_admits_nobody(translator):
    with running(translator) as live, live.socket() as socket:
        pieces = np.array_split(sound(6, 1.0), 5)
        socket.send(pieces[0].tobytes())
        live.wait_for()
        live.server.handle_exit(signal.SIGTERM, None)
        time.sleep(0.2)
        assert live.get("/healthz")[0] == 503
        with live.socket() as late:
            assert "shutting down" in frames(late)[-1]["message"] and late.close_code == 1012
        received = speak(socket, pieces[1:])
        assert words_of(received) == live.alone(pieces)
        assert received[-1] == {"type": "done"}
        until(lambda: live.server.should_exit)


def test_a_drain_ends_the_speech_of_who_goes_on(translator):
    samples = sound(8, 1.0)
    with running(translator, drain=0.3) as live, live.socket() as socket:
        socket.send(samples.tobytes())
        live.wait_for()
        live.server.handle_exit(signal.SIGTERM, None)
        until(lambda: all(session.farewell for session in live.hub.sessions))
        with contextlib.suppress(websockets.ConnectionClosed):
            socket.send(sound(9, 0.1).tobytes())  # one who goes on speaking is told all the same
        received = frames(socket)
        assert "shutting down" in received[-1]["message"] and socket.close_code == 1012
        assert texts_of(words_of(received)) == texts_of(live.alone([samples]))


@pytest.mark.slow
def test_a_restart_under_load_changes_no_words(tmp_path):
    """SIGTERM while two speak, and a new process at once: all words are those of streams."""
    run = small_run(tmp_path / "small")
    translator, port, over = simuljax.load(run), free_port(), threading.Event()
    recordings = {seed: np.array_split(sound(seed, 1.0), 10) for seed in range(2)}
    given = recordings.items()
    expected = {seed: alone(translator, each, sentences="pauses") for seed, each in given}
    done = dict.fromkeys(recordings, 0)

    def speaker(seed: int) -> None:
        while not over.is_set():
            lost = contextlib.suppress(OSError, websockets.WebSocketException)
            with lost, connect(f"ws://127.0.0.1:{port}/stream") as socket:
                for piece in recordings[seed]:
                    socket.send(piece.tobytes())
                    time.sleep(0.1)
                received = speak(socket, [])
                if received[-1]["type"] == "done":
                    assert words_of(received) == expected[seed]
                    done[seed] += 1
            time.sleep(0.05)

    speakers = [threading.Thread(target=speaker, args=(seed,)) for seed in recordings]
    command = [sys.executable, "-m", "simuljax.cli.main", "serve", str(run), "--port", str(port)]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    for _ in range(2):
        with subprocess.Popen([*command, "--streams", "4"], **pipes) as process:
            assert process.stdout and process.stderr
            try:
                assert process.stdout.readline().split()[0] == f"http://127.0.0.1:{port}"
                wanted = {seed: count + 1 for seed, count in done.items()}
                for thread in speakers:
                    if not thread.ident:
                        thread.start()
                until(lambda: all(done[seed] >= wanted[seed] for seed in done), 120)  # noqa: B023
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0
                assert "Traceback" not in process.stderr.read()
            finally:
                process.kill()
    over.set()
    for thread in speakers:
        thread.join(60)
        assert not thread.is_alive()


def test_bytes_that_are_no_http(live):
    assert raw(live, b"\x16\x03\x01 hello \r\n\r\n").startswith(b"HTTP/1.1 400")
    assert live.get("/healthz")[0] == 200
