"""Word error rate and lag."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simuljax.eval.scores import (
    Transcript,
    lags,
    matches,
    normalise,
    transcript,
    word_error_rate,
)

texts = st.lists(st.sampled_from("abc"), max_size=8)


def edits(a, b):
    """The definition."""
    if not a or not b:
        return len(a) + len(b)
    same = edits(a[:-1], b[:-1]) + (a[-1] != b[-1])
    return min(same, edits(a[:-1], b) + 1, edits(a, b[:-1]) + 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, World!", ["hello", "world"]),
        ("I’m <NAME>, like the car [laughs]...", ["i'm", "like", "the", "car"]),
        ("twenty-one 3.5 1,000 %", ["twenty", "one", "3.5", "1,000"]),
        ("Um, uh hmm the 'quoted' word", ["the", "quoted", "word"]),
        ("Été à l'été — no_name", ["été", "à", "l'été", "no", "name"]),
        ("... - !", []),
    ],
)
def test_normalised(text, words):
    assert normalise(text) == words


@given(texts, texts)
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_errors_and_matches_are_of_the_fewest_edits(reference, hypothesis):
    reference, hypothesis = reference[:5], hypothesis[:5]
    count = edits(reference, hypothesis)
    if reference:
        rate = word_error_rate([(reference, hypothesis)])
        assert rate == pytest.approx(100 * count / len(reference))
    found = matches(reference, hypothesis)
    assert all(reference[i] == hypothesis[j] for i, j in found)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(found))
    # Between matches, the longer side has to be changed word by word: that makes up the edits.
    ends = [(-1, -1), *found, (len(reference), len(hypothesis))]
    gaps = [max(i2 - i1, j2 - j1) - 1 for (i1, j1), (i2, j2) in itertools.pairwise(ends)]
    assert sum(gaps) == count


def test_rates_are_of_all_words_together():
    pairs = [(["a"] * 9, ["a"] * 9), (["b"], ["c"])]
    assert word_error_rate(pairs) == pytest.approx(10)
    assert word_error_rate([(["a"], ["a", "b", "c"])]) == pytest.approx(200)
    assert math.isnan(word_error_rate([]))


def test_lags_are_of_right_words_alone():
    spoken = transcript("The <NAME> cat sat um down.", [100, 150, 400, 700, 750, 900])
    written = transcript("The hat sat down", [1000, 1000, 2000, 2000])
    assert spoken.words == ("the", "cat", "sat", "down")
    assert lags(spoken, written) == [900, 1300, 1100]


def test_a_word_that_is_two_has_its_time_twice():
    assert transcript("well-known", [5.0]) == Transcript(
        words=("well", "known"), times_ms=(5.0, 5.0)
    )
    assert transcript("well-known").times_ms == ()
    heard = Transcript(words=("hello",), times_ms=(3.0,))
    assert transcript("[BLANK AUDIO] hello", [1.0, 2.0, 3.0]) == heard
    assert transcript("[BLANK AUDIO] hello", [1.0, 3.0]) == heard, "one time for the whole mark"
    with pytest.raises(ValueError, match="2 words but 1 times"):
        transcript("two words", [1.0])
