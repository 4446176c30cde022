"""Word boundaries of every kind of vocabulary; no other module decides where words end.

A word is complete when nothing that may still come can change it: committed words stay.

    kind           what separates words    a word is complete with
    unigram, bpe   a piece begins with ▁   the first piece of the next word
    subword_nmt    a piece without @@      its last piece, if nothing in the vocabulary can attach
                                           to it; else the first piece known not to ("Haus" ".")
    characters     the space               the space
    phonemes       |                       the |

The last word is complete with the sentence: `WordStream.finish`, `WordCount.open`. A language
written without spaces is one word per sentence. End-of-sentence among the ids completes nothing,
because a decoder may drop it and go on; like padding it is passed over.

With subword_nmt, Papi et al. 2022 (appendix A.1) see the end of a word in its last piece. That is
so for Moses tokens. In the text, a full stop that follows belongs to the word before it, so with
punctuation (or 's) in the vocabulary a word waits for the next piece, as it does with ▁.

A count has three numbers of state: words complete, whether one is open, and whether the last piece
joins the next. They depend on the ids only through the last one with a boundary or text, so that a
whole sequence is counted at once (`count_words`) as well as id by id (`WordCount.push`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from simuljax.text import moses
from simuljax.text.normalise import VocabularyError
from simuljax.text.phonemes import WORD_END
from simuljax.text.vocabulary import (
    CONTINUES,
    EOS,
    PAD,
    SPACE,
    SPECIALS,
    UNK,
    WORD_START,
    Vocabulary,
)

Arrays = Array | np.ndarray
MULTIPLE = 32  # of which the sizes of a batch of texts are, so that few shapes compile


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True, eq=False)
class WordBoundaries:
    """The word boundaries of each id: arrays over the vocabulary, for use inside jit.

    An id with none of the four is passed over (padding, begin, end).
    """

    starts_word: Bool[Arrays, " V"]  # the word before it is complete
    ends_word: Bool[Arrays, " V"]  # the word is complete with it
    has_text: Bool[Arrays, " V"]  # it is more than a separator
    joins_next: Bool[Arrays, " V"]  # what follows belongs to the same word in any case


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True, eq=False)
class WordCount:
    """The number of complete words, and a flag for a word begun since; arrays of one shape."""

    completed: Int[Arrays, "..."]
    open: Bool[Arrays, "..."]
    joined: Bool[Arrays, "..."]  # the last piece joins whatever comes next

    @classmethod
    def begin(cls, shape: tuple[int, ...] = ()) -> "WordCount":
        """Return the count before anything is written."""
        no = jnp.zeros(shape, bool)
        return cls(completed=jnp.zeros(shape, jnp.int32), open=no, joined=no)

    def push(self, boundaries: WordBoundaries, ids: Int[Arrays, "..."]) -> "WordCount":
        """Return the count after one more id in each place."""
        says = _look_up(boundaries, ids)
        completed = self.completed + _completed(says, self.open, self.joined)
        keep = ~_tells(says)
        return WordCount(
            completed=completed,
            open=(keep & self.open) | (says.has_text & ~says.ends_word),
            joined=(keep & self.joined) | says.joins_next,
        )


def count_words(
    boundaries: WordBoundaries,
    ids: Int[Arrays, "... T"],
    *,
    trailing: Literal["leave", "count"] = "leave",
) -> Int[Arrays, "... T"]:
    """Count the words that are complete after each position; NumPy for NumPy, JAX for JAX.

    `trailing="count"` includes the word under way, as the adaptive wait-k of Papi 2022 does.
    """
    xp = jnp if isinstance(ids, jax.Array) else np
    ids = xp.asarray(ids)
    says = _look_up(boundaries, ids)
    # What is open depends on the last id that says anything: its position is a running maximum.
    position = xp.where(_tells(says), xp.arange(1, ids.shape[-1] + 1), 0)
    latest = xp.maximum.accumulate(position, axis=-1)
    before = xp.concatenate([xp.zeros_like(latest[..., :1]), latest[..., :-1]], axis=-1)
    opens = says.has_text & ~says.ends_word
    new = _completed(says, _at(xp, opens, before), _at(xp, says.joins_next, before))
    completed = xp.cumsum(new, axis=-1, dtype=xp.int32)
    return completed + _at(xp, opens, latest) if trailing == "count" else completed


def _completed(says: WordBoundaries, is_open, joined):
    """Count the words completed by an id: the one before it, the one it ends, both or none."""
    previous = says.starts_word & is_open & ~joined
    own = says.ends_word & (says.has_text | (is_open & ~previous))
    return previous.astype("int32") + own.astype("int32")


def _look_up(boundaries: WordBoundaries, ids) -> WordBoundaries:
    xp = jnp if isinstance(ids, jax.Array) else np
    return jax.tree.map(lambda table: xp.asarray(table)[ids], boundaries)


def _tells(says: WordBoundaries):
    return says.starts_word | says.ends_word | says.has_text


def _at(xp, values, position):
    """Return values at positions counted from 1; False at 0."""
    found = xp.take_along_axis(values, xp.maximum(position - 1, 0), axis=-1)
    return found & (position > 0)


def word_boundaries(vocabulary: Vocabulary) -> WordBoundaries:
    """Return the word boundaries of each id, as NumPy arrays: they count what `WordStream` returns.

    For subword_nmt a count differs where one piece does not decide: quotation marks (the word
    before an opening one counts a piece late), tokens of several pieces that begin with a mark or
    end in a bracket or currency sign, elision before a numeral, and Chinese or Japanese tokens.
    """
    pieces = np.array(vocabulary.pieces, object)
    no, yes = np.zeros(len(pieces), bool), np.ones(len(pieces), bool)
    if vocabulary.kind in ("unigram", "bpe"):
        begins = [piece.startswith(WORD_START) for piece in pieces]
        flags = np.array([begins, no, pieces != WORD_START, no])
    elif vocabulary.kind == "subword_nmt":
        flags = _moses_boundaries(vocabulary)
    else:
        separates = pieces == (SPACE if vocabulary.kind == "characters" else WORD_END)
        flags = np.array([no, separates, yes & ~separates, no])
    flags[:, :UNK] = False  # padding, begin and end say nothing; unknown is text like any other
    starts, ends, text, joins = flags
    return WordBoundaries(starts_word=starts, ends_word=ends, has_text=text, joins_next=joins)


def _moses_boundaries(vocabulary: Vocabulary) -> np.ndarray:
    """Return the four flags; quotation marks carry none: they never stand alone."""
    holds, spacing = _can_attach(vocabulary), _begun(vocabulary, last="x")
    flags = []
    for piece in vocabulary.pieces:
        text, continues = piece.removesuffix(CONTINUES), piece.endswith(CONTINUES)
        quote = moses.is_quote(piece)
        may_attach = continues and moses.attachment_is_open(text)
        starts = not (quote or may_attach or moses.attaches(spacing, text))
        opening = not quote and moses.after(spacing, text).attach_next != "no"
        joins = continues or opening
        flags.append((starts, not (holds or joins or quote), not quote, joins))
    return np.array(flags).T


def _can_attach(vocabulary: Vocabulary) -> bool:
    """Return True if some token could begin a word that attaches to the previous one."""
    spacing = _begun(vocabulary, last="字")
    texts = (piece.removesuffix(CONTINUES) for piece in vocabulary.pieces[len(SPECIALS) :])
    return any(moses.attachment_is_open(text) or moses.attaches(spacing, text) for text in texts)


def _begun(vocabulary: Vocabulary, last: str = "") -> moses.Spacing:
    return moses.Spacing(language=vocabulary.config.language, last=last)


@dataclass(frozen=True, kw_only=True)
class WordStream(ABC):
    """The words of a growing sequence of ids, each returned once, when it is complete.

    Immutable: `push` and `finish` leave the stream they are called on as it was, so that a search
    may go on from one stream in several ways. However the ids are cut into pushes,
    `vocabulary.word_separator.join(all words) == vocabulary.decode(all ids)`.
    """

    vocabulary: Vocabulary = field(repr=False)

    @staticmethod
    def begin(vocabulary: Vocabulary) -> "WordStream":
        """Return the stream before the first id."""
        if vocabulary.kind == "subword_nmt":
            holds = _can_attach(vocabulary)
            return _MosesStream(vocabulary=vocabulary, holds=holds, spacing=_begun(vocabulary))
        return _PieceStream(vocabulary=vocabulary, boundaries=word_boundaries(vocabulary))

    def push(self, ids: Iterable[int]) -> tuple[Self, list[str]]:
        """Return the stream after these ids, and the words they complete."""
        stream, words = self, []
        for i in ids:
            stream, completed = stream._after(int(i))
            words += completed
        return stream, words

    @abstractmethod
    def _after(self, i: int) -> tuple[Self, list[str]]:
        """Return the stream after one id, and the words it completes."""

    @abstractmethod
    def finish(self) -> list[str]:
        """Return the last word, if there is one."""


@dataclass(frozen=True, kw_only=True)
class _PieceStream(WordStream):
    """The ids of the unfinished word, for kinds where single tokens mark word boundaries."""

    boundaries: WordBoundaries = field(repr=False, compare=False)
    ids: tuple[int, ...] = ()

    def _after(self, i: int) -> tuple[Self, list[str]]:
        self.vocabulary.check(i)
        words, ids = [], self.ids
        if self.boundaries.starts_word[i]:
            words, ids = self.finish(), ()
        following = replace(self, ids=(*ids, i))
        if self.boundaries.ends_word[i]:
            return replace(self, ids=()), words + following.finish()
        return following, words

    def finish(self) -> list[str]:
        text = self.vocabulary.decode(self.ids)
        return [text] if text else []


@dataclass(frozen=True, kw_only=True)
class _MosesStream(WordStream):
    """The unfinished word and token, for Moses tokens split with `@@`."""

    holds: bool  # whether something in the vocabulary can attach to a word
    spacing: moses.Spacing
    word: str = ""  # of whole tokens; held until nothing can attach to it any more
    token: str = ""  # of the pieces since

    def _after(self, i: int) -> tuple[Self, list[str]]:
        following, words = self, []
        for piece in self.vocabulary.spell([i]):
            token = self.token + piece.removesuffix(CONTINUES)
            following = replace(self, token=token)
            if not piece.endswith(CONTINUES):
                following, words = following._end_token()
            elif self.word and not moses.attachment_is_open(token):
                following, words = following._release()
        return following, words

    def finish(self) -> list[str]:
        ended, words = self._end_token() if self.token else (self, [])
        return words + ([ended.word] if ended.word else [])

    def _release(self) -> tuple[Self, list[str]]:
        """Return the word if the current token does not attach to it."""
        if not self.word or moses.attaches(self.spacing, self.token):
            return self, []
        return replace(self, word=""), [self.word]

    def _end_token(self) -> tuple[Self, list[str]]:
        """Append the token to the word it attaches to, or start a new word."""
        released, words = self._release()
        word, spacing = released.word + self.token, moses.after(self.spacing, self.token)
        if not self.holds and spacing.attach_next == "no":
            words, word = [*words, word], ""
        return replace(self, word=word, token="", spacing=spacing), words


@dataclass(frozen=True, kw_only=True)
class WordedTexts:
    """Texts read word by word; `simulate_text` takes the first three fields."""

    tokens: np.ndarray  # int32 [B, L], 0 beyond the lengths
    lengths: np.ndarray  # int32 [B]; end-of-sentence counts
    units: np.ndarray  # int32 [B, R]: tokens that are there after each word; then the length
    words: np.ndarray  # int32 [B]


def pieces_of_word(vocabulary: Vocabulary, word: str, *, is_first: bool) -> list[int]:
    """Return the tokens that a word adds to a text; none for a word of invisible characters."""
    if vocabulary.kind == "phonemes":
        raise VocabularyError(
            "the source is phonemes, and those of a word depend on the next: such a text is not "
            "read word by word. Translate it whole, or train with pieces of words."
        )
    pieces = vocabulary.encode(word)
    if vocabulary.kind == "characters" and pieces and not is_first:
        return [vocabulary.ids.get(SPACE, UNK), *pieces]
    return pieces


def read_by_words(vocabulary: Vocabulary, texts: Sequence[str]) -> WordedTexts:
    """Batch texts, each with its end-of-sentence.

    Words are what `str.split` gives, as in SimulEval. A text without words has no end either.
    Tokens already read never change. For unigram, bpe and characters the pieces of the words are
    those of the whole text, but where a unigram model finds two cuts just as likely ("." ".." and
    ".." "."). The Moses tokens of subword_nmt depend on what follows in a few places (quotation
    marks, "dogs'"; 7 of 100 sentences of TED talks): a word is cut as at the end of a sentence.
    """
    pieces: list[list[list[int]]] = []
    for text in texts:
        read: list[list[int]] = []
        for word in text.split():  # leading words without tokens add nothing
            read.append(pieces_of_word(vocabulary, word, is_first=not any(read)))
        pieces.append(read)
    tokens = [[*chain.from_iterable(words), EOS] if words else [] for words in pieces]
    lengths, words = (np.array([len(row) for row in rows], np.int32) for rows in (tokens, pieces))
    size, reads = (-(-max([1, *counts]) // MULTIPLE) * MULTIPLE for counts in (lengths, words))
    filled = np.zeros((len(texts), size), np.int32)
    units = np.repeat(lengths[:, None], reads, 1)
    for row, (ids, parts) in enumerate(zip(tokens, pieces, strict=True)):
        filled[row, : len(ids)] = ids
        units[row, : len(parts)] = np.cumsum([len(part) for part in parts])
    return WordedTexts(tokens=filled, lengths=lengths, units=units, words=words)


def ctc_labels(logits: Float[Array, "B K C"], lengths: Int[Array, " B"]) -> Int[Array, "B K"]:
    """Return the best label of each state, repetitions merged and blanks (the last class) dropped.

    A label stands at its peak: of the neighbouring states that agree on it, the one (the first,
    if several) that finds it most probable. `PAD`, which `count_words` passes over, stands at all
    others.
    """
    size, blank = logits.shape[1], logits.shape[-1] - 1
    real = jnp.arange(size) < lengths[:, None]
    best = jnp.where(real, logits.argmax(-1), blank).astype(jnp.int32)
    sure = jax.nn.log_softmax(logits.astype(jnp.float32)).max(-1)
    begins = jnp.pad(best[:, 1:] != best[:, :-1], [(0, 0), (1, 0)])
    peaks = jax.vmap(_peaks)(sure, jnp.cumsum(begins, -1))
    return jnp.where(peaks & (best != blank), best, PAD)


def ctc_word_counts(
    logits: Float[Array, "B K C"],
    lengths: Int[Array, " B"],
    boundaries: WordBoundaries,
    *,
    trailing: Literal["leave", "count"] = "count",
) -> Int[Array, "B K"]:
    """Count the words up to each state; a word counts from the peak of its last token on.

    The last column is `count_words` of the collapsed labels: with `trailing="leave"`, without a
    word that may still go on (Papi et al. 2022 count it).
    """
    labels = ctc_labels(logits, lengths)
    number = count_words(boundaries, labels, trailing="count")  # of the word that a label is in
    has_text = jnp.asarray(boundaries.has_text)[labels]
    most = jnp.iinfo(number.dtype).max
    coming = jax.lax.cummin(jnp.where(has_text, number, most), axis=1, reverse=True)
    coming = jnp.pad(coming[:, 1:], [(0, 0), (0, 1)], constant_values=most)
    counts = jnp.cumsum(has_text & (coming > number), -1, dtype=jnp.int32)
    if trailing == "count":
        return counts
    return jnp.minimum(counts, count_words(boundaries, labels)[:, -1:])


def _peaks(sure: Float[Array, " K"], run: Int[Array, " K"]) -> Array:
    """Mark the first of the most probable states of each run (bool [K]); runs are numbered."""
    size = sure.shape[0]
    is_top = sure == jax.ops.segment_max(sure, run, size)[run]
    place = jnp.arange(size)
    first = jax.ops.segment_min(jnp.where(is_top, place, size), run, size)
    return place == first[run]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True, eq=False)
class Words:
    """Word boundaries of two vocabularies, as arrays."""

    source: WordBoundaries
    target: WordBoundaries

    @classmethod
    def of(cls, source: Vocabulary, target: Vocabulary) -> "Words":
        """Build the word boundaries of two vocabularies."""
        tables = [jax.tree.map(jnp.asarray, word_boundaries(each)) for each in (source, target)]
        return cls(source=tables[0], target=tables[1])
