"""The words of a CTC head, against a collapse in plain Python and the words that it gives out."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.text import PAD, WordStream, ctc_word_counts
from simuljax.text.words import ctc_labels, word_boundaries
from tests.text.samples import vocabulary
from tests.text.test_words import moses_vocabulary

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
    """How many words these labels are, the last included."""
    stream, words = WordStream.begin(vocab).push(labels)
    return len(words) + len(stream.finish())


def complete_by_stream(vocab, labels: list[int]) -> int:
    return len(WordStream.begin(vocab).push(labels)[1])


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
            assert complete[row, -1] == complete_by_stream(vocab, ids)
            assert (complete[row] == np.minimum(counted[row], complete[row, -1])).all()
            seen.add(int(counted[row, -1] - complete[row, -1]))
    assert seen == {0, 1}  # utterances that end within a word, and others


def test_a_word_counts_with_its_last_piece():
    """`th@@ is is a ph@@ rase`, a label every second state (Papi et al. 2022, appendix A.1)."""
    ids = [MOSES.ids[piece] for piece in ("th@@", "is", "is", "a", "ph@@", "rase")]
    path = [MOSES.size] * 12
    path[1::2] = ids
    logits = jnp.asarray(np.eye(MOSES.size + 1, dtype=np.float32)[path][None])
    boundaries = word_boundaries(MOSES)
    counts = ctc_word_counts(logits, jnp.array([12]), boundaries)
    assert counts.tolist() == [[0, 0, 0, 1, 1, 2, 2, 3, 3, 3, 3, 4]]
    before_the_end = ctc_word_counts(logits, jnp.array([10]), boundaries)  # "ph@@" is open
    assert before_the_end[0, -1] == 4
    assert ctc_word_counts(logits, jnp.array([10]), boundaries, trailing="leave")[0, -1] == 3
