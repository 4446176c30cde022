"""Words and delays over `/stream` are those of `Stream`, alone and in company."""

import json
import threading

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed

from tests.serve.web.servers import cut, frames, pieces_of, sound, speak, texts_of, words_of


@pytest.mark.parametrize(
    ("seeds", "rate"),
    [
        *((range(4), 16_000), (range(6, 8), 24_000)),
        pytest.param(range(100, 130), 16_000, marks=pytest.mark.slow),
        pytest.param(range(130, 150), 24_000, marks=pytest.mark.slow),
    ],
)
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


def test_company_changes_nothing(live):
    recordings = [pieces_of(sound(seed, 1.2), seed) for seed in range(20, 24)]
    expected = [live.alone([p for p in pieces if len(p)]) for pieces in recordings]
    found: dict[int, list] = {}

    def client(number: int) -> None:
        with live.socket() as socket:
            found[number] = words_of(speak(socket, recordings[number]))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [found[number] for number in range(4)] == expected
    assert live.empty()


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


def test_details_only_when_asked(live):
    with live.socket(f"/stream?detail=1&model={live.translator.name}") as socket:
        received = speak(socket, [sound(42, 0.7)])
    kinds = {frame["type"] for frame in received}
    assert {"session", "read", "word", "done"} <= kinds
    reads = [f for f in received if f["type"] == "read"]
    assert reads[-1]["read_ms"] == 700 and reads[-1]["samples"] == 11_200


@pytest.mark.parametrize("acknowledged", [0, 1])
def test_a_lost_connection_is_resumed(live, acknowledged):
    """The words before and after are those of one stream: nothing lost, nothing twice."""
    samples, name = sound(43, 2.5), "resumed-" + "x" * 16 + str(acknowledged)
    halves = np.split(samples, [17_000])
    with live.socket(f"/stream?session={name}&detail=1") as socket:
        socket.send(halves[0].tobytes())
        early, progress = [], {}
        while progress.get("read_ms", 0) < 900:  # some words came; then the line is cut
            frame = json.loads(socket.recv(timeout=20))
            early += words_of([frame])
            progress = frame if frame["type"] == "read" else progress
        cut(socket)
    kept = early[: len(early) - acknowledged] if acknowledged else early
    assert len(early) > 1
    with live.socket(f"/stream?session={name}&detail=1&words={len(kept)}") as again:
        first = json.loads(again.recv(timeout=20))
        assert first["type"] == "session" and first["samples"] == len(halves[0])
        received = speak(again, [samples[first["samples"] :]])
    assert texts_of(kept + words_of(received)) == texts_of(live.alone([samples]))
    assert received[-1] == {"type": "done"}
    assert live.empty()


def test_a_session_goes_on_in_the_newest_connection(live):
    name = "moved-" + "y" * 16
    with live.socket(f"/stream?session={name}") as old:
        old.send(sound(44, 0.5).tobytes())
        with live.socket(f"/stream?session={name}") as new:
            last = frames(old)[-1]
            assert last["type"] == "error" and "another connection" in last["message"]
            assert speak(new, [sound(45, 0.3)])[-1] == {"type": "done"}
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


def test_a_frame_after_the_end_is_refused(live):
    with live.socket() as socket:
        socket.send(sound(47, 0.3).tobytes())
        socket.send(json.dumps({"type": "finish"}))
        with pytest.raises(ConnectionClosed):
            for _ in range(100):
                socket.send(sound(48, 0.1).tobytes())
                socket.recv(timeout=10)
    assert live.empty()
