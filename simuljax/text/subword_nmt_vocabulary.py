"""Moses tokens split by byte pair encoding with `@@` marks (Sennrich et al. 2016).

A piece carries `@@` unless it ends its token, so the end of a token shows without the next piece
(Papi et al. 2022, appendix A.1).
"""

import contextlib
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from simuljax.text import moses
from simuljax.text.base import SPECIALS, UNK, Vocabulary, VocabularyConfig
from simuljax.text.errors import VocabularyError

CONTINUES = "@@"
_HEADER = "#version: 0.2"
_END = "</w>"
_NEVER = f"{_END} {_END}"  # no merge at all would be refused, this one is never met


@dataclass(frozen=True, kw_only=True)
class SubwordNmtVocabulary(Vocabulary):
    """Every learned character, alone and with `@@`, then one token per merge.

    Decoding detokenises; what that cannot restore is listed in `simuljax.text.moses`.
    """

    merges: tuple[str, ...] = field(repr=False)

    @classmethod
    def learn(cls, lines: Sequence[str], config: VocabularyConfig) -> Self:
        """Learn from clean lines. A small corpus may give fewer merges than asked: see `note`."""
        words = Counter(t for line in lines for t in moses.tokenise(line, config.language))
        alphabet = sorted(set("".join(words)))
        room = config.size - len(SPECIALS) - 2 * len(alphabet)
        if room < 0:
            raise VocabularyError(
                f"size is {config.size}, but the text has {len(alphabet)} different characters,"
                f" each needed alone and with {CONTINUES}: ask for at least {config.size - room}."
            )
        merges = _learn_merges(words, room)
        pieces = SPECIALS + _pieces(alphabet, merges)
        note = ""
        if len(pieces) < config.size:
            note = f"size {config.size} was asked for, but the text carries {len(pieces)} pieces"
        return cls(config=config, pieces=pieces, note=note, merges=merges)

    @classmethod
    def restore(cls, content: Mapping[str, Any]) -> Self:
        """Build the vocabulary that a file's content describes."""
        merges = tuple(content["merges"])
        if not all(len(merge.split(" ")) == 2 for merge in merges):
            raise ValueError("a merge does not have two parts")
        return super().restore({**content, "merges": merges})

    def content(self) -> dict[str, Any]:
        """Return the content of the vocabulary's file."""
        return super().content() | {"merges": list(self.merges)}

    def decode(self, ids: Iterable[int]) -> str:
        """Return detokenised text; an unfinished last token is returned as far as it goes."""
        tokens = "".join(read_piece(piece) for piece in self.spell(ids)).split()
        return moses.detokenise(tokens, self.config.language)

    def _encode(self, text: str) -> list[int]:
        tokens = moses.tokenise(text, self.config.language)
        return [self.ids.get(piece, UNK) for piece in self._bpe.segment_tokens(tokens)]

    @cached_property
    def _bpe(self) -> BPE:
        merges = self.merges or (_NEVER,)
        return BPE(io.StringIO("\n".join([_HEADER, *merges])))


def read_piece(piece: str) -> str:
    """Return a token's text, with a space after it if it ends its word."""
    return piece.removesuffix(CONTINUES) if piece.endswith(CONTINUES) else f"{piece} "


def _learn_merges(words: Counter[str], room: int) -> tuple[str, ...]:
    """Learn the most frequent merges of pairs seen at least twice that make at most `room` tokens.

    Two merges may make the same piece (ab+c, a+bc), so a few more are learnt than there is room.
    """
    if all(len(word) == 1 for word in words):
        return ()
    dictionary = "".join(f"{word} {n}\n" for word, n in sorted(words.items()))
    codes = io.StringIO()
    with contextlib.redirect_stderr(io.StringIO()):  # a progress bar
        learn_bpe(io.StringIO(dictionary), codes, room + room // 20, is_dict=True)
    merges = codes.getvalue().rstrip("\n").split("\n")[1:]
    made: set[str] = set()
    for i, merge in enumerate(merges):
        made.add(_merged(merge))
        if len(made) > room:
            return tuple(merges[:i])
    return tuple(merges)


def _pieces(alphabet: Iterable[str], merges: Iterable[str]) -> tuple[str, ...]:
    """Return all tokens that the merges can leave, each once."""
    characters = [form for c in alphabet for form in (c, c + CONTINUES)]
    return tuple(dict.fromkeys([*characters, *map(_merged, merges)]))


def _merged(merge: str) -> str:
    """Return the token that a merge makes. One that reaches the end of its word has no `@@`."""
    piece = merge.replace(" ", "")
    return piece.removesuffix(_END) if piece.endswith(_END) else piece + CONTINUES
