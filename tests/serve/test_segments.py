"""Streams that are cut at pauses, and models that write one word for ever."""

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simuljax.audio.segmentation import Segmenter
from simuljax.config.decoding import Decoding, LengthLimit, Segmentation, Stammer
from simuljax.decode.policies import Greedy
from simuljax.serve.cascade import TextReader
from simuljax.serve.run_translator import RunTranslator
from simuljax.serve.session import STATE, Read, ReadSession, Tokens
from simuljax.serve.translator import stream_all
from simuljax.serve.whisper import WhisperSession, WhisperStreaming
from simuljax.serve.whisper.hypothesis import Hypothesis, Segment, SpelledWord
from simuljax.text import EOS, WordStream
from simuljax.train.run import Loaded
from tests.helpers import streams
from tests.helpers.streams import RATE, SPEECH, VOCABULARY, sound
from tests.serve.whisper.made import OPEN

READ = 8 * STATE
BLANK = WordStream.begin(VOCABULARY)
WORDS = [n for n, piece in enumerate(VOCABULARY.pieces) if piece.startswith("▁") and piece != "▁"]


def speech(random: np.random.Generator, seconds: float) -> np.ndarray:
    return (32767 * streams.sound(random, int(seconds * RATE))).astype(np.int16)


def talk(random: np.random.Generator, sentences: int = 5) -> tuple[np.ndarray, list[int]]:
    """Sentences with pauses between them, and where each begins."""
    parts, starts = [np.zeros(RATE // 2, np.int16)], []
    for _ in range(sentences):
        starts.append(sum(map(len, parts)))
        parts.append(np.maximum(speech(random, random.uniform(0.8, 2.5)), 1000))
        parts.append(np.zeros(int(random.uniform(0.5, 1.5) * RATE), np.int16))
    return np.concatenate(parts), starts


class Rigged:
    """A backend whose model writes a word with every READ, another one in each sentence.

    It ends a sentence by itself after `patience` READs.
    """

    def __init__(self, patience: int = 1000, **settings: Any):
        self.decoding = Decoding(sentences="pauses", segmentation=Segmentation(**settings))
        self.patience, self.sentences = patience, list[list[Read]]()

    def open(self) -> ReadSession:
        return ReadSession(BLANK, read=READ, most=1500 * STATE, decoding=self.decoding)

    def rows(self, streams: int) -> Any:
        return self

    def compile(self, streams: int) -> None:
        """There is nothing to compile."""

    def step(self, reads: Mapping[int, Read]) -> dict[int, Tokens]:
        return {row: self._write(read) for row, read in reads.items()}

    def _write(self, read: Read) -> Tokens:
        if read.anew:
            self.sentences.append([])
        self.sentences[-1].append(read)
        count = len(self.sentences[-1])
        over = read.ended or count >= self.patience
        word = WORDS[(len(self.sentences) + count) % len(WORDS)]
        return Tokens(
            ids=[word, EOS] if over else [word], reach=count * READ // STATE, finished=over
        )


def test_every_segment_is_a_sentence_with_a_fresh_state():
    random, backend = np.random.default_rng(0), Rigged()
    sound, starts = talk(random)
    words = stream_all(backend, [sound])[0]
    assert len(backend.sentences) == len(starts)
    for sentence, start, end in zip(
        backend.sentences, starts, [*starts[1:], len(sound)], strict=True
    ):
        assert sentence[0].anew and sentence[-1].ended
        assert not any(read.anew for read in sentence[1:])
        assert not any(read.ended for read in sentence[:-1])
        assert all(len(read.samples) == READ for read in sentence[:-1])
        times = [word.delay_ms * 16 for word in words if start < word.delay_ms * 16 <= end]
        assert len(times) == len(sentence), "words are told in the time of the recording"
        assert times[0] >= start + READ - RATE // 4


@pytest.mark.parametrize("settings", [{}, {"segment_s": 4.0, "pause_ms": 2000}])
def test_no_chunking_matters(settings):
    random = np.random.default_rng(1)
    sound, _ = talk(random, 8)
    expected = None
    for trial in range(8):
        backend = Rigged(patience=5, remainder_s=0.4, **settings)
        session, words = backend.open(), []
        cuts = np.sort(random.integers(0, len(sound) + 1, int(random.integers(0, 200))))
        for piece in np.split(sound, cuts if trial else []):
            session.push(piece)
            words += drain(session, backend)
        session.finish()
        words += drain(session, backend)
        assert session.finished
        found = words, [[read.samples.tolist() for read in each] for each in backend.sentences]
        expected = expected or found
        assert found == expected
    assert expected and len(expected[0]) > 20


def drain(session: ReadSession, backend: Rigged) -> list[str]:
    words = []
    while (read := session.next()) is not None:
        words += session.commit(backend.step({0: read})[0])
    return words


def reads_of(backend: Rigged, pieces: list[np.ndarray], rate: int, late: float | None) -> list:
    """Return each READ, its delay, and the piece after which it came.

    With `late` a piece waits until there may be a READ, or for so many times the sound of that.
    """
    session, waiting, found = backend.open(), list[tuple[bytes, float]](), []
    session.set_rate(rate)
    for number, piece in enumerate([*pieces, None]):
        if piece is not None and late is None:
            session.push(piece)
        elif piece is not None:
            waiting.append((piece.tobytes(), 1.0 + number))
        there = sum(len(data) for data, _ in waiting) / 2
        if waiting and (piece is None or there >= (late or 0) * (session.missing * rate // RATE)):
            session.push_pcm(waiting)
            waiting = []
        if piece is None:
            session.finish()
        while (read := session.next()) is not None:
            found.append((number, session.delay_ms, read.ended, read.anew, read.samples.tolist()))
            session.commit(backend.step({0: read})[0])
    return found


@pytest.mark.parametrize(("rate", "patience"), [(RATE, 1000), (RATE, 7), (24_000, 1000)])
def test_sound_that_waits_until_there_may_be_a_read_is_read_as_if_pushed(rate, patience):
    random = np.random.default_rng(6)
    sound = np.concatenate([talk(random)[0], speech(random, 9.0), talk(random, 3)[0]])
    cuts = np.cumsum(random.integers(1, 3000, 2 * len(sound) // 1500))
    pieces = [piece for piece in np.split(sound, cuts[cuts < len(sound)]) if len(piece)]
    given = (Rigged(patience, segment_s=5.0), pieces, rate)
    at_once = reads_of(*given, None)
    assert len(at_once) > 30 and sum(anew for *_, anew, _ in at_once) > 5
    assert reads_of(*given, 1.0) == at_once
    assert reads_of(*given, 3.0) != at_once  # some of it was needed earlier


def test_a_sentence_that_ends_early_leaves_the_rest_if_it_is_long():
    random = np.random.default_rng(2)
    said = np.maximum(speech(random, 4.0), 1000)
    quiet = np.zeros(RATE, np.int16)
    for remainder_s, sentences in ((1.0, 3), (10.0, 1)):
        backend = Rigged(patience=5, remainder_s=remainder_s)  # 1.6 s of 4.2
        stream_all(backend, [np.concatenate([quiet, said, quiet])])
        assert len(backend.sentences) == sentences
        read = np.concatenate([r.samples for each in backend.sentences for r in each])
        whole = np.concatenate([quiet, said, quiet])[RATE - RATE // 5 :]
        np.testing.assert_array_equal(read, whole[: len(read)])


@pytest.mark.parametrize("seconds", [0, 30])
def test_silence_alone_has_no_words(seconds):
    backend = Rigged()
    assert stream_all(backend, [np.zeros(seconds * RATE, np.int16)]) == [[]]
    assert backend.sentences == []


def test_memory_is_bounded():
    """Minutes of sentences, of long speech without a pause, and of silence, twice."""
    random, backend = np.random.default_rng(3), Rigged(patience=30)
    session, long, quiet = backend.open(), speech(random, 60.0), np.zeros(60 * RATE, np.int16)
    for minute in range(6):
        parts = ([talk(random, 18)[0]], [long], [quiet])[minute % 3]
        for piece in np.array_split(np.concatenate(parts), 60 * 5):
            session.push(piece)
            drain(session, backend)
            backend.sentences = backend.sentences[-1:]
            held = sum(map(len, (session.waiting, session.again, session.sentence)))
            assert held <= 20 * RATE + 2 * READ + len(piece)
            assert len(session.pushes) < 100 and len(session.ends) < 3
    assert session.settled_s > 5 * 60


def test_a_joined_recording_gives_the_words_of_its_parts():
    translator = streams.translator(seed=13, speech=SPEECH)
    sound, starts = talk(np.random.default_rng(4), 4)
    settings: dict[str, Any] = {"limit": LIMIT, "stammer": Stammer(times=0)}
    cut = Segmentation(remainder_s=60.0)
    stream = translator.stream(sentences="pauses", segmentation=cut, **settings)
    words = streams.push_all(stream, np.array_split(sound, 41))
    expected, segmenter = [], Segmenter(Segmentation())
    parts = segmenter.push(sound) + segmenter.finish()
    assert len(parts) == len(starts) and all(part.ends for part in parts)
    for part in parts:
        alone = streams.push_all(translator.stream(**settings), [part.samples])
        expected += [word.text for word in alone]
    assert [word.text for word in words] == expected and len(expected) > 4
    assert [word.delay_ms for word in words] == sorted(word.delay_ms for word in words)


LIMIT = LengthLimit(ratio=0.5, constant=4)
RECORDING = sound(np.random.default_rng(1), RATE)


@functools.cache
def stuck(**changes: Any) -> RunTranslator:
    """Writes the piece "▁c" and nothing else, whatever comes."""
    made = streams.translator(**changes)
    params = made.variables["params"]
    decoder = dict(params["decoder"])
    kernel = np.zeros_like(decoder["output"]["kernel"])
    kernel[:, streams.VOCABULARY.pieces.index("▁c")] = 3.0
    size = len(decoder["norm"]["bias"])
    decoder["norm"] = {"scale": np.zeros(size, np.float32), "bias": np.ones(size, np.float32)}
    decoder["output"] = {"kernel": kernel}
    rigged = {**params, "decoder": decoder}
    return RunTranslator(made.run, Loaded(params=rigged, statistics={}, steps=(0,)))


def test_no_stream_stammers():
    """Whatever the policy, for the session leaves out repetition; a new segment may repeat."""
    translator, pause = stuck(speech=SPEECH), np.zeros(RATE, np.float32)
    for times in (2, 0):
        stream = translator.stream(limit=LIMIT, stammer=Stammer(times=times))
        words = streams.push_all(stream, np.array_split(RECORDING, 7))
        texts = [word.text for word in words]
        assert texts == ["c", "c"] if times else len(texts) > 4 and set(texts) == {"c"}
    stream = translator.stream(limit=LIMIT, sentences="pauses")
    words = streams.push_all(stream, [np.concatenate([RECORDING, pause] * 3)])
    assert [word.text for word in words] == ["c"] * 6


def test_no_text_stammers():
    translator = stuck(speech=None, decoder_layers=1)
    words = streams.push_all(TextReader(translator, limit=LIMIT).stream(), ["a b c d e f"])
    assert [word.text for word in words] == ["c", "c"]
    assert translator.translate_text("a b c") == "c c"


@pytest.mark.parametrize("times", [2, 0])
def test_whisper(times):
    """Without its own guards, which refuse whole segments."""
    own = {"policy": Greedy(), "guards": OPEN, "stammer": Stammer(times=times)}
    session, words = WhisperSession(replace(WhisperStreaming(), **own)), []
    for _ in range(6):
        session.push((RECORDING * 32767).astype(np.int16))
        while (window := session.next()) is not None:
            said = (SpelledWord(text="you", ids=(1,)), SpelledWord(text="you", ids=(1,)))
            end = len(window.samples) / RATE
            segments = (Segment(words=said, start=0.0, end=end),)
            words += session.commit(Hypothesis(segments=segments, states=50, language="en"))
    assert words == ["you"] * (2 if times else 12)
