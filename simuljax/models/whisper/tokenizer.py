"""Whisper's tokens: bytes of text, then special ones, then timestamps of 20 ms.

    text | <|endoftext|> | <|startoftranscript|> | <|en|> <|zh|> ... | <|translate|> <|transcribe|>
    <|startoflm|> <|startofprev|> <|nospeech|> <|notimestamps|> | <|0.00|> <|0.02|> ... <|30.00|>

A model writes `<|startoftranscript|> <|en|> <|transcribe|>` and what follows; one that knows
English alone has the same ids (less one), but nothing between the first of them and the text.

Text is encoded as byte pairs, as GPT-2 merges them. A piece is a contraction ('s 't 're 've 'm 'll
'd), or letters, digits or other signs with a space before them if there is one, or white space; the
last white space before a sign stays with it. Within a piece, the two neighbours whose union has the
lowest rank become one, until none has any.
"""

import base64
import codecs
import itertools
import math
import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import regex

from simuljax.errors import SimuljaxError
from simuljax.models.whisper.config import STATE_S
from simuljax.parsing import ParseError, parse_json


class TokenizerError(SimuljaxError):
    """A vocabulary that cannot be used, or a language that the model does not know."""


# In the order of their tokens; Cantonese from large-v3 on.
_TABLE = """
en English, zh Chinese, de German, es Spanish, ru Russian, ko Korean, fr French, ja Japanese,
pt Portuguese, tr Turkish, pl Polish, ca Catalan, nl Dutch, ar Arabic, sv Swedish, it Italian,
id Indonesian, hi Hindi, fi Finnish, vi Vietnamese, he Hebrew, uk Ukrainian, el Greek, ms Malay,
cs Czech, ro Romanian, da Danish, hu Hungarian, ta Tamil, no Norwegian, th Thai, ur Urdu,
hr Croatian, bg Bulgarian, lt Lithuanian, la Latin, mi Maori, ml Malayalam, cy Welsh, sk Slovak,
te Telugu, fa Persian, lv Latvian, bn Bengali, sr Serbian, az Azerbaijani, sl Slovenian,
kn Kannada, et Estonian, mk Macedonian, br Breton, eu Basque, is Icelandic, hy Armenian,
ne Nepali, mn Mongolian, bs Bosnian, kk Kazakh, sq Albanian, sw Swahili, gl Galician, mr Marathi,
pa Punjabi, si Sinhala, km Khmer, sn Shona, yo Yoruba, so Somali, af Afrikaans, oc Occitan,
ka Georgian, be Belarusian, tg Tajik, sd Sindhi, gu Gujarati, am Amharic, yi Yiddish, lo Lao,
uz Uzbek, fo Faroese, ht Haitian Creole, ps Pashto, tk Turkmen, nn Nynorsk, mt Maltese,
sa Sanskrit, lb Luxembourgish, my Myanmar, bo Tibetan, tl Tagalog, mg Malagasy, as Assamese,
tt Tatar, haw Hawaiian, ln Lingala, ha Hausa, ba Bashkir, jw Javanese, su Sundanese,
yue Cantonese
"""

_ENTRIES = [entry.split(maxsplit=1) for entry in _TABLE.split(",")]
LANGUAGES: dict[str, str] = {code: name.strip() for code, name in _ENTRIES}

# Words are not separated by spaces in these.
UNSPACED = ("zh", "ja", "th", "lo", "my", "yue")

_BY_NAME = {name.lower(): code for code, name in LANGUAGES.items()}


def language_code(language: str) -> str:
    """Return `fr` of `fr`, `FR` or `French`; refuse what Whisper does not know."""
    wanted = language.strip().lower()
    code = _BY_NAME.get(wanted, wanted)
    if code not in LANGUAGES:
        known = ", ".join(LANGUAGES)
        raise TokenizerError(f"Whisper knows no language {language!r}; choose one of {known}")
    return code


_PIECE = regex.compile(r"'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


def pieces(text: str) -> list[str]:
    """Split a text into the parts that are merged separately."""
    return _PIECE.findall(text)


def _merge(piece: bytes, ranks: Mapping[bytes, int], below: float = math.inf) -> list[int]:
    """Return the ids of a piece, of those below a rank."""
    if ranks.get(piece, below) < below:
        return [ranks[piece]]
    parts = [piece[k : k + 1] for k in range(len(piece))]
    while len(parts) > 1:
        unions = [ranks.get(a + b) for a, b in itertools.pairwise(parts)]
        best = min((rank for rank in unions if rank is not None and rank < below), default=None)
        if best is None:
            break
        k = unions.index(best)
        parts[k : k + 2] = [parts[k] + parts[k + 1]]
    return [ranks[part] for part in parts]


def common_tokens(tokens: Sequence[bytes], text: Iterable[str], count: int) -> list[int]:
    """Return `count` ids, in order: bytes, then what is most common in lines of text, then others.

    They are a vocabulary of byte pairs again: a token that is merged of two comes with both.
    """
    ranks = {token: i for i, token in enumerate(tokens) if token}
    seen = Counter(piece for line in text for piece in pieces(f" {line.strip()}"))
    uses = [0] * len(tokens)
    for piece, times in seen.items():
        for i in _merge(piece.encode("utf-8"), ranks):
            uses[i] += times
    kept = {ranks[bytes([byte])] for byte in range(256)}
    for common in sorted(range(len(tokens)), key=lambda i: (-uses[i], i)):
        needed, new = [common], set()
        while needed:
            if (i := needed.pop()) not in kept | new:
                new.add(i)
                needed += _merge(tokens[i], ranks, below=i)
        kept |= new if len(kept) + len(new) <= count else set()
        if len(kept) == count:
            break
    return sorted(kept)


def write_tiktoken(path: Path, tokens: Sequence[bytes]) -> None:
    """Write lines of `base64 rank`."""
    spelt = [base64.b64encode(token) or b"=" for token in tokens]
    path.write_bytes(b"".join(b"%s %d\n" % (token, i) for i, token in enumerate(spelt)))


def read_tiktoken(path: Path) -> list[bytes]:
    """Return tokens in the order of their ids, from lines of `base64 rank`."""
    ranks: dict[int, bytes] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.strip():
            try:
                token, rank = line.split()
                empty = token == b"="  # the one token without bytes; nothing is spelt with it
                ranks[int(rank)] = b"" if empty else base64.b64decode(token, validate=True)
            except ValueError as error:
                problem = f"{line!r:.60} is not `base64 rank`"
                raise TokenizerError(f"{path}, line {number}: {problem}") from error
    return _in_order(ranks, path)


def read_tokenizer_json(path: Path) -> list[bytes]:
    """Return the same from Hugging Face's `tokenizer.json` or `vocab.json`."""
    special, characters = re.compile(r"<\|.*\|>"), _byte_characters()
    try:
        document = parse_json(path.read_bytes())
        vocabulary = document["model"]["vocab"] if "model" in document else document
        spelt = {i: token for token, i in vocabulary.items() if not special.fullmatch(token)}
        tokens = {i: bytes(characters[c] for c in token) for i, token in spelt.items()}
    except ParseError as error:
        raise TokenizerError(f"{path} is damaged: {error}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise TokenizerError(f"{path} is not a vocabulary of Whisper: {error!r}") from error
    return _in_order(tokens, path)


def _in_order(ranks: Mapping[int, bytes], path: Path) -> list[bytes]:
    missing = sorted(set(range(len(ranks))) - ranks.keys())
    if missing or len(ranks) < 256:
        without = f"{len(ranks)} ids, without {missing[:4]}"
        raise TokenizerError(f"{path} is not a whole vocabulary: {without}")
    return [ranks[i] for i in range(len(ranks))]


def _byte_characters() -> dict[str, int]:
    """Return bytes by the characters of GPT-2: Latin-1 where it prints, others from U+0100 on."""
    printed = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printed]
    shown = {chr(byte): byte for byte in printed}
    return shown | {chr(0x100 + k): byte for k, byte in enumerate(others)}


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
        return {token: i for i, token in enumerate(self.tokens) if token}

    @property
    def size(self) -> int:
        return len(self.tokens) + self.languages + _OTHERS

    @cached_property
    def end(self) -> int:
        """Return <|endoftext|>: ids below it are text."""
        return len(self.tokens)

    @cached_property
    def start(self) -> int:
        return self.end + 1

    @cached_property
    def language_ids(self) -> range:
        """Return the ids in the order of `language_codes`."""
        return range(self.start + 1, self.start + 1 + self.languages)

    @property
    def language_codes(self) -> tuple[str, ...]:
        return tuple(LANGUAGES)[: self.languages]

    # The special tokens that follow the languages; <|startofprev|> comes before earlier text.
    translate = property(lambda self: self.language_ids.stop)
    transcribe = property(lambda self: self.translate + 1)
    start_lm = property(lambda self: self.translate + 2)
    previous = property(lambda self: self.translate + 3)
    no_speech = property(lambda self: self.translate + 4)
    no_timestamps = property(lambda self: self.translate + 5)
    timestamps = property(lambda self: range(self.translate + 6, self.size))

    def opening(self, task: Task, language: str, timestamps: Literal["predict", "none"]) -> list:
        """Return the tokens before the text of a window."""
        ids = [self.start]
        if self.multilingual:
            ids += [self.language_id(language), getattr(self, task)]
        return ids if timestamps == "predict" else [*ids, self.no_timestamps]

    def language_id(self, language: str) -> int:
        code = language_code(language)
        if code not in self.language_codes:
            raise TokenizerError(f"this model does not know {LANGUAGES[code]}; large-v3 does")
        return self.language_ids[self.language_codes.index(code)]

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; what looks like a special token is spelt as text."""
        return [i for piece in pieces(text) for i in _merge(piece.encode("utf-8"), self.ranks)]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, those that are not text left out.

        A character may be spelt with several tokens. One that is not whole becomes U+FFFD.
        """
        return b"".join(self.tokens[i] for i in ids if i < self.end).decode("utf-8", "replace")

    def seconds(self, timestamp: int) -> float:
        return (timestamp - self.timestamps.start) * STATE_S

    @cached_property
    def unspoken(self) -> tuple[int, ...]:
        """Return tokens of signs that nobody says: brackets, notes, speakers' dashes."""
        first = {self.encode(" -")[0], self.encode(" '")[0]}
        spelt = [(sign, self.encode(before + sign)) for sign in _UNSPOKEN for before in ("", " ")]
        single = {ids[0] for _, ids in spelt if len(ids) == 1}
        notes = {self.encode(before + note)[0] for note in _NOTES for before in ("", " ")}
        return tuple(sorted(first | single | notes))

    def words(self, ids: Sequence[int], language: str) -> list[Word]:
        """Return the words of ids of text; a mark of punctuation is a word of its own.

        Languages written without spaces are split into characters, or what tokens make of them.
        """
        units = self._characters(ids)
        if language in UNSPACED:
            return units
        words: list[Word] = []
        for unit in units:
            is_mark = unit.text.strip() in string.punctuation
            if words and not unit.text.startswith(" ") and not is_mark:
                before = words.pop()
                unit = Word(text=before.text + unit.text, tokens=before.tokens + unit.tokens)
            words.append(unit)
        return words

    def _characters(self, ids: Sequence[int]) -> list[Word]:
        """Return the shortest runs of tokens that spell whole characters."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        units, text, start = [], "", 0
        for end, i in enumerate(ids, start=1):
            text += decoder.decode(self.tokens[i] if i < self.end else b"", final=end == len(ids))
            if not decoder.getstate()[0]:  # no part of a character is left
                units.append(Word(text=text, tokens=tuple(ids[start:end])))
                text, start = "", end
        return units


def make_tokenizer(
    tokens: Sequence[bytes], size: int, *, multilingual: bool | None = None
) -> Tokenizer:
    """Return the tokenizer of a model with `size` logits.

    Unless it is said, a model is multilingual if it has not the 50,256 tokens of English alone.
    """
    specials = size - len(tokens)
    if specials == _FEWEST + _OTHERS - 1:  # some files end their text with <|endoftext|>
        tokens, specials = tokens[:-1], specials + 1
    languages = specials - _OTHERS
    if languages not in (_FEWEST, _MOST):
        raise TokenizerError(
            f"a vocabulary of {len(tokens)} tokens is not that of a model with {size} logits: "
            f"{languages} languages would be left"
        )
    many = len(tokens) != 50_256 if multilingual is None else multilingual
    return Tokenizer(tokens=tokens, languages=languages, multilingual=many)
