"""Words one by one: their pieces, and their number counted on the device."""

from itertools import chain

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from simuljax.text import (
    EOS,
    VocabularyConfig,
    VocabularyError,
    WordBoundaries,
    WordCount,
    WordStream,
    count_words,
    learn,
)
from simuljax.text.words import MULTIPLE, pieces_of_word, read_by_words, word_boundaries
from tests.text.samples import CORPORA, ENGLISH, GERMAN, real_lines, vocabulary
from tests.text.test_words import ids_of, moses_vocabulary

WHOLE = [("unigram", "en"), ("unigram", "de"), ("bpe", "de"), ("characters", "en")]


def by_words(vocab, text):
    """What a reader holds after each word."""
    held = []
    for word in text.split():
        held = [*held, *pieces_of_word(vocab, word, is_first=not held)]
        yield held


@pytest.mark.parametrize(("kind", "language"), WHOLE)
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
    lines = real_lines(name, 500)
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
    found = read_by_words(vocab, texts)
    assert found.words.tolist() == [4, 0, 1, 3]
    assert found.tokens.shape[1] % MULTIPLE == 0 and found.units.shape == (4, MULTIPLE)
    for row, text in enumerate(texts):
        held = [*by_words(vocab, text)]
        total = int(found.lengths[row])
        wanted = [*held[-1], EOS] if held else []
        assert found.tokens[row, :total].tolist() == wanted
        assert not found.tokens[row, total:].any()
        counts = [len(pieces) for pieces in held]
        np.testing.assert_array_equal(found.units[row], counts + [total] * (MULTIPLE - len(counts)))


EXACT = [
    ("unigram", "en"),
    ("bpe", "de"),
    ("characters", "en"),
    ("characters", "ja"),
    ("phonemes", "en"),
]


def given_out(vocab, ids):
    """Count slowly, in the obvious way, the words that the stream has given out after each id."""
    stream, total, counts = WordStream.begin(vocab), 0, []
    for i in ids:
        stream, words = stream.push([i])
        total += len(words)
        counts.append(total)
    return counts, total + len(stream.finish())


@pytest.mark.parametrize(("kind", "language"), EXACT)
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_the_count_is_what_the_stream_gives_out(kind, language, data):
    vocab = vocabulary(kind, language)
    piece = st.integers(0, vocab.size - 1)
    few = st.sampled_from(data.draw(st.lists(piece, min_size=1, max_size=3)))
    ids = data.draw(st.lists(piece | few | st.integers(0, 3), max_size=20))
    counts, total = given_out(vocab, ids)
    boundaries = word_boundaries(vocab)
    np.testing.assert_array_equal(count_words(boundaries, np.array(ids, int)), counts)
    trailing = count_words(boundaries, np.array(ids, int), trailing="count")
    assert not ids or trailing[-1] == total


# Whole tokens: a mark inside a longer one ("1@@ $") is more than the count can know.
WORDS = (("a",), ("b@@", "c"), ("Haus",), ("€@@", "1@@", "c"), ("$",), ("(",), ("-",), ("1@@", "-"))
MARKS = ((".",), (",",), ("'s",), (")",), ("?",), ("1@@", "."))


@pytest.mark.parametrize("tokens", [WORDS, WORDS + MARKS], ids=["words", "marks"])
@pytest.mark.parametrize("language", ["en", "de"])
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_tokens_are_counted_as_the_stream_gives_them_out(tokens, language, data):
    pieces = sorted({piece for token in tokens for piece in token})
    vocab = moses_vocabulary(*pieces, language=language)
    drawn = data.draw(st.lists(st.sampled_from([*tokens, ("</s>",), ("<unk>",)]), max_size=12))
    ids = ids_of(vocab, *(piece for token in drawn for piece in token))
    counts, _ = given_out(vocab, ids)
    np.testing.assert_array_equal(count_words(word_boundaries(vocab), np.array(ids, int)), counts)


@pytest.mark.parametrize(("language", "sentences"), [("en", ENGLISH), ("de", GERMAN)])
def test_quotation_marks_delay_a_count_by_a_piece_at_most(language, sentences):
    vocab = vocabulary("subword_nmt", language)
    for sentence in sentences:
        ids = vocab.encode(sentence)
        counts, total = given_out(vocab, ids)
        ours = count_words(word_boundaries(vocab), np.array(ids))
        assert all(early - 1 <= n <= early for n, early in zip(ours, counts, strict=True))
        if '"' not in sentence and "„" not in sentence:
            np.testing.assert_array_equal(ours, counts)
        trailing = count_words(word_boundaries(vocab), np.array(ids), trailing="count")
        assert trailing[-1] == total == len(sentence.split())


FLAGS = arrays.arrays(bool, (4, 6))
IDS = arrays.arrays(np.int32, (2, 3, 7), elements=st.integers(0, 5))


@given(flags=FLAGS, ids=IDS)
@settings(deadline=None, max_examples=20)
def test_one_by_one_is_all_at_once(flags, ids):
    """For any flags whatever, so that no vocabulary's habits hide a difference."""
    starts, ends, text, joins = flags
    joins &= starts | ends | text  # an id that says nothing says nothing
    bounds = WordBoundaries(starts_word=starts, ends_word=ends, has_text=text, joins_next=joins)
    counts = count_words(bounds, ids)
    trailing = count_words(bounds, ids, trailing="count")
    push, state = jax.jit(WordCount.push), WordCount.begin((2, 3))
    for t in range(ids.shape[-1]):
        state = push(state, bounds, ids[..., t])
        np.testing.assert_array_equal(state.completed, counts[..., t])
        np.testing.assert_array_equal(state.completed + state.open, trailing[..., t])


def test_inside_jit_and_vmap_with_one_compilation():
    vocab = vocabulary("unigram")
    bounds = word_boundaries(vocab)
    rng = np.random.default_rng(0)
    compilations = []

    @jax.jit
    def counted(bounds, ids):
        compilations.append(ids.shape)
        return count_words(bounds, ids), jax.vmap(lambda row: count_words(bounds, row))(ids)

    for _ in range(3):
        ids = rng.integers(0, vocab.size, (4, 9))
        expected = count_words(bounds, ids)
        assert isinstance(expected, np.ndarray)
        for ours in counted(bounds, ids):
            assert isinstance(ours, jax.Array)
            np.testing.assert_array_equal(ours, expected)
    assert compilations == [(4, 9)]
