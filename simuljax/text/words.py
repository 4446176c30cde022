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
punctuation (or 's) in the vocabulary a word waits for the next piece, as it does with ▁. Without,
as in a vocabulary of `spoken_form` German, it waits for nothing. To count the tokens as they end,
whatever may attach to them, ask `word_boundaries` for the convention "tokens".
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import numpy as np

from simuljax.text import moses
from simuljax.text.base import SPECIALS, UNK, Vocabulary
from simuljax.text.character_vocabulary import SPACE
from simuljax.text.phonemes import WORD_END
from simuljax.text.sentencepiece_vocabulary import WORD_START
from simuljax.text.subword_nmt_vocabulary import CONTINUES
from simuljax.text.word_count import WordBoundaries


def word_boundaries(
    vocabulary: Vocabulary, *, convention: Literal["committed", "tokens"] = "committed"
) -> WordBoundaries:
    """Return the word boundaries of each id, as NumPy arrays.

    "committed" counts what `WordStream` has given out. For subword_nmt it does so save where one
    piece does not tell: quotation marks (the word before an opening one counts a piece late),
    tokens of several pieces that begin with a mark or end in a bracket or currency sign, elision
    before a numeral, and Chinese or Japanese tokens. "tokens" counts subword_nmt tokens, each with
    its last piece; the other kinds know one convention.
    """
    pieces = vocabulary.pieces
    match vocabulary.kind:
        case "unigram" | "bpe":
            starts = [piece.startswith(WORD_START) for piece in pieces]
            return _boundaries(pieces, starts=starts, text=[p != WORD_START for p in pieces])
        case "subword_nmt" if convention == "tokens":
            return _boundaries(pieces, ends=[not piece.endswith(CONTINUES) for piece in pieces])
        case "subword_nmt":
            return _moses_boundaries(vocabulary)
        case "characters":
            return _separated(pieces, SPACE)
        case "phonemes":
            return _separated(pieces, WORD_END)


@dataclass(frozen=True, kw_only=True)
class WordStream:
    """The words of a growing sequence of ids, each returned once, when it is complete.

    Immutable: `push` and `finish` leave the stream they are called on as it was, so that a search
    may go on from one stream in several ways. However the ids are cut into pushes,
    `vocabulary.word_separator.join(all words) == vocabulary.decode(all ids)`.
    """

    vocabulary: Vocabulary = field(repr=False)
    _word: "_PieceWord | _MosesWord"

    @classmethod
    def begin(cls, vocabulary: Vocabulary) -> Self:
        """Return a stream that has seen nothing."""
        if vocabulary.kind != "subword_nmt":
            return cls(vocabulary=vocabulary, _word=_PieceWord.begin(vocabulary))
        return cls(vocabulary=vocabulary, _word=_MosesWord.begin(vocabulary))

    def push(self, ids: Iterable[int]) -> tuple[Self, list[str]]:
        """Return the stream after these ids, and the words they complete."""
        word, words = self._word, []
        for i in ids:
            word, completed = word.push(self.vocabulary, int(i))
            words += completed
        return replace(self, _word=word), words

    def finish(self) -> list[str]:
        """Return the words that remain at the end."""
        return self._word.rest(self.vocabulary)


@dataclass(frozen=True, kw_only=True)
class _PieceWord:
    """The ids of the unfinished word, for kinds where single tokens mark word boundaries."""

    boundaries: WordBoundaries = field(repr=False, compare=False)
    ids: tuple[int, ...] = ()

    @classmethod
    def begin(cls, vocabulary: Vocabulary) -> Self:
        return cls(boundaries=word_boundaries(vocabulary))

    def push(self, vocabulary: Vocabulary, i: int) -> tuple[Self, list[str]]:
        vocabulary.check(i)
        words, ids = [], self.ids
        if self.boundaries.starts_word[i]:
            words, ids = self.rest(vocabulary), ()
        following = replace(self, ids=(*ids, i))
        if self.boundaries.ends_word[i]:
            return replace(self, ids=()), words + following.rest(vocabulary)
        return following, words

    def rest(self, vocabulary: Vocabulary) -> list[str]:
        text = vocabulary.decode(self.ids)
        return [text] if text else []


@dataclass(frozen=True, kw_only=True)
class _MosesWord:
    """The unfinished word and token, for Moses tokens split with `@@`."""

    holds: bool  # whether something in the vocabulary can attach to a word
    spacing: moses.Spacing
    word: str = ""  # of whole tokens; held until nothing can attach to it any more
    token: str = ""  # of the pieces since

    @classmethod
    def begin(cls, vocabulary: Vocabulary) -> Self:
        spacing = moses.Spacing(language=vocabulary.config.language)
        return cls(holds=_can_attach(vocabulary), spacing=spacing)

    def push(self, vocabulary: Vocabulary, i: int) -> tuple[Self, list[str]]:
        following, words = self, []
        for piece in vocabulary.spell([i]):
            token = self.token + piece.removesuffix(CONTINUES)
            following = replace(self, token=token)
            if not piece.endswith(CONTINUES):
                following, words = following._end_token()
            elif self.word and not moses.attachment_is_open(token):
                following, words = following._release()
        return following, words

    def rest(self, vocabulary: Vocabulary) -> list[str]:
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


def _can_attach(vocabulary: Vocabulary) -> bool:
    """Return True if some token could begin a word that attaches to the previous one."""
    spacing = moses.Spacing(language=vocabulary.config.language, last="字")
    texts = (piece.removesuffix(CONTINUES) for piece in vocabulary.pieces[len(SPECIALS) :])
    return any(moses.attachment_is_open(text) or moses.attaches(spacing, text) for text in texts)


def _moses_boundaries(vocabulary: Vocabulary) -> WordBoundaries:
    """Return the boundaries; quotation marks carry none: they never stand alone."""
    holds = _can_attach(vocabulary)
    spacing = moses.Spacing(language=vocabulary.config.language, last="x")
    quotes = [moses.is_quote(piece) for piece in vocabulary.pieces]
    starts, joins = [], []
    for piece, quote in zip(vocabulary.pieces, quotes, strict=True):
        text, continues = piece.removesuffix(CONTINUES), piece.endswith(CONTINUES)
        may_attach = continues and moses.attachment_is_open(text)
        opening = not quote and moses.after(spacing, text).attach_next != "no"
        starts.append(not (quote or may_attach or moses.attaches(spacing, text)))
        joins.append(continues or opening)
    return _boundaries(
        vocabulary.pieces,
        starts=starts,
        ends=[not (holds or j or q) for j, q in zip(joins, quotes, strict=True)],
        text=[not q for q in quotes],
        joins=joins,
    )


def _separated(pieces: Sequence[str], separator: str) -> WordBoundaries:
    is_separator = [piece == separator for piece in pieces]
    return _boundaries(pieces, ends=is_separator, text=[not s for s in is_separator])


def _boundaries(
    pieces: Sequence[str],
    *,
    starts: Sequence[bool] = (),
    ends: Sequence[bool] = (),
    text: Sequence[bool] = (),
    joins: Sequence[bool] = (),
) -> WordBoundaries:
    """Return flags as arrays. Defaults: no id starts, ends or joins a word, every id has text.

    Padding, begin and end say nothing; unknown is text like any other.
    """

    def array(flags: Sequence[bool], default: bool = False) -> np.ndarray:
        values = np.array(flags or [default] * len(pieces), bool)
        values[:UNK] = False
        return values

    return WordBoundaries(
        starts_word=array(starts),
        ends_word=array(ends),
        has_text=array(text, True),
        joins_next=array(joins),
    )
