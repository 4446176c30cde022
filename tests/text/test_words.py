"""Words out of a stream of ids, as early as they are certain; words of a CTC head."""

import itertools
from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simuljax.text import (
    BOS,
    EOS,
    PAD,
    SPECIALS,
    UNK,
    VocabularyConfig,
    WordStream,
    ctc_word_counts,
    learn,
)
from simuljax.text.vocabulary import SubwordNmtVocabulary
from simuljax.text.words import _MosesStream, ctc_labels, word_boundaries
from tests.text.samples import GERMAN, KINDS, vocabulary

EVERY = [(kind, "en") for kind in KINDS] + [
    ("characters", "ja"),
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


def test_the_properties_notice_words_given_out_too_early():
    """Papi's rule taken at its word: every token is a word, and complete with its last piece."""
    vocab = vocabulary("subword_nmt", "de")
    ids, begun = vocab.encode(GERMAN[0]), WordStream.begin(vocab)
    assert isinstance(begun, _MosesStream)
    assert stream_words(begun, [ids]) == GERMAN[0].split()
    assert stream_words(replace(begun, holds=False), [ids]) != GERMAN[0].split()


SPM = replace(
    vocabulary("unigram"), pieces=(*SPECIALS, "▁th", "is", "▁is", "▁a", "▁ph", "rase", "▁")
)
BARE = moses_vocabulary("th@@", "is", "a", "ph@@", "rase")  # nothing attaches to a word
DAS = moses_vocabulary("Das", "Haus", ".", "is@@", "t", ".@@", "5", language="de")
MARKED = moses_vocabulary('"', "(", ")", "a", "b")
QUOTED = moses_vocabulary('"', "a", "b")
ELIDED = moses_vocabulary("l'", "homme", "3", language="fr")
AB_C = learn(["ab c"], VocabularyConfig(kind="characters"))
# A vocabulary and its pieces, each with the words that it completes; what is left at the end.
TIMELINES = [
    (SPM, "▁th: is: ▁is:this ▁a:is ▁ph:a rase:", "phrase"),
    (SPM, "is: ▁:is ▁: ▁a:", "a"),
    (SPM, "▁a: </s>: is:", "ais"),
    (BARE, "th@@: is:this is:is a:a ph@@: rase:phrase", ""),  # Papi 2022, appendix A.1
    (DAS, "Das: Haus:Das is@@:Haus t: .:", "ist."),
    (DAS, "Haus: .@@: 5:Haus", ".5"),
    (DAS, "Haus: .@@: .:", "Haus.."),
    (MARKED, 'a: ":a b: ": (:"b" a: ):', "(a)"),
    (QUOTED, 'a: ":a b: ":', '"b"'),
    (ELIDED, "l': homme:l'homme l': 3:l',3", ""),
    (AB_C, "a: b: _:ab _: c:", "c"),
    (vocabulary("phonemes"), "h: ə: |:h_ə |: l:", "l"),
]


@pytest.mark.parametrize(("vocab", "pieces", "left"), TIMELINES)
def test_each_piece_completes_the_words_that_nothing_can_change(vocab, pieces, left):
    stream = WordStream.begin(vocab)
    for step in pieces.split():
        piece, _, words = step.replace("_", " ").rpartition(":")
        stream, completed = stream.push(ids_of(vocab, piece))
        assert completed == (words.split(",") if words else [])
    assert stream.finish() == ([left] if left else [])


@pytest.mark.parametrize("kind", ["unigram", "subword_nmt", "characters"])
def test_a_stream_goes_on_in_several_ways(kind):
    vocab = vocabulary(kind)
    begun = WordStream.begin(vocab)
    prefix, _ = begun.push(vocab.encode("the house and the d"))
    one = stream_words(prefix, [vocab.encode("left")])
    assert stream_words(prefix, [[EOS]]) == prefix.finish()
    assert stream_words(prefix, [vocab.encode("left")]) == one
    assert begun == WordStream.begin(vocab)


STATES, ROWS = 24, 12
# Without marks: one inside a longer token ("ph@@ $") is more than the count can know.
MOSES = moses_vocabulary("th@@", "is", "a", "Haus", "ph@@", "rase")
VOCABULARIES = {
    "unigram": vocabulary("unigram"),
    "bpe": vocabulary("bpe", "de"),
    "characters": vocabulary("characters"),
    "phonemes": vocabulary("phonemes"),
    "subword_nmt": MOSES,
}


def labels_by_loops(logits: np.ndarray) -> list[tuple[int, int]]:
    """(state, label) of one utterance: every run of a label, at its surest state."""
    blank = logits.shape[1] - 1
    sure = logits.max(-1) - np.log(np.exp(logits).sum(-1))
    found = []
    for label, run in itertools.groupby(range(len(logits)), key=lambda s: logits[s].argmax()):
        states = list(run)
        if label != blank:
            found.append((states[int(np.argmax(sure[states]))], int(label)))
    return found


def words_by_stream(vocab, labels: list[int]) -> int:
    """Return how many words these labels are, the last included."""
    stream, words = WordStream.begin(vocab).push(labels)
    return len(words) + len(stream.finish())


def counted_by_loops(vocab, found: list[tuple[int, int]], size: int) -> list[int]:
    """After each state, how many words have had their last piece with text."""
    labels = [label for _, label in found]
    ends: dict[int, int] = {}
    for n, (state, label) in enumerate(found):
        if vocab.decode([label]).strip():
            ends[words_by_stream(vocab, labels[: n + 1])] = state
    return [sum(end <= state for end in ends.values()) for state in range(size)]


def spoken(vocab, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits [B, K, V + 1] of random runs and blanks; lengths, one of them 0."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(ROWS, STATES, vocab.size + 1))
    few = rng.integers(4, vocab.size, (ROWS, 3))
    for row in range(ROWS):
        best: list[int] = []
        while len(best) < STATES:
            any_label = int(rng.integers(4, vocab.size))
            label = int(rng.choice([vocab.size, any_label, *few[row]]))
            best += [label] * int(rng.integers(1, 4))
        logits[row, np.arange(STATES), best[:STATES]] += 8 + rng.normal(size=STATES)
    lengths = rng.integers(1, STATES + 1, ROWS)
    lengths[:2] = STATES, 0
    return logits.astype(np.float32), lengths


@pytest.mark.parametrize("kind", VOCABULARIES)
def test_words_are_those_of_the_collapsed_labels(kind):
    vocab = VOCABULARIES[kind]
    boundaries, seen = word_boundaries(vocab), set()

    @jax.jit
    def collapsed(logits, lengths):
        both = (
            ctc_word_counts(logits, lengths, boundaries, trailing=t) for t in ("count", "leave")
        )
        return ctc_labels(logits, lengths), *both

    for seed in range(3):
        logits, lengths = spoken(vocab, seed)
        labels, counted, complete = map(np.asarray, collapsed(logits, lengths))
        for row, length in enumerate(lengths):
            found = labels_by_loops(logits[row, :length])
            assert [(s, i) for s, i in enumerate(labels[row]) if i != PAD] == found
            assert counted[row].tolist() == counted_by_loops(vocab, found, STATES)
            ids = [label for _, label in found]
            assert counted[row, -1] == words_by_stream(vocab, ids)
            assert complete[row, -1] == len(WordStream.begin(vocab).push(ids)[1])
            assert (complete[row] == np.minimum(counted[row], complete[row, -1])).all()
            seen.add(int(counted[row, -1] - complete[row, -1]))
    assert seen == {0, 1}  # utterances that end within a word, and others
