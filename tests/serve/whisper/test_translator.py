"""Streams and batches: with a model of random numbers, and with Whisper tiny."""

import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simuljax.audio import RATE
from simuljax.config.decoding import Stammer
from simuljax.config.fields import ConfigError
from simuljax.decode.policies import AlignAtt, Greedy, LocalAgreement, Offline
from simuljax.models.whisper import Decoding, Tokenizer, Whisper, load
from simuljax.profile.measure import counted_programs
from simuljax.serve.translator import batch_sizes, batches
from simuljax.serve.whisper import Guards, WhisperStreaming, WhisperTranslator, Window
from simuljax.serve.whisper.hypothesis import (
    Hypothesis,
    Segment,
    SpelledWord,
    split_segments,
    words_of,
)
from tests.helpers.streams import push_all, timed
from tests.models.whisper.small import GGML, TINY, TOKENS, needs_tiny, small_model
from tests.models.whisper.small import TOKENIZER as T
from tests.models.whisper.test_transcribe import decoded
from tests.serve.whisper.made import OPEN, Fake
from tests.serve.whisper.test_policies import noise

UNSPOKEN = [i for i in range(T.timestamps.start) if not T.decode([i]).strip().isalpha()]
SMALL = WhisperStreaming(
    policy=Greedy(),
    task="transcribe",
    language="en",
    decoding=Decoding(max_tokens=6, temperatures=(0.0,), suppress=tuple(UNSPOKEN)),
    prompt_tokens=4,
    padding="short",
    guards=OPEN,
)
SOUND = noise(3.3, -20)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((0.0, " the", 1.2, 1.2, " a", 2.0), [(" the", 0.0, 1.2), (" a", 1.2, 2.0)]),
        # Text after the last timestamp goes to the end.
        ((0.0, " the", 1.2, 1.2, " a"), [(" the", 0.0, 1.2), (" a", 1.2, 3.0)]),
        ((" the",), [(" the", 0.0, 3.0)]),
        # No segment ends after the sound.
        ((0.0, " the", 5.0, 5.0, " a", 6.0), [(" the", 0.0, 3.0), (" a", 3.0, 3.0)]),
    ],
)
def test_segments_are_between_timestamps(parts, said):
    found = split_segments(T, decoded(*parts), 3.0)
    assert [(T.decode(ids), round(a, 2), round(b, 2)) for ids, _, a, b in found] == said


def test_words_have_the_marks_after_them_and_not_their_attention():
    ids = T.encode(" 3.5 the, a?")
    states = range(len(ids))
    words = words_of(T, ids, states, "en")
    assert [word.text for word in words] == ["3.5", "the,", "a?"]
    assert [i for word in words for i in word.ids] == ids
    assert words[1].state == ids.index(T.encode(",")[0]) - 1
    assert words[2].state == len(ids) - 2
    assert [(word.mark, word.without_mark.text) for word in words[1:]] == [(",", "the"), ("?", "a")]
    assert words[2].without_mark.ids == words[2].ids[:-1]


@pytest.mark.parametrize("words", ["あ あ。", "あ iPhonex あ。 3.50 あ"])
def test_words_of_a_language_without_spaces_are_characters(words):
    ids = T.encode(words.replace(" ", ""))
    assert [word.text for word in words_of(T, ids, [0] * len(ids), "ja")] == words.split()


@pytest.fixture(scope="module")
def small():
    return Whisper(model=small_model(positions=1500, seed=5, layers=1), tokenizer=T)


def played(translator, sound, chunk):
    pieces = (sound[k : k + chunk] for k in range(0, len(sound), chunk))
    return push_all(translator.stream(), pieces)


def texts(words):
    return [word.text for word in words]


class HashTranslator(Fake):
    """Writes what a hash of the window says, so that no two windows are alike."""

    def written(self, window):
        sound = window.samples.tobytes()
        digits = str(zlib.crc32(sound + str((window.prompt, window.forced)).encode()))
        words = (*map(str, window.forced), *digits[:4])
        tokens = [SpelledWord(text=w, ids=(int(w),), state=5 * k) for k, w in enumerate(words)]
        half = len(tokens) // 2
        seconds = len(window.samples) / RATE
        segments = (
            Segment(words=tuple(tokens[:half]), start=0.0, end=seconds / 2),
            Segment(words=tuple(tokens[half:]), start=seconds / 2, end=seconds),
        )
        return Hypothesis(segments=segments, states=len(window.samples) // 320)


@pytest.mark.parametrize("policy", [Greedy(), AlignAtt(), LocalAgreement(), Offline()])
def test_words_depend_neither_on_chunks_nor_on_company(small, policy):
    translator = HashTranslator(small, replace(SMALL, policy=policy, most_s=9.0))
    long = noise(40.0, -20)
    sounds = [long[-round(s * RATE) :] if s else long[:0] for s in (33.3, 1.0, 20.2, 0.0, 0.05, 12)]
    together = translator.stream_all(sounds, streams=3)
    assert [len(words) > 3 for words in together] == [True, True, True, False, False, True]
    for sound, words in zip(sounds, together, strict=True):
        assert timed(words) == timed(played(translator, sound, RATE))
    for chunk in (777, 20_000, 10**6):
        assert texts(played(translator, sounds[0], chunk)) == texts(together[0])


@pytest.mark.slow
def test_a_model_writes_for_many_as_for_one(small, monkeypatch):
    monkeypatch.setattr("simuljax.serve.whisper.translator.batch_sizes", lambda streams: (1, 2))
    interpreter = WhisperTranslator(small, replace(SMALL, policy=AlignAtt(frames=3)))
    sounds = [SOUND[: int(s * RATE)] for s in (3.3, 1.0, 2.2)]
    together = interpreter.stream_all(sounds, streams=2)
    assert all(together)
    assert [texts(w) for w in together] == [texts(played(interpreter, s, RATE)) for s in sounds]
    assert interpreter.stream_all([]) == []


def test_rows_go_in_batches_of_few_sizes(monkeypatch):
    assert batch_sizes(64) == (1,)
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    assert [batch_sizes(n) for n in (1, 4, 5, 64)] == [(1,), (1, 4), (1, 4, 5), (1, 4, 16, 64)]
    assert [*batches(range(6), (1, 4))] == [([0, 1, 2, 3], 4), ([4, 5], 4)]
    assert [*batches([7], (1, 4))] == [([7], 1)]


def test_nothing_is_compiled_while_people_speak():
    model = small_model(positions=1500, seed=5, layers=1, tokens=448)
    settings = replace(SMALL, policy=AlignAtt(frames=3), padding="full", prompt_tokens=56)
    backend = WhisperTranslator(Whisper(model=model, tokenizer=T), settings).backend()
    backend.compile(2)
    rows, token = backend.rows(2), T.encode(" a")[0]
    with counted_programs() as programs:
        for prompt, forced in ((0, 0), (56, 0), (0, 60), (56, 60)):
            known = {"prompt": (token,) * prompt, "forced": (token,) * forced, "language": "en"}
            window = Window(samples=SOUND, settings=settings, **known)
            assert len(rows.step({0: window, 1: window})) == 2
    assert programs == []


def test_delays_are_of_what_was_pushed(small):
    every = replace(SMALL, stammer=Stammer(times=0))  # the random model repeats itself
    words = played(WhisperTranslator(small, every), SOUND, 20_000)
    assert {w.delay_ms for w in words} <= {1250.0, 2500.0, 3300.0}
    assert words[-1].delay_ms == 3300.0
    elapsed = [w.elapsed_ms for w in words]
    assert elapsed == sorted(elapsed)
    assert all(w.elapsed_ms > w.delay_ms for w in words)


def test_silence_has_no_text_however_it_is_asked_for(small):
    guarded = WhisperTranslator(small, replace(SMALL, guards=Guards()))
    stream, silence = guarded.stream(), np.zeros(8 * RATE, np.int16)
    assert guarded.translate(silence) == ""
    assert [*stream.push(silence), *stream.finish()] == []


def test_what_a_model_cannot_do_is_refused(small):
    english = Whisper(model=small.model, tokenizer=Tokenizer(tokens=TOKENS, multilingual=False))
    for asked in (WhisperStreaming(), WhisperStreaming(task="transcribe", language="de")):
        with pytest.raises(ConfigError, match="English alone"):
            WhisperTranslator(english, asked).stream()
    for language in (None, "English"):
        WhisperTranslator(english, replace(SMALL, language=language)).stream()
    stream: Any = WhisperTranslator(small, SMALL).stream()
    for refused in (WhisperTranslator(small, WhisperStreaming(language="yue")).stream,
                    lambda: stream.session.change(WhisperStreaming(language="yue"))):  # fmt: skip
        with pytest.raises(ConfigError, match="Cantonese"):
            refused()


@pytest.fixture(scope="module")
def tiny():
    return load(GGML)


@needs_tiny
@pytest.mark.slow
def test_real_speech(tiny):
    """Policies that judge what was written are tested on hypotheses; AlignAtt needs the model's."""
    english = WhisperStreaming(task="transcribe", language="en", window_s=2.0)
    said = {}
    for policy in (Greedy(), AlignAtt(), Offline()):
        interpreter = WhisperTranslator(tiny, replace(english, policy=policy))
        (said[policy],) = interpreter.stream_all([TINY / "jfk.flac"])
    greedy, align, offline = (np.mean([w.delay_ms for w in words]) for words in said.values())
    assert greedy <= align <= offline == 11_000.0
    plain = " ".join(w.text.strip(",.!?").lower() for w in said[Offline()])
    country = "ask not what your country can do for you ask what you can do for your country"
    assert plain == f"and so my fellow americans {country}"


@needs_tiny
@pytest.mark.slow
def test_minutes_of_noise(tiny):
    """The guards before the model take it; without them, those after it leave next to nothing."""
    sound = noise(120, -30, colour=1.0)
    english = WhisperStreaming(task="transcribe", language="en", window_s=2.0, policy=Greedy())
    assert WhisperTranslator(tiny, english).stream_all([sound]) == [[]]
    model_alone = replace(english, guards=Guards(quiet_db=-1e3, steady_db=0.0))
    (words,) = WhisperTranslator(tiny, model_alone).stream_all([sound[: 20 * RATE]])
    assert len(words) <= 4, texts(words)
