"""Words out of a stream of ids: the text of `decode`, as early as it is certain."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simuljax.text import (
    BOS,
    EOS,
    PAD,
    SPECIALS,
    UNK,
    VocabularyConfig,
    VocabularyError,
    WordStream,
    learn,
)
from simuljax.text.vocabulary import SubwordNmtVocabulary
from simuljax.text.words import _MosesWord
from tests.text.samples import GERMAN, KINDS, vocabulary

EVERY = [(kind, "en") for kind in KINDS] + [
    ("unigram", "de"),
    ("characters", "ja"),
    ("unigram", "ja"),
    ("subword_nmt", "de"),
    ("subword_nmt", "fr"),
    ("subword_nmt", "ja"),
]


def ids_of(vocab, *pieces):
    everything = [*SPECIALS, *vocab.pieces[4:]]
    return [everything.index(piece) for piece in pieces]


def stream_words(stream, chunks):
    words = []
    for chunk in chunks:
        stream, completed = stream.push(chunk)
        words += completed
    return words + stream.finish()


def timeline(vocab, *pieces):
    """Which words each piece completes, and what is left at the end."""
    stream, out = WordStream.begin(vocab), []
    for i in ids_of(vocab, *pieces):
        stream, words = stream.push([i])
        out.append(words)
    return [*out, stream.finish()]


def moses_vocabulary(*pieces, language="en"):
    config = VocabularyConfig(kind="subword_nmt", language=language)
    return SubwordNmtVocabulary(config=config, pieces=(*SPECIALS, *pieces), merges=())


@st.composite
def chunked_ids(draw, vocab):
    """What a model may come up with: pieces in any order, specials in between, cut anywhere."""
    special = st.sampled_from([UNK, EOS, PAD, BOS])
    piece = st.integers(0, vocab.size - 1)
    # A few pieces over and over give the collisions that a large vocabulary rarely gives.
    few = st.sampled_from(draw(st.lists(piece, min_size=1, max_size=4)))
    ids = draw(st.lists(st.one_of(piece, few, special), max_size=25))
    cuts = sorted(draw(st.lists(st.integers(0, len(ids)), max_size=6)))
    return [ids[a:b] for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True)]


@pytest.mark.parametrize(("kind", "language"), EVERY)
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_the_words_are_those_of_decode(kind, language, data):
    vocab = vocabulary(kind, language)
    chunks = data.draw(chunked_ids(vocab))
    words = stream_words(WordStream.begin(vocab), chunks)
    text = vocab.decode(i for chunk in chunks for i in chunk)
    assert vocab.word_separator.join(words) == text
    if kind != "phonemes":
        assert words == text.split()


MARKS = [".", ",", "'s", "'", '"', "(", ")", "$", "...", "„", "“", "?", "%", "-", "l'", "日", "本"]
ODD_PIECES = [*MARKS, *(f"{mark}@@" for mark in MARKS), "a", "a@@", "dogs", "3", "3@@", "s@@", "s"]


@pytest.mark.parametrize("language", ["en", "de", "fr", "ko"])
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_the_words_of_odd_tokens_are_those_of_decode(language, data):
    vocab = moses_vocabulary(*ODD_PIECES, language=language)
    chunks = data.draw(chunked_ids(vocab))
    words = stream_words(WordStream.begin(vocab), chunks)
    assert words == vocab.decode(i for chunk in chunks for i in chunk).split()


def naive(vocab):
    """Papi's rule taken at its word: every token is a word, and complete with its last piece."""
    begun = WordStream.begin(vocab)
    assert isinstance(begun._word, _MosesWord)
    return replace(begun, _word=replace(begun._word, holds=False))


def test_the_properties_notice_words_given_out_too_early():
    vocab = vocabulary("subword_nmt", "de")
    ids = vocab.encode(GERMAN[0])
    assert stream_words(WordStream.begin(vocab), [ids]) == GERMAN[0].split()
    assert stream_words(naive(vocab), [ids]) != GERMAN[0].split()


def test_sentencepiece_words_wait_for_the_next_to_begin():
    pieces = (*SPECIALS, "▁th", "is", "▁is", "▁a", "▁ph", "rase", "▁")
    vocab = replace(vocabulary("unigram"), pieces=pieces)
    assert timeline(vocab, "▁th", "is", "▁is", "▁a", "▁ph", "rase") == [
        *([], [], ["this"], ["is"], ["a"], []),
        ["phrase"],
    ]
    assert timeline(vocab, "is", "▁", "▁", "▁a") == [[], ["is"], [], [], ["a"]]
    assert timeline(vocab, "▁a", "</s>", "is") == [[], [], [], ["ais"]]


def test_words_that_nothing_can_attach_to_do_not_wait():
    """The example of Papi 2022, appendix A.1."""
    vocab = moses_vocabulary("th@@", "is", "a", "ph@@", "rase")
    assert timeline(vocab, "th@@", "is", "is", "a", "ph@@", "rase") == [
        *([], ["this"], ["is"], ["a"], [], ["phrase"]),
        [],
    ]


def test_words_that_something_may_attach_to_wait_for_one_piece():
    vocab = moses_vocabulary("Das", "Haus", ".", "is@@", "t", ".@@", "5", language="de")
    assert timeline(vocab, "Das", "Haus", "is@@", "t", ".") == [
        *([], ["Das"], ["Haus"], [], []),
        ["ist."],
    ]
    assert timeline(vocab, "Haus", ".@@", "5") == [[], [], ["Haus"], [".5"]]
    assert timeline(vocab, "Haus", ".@@", ".") == [[], [], [], ["Haus.."]]


def test_brackets_and_quotation_marks_belong_to_their_words():
    vocab = moses_vocabulary('"', "(", ")", "a", "b")
    assert timeline(vocab, "a", '"', "b", '"', "(", "a", ")") == [
        *([], ["a"], [], [], ['"b"'], [], []),
        ["(a)"],
    ]
    vocab = moses_vocabulary('"', "a", "b")
    assert timeline(vocab, "a", '"', "b", '"') == [[], ["a"], [], [], ['"b"']]


def test_elision_is_settled_by_the_next_letter():
    vocab = moses_vocabulary("l'", "homme", "3", language="fr")
    assert timeline(vocab, "l'", "homme", "l'", "3") == [[], ["l'homme"], [], ["l'", "3"], []]


def test_characters_and_phonemes_end_at_their_separator():
    vocab = learn(["ab c"], VocabularyConfig(kind="characters"))
    assert timeline(vocab, "a", "b", " ", " ", "c") == [[], [], ["ab"], [], [], ["c"]]
    vocab = vocabulary("phonemes")
    assert timeline(vocab, "h", "ə", "|", "|", "l") == [[], [], ["h ə"], [], [], ["l"]]


@pytest.mark.parametrize("kind", ["unigram", "subword_nmt", "characters"])
def test_a_stream_goes_on_in_several_ways(kind):
    vocab = vocabulary(kind)
    begun = WordStream.begin(vocab)
    prefix, _ = begun.push(vocab.encode("the house and the d"))
    one = stream_words(prefix, [vocab.encode("left")])
    assert stream_words(prefix, [[EOS]]) == prefix.finish()
    assert stream_words(prefix, [vocab.encode("left")]) == one
    assert begun == WordStream.begin(vocab)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("i", [-1, 10**6])
def test_foreign_ids_are_refused(kind, i):
    with pytest.raises(VocabularyError, match="outside"):
        WordStream.begin(vocabulary(kind)).push([i])


@given(text=st.text("ab .,'\"", max_size=20))
@example(text='a "b" . \' b.')
@settings(deadline=None, max_examples=60)
def test_words_never_change_once_given_out(text):
    """The words of a prefix are the first words of the whole, for everything that may follow."""
    vocab = moses_vocabulary("a", "b", "a@@", ".", ",", "'", '"', "'@@", ".@@")
    ids = [i for i in vocab.encode(text) if i != UNK]
    for cut in range(len(ids)):
        _, early = WordStream.begin(vocab).push(ids[:cut])
        assert vocab.decode(ids).split()[: len(early)] == early
