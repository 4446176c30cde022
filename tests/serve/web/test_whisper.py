"""Whisper over sockets: many streams in one engine, each with its language and task."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from simuljax.models.whisper import Whisper
from simuljax.serve.whisper import WhisperTranslator
from tests.models.whisper.small import TOKENIZER, small_model
from tests.serve.web.servers import alone, frames, running, sound, speak, texts_of, upload, words_of
from tests.serve.web.test_protocols import as_wav
from tests.serve.whisper.test_translator import SMALL


@pytest.fixture(scope="module")
def translator():
    model = Whisper(model=small_model(positions=1500, seed=5, layers=1), tokenizer=TOKENIZER)
    return WhisperTranslator(model, SMALL)


@pytest.fixture(scope="module")
def live(translator):
    with running(translator, streams=2) as server:
        yield server


def test_speakers_of_two_languages_share_the_engine(live, translator):
    pieces = np.array_split(sound(1, 2.5), 7)
    settings = [{"language": "de", "task": "translate"}, {"language": "en", "task": "transcribe"}]

    def client(given: dict[str, str]) -> list[tuple[str, float]]:
        query = "&".join(f"{key}={value}" for key, value in given.items())
        with live.socket(f"/stream?{query}") as socket:
            return words_of(speak(socket, pieces))

    expected = [alone(translator, pieces, **each) for each in settings]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(client, settings)) == expected and all(expected)
    assert live.empty()


def test_a_file_that_is_sent_at_once_gives_the_words_of_the_file(live, translator):
    """Without `behind=every` windows are left out, as for a speaker who is ahead."""
    samples = sound(3, 6.0)
    expected = words_of_file(translator, samples)
    with live.socket("/stream?behind=every") as socket:
        assert texts_of(words_of(speak(socket, [samples]))) == expected and expected
    with live.socket("/stream?behind=never") as socket:
        (only,) = frames(socket)
        assert only["type"] == "error" and "behind" in only["message"]
    assert live.empty()


def words_of_file(translator: WhisperTranslator, samples: np.ndarray) -> list[str]:
    stream = translator.stream()
    return [word.text for word in [*stream.push(samples), *stream.finish()]]


def test_languages_are_listed_and_others_refused(live, translator):
    (model,) = json.loads(live.get("/v1/models")[1])["data"]
    assert model["id"] == translator.name
    assert model["languages"] == [*translator.languages] and "de" in model["languages"]
    for query, fact in (("language=klingon", "klingon"), ("task=sing", "task")):
        with live.socket(f"/stream?{query}") as socket:
            (only,) = frames(socket)
            assert only["type"] == "error" and fact in only["message"]
    fields = {"language": "de", "response_format": "verbose_json"}
    url = live.url("/v1/audio/transcriptions", "http")
    answer = json.loads(upload(url, as_wav(sound(2, 0.5)), **fields)[1])
    assert (answer["task"], answer["language"]) == ("transcribe", "de")
    assert live.empty()
