"""Sockets and files: words and delays are those of `Stream`, alone and in company."""

import io
import json
import urllib.request
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from simuljax.audio import RATE
from simuljax.serve.outputs import subtitle_file
from simuljax.serve.session import Word
from simuljax.serve.web.sockets import RealtimeSocket
from tests.serve.web.servers import (
    append,
    cut,
    fetch,
    frames,
    pieces_of,
    raw,
    sound,
    speak,
    texts_of,
    upload,
    words_of,
)


@pytest.mark.parametrize(("seeds", "rate"), [(range(4), 16_000), (range(6, 8), 24_000)])
def test_words_and_delays_are_those_of_a_stream(live, seeds, rate):
    """Played one after the other; some words are early."""
    early = 0
    for seed in seeds:
        samples = sound(seed, rate=rate)
        pieces = [p for p in pieces_of(samples, seed) if len(p)]
        with live.socket(f"/stream?rate={rate}") as socket:
            received = speak(socket, pieces)
        assert received[-1] == {"type": "done"}
        assert socket.close_code == 1000
        assert all(f.keys() == {"type", "text", "delay_ms", "elapsed_ms"} for f in received[:-1])
        assert words_of(received) == live.alone(pieces, rate)
        assert all(f["elapsed_ms"] >= f["delay_ms"] for f in received[:-1])
        early += sum(f["delay_ms"] < len(samples) * 1000 / rate for f in received[:-1])
    assert early > 0.8 * len(seeds)


def test_samples_may_be_split_anywhere(live):
    """A pipe cuts where it likes, between the bytes of a sample too."""
    samples = sound(40, 1.0)
    data = samples.astype("<i2").tobytes()
    with live.socket() as socket:
        for start in range(0, len(data), 777):
            socket.send(data[start : start + 777])
        socket.send(json.dumps({"type": "finish"}))
        found = texts_of(words_of(frames(socket)))
    assert found == texts_of(live.alone([samples]))


@pytest.mark.parametrize(
    ("query", "fact"),
    [("model=other", "other"), ("rate=7", "7"), ("rate=x", "rate"), ("session=short", "session"),
     ("language=de", "language")],
)  # fmt: skip
def test_what_cannot_be_is_refused(live, query, fact):
    with live.socket(f"/stream?{query}") as socket:
        (only,) = frames(socket)
        assert only["type"] == "error" and fact in only["message"]
        assert socket.close_code == 1008
    assert live.empty()


def test_a_lost_connection_is_resumed(live):
    """The words before and after are those of one stream: nothing lost, nothing twice."""
    samples, name = sound(43, 2.5), "resumed-" + "x" * 16
    halves = np.split(samples, [17_000])
    with live.socket(f"/stream?session={name}&detail=1") as socket:
        socket.send(halves[0].tobytes())
        early, progress = [], {}
        while progress.get("read_ms", 0) < 900:  # some words came; then the line is cut
            frame = json.loads(socket.recv(timeout=20))
            early += words_of([frame])
            progress = frame if frame["type"] == "read" else progress
        cut(socket)
    kept = early[:-1]  # the last of them has not come
    assert kept
    with live.socket(f"/stream?session={name}&detail=1&words={len(kept)}") as again:
        first = json.loads(again.recv(timeout=20))
        assert first["type"] == "session" and first["samples"] == len(halves[0])
        received = speak(again, [samples[first["samples"] :]])
    assert texts_of(kept + words_of(received)) == texts_of(live.alone([samples]))
    *_, last = [frame for frame in received if frame["type"] == "read"]
    assert last["read_ms"] == 2500 and last["samples"] == len(samples)
    assert received[-1] == {"type": "done"}
    assert live.empty()


def test_a_session_goes_on_in_the_newest_connection(live):
    """Sound that comes after the end is refused."""
    name = "moved-" + "y" * 16
    with live.socket(f"/stream?session={name}") as old:
        old.send(sound(44, 0.5).tobytes())
        with live.socket(f"/stream?session={name}") as new:
            last = frames(old)[-1]
            assert last["type"] == "error" and "another connection" in last["message"]
            assert speak(new, [sound(45, 0.3)])[-1] == {"type": "done"}
    with live.socket() as socket, pytest.raises(ConnectionClosed):
        socket.send(sound(47, 0.3).tobytes() * 20)
        socket.send(json.dumps({"type": "finish"}))
        while True:
            socket.send(sound(48, 0.1).tobytes())
            socket.recv(timeout=10)
    assert live.empty()


def test_health_and_metrics(live):
    before = live.metric("simuljax_words_total")
    with live.socket() as socket:
        written = len(words_of(speak(socket, [sound(46, 1.0)])))
    assert live.get("/healthz") == (200, f'{{"status":"ok","models":["{live.translator.name}"]}}')
    assert live.metric("simuljax_words_total") == before + written
    assert live.metric("simuljax_push_to_word_seconds_count") == before + written
    assert live.metric("simuljax_rows") == 4 and live.metric("simuljax_sessions") == 0
    assert live.metric("simuljax_audio_seconds_total") >= 1
    assert live.metric("simuljax_step_seconds_total") > 0


TRANSCRIPTION = "conversation.item.input_audio_transcription"
PATH, KINDS = "/v1/audio/translations", ("json", "text", "verbose_json", "srt", "vtt")


def event(socket: ClientConnection, kind: str | None = None) -> dict[str, Any]:
    """The next event, which has to be of this kind."""
    found = json.loads(socket.recv(timeout=30))
    assert kind in (None, found["type"]), found
    assert found["event_id"]
    return found


def updating(**audio_input: Any) -> dict[str, Any]:
    return {"type": "session.update", "session": {"audio": {"input": audio_input}}}


def transcribe(socket: ClientConnection, pieces: list[np.ndarray], binary: bool = False):
    """Speak one item; return its words with delays, its transcript and its id."""
    for piece in pieces:
        socket.send(piece.astype("<i2").tobytes() if binary else append(piece))
    socket.send(json.dumps({"type": "input_audio_buffer.commit"}))
    words, item = [], None
    while (found := event(socket))["type"] != f"{TRANSCRIPTION}.completed":
        if found["type"] == "input_audio_buffer.committed":
            item = found["item_id"]
        else:
            assert found["type"] == f"{TRANSCRIPTION}.delta", found
            words.append((found["delta"], found["delay_ms"]))
    assert found["item_id"] == item and found["content_index"] == 0
    assert "".join(delta for delta, _ in words) == found["transcript"]
    return [(delta.strip(), delay) for delta, delay in words], found


@pytest.mark.parametrize(("binary", "seeds"), [(False, range(50, 53)), (True, range(51, 53))])
def test_events_have_the_words_and_delays_of_a_stream(live, binary, seeds):
    with live.socket("/v1/realtime") as socket:
        created = event(socket, "session.created")["session"]["audio"]["input"]
        assert created["format"] == {"type": "audio/pcm", "rate": 24_000}
        for seed in seeds:  # items of one session, some of them of another rate
            rate = 16_000 if seed % 25 == 1 else 24_000
            socket.send(json.dumps(updating(format={"type": "audio/pcm", "rate": rate})))
            updated = event(socket, "session.updated")["session"]["audio"]["input"]
            assert updated["format"]["rate"] == rate
            samples = sound(seed, rate=rate)
            pieces = [p for p in pieces_of(samples, seed) if len(p)]
            words, completed = transcribe(socket, pieces, binary)
            assert words == live.alone(pieces, rate)
            assert completed["usage"]["seconds"] == pytest.approx(len(samples) / rate)
    assert live.empty()


@pytest.mark.parametrize(
    ("sent", "fact"),
    [
        ({"type": "response.create"}, "response.create"),
        ({"type": "input_audio_buffer.append", "audio": "?"}, "base64"),
        ({"type": "input_audio_buffer.append"}, "base64"),
        ({"type": "input_audio_buffer.commit"}, "empty"),
        ({"type": "session.update"}, "session"),
        ({"type": "session.update", "session": {"audio": 3}}, "audio"),
        (updating(format={"rate": 1}), "1"),
        (updating(format={"type": "g711_ulaw"}), "g711"),
        (updating(transcription={"model": "x"}), "'x'"),
        (updating(transcription={"language": "de"}), "language"),
        ({"type": 3}, "type"),
        ([], "type"),
    ],
)
def test_a_bad_event_is_answered_and_the_session_goes_on(live, sent, fact):
    if isinstance(sent, dict):
        sent["event_id"] = "mine"
    with live.socket("/v1/realtime") as socket:
        event(socket)
        socket.send(json.dumps(sent))
        error = event(socket, "error")["error"]
        assert fact in error["message"] and error["type"] == "invalid_request_error"
        if isinstance(sent, dict) and isinstance(sent["type"], str):
            assert error["event_id"] == "mine"
        assert transcribe(socket, [sound(53, 0.5, 24_000)])[1]["transcript"]
    assert live.empty()


def test_settings_of_a_session_end_with_null_or_with_their_model():
    kinds = {"whisper": ("de", "en"), "run": ()}
    known = {name: SimpleNamespace(name=name, languages=kinds[name]) for name in kinds}
    socket: Any = RealtimeSocket.__new__(RealtimeSocket)
    socket.hub, socket.model = SimpleNamespace(model=known.__getitem__), known["run"]
    socket.rate, socket.changes = 24_000, {}
    german = {"model": "whisper", "language": "de", "task": "translate"}
    for asked, changes in (
        (german, {"language": "de", "task": "translate"}),
        ({"language": None}, {"task": "translate"}),
        ({"model": "run"}, {}),
    ):
        socket._update(updating(transcription=asked)["session"])
        assert socket.changes == changes


def test_a_cleared_buffer_leaves_nothing(live):
    with live.socket("/v1/realtime") as socket:
        event(socket)
        begun, pieces = sound(54, 0.8, 24_000), [sound(55, 0.8, 24_000)]
        due = live.translator.stream(sentences="pauses", rate=24_000).push(begun)
        socket.send(append(begun))
        (item,) = {event(socket, f"{TRANSCRIPTION}.delta")["item_id"] for _ in due}
        socket.send(json.dumps({"type": "input_audio_buffer.clear"}))
        event(socket, "input_audio_buffer.cleared")
        words, completed = transcribe(socket, pieces)
        assert words == live.alone(pieces, 24_000) and completed["item_id"] != item
    assert live.empty()


def as_wav(samples: np.ndarray, rate: int = RATE) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="WAV")
    return file.getvalue()


def as_flac(rate: int, channels: int, minutes: int) -> bytes:
    """Minutes of silence in less than a mebibyte."""
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", rate, channels, format="FLAC") as sink:
        for _ in range(minutes):
            sink.write(np.zeros((rate * 60, channels), np.int16))
    assert len(file.getvalue()) < 1 << 20
    return file.getvalue()


def test_files_in_all_formats(live):
    samples = sound(60, 1.5)
    size = int(next(iter(live.hub.models.values())).read_ms) * 16
    expected = live.alone([samples[k : k + size] for k in range(0, len(samples), size)])
    text, url = " ".join(word for word, _ in expected), live.url(PATH, "http")
    wav = as_wav(samples)
    found = {kind: upload(url, wav, response_format=kind) for kind in KINDS}
    assert found["text"] == (200, text + "\n")
    assert json.loads(found["json"][1]) == json.loads(upload(url, wav)[1]) == {"text": text}
    verbose = json.loads(found["verbose_json"][1])
    assert verbose["duration"] == 1.5 and verbose["text"] == text
    assert not {"task", "language"} & verbose.keys()  # which nobody has told the server
    assert [(w["word"], w["delay_ms"]) for w in verbose["words"]] == expected
    words = [Word(text=word, delay_ms=delay, elapsed_ms=delay) for word, delay in expected]
    srt, (_, vtt) = subtitle_file(words), found["vtt"]
    assert found["srt"] == (200, srt)
    assert vtt.startswith("WEBVTT\n\n00:00:0") and vtt.count("-->") == srt.count("-->")
    transcribed = upload(live.url("/v1/audio/transcriptions", "http"), wav)
    assert json.loads(transcribed[1]) == {"text": text}
    assert live.empty()


def test_files_that_cannot_be_read_are_too_large_or_unpack_to_much_are_refused(live):
    url, wav = live.url(PATH, "http"), as_wav(sound(61, 0.2))
    for file, fields, status, fact in [
        (b"nothing", {}, 400, "cannot be read"),
        (wav, {"response_format": "xml"}, 400, "xml"),
        (wav, {"model": "whisper-1"}, 404, "whisper-1"),
        (wav, {"language": "de"}, 400, "language"),
        (as_flac(1_000, 1, minutes=70), {}, 413, "70 minutes"),
        (as_flac(16_000, 8, minutes=25), {}, 413, "25 minutes"),
    ]:
        found, answer = upload(url, file, **fields)
        assert found == status and fact in json.loads(answer)["error"]["message"]
    assert fetch(urllib.request.Request(url, data=b"{}", method="POST"))[0] == 400
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n".encode()
    assert raw(live, head + b"Content-Length: 27262976\r\n\r\n").startswith(b"HTTP/1.1 413")
    assert live.empty()
