"""Words one by one give the pieces of the whole text, wherever a stream of words is allowed."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simuljax.text import EOS, VocabularyConfig, VocabularyError, learn
from simuljax.text.words import pieces_of_word, read_by_words
from tests.text.samples import CORPORA, real_lines, vocabulary

EXACT = [(kind, language) for kind in ("unigram", "bpe", "characters") for language in ("en", "de")]


def by_words(vocab, text):
    """What a reader holds after each word."""
    held = []
    for word in text.split():
        held = [*held, *pieces_of_word(vocab, word, is_first=not held)]
        yield held


@pytest.mark.parametrize(("kind", "language"), EXACT)
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_no_piece_reaches_over_a_space(kind, language, data):
    """Known words, unknown letters, invisible ones and any white space between."""
    words = chain.from_iterable(line.split() for line in CORPORA[language])
    word = st.sampled_from(sorted(set(words))) | st.text(max_size=5)
    text = data.draw(st.lists(word, min_size=1, max_size=8).map(" ".join))
    vocab = vocabulary(kind, language)
    alike = sorted if kind == "unigram" else list  # two cuts of "..." may be just as likely
    for count, held in enumerate(by_words(vocab, text), 1):
        first = " ".join(text.split()[:count])
        assert alike(held) == alike(vocab.encode(first))
        assert alike(held) == alike(vocab.encode(text)[: len(held)])
        assert vocab.decode(held) == vocab.decode(vocab.encode(first))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("unigram", "multi30k/test_2016_flickr.en.gz"),
        ("bpe", "iwslt_ted_de_en/IWSLT16.TED.tst2013.de-en.en.gz"),
    ],
)
def test_real_sentences_are_cut_alike(kind, name):
    lines = real_lines(name, 1000)
    vocab = learn(lines, VocabularyConfig(kind=kind, size=1000, lowercase=True))
    assert all([*by_words(vocab, line)][-1] == vocab.encode(line) for line in lines if line)


def test_moses_tokens_may_depend_on_what_follows():
    vocab = vocabulary("subword_nmt")
    *_, alike = by_words(vocab, "Hello, world! this isn't (perhaps) the dog's house.")
    assert alike == vocab.encode("Hello, world! this isn't (perhaps) the dog's house.")
    *_, apart = by_words(vocab, "the dogs' house")
    assert apart != vocab.encode("the dogs' house")
    assert vocab.decode(apart) == "the dogs' house"


def test_phonemes_are_refused():
    with pytest.raises(VocabularyError, match="not read word by word"):
        pieces_of_word(vocabulary("phonemes"), "hello", is_first=True)


@pytest.mark.parametrize("kind", ["unigram", "characters"])
def test_a_batch_knows_what_is_there_after_every_word(kind):
    vocab = vocabulary(kind)
    texts = ["This is the house", "", "dog", "saw \u200b the"]  # the second word is invisible
    found = read_by_words(vocab, texts, multiple=4)
    assert found.words.tolist() == [4, 0, 1, 3]
    assert found.tokens.shape[1] % 4 == 0 and found.units.shape == (4, 4)
    for row, text in enumerate(texts):
        held = [*by_words(vocab, text)]
        total = int(found.lengths[row])
        wanted = [*held[-1], EOS] if held else []
        assert found.tokens[row, :total].tolist() == wanted
        assert not found.tokens[row, total:].any()
        counts = [len(pieces) for pieces in held]
        np.testing.assert_array_equal(found.units[row], counts + [total] * (4 - len(counts)))
