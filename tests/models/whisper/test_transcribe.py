"""From tokens of windows to segments and words of recordings, and recordings side by side."""

from dataclasses import replace

import numpy as np
import pytest

from simuljax.audio import AudioError
from simuljax.models.whisper import Decoding, Request, Whisper
from simuljax.models.whisper.decoding import Context, Decoded, encode_audio
from simuljax.models.whisper.timing import (
    TimedWord,
    alignment_matrix,
    cheapest_path,
    median_filter,
    time_words,
    with_punctuation,
)
from simuljax.models.whisper.tokenizer import Tokenizer
from simuljax.models.whisper.transcribe import Segment, cut_window, share_words, stack
from tests.models.whisper.small import TOKENIZER as T
from tests.models.whisper.small import TOKENS, small_model

SECOND = 16_000


def stamp(seconds):
    return T.timestamps[round(seconds * 50)]


def decoded(*parts, **known):
    tokens = [i for p in parts for i in ([stamp(p)] if isinstance(p, float) else T.encode(p))]
    plain = {"temperature": 0.0, "no_speech_prob": 0.1, "avg_logprob": -0.2}
    text = T.decode(tokens)
    scores = tuple(-0.01 * k for k in range(len(tokens) + 1))
    return Decoded(
        tokens=tuple(tokens), log_probs=scores, text=text, compression_ratio=1.0, **(plain | known)
    )


def cut(*parts, samples=20 * SECOND, **known):
    segments, used = cut_window(T, decoded(*parts, **known), samples, Decoding())
    return [(round(s.start, 2), round(s.end, 2), s.text) for s in segments], used / SECOND


ONE = [(0.0, 20.0, " a")]
BAD = {"no_speech_prob": 0.9, "avg_logprob": -1.5}
CUTS = {  # the text of a window, what is known of it, its segments, and the seconds done with
    "after the last pair, left to the next window": (
        (0.0, " a", 3.0, 3.0, " the", 5.5, 5.5, " in"),
        {},
        [(0.0, 3.0, " a"), (3.0, 5.5, " the")],
        5.5,
    ),
    "a single timestamp ends the speech": (
        (0.5, " a", 3.0, 3.2, " the", 5.5),
        {},
        [(0.5, 3.0, " a"), (3.2, 5.5, " the")],
        20,
    ),
    "no pair, one end": ((0.0, " a", 4.0), {}, [(0.0, 4.0, " a")], 20),
    "no pair, a beginning": ((0.0, " a"), {}, ONE, 20),
    "no timestamp": ((" a",), {}, ONE, 20),
    "nothing": ((), {}, [], 20),
    "no text": ((0.0, " ", 1.0, 1.0, " a", 2.0, 2.0), {}, [(1.0, 2.0, " a")], 2),
    "never stand still": ((0.0, 0.0, " a"), {}, [], 20),
    "silence": ((0.0, " a", 1.0), BAD, [], 20),
    "likely text": ((0.0, " a", 1.0), BAD | {"avg_logprob": -0.5}, [(0.0, 1.0, " a")], 20),
}


@pytest.mark.parametrize("case", CUTS)
def test_windows_are_cut_into_segments(case):
    parts, known, *wanted = CUTS[case]
    assert [*cut(*parts, **known)] == wanted


def test_each_token_keeps_its_probability():
    segments, _ = cut_window(T, decoded(0.0, " a", 3.0, 3.0, " the", 5.0), SECOND * 9, Decoding())
    assert [s.log_probs for s in segments] == [(0.0, -0.01, -0.02), (-0.03, -0.04, -0.05)]


def test_words_go_to_the_segment_they_begin_in():
    plain = {"temperature": 0.0, "no_speech_prob": 0.0, "avg_logprob": 0.0, "log_probs": ()}
    segments = [
        Segment(start=0, end=1, text="", tokens=tokens, compression_ratio=1, **plain)
        for tokens in ((stamp(0), 1, 2, 3, stamp(1)), (stamp(1), 4, 5))
    ]
    words = [
        TimedWord(text=str(ids), tokens=ids, start=0, end=1, probability=1)
        for ids in ((1, 2), (3, 4), (5,))
    ]
    shared = share_words(segments, words, T)
    assert [[w.tokens for w in s.words] for s in shared] == [[(1, 2), (3, 4)], [(5,)]]


def test_windows_of_few_lengths():
    sounds = [np.ones(11 * SECOND, np.int16), np.ones(3 * SECOND, np.int16)]
    assert stack(sounds, 3).shape == (3, 30 * SECOND)
    short = stack(sounds, 3, "short")
    assert short.shape == (3, 15 * SECOND)
    assert short.sum() == 14 * SECOND
    assert stack(sounds[1:], 1, "short").shape == (1, 10 * SECOND)
    assert stack([np.ones(30 * SECOND, np.int16)], 1, "short").shape[1] == 480_000


@pytest.fixture(scope="module")
def whisper():
    return Whisper(model=small_model(positions=1500, seed=5, layers=1), tokenizer=T)


FEW = Decoding(
    max_tokens=6,
    temperatures=(0.0,),
    timestamps="none",
    suppress=tuple(range(T.end + 1, T.size)),  # a random model writes anything else than text
    avg_logprob_limit=None,
    no_speech_limit=None,
)
REQUEST = Request(window="short", words="timed", decoding=FEW)
NOISE = np.random.default_rng(0).normal(size=9 * SECOND) * 3000


def test_recordings_side_by_side_are_as_alone(whisper):
    """Three in batches of two, the last one beside a row of silence."""
    sounds = [NOISE[: n * SECOND // 2].astype(np.int16) for n in (18, 2, 9)]
    together = whisper.transcribe_all(sounds, REQUEST, batch=2)
    for sound, result in zip(sounds, together, strict=True):
        other = np.zeros(SECOND, np.int16)
        alone, _ = whisper.transcribe_all([sound, other], REQUEST, batch=2)
        assert alone.text == result.text and alone.text
        assert alone.language == result.language
        assert [w.tokens for w in alone.words] == [w.tokens for w in result.words]
        times = [t for w in result.words for t in (w.start, w.end)]
        assert times == sorted(times) and times[-1] <= len(sound) / SECOND
    assert len({result.text for result in together}) == 3


def test_tasks_that_a_model_does_not_have(whisper):
    english = Whisper(model=whisper.model, tokenizer=Tokenizer(tokens=TOKENS, multilingual=False))
    with pytest.raises(ValueError, match="transcribes English alone"):
        english.transcribe(NOISE[:SECOND].astype(np.int16), task="translate")
    with pytest.raises(ValueError, match="transcribes English alone"):
        english.transcribe(NOISE[:SECOND].astype(np.int16), language="de")


def test_less_than_a_frame_says_nothing(whisper):
    result = whisper.transcribe(np.zeros(100, np.int16))
    assert (result.text, result.segments, result.words) == ("", (), ())
    with pytest.raises(AudioError, match="no samples"):
        whisper.transcribe(np.zeros(0, np.int16))


def test_words_of_half_a_state_are_timed(whisper):
    sounds = [NOISE[:200].astype(np.int16), np.zeros(SECOND, np.int16)]
    words = whisper.transcribe_all(sounds, REQUEST, batch=2)[0].words
    assert words and words[-1].end == 0.0


@pytest.mark.parametrize(("task", "count"), [("translate", 1), ("transcribe", 3)])
def test_a_translation_has_words_of_english(whisper, task, count):
    memory = encode_audio(whisper.model, stack([NOISE[:SECOND].astype(np.int16)], 1, "short"))
    text, context = T.encode("abc"), Context(task=task, language="ja")
    (words,) = time_words(whisper.model, T, memory, [text], [context], [100])
    assert len(words) == count


def test_prompts_are_text_or_tokens(whisper):
    sounds = [NOISE[:SECOND].astype(np.int16), np.zeros(SECOND, np.int16)]
    text, tokens, without = (
        whisper.transcribe_all(sounds, replace(REQUEST, prompt=prompt), batch=2)[0]
        for prompt in (" the ", T.encode(" the"), "")
    )
    assert text == tokens != without


RANDOM = np.random.default_rng(0)


def slow_path(cost):
    """Dynamic programming cell by cell."""
    rows, columns = cost.shape
    best = {(-1, -1): (0.0, [])}

    def at(i, j):
        return best.get((i, j), (np.inf, []))

    for i in range(rows):
        for j in range(columns):
            both, down, right = at(i - 1, j - 1), at(i - 1, j), at(i, j - 1)
            before = right
            if both[0] < down[0] and both[0] < right[0]:
                before = both
            elif down[0] < both[0] and down[0] < right[0]:
                before = down
            best[i, j] = (before[0] + cost[i, j], [*before[1], (i, j)])
    return best[rows - 1, columns - 1]


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (5, 1), (4, 9), (9, 4), (12, 12)])
def test_the_cheapest_path(shape):
    for draw in (RANDOM.normal(size=shape), RANDOM.integers(0, 3, shape).astype(float)):
        total, path = slow_path(draw)
        rows, columns = cheapest_path(draw)
        assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == path
        assert draw[rows, columns].sum() == pytest.approx(total)


def test_medians():
    x = RANDOM.normal(size=(2, 3, 40))
    mirrored = np.concatenate([x[..., 3:0:-1], x, x[..., -2:-5:-1]], -1)
    expected = np.median([mirrored[..., k : k + 40] for k in range(7)], 0)
    np.testing.assert_array_equal(median_filter(x), expected)
    np.testing.assert_array_equal(median_filter(x[..., :3]), x[..., :3])


def test_what_every_token_looks_at_counts_for_nothing():
    energies = np.zeros((1, 4, 60))
    energies[:, :, 30:40] = 5
    for token in range(4):
        energies[:, token, 7 * token : 7 * token + 7] = 4
    matrix = alignment_matrix(energies)
    assert (matrix[:, 3:24].argmax(0) == (np.arange(3, 24) // 7)).mean() > 0.8
    assert np.ptp(matrix[:, 33:37]) < 1e-9


def word(text, start, end):
    return TimedWord(text=text, tokens=(len(text),), start=start, end=end, probability=0.5)


def test_punctuation_joins_its_word():
    texts = [" He", " said", ",", ' "', "yes", "!", '"', " -", "ok", " (", "so", ")", "."]
    words = [word(text, k, k + 1.0) for k, text in enumerate(texts)]
    joined = with_punctuation(words)
    assert [w.text for w in joined] == [" He", " said,", ' "yes!"', " -ok", " (so)."]
    assert [i for w in joined for i in w.tokens] == [len(text) for text in texts]
    assert (joined[1].start, joined[1].end) == (1, 2.0)
    assert (joined[2].start, joined[2].end) == (4, 5.0)
    assert with_punctuation([word(".", 0, 1)]) == [word(".", 0, 1)]
