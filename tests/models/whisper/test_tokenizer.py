"""Text to ids and back, whatever the text; the ids of what is not text; words."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simuljax.models.whisper import LANGUAGES, tokenizer
from simuljax.models.whisper.tokenizer import language_code, make_tokenizer
from tests.models.whisper.small import TOKENIZER, TOKENS

ODD = st.text(st.sampled_from("ab 'srtveml d12½²、あé́\t\n\u00a0\u2003\u3000.,-♪😀ǅ"), max_size=30)


def slow_merge(piece, ranks):
    """Merges all places of the best pair, one by one from the left."""
    parts = [bytes([b]) for b in piece]
    while True:
        unions = [a + b for a, b in itertools.pairwise(parts)]
        known = [(ranks[union], k) for k, union in enumerate(unions) if union in ranks]
        if not known:
            return [ranks[part] for part in parts]
        _, k = min(known)
        parts = [*parts[:k], parts[k] + parts[k + 1], *parts[k + 2 :]]


@settings(max_examples=30, deadline=None)
@given(st.one_of(ODD, st.text(st.sampled_from(" thearingsあ"), max_size=40), st.text(max_size=20)))
def test_text_survives(text):
    ids = TOKENIZER.encode(text)
    assert TOKENIZER.decode(ids) == text
    expected = [i for p in tokenizer.pieces(text) for i in slow_merge(p.encode(), TOKENIZER.ranks)]
    assert ids == expected


def test_half_a_character():
    ids = TOKENIZER.encode("a😀")
    assert TOKENIZER.decode(ids[:-1]) == "a\ufffd"


def test_special_tokens_stand_in_their_order():
    t = TOKENIZER
    base = len(TOKENS)
    assert [t.end, t.start, *t.language_ids] == list(range(base, base + 101))
    others = [t.translate, t.transcribe, t.start_lm, t.previous, t.no_speech, t.no_timestamps]
    assert others == list(range(base + 101, base + 107))
    assert t.timestamps == range(base + 107, base + 107 + 1501)
    assert t.seconds(t.timestamps[-1]) == pytest.approx(30.0)
    assert t.decode([t.start, *t.encode(" the"), t.timestamps[3], t.end]) == " the"


def test_openings():
    t = TOKENIZER
    french = t.language_ids[list(LANGUAGES).index("fr")]
    assert t.opening("translate", "French", "predict") == [t.start, french, t.translate]
    assert t.opening("transcribe", "fr", "none") == [
        *(t.start, french, t.transcribe, t.no_timestamps)
    ]
    english = make_tokenizer([b""] * 50_256, 51_864)
    assert not english.multilingual
    assert english.opening("transcribe", "en", "predict") == [english.start]


@pytest.mark.parametrize(
    ("tokens", "size", "languages"),
    [(50_256, 51_864, 99), (50_257, 51_865, 99), (50_257, 51_866, 100), (50_257, 51_864, 99)],
)
def test_the_sizes_of_published_vocabularies(tokens, size, languages):
    tokenizer = make_tokenizer([b"x"] * tokens, size)
    assert (tokenizer.size, tokenizer.languages) == (size, languages)
    assert tokenizer.multilingual == (size > 51_864)


def test_languages():
    assert len(LANGUAGES) == 100
    assert language_code(" Haitian creole") == "ht"
    with pytest.raises(ValueError, match="no language 'Klingon'"):
        language_code("Klingon")
    with pytest.raises(ValueError, match="does not know Cantonese; large-v3 does"):
        TOKENIZER.language_id("yue")


def texts(words):
    return [word.text for word in words]


def test_words_are_split_at_spaces_and_punctuation():
    ids = TOKENIZER.encode(" the thing, in a\u3042 string.")
    words = TOKENIZER.words(ids, "en")
    assert texts(words) == [" the", " thing", ",", " in", " a\u3042", " string", "."]
    assert [i for word in words for i in word.tokens] == ids


def test_words_without_spaces_are_whole_characters():
    ids = TOKENIZER.encode("あ漢字")
    assert texts(TOKENIZER.words(ids, "ja")) == ["あ", "漢", "字"]
    assert texts(TOKENIZER.words(ids, "en")) == ["あ漢字"]
    assert texts(TOKENIZER.words(ids[:-1], "ja")) == ["あ", "漢", "\ufffd"]


def test_damaged_vocabularies_are_refused(tmp_path):
    path = tmp_path / "a.tiktoken"
    path.write_text("IQ== 0\nnonsense\n")
    with pytest.raises(ValueError, match=r"a.tiktoken, line 2"):
        tokenizer.read_tiktoken(path)
    path.write_text("IQ== 0\nIg== 2\n")
    with pytest.raises(ValueError, match="not a whole vocabulary"):
        tokenizer.read_tiktoken(path)
