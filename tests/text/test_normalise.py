import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simuljax.text import clean, remove_annotations, spoken_form


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(Applause) Thank you. (Laughter)", "Thank you."),
        ("(Applause ends) So [Music plays, loudly] here", "So here"),
        ("Das war's. (Beifall) (Übersetzung folgt später)", "Das war's."),
        ("♪ la la ♫", "la la"),
        ("It is (as you know) here.", "It is (as you know) here."),
        ("the alliance (NATO) and a group (WHO)", "the alliance (NATO) and a group (WHO)"),
        ("He (Who Is Always Very Late) came", "He (Who Is Always Very Late) came"),
        ("in (2020) or (a)", "in (2020) or (a)"),
        ("Nothing to remove", "Nothing to remove"),
    ],
)
def test_remove_annotations(text, expected):
    assert remove_annotations(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, World! It's 5 o’clock.", "hello world it's 5 o'clock"),
        ("the dogs' 'house' - state-of-the-art", "the dogs house state of the art"),
        ("Ärger: 20% für §5 & €3…", "ärger 20 für 5 3"),
        ("日本語を、話します。", "日本語を 話します"),
        ("...", ""),
    ],
)
def test_spoken_form(text, expected):
    assert spoken_form(text) == expected
