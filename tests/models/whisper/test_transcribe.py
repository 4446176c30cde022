"""From tokens of windows to segments of recordings, and to the states that tokens attend to."""

import numpy as np
import pytest
import scipy.ndimage

from simuljax.audio import AudioError
from simuljax.models.whisper import Decoding, Whisper
from simuljax.models.whisper.decoding import Decoded
from simuljax.models.whisper.timing import alignment_matrix, median_filter
from simuljax.models.whisper.tokenizer import Tokenizer
from simuljax.models.whisper.transcribe import cut_window, stack
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


@pytest.mark.parametrize(
    ("parts", "segments", "used"),
    [
        # Text after the last pair is left to the next window.
        ((0.0, " a", 3.0, 3.0, " the", 5.5, 5.5, " in"), [(0, 3, " a"), (3, 5.5, " the")], 5.5),
        # A single timestamp at the end is the end of speech.
        ((0.5, " a", 3.0, 3.2, " the", 5.5), [(0.5, 3, " a"), (3.2, 5.5, " the")], 20),
        # Without a pair the window is one segment.
        ((0.0, " a", 4.0), [(0, 4, " a")], 20),
        ((0.0, " a"), [(0, 20, " a")], 20),
        ((" a",), [(0, 20, " a")], 20),
        ((), [], 20),
        # What takes no time or says nothing is left out; a window never stands still.
        ((0.0, " ", 1.0, 1.0, " a", 2.0, 2.0), [(1, 2, " a")], 2),
        ((0.0, 0.0, " a"), [], 20),
    ],
)
def test_segments_of_a_window(parts, segments, used):
    found = cut_window(T, decoded(*parts), 20 * SECOND, Decoding())
    told = [(round(s.start, 2), round(s.end, 2), s.text) for s in found.segments]
    assert (told, found.used / SECOND) == (segments, used)


def test_silence():
    for avg_logprob, silent in ((-1.5, True), (-0.5, False)):
        window = decoded(0.0, " a", 1.0, no_speech_prob=0.9, avg_logprob=avg_logprob)
        assert (not cut_window(T, window, 20 * SECOND, Decoding()).segments) == silent


def test_windows_of_few_lengths():
    sounds = [np.ones(11 * SECOND, np.int16), np.ones(3 * SECOND, np.int16)]
    assert stack(sounds, 3).shape == (3, 30 * SECOND)
    short = stack(sounds, 3, "short")
    assert short.shape == (3, 15 * SECOND)
    assert short.sum() == 14 * SECOND
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
NOISE = np.random.default_rng(0).normal(size=4 * SECOND) * 3000


def test_a_recording_is_written_window_by_window(whisper):
    """The second window follows on the text of the first; a language is guessed once."""
    sound = np.tile(NOISE, 9).astype(np.int16)  # 36 s
    found = whisper.transcribe(sound, decoding=FEW)
    first = whisper.transcribe(sound[: 30 * SECOND], decoding=FEW)
    assert [segment.end for segment in found.segments] == [30.0, 36.0]
    assert found.segments[:1] == first.segments and found.language == first.language
    assert found.text.startswith(first.text) and first.text


def test_tasks_that_a_model_does_not_have(whisper):
    english = Whisper(model=whisper.model, tokenizer=Tokenizer(tokens=TOKENS, multilingual=False))
    with pytest.raises(ValueError, match="transcribes English alone"):
        english.transcribe(NOISE[:SECOND].astype(np.int16), task="translate")
    with pytest.raises(ValueError, match="transcribes English alone"):
        english.transcribe(NOISE[:SECOND].astype(np.int16), language="de")


def test_less_than_a_frame_says_nothing(whisper):
    result = whisper.transcribe(np.zeros(100, np.int16))
    assert (result.text, result.segments) == ("", ())
    with pytest.raises(AudioError, match="no samples"):
        whisper.transcribe(np.zeros(0, np.int16))


RANDOM = np.random.default_rng(0)


def test_medians():
    x = RANDOM.normal(size=(2, 3, 40))
    expected = scipy.ndimage.median_filter(x, size=(1, 1, 7), mode="mirror")
    np.testing.assert_allclose(median_filter(x), expected)
    np.testing.assert_array_equal(median_filter(x[..., :3]), x[..., :3])


def test_what_every_token_looks_at_counts_for_nothing():
    energies = np.zeros((1, 4, 60))
    energies[:, :, 30:40] = 5
    for token in range(4):
        energies[:, token, 7 * token : 7 * token + 7] = 4
    matrix = alignment_matrix(energies)
    assert (matrix[:, 3:24].argmax(0) == (np.arange(3, 24) // 7)).mean() > 0.8
    assert np.ptp(matrix[:, 33:37]) < 1e-9
