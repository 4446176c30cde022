"""No phrase is kept more often in a row than it may be; other texts stay as they are."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simuljax.config.fields import ConfigError
from simuljax.decode.repetition import Stammer

words = st.lists(st.sampled_from(["a", "b", "c", "A,", "7"]), max_size=40)


def most_often(text: list[str], longest: int) -> int:
    """The most times that a phrase with a letter stands in a row, counted the long way."""
    bare, most = [word.strip(",").lower() for word in text], 1
    for start, size in itertools.product(range(len(bare)), range(1, longest + 1)):
        phrase, times = bare[start : start + size], 1
        if len(phrase) < size or not any(word.isalpha() for word in phrase):
            continue
        while bare[start + times * size : start + (times + 1) * size] == phrase:
            times += 1
        most = max(most, times)
    return most


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("einen einen einen einen Hund", "einen einen Hund"),
        ("sehr sehr gut", "sehr sehr gut"),
        ("Nein, nein, nein!", "Nein, nein,"),
        ("auf dem auf dem auf dem auf dem Tisch", "auf dem auf dem auf Tisch"),
        ("a a a b a a a b a a a b a a a b c", "a a b a a b a a c"),
        ("Ein Mann und ein Mann und ein Hund", "Ein Mann und ein Mann und ein Hund"),
        ("im offenenenenenenen Schnee........", "im offenenen Schnee..."),
        ("1000000 Schritte, 0 0 0 0 7", "1000000 Schritte, 0 0 0 0 7"),
        ("Schifffahrt www", "Schifffahrt www"),
        ("  two  spaces stay ", "  two  spaces stay "),
        ("", ""),
    ],
)
def test_texts_by_hand(text, kept):
    assert Stammer().text(text) == kept


@given(words, st.integers(1, 3), st.integers(1, 4))
def test_nothing_is_kept_too_often_and_nothing_else_is_left_out(text, times, longest):
    limits = Stammer(times=times, words=longest)
    found = limits.begin().push(text)[1]
    kept = [word for word in found if word]
    assert most_often(kept, longest) <= times
    assert (kept == text) == (most_often(text, longest) <= times)
    for n, word in enumerate(found):
        assert word in ("", text[n])
        if not word:  # at the earliest with the word that completes one repetition too many
            assert most_often(text[: n + 1], longest) > times or most_often(
                [*(w for w in found[:n] if w), text[n]], longest
            ) > times  # fmt: skip


@given(words, st.data())
def test_words_may_come_in_any_pieces(text, data):
    whole, guard, found = Stammer().begin().push(text)[1], Stammer().begin(), []
    while text:
        count = data.draw(st.integers(1, len(text)))
        guard, kept = guard.push(text[:count])
        text, found = text[count:], found + kept
    assert found == whole


def test_it_can_be_switched_off():
    text = "ja " * 50 + "neeeeeeein"
    assert Stammer(times=0).text(text) == text
    with pytest.raises(ConfigError, match="times is -1"):
        Stammer(times=-1)


def test_memory_is_bounded():
    guard = Stammer().begin()
    for n in range(500):
        guard, _ = guard.push([f"w{n % 37}"] * (n % 5))
    assert max(len(guard.written), len(guard.kept)) < Stammer().words * (Stammer().times + 1)
