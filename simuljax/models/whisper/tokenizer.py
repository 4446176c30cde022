"""Whisper's tokens: bytes of text, then special ones, then timestamps of 20 ms.

    text | <|endoftext|> | <|startoftranscript|> | <|en|> <|zh|> ... | <|translate|> <|transcribe|>
    <|startoflm|> <|startofprev|> <|nospeech|> <|notimestamps|> | <|0.00|> <|0.02|> ... <|30.00|>

A model writes `<|startoftranscript|> <|en|> <|transcribe|>` and what follows; one that knows
English alone has the same ids (less one), but nothing between the first of them and the text.
"""

import codecs
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from simuljax.models.whisper import bpe
from simuljax.models.whisper.config import STATE_S
from simuljax.models.whisper.languages import LANGUAGES, UNSPACED, language_code

Task = Literal["transcribe", "translate"]

_TIMESTAMPS = 1501
_FEWEST, _MOST = 99, 100  # languages
_OTHERS = 8 + _TIMESTAMPS  # special tokens that are no language

# Signs that stand for sounds, speakers and layout rather than for words.
_UNSPOKEN = [
    *'"#()*+/:;<=>@[\\]^_`{|}~「」『』',
    *("<<", ">>", "<<<", ">>>", "--", "---", "-(", "-[", "('", '("', "((", "))", "(((", ")))"),
    *("[[", "]]", "{{", "}}", "♪♪", "♪♪♪"),
]
_NOTES = "♩♪♫♬♭♮♯"  # of several tokens each; the first is theirs alone


@dataclass(frozen=True, kw_only=True)
class Word:
    """Tokens that are written together, and their text with the space before it."""

    text: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Tokenizer:
    """Text to ids and back; the ids of what is not text."""

    tokens: Sequence[bytes] = field(repr=False)  # of text, in the order of their ids
    languages: int = _FEWEST
    multilingual: bool = True

    @cached_property
    def ranks(self) -> dict[bytes, int]:
        """The id of each token of text."""
        return {token: i for i, token in enumerate(self.tokens) if token}

    @property
    def size(self) -> int:
        """Return the number of ids."""
        return len(self.tokens) + self.languages + _OTHERS

    @property
    def end(self) -> int:
        """<|endoftext|>: ids below it are text."""
        return len(self.tokens)

    @property
    def start(self) -> int:
        """<|startoftranscript|>."""
        return self.end + 1

    @property
    def language_ids(self) -> range:
        """In the order of `language_codes`."""
        return range(self.start + 1, self.start + 1 + self.languages)

    @property
    def language_codes(self) -> tuple[str, ...]:
        """Those that the model knows."""
        return tuple(LANGUAGES)[: self.languages]

    @property
    def translate(self) -> int:
        """<|translate|>: into English."""
        return self.language_ids.stop

    @property
    def transcribe(self) -> int:
        """<|transcribe|>: in the language that is spoken."""
        return self.translate + 1

    @property
    def start_lm(self) -> int:
        """<|startoflm|>, which the published models do not use."""
        return self.translate + 2

    @property
    def previous(self) -> int:
        """<|startofprev|>: what follows was said before the window."""
        return self.translate + 3

    @property
    def no_speech(self) -> int:
        """<|nospeech|>."""
        return self.translate + 4

    @property
    def no_timestamps(self) -> int:
        """<|notimestamps|>."""
        return self.translate + 5

    @property
    def timestamps(self) -> range:
        """<|0.00|> to <|30.00|>."""
        return range(self.translate + 6, self.size)

    def opening(self, task: Task, language: str, timestamps: Literal["predict", "none"]) -> list:
        """Return the tokens before the text of a window."""
        ids = [self.start]
        if self.multilingual:
            ids += [self.language_id(language), getattr(self, task)]
        return ids if timestamps == "predict" else [*ids, self.no_timestamps]

    def language_id(self, language: str) -> int:
        """Return the token of a language by code or name."""
        code = language_code(language)
        if code not in self.language_codes:
            raise ValueError(f"this model does not know {LANGUAGES[code]}; large-v3 does")
        return self.language_ids[self.language_codes.index(code)]

    def encode(self, text: str) -> list[int]:
        """The ids of a text; what looks like a special token is spelt as text."""
        return bpe.encode(text, self.ranks)

    def decode(self, ids: Iterable[int], *, tail: Literal["replace", "hold"] = "replace") -> str:
        """The text of ids, those that are not text left out.

        A character may be spelt with several tokens. One that is not whole at the end becomes
        U+FFFD, or with `tail="hold"` is left out, for whoever shows text while it is written.
        """
        data = b"".join(self.tokens[i] for i in ids if i < self.end)
        if tail == "replace":
            return data.decode("utf-8", "replace")
        return codecs.getincrementaldecoder("utf-8")("replace").decode(data, final=False)

    def seconds(self, timestamp: int) -> float:
        """Return the time of a timestamp token."""
        return (timestamp - self.timestamps.start) * STATE_S

    @cached_property
    def unspoken(self) -> tuple[int, ...]:
        """Tokens of signs that nobody says: brackets, notes, speakers' dashes."""
        first = {self.encode(" -")[0], self.encode(" '")[0]}
        spelt = [(sign, self.encode(before + sign)) for sign in _UNSPOKEN for before in ("", " ")]
        single = {ids[0] for _, ids in spelt if len(ids) == 1}
        notes = {self.encode(before + note)[0] for note in _NOTES for before in ("", " ")}
        return tuple(sorted(first | single | notes))

    def words(self, ids: Sequence[int], language: str) -> list[Word]:
        """The words of ids of text; a mark of punctuation is a word of its own.

        Languages written without spaces are split into characters, or what tokens make of them.
        """
        units = self._characters(ids)
        if language in UNSPACED:
            return units
        words: list[Word] = []
        for unit in units:
            joins = words and not unit.text.startswith(" ") and not _is_punctuation(unit.text)
            if joins:
                before = words.pop()
                unit = Word(text=before.text + unit.text, tokens=before.tokens + unit.tokens)
            words.append(unit)
        return words

    def _characters(self, ids: Sequence[int]) -> list[Word]:
        """The shortest runs of tokens that spell whole characters."""
        units, run = [], []
        for k, i in enumerate(ids):
            run.append(i)
            open_end = self.decode(run, tail="hold") != self.decode(run)
            if not open_end or k == len(ids) - 1:
                units.append(Word(text=self.decode(run), tokens=tuple(run)))
                run = []
        return units


def _is_punctuation(text: str) -> bool:
    return text.strip() in string.punctuation


def make_tokenizer(tokens: Sequence[bytes], size: int) -> Tokenizer:
    """For a model whose logits have `size`; from 51,865 on a published one knows many languages."""
    specials = size - len(tokens)
    if specials == _FEWEST + _OTHERS - 1:  # some files end their text with <|endoftext|>
        tokens, specials = tokens[:-1], specials + 1
    languages = specials - _OTHERS
    if languages not in (_FEWEST, _MOST):
        raise ValueError(
            f"a vocabulary of {len(tokens)} tokens is not that of a model with {size} logits: "
            f"{languages} languages would be left"
        )
    return Tokenizer(tokens=tokens, languages=languages, multilingual=len(tokens) != 50_256)
