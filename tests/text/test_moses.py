"""Tokens and their spelling, against the Moses detokeniser of sacremoses."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sacremoses import MosesDetokenizer, MosesTokenizer

from simuljax.text import clean, moses
from tests.text.samples import real_lines

# The first use of a language compiles its rules, so no example has a deadline.
MARKS = (".", "...", "?", "%", ")", "(", "$", "¿", "'", '"', "„", "“", "”", "``", "''", "-", "@")
TOKENS = st.sampled_from(("a", "dogs", "3", "é", "日", "本", "l'", "x'", "l'x", "'s", *MARKS))


@pytest.mark.parametrize("language", ["en", "de", "fr", "it", "es", "ja", "ko", "pt"])
@settings(deadline=None, max_examples=40)
@given(tokens=st.lists(TOKENS, min_size=1, max_size=12))
@example(tokens=["'", "dogs", "'", "a", "'", "b"])
@example(tokens=["dogs", "'", "a", "'", "b", "'"])
def test_any_tokens_are_spelled_as_moses_does(language, tokens):
    expected = MosesDetokenizer(language).detokenize(tokens, unescape=False)
    assert moses.detokenise(tokens, language) == expected


def test_the_comparison_notices_a_rule_left_out():
    english = MosesDetokenizer("en").detokenize(["dogs", "'s"], unescape=False)
    assert moses.detokenise(["dogs", "'s"], "de") != english


@pytest.mark.parametrize(
    ("language", "name"),
    [
        ("en", "iwslt_ted_de_en/IWSLT16.TED.tst2013.de-en.en.gz"),
        ("de", "iwslt_ted_de_en/IWSLT16.TED.tst2013.de-en.de.gz"),
        ("fr", "multi30k/val.fr.gz"),
    ],
)
def test_real_sentences_are_spelled_as_moses_does(language, name):
    lines = [clean(line) for line in real_lines(name, 1000)]
    tokenizer, detokenizer = MosesTokenizer(language), MosesDetokenizer(language)
    tokens = [list(tokenizer.tokenize(line, escape=False)) for line in lines]
    ours = [moses.detokenise(t, language) for t in tokens]
    assert ours == [detokenizer.detokenize(t, unescape=False) for t in tokens]
    back = [moses.detokenise(moses.tokenise(line, language), language) for line in lines]
    lost = sum(a != b for a, b in zip(back, lines, strict=True))
    lost_by_moses = sum(a != b for a, b in zip(ours, lines, strict=True))
    assert lost <= 6 and (lost < lost_by_moses or lost_by_moses <= 1)


def test_what_moses_cannot_join_is_not_taken_apart():
    assert moses.tokenise("Wie geht's und/oder?", "de") == ["Wie", "geht's", "und/oder", "?"]
    assert moses.tokenise('so weit."', "de") == ["so", 'weit."']


@pytest.mark.parametrize("language", ["en", "de", "fr", "ja"])
@settings(deadline=None, max_examples=40)
@given(text=st.text("ab1 .,'\"()-/@%$s日本“”…&<>", max_size=20))
@example(text="DOTMULTI is a word")
@example(text="THISISPROTECTED000 .. x")
def test_words_are_never_taken_apart(language, text):
    """Whatever the text: no letter is lost, and the spaces that come back were there before."""
    text = clean(text)
    back = moses.detokenise(moses.tokenise(text, language), language)
    assert back.replace(" ", "") == text.replace(" ", "")
    if "@@" not in text:
        assert spaces(back) <= spaces(text)


def spaces(text: str) -> set[int]:
    """How many letters come before each space."""
    return {i - text[:i].count(" ") for i, c in enumerate(text) if c == " "}


@settings(deadline=None, max_examples=40)
@given(text=st.text("a@ .", max_size=12))
def test_no_token_contains_the_continuation_mark(text):
    assert not any("@@" in token for token in moses.tokenise(clean(text), "en"))
