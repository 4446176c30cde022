import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simuljax.text import clean


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  a\u00a0 b\t\nc\u3000d ", "a b c d"),
        ("scho\u0308n", "schön"),
        ("a\x00b\x07 \ufeffc\u00adode\u200b", "ab code"),
        ("o\u00ad\u0308", "ö"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("\ud800x", "x"),
        ("\x85", ""),
    ],
)
def test_clean(text, expected):
    assert clean(text) == expected


@settings(deadline=None)
@given(st.text(max_size=30))
def test_cleaning_twice_changes_nothing(text):
    once = clean(text)
    assert clean(once) == once
    assert once == " ".join(once.split())
    once.encode("utf-8")
