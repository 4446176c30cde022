"""Vocabularies, learned from text or loaded from a file.

- characters: for languages without spaces and for small data
- phonemes: text is encoded as phonemes; decoding gives phonemes, not spelling
- unigram, bpe: by SentencePiece (Kudo and Richardson 2018). A piece that begins a word begins with
  `▁`, so a word is known to be over when the next one begins.
- subword_nmt: Moses tokens split by byte pair encoding (Sennrich et al. 2016). A piece carries
  `@@` unless it ends its token, so the end of a token shows without the next piece.

The file is JSON, the same bytes for the same vocabulary, with a checksum of its content.
"""

import base64
import contextlib
import hashlib
import io
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from simuljax.config.fields import check, setting, write_json
from simuljax.parsing import ParseError, parse_json
from simuljax.text import moses
from simuljax.text.normalise import VocabularyError, clean
from simuljax.text.phonemes import WORD_END, phonemize

Kind = Literal["unigram", "bpe", "subword_nmt", "characters", "phonemes"]

PAD, BOS, EOS, UNK = range(4)
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
UNKNOWN = "⁇"  # how an unknown piece is shown: in its place, and nowhere a word of its own


@dataclass(frozen=True, kw_only=True)
class VocabularyConfig:
    """The vocabulary to learn. `size` includes the four special tokens.

    `language` matters to `subword_nmt` (Moses rules) and to `phonemes` (an eSpeak NG voice).
    """

    kind: Kind = setting("unigram", help="Segmentation.")
    size: int = setting(8000, help="Pieces, the four special ones included.", above=len(SPECIALS))
    lowercase: bool = setting(False, help="Convert text to lower case.")
    language: str = setting("en", help="Language of Moses rules, or of phonemes.")

    def __post_init__(self) -> None:
        check(self, VocabularyError)


@dataclass(frozen=True, kw_only=True)
class Vocabulary(ABC):
    """A map from text to ids and back. Ids 0 to 3 are padding, begin, end and unknown.

    `decode(encode(text))` is `text`, cleaned, and lower case if so configured, as far as the kind
    can say it (each tells in its own docstring). `note` tells in what the vocabulary differs from
    what was asked for, usually because the corpus is small; it is empty otherwise.
    """

    config: VocabularyConfig
    pieces: tuple[str, ...]  # by id
    note: str = ""

    word_separator: ClassVar[str] = " "  # what stands between two words in decoded text

    @property
    def kind(self) -> Kind:
        return self.config.kind

    @property
    def size(self) -> int:
        """Return the number of ids, special ones included."""
        return len(self.pieces)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without begin and end."""
        return self._encode(prepare(text, self.config))

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Return plain text, single-spaced, without special tokens; unknown shows as ⁇."""

    @abstractmethod
    def _encode(self, text: str) -> list[int]: ...

    @classmethod
    def restore(cls, content: Mapping[str, Any]) -> Self:
        """Build the vocabulary that a file's content describes."""
        config, pieces = VocabularyConfig(**content["config"]), tuple(content["pieces"])
        if pieces[: len(SPECIALS)] != SPECIALS or not all(isinstance(p, str) for p in pieces):
            raise ValueError("the pieces do not begin with the four special ones")
        return cls(**dict(content) | {"config": config, "pieces": pieces})

    def content(self) -> dict[str, Any]:
        return {"config": asdict(self.config), "pieces": list(self.pieces), "note": self.note}

    def save(self, path: Path) -> Path:
        """Write the file, which is all that `load` needs, and return its path."""
        write_content(path, self.content())
        return path

    def spell(self, ids: Iterable[int]) -> Iterator[str]:
        """Return the tokens of the ids; unknown shows as ⁇, other special tokens are left out."""
        for i in map(int, ids):
            self.check(i)
            if i >= UNK:
                yield UNKNOWN if i == UNK else self.pieces[i]

    def check(self, i: int) -> None:
        if not 0 <= i < self.size:
            raise VocabularyError(f"id {i} is outside this vocabulary of {self.size} pieces.")

    @cached_property
    def ids(self) -> dict[str, int]:
        """Map each ordinary token to its id (a text may contain the letters `<s>`)."""
        return {self.pieces[i]: i for i in range(len(SPECIALS), self.size)}


def prepare(text: str, config: VocabularyConfig) -> str:
    """Normalise a text as this vocabulary reads it."""
    return clean(text.lower() if config.lowercase else text)


FORMAT = "simuljax vocabulary"
VERSION = 1


def write_content(path: Path, content: Mapping[str, Any]) -> None:
    """Write the file atomically."""
    header = {"format": FORMAT, "version": VERSION, "sha256": _checksum(content)}
    write_json(path, header | {"content": content})


def read_content(path: Path) -> dict[str, Any]:
    """Read the content of a file written by `write_content`; refuse anything else by name."""
    if not path.is_file():
        raise VocabularyError(f"{path} does not exist.")
    try:
        document = parse_json(path.read_bytes())
    except ParseError as error:
        raise VocabularyError(f"{path} is damaged: {error}. Copy or learn it again.") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise VocabularyError(f"{path} is not a vocabulary of simuljax.")
    if document.get("version") != VERSION:
        found = document.get("version")
        raise VocabularyError(f"{path} has version {found!r}, but this simuljax reads {VERSION}.")
    content = document.get("content")
    if not isinstance(content, dict) or document.get("sha256") != _checksum(content):
        raise VocabularyError(f"{path} is damaged: wrong checksum. Copy or learn it again.")
    return content


def _checksum(content: Mapping[str, Any]) -> str:
    canonical = json.dumps(content, ensure_ascii=True, sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


SPACE = " "


@dataclass(frozen=True, kw_only=True)
class CharacterVocabulary(Vocabulary):
    """One token per character; decoding is exact for all characters of the vocabulary."""

    separator: ClassVar[str] = SPACE  # of words; always in the vocabulary

    @classmethod
    def learn(cls, lines: Sequence[str], config: VocabularyConfig) -> Self:
        """Learn the most frequent symbols of cleaned lines, all of them if there is room."""
        counts = Counter({cls.separator: 0})
        for line in lines:
            counts.update(cls.symbols(line, config))
        room = config.size - len(SPECIALS)
        ranked = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))
        note, rare = "", len(ranked) - room
        if rare < 0:
            note = f"size {config.size} was asked for, but the text has {len(ranked)} {config.kind}"
        elif rare > 0:
            note = f"the {rare} rarest {config.kind} are unknown: size {config.size} is too few"
        return cls(config=config, pieces=(*SPECIALS, *ranked[:room]), note=note)

    @staticmethod
    def symbols(text: str, config: VocabularyConfig) -> Sequence[str]:
        """Return the tokens of a text."""
        return text

    def decode(self, ids: Iterable[int]) -> str:
        """Join the characters, single-spaced."""
        return " ".join("".join(self.spell(ids)).split())

    def _encode(self, text: str) -> list[int]:
        return [self.ids.get(symbol, UNK) for symbol in self.symbols(text, self.config)]


@dataclass(frozen=True, kw_only=True)
class PhonemeVocabulary(CharacterVocabulary):
    """One token per phoneme, and `|` between words.

    `encode` runs eSpeak NG; `decode` gives the phoneme string, not the text it came from.
    """

    separator: ClassVar[str] = WORD_END
    word_separator: ClassVar[str] = f" {WORD_END} "

    @staticmethod
    def symbols(text: str, config: VocabularyConfig) -> Sequence[str]:
        """Return the phonemes of a text."""
        return phonemize(text, config.language).split()

    def decode(self, ids: Iterable[int]) -> str:
        """Return phonemes separated by spaces, and `|` between words."""
        words = " ".join(self.spell(ids)).split(WORD_END)
        return self.word_separator.join(word.strip() for word in words if word.strip())


WORD_START = "▁"


@dataclass(frozen=True, kw_only=True)
class SentencePieceVocabulary(Vocabulary):
    """Tokens learned from raw text; decoding is exact for all characters of the vocabulary."""

    model: bytes = field(repr=False)

    @classmethod
    def learn(cls, lines: Sequence[str], config: VocabularyConfig) -> Self:
        """Learn from clean lines. A small corpus may give fewer tokens than asked: see `note`."""
        model = _train(lines, config)
        pieces = _pieces(SentencePieceProcessor(model_proto=model))
        return cls(config=config, pieces=pieces, note=_size_note(pieces, config), model=model)

    @classmethod
    def restore(cls, content: Mapping[str, Any]) -> Self:
        """Build the vocabulary that a file's content describes."""
        model = base64.b64decode(content["model"], validate=True)
        vocabulary = super().restore({**content, "model": model})
        if _pieces(vocabulary._processor) != vocabulary.pieces:
            raise ValueError("the pieces are not those of the model")
        return vocabulary

    def content(self) -> dict[str, Any]:
        """Return the file's content: the tokens to read, the model for SentencePiece."""
        return super().content() | {"model": base64.b64encode(self.model).decode("ascii")}

    def decode(self, ids: Iterable[int]) -> str:
        """Join the tokens, with spaces for `▁`."""
        return " ".join("".join(self.spell(ids)).replace(WORD_START, " ").split())

    def _encode(self, text: str) -> list[int]:
        return self._processor.encode(text)

    @cached_property
    def _processor(self) -> SentencePieceProcessor:
        return SentencePieceProcessor(model_proto=self.model)


def _size_note(pieces: Sequence[str], config: VocabularyConfig) -> str:
    if len(pieces) == config.size:
        return ""
    return f"size {config.size} was asked for, but the text carries {len(pieces)} pieces"


def _train(lines: Sequence[str], config: VocabularyConfig) -> bytes:
    """Train the model and return its bytes; the text is clean, so nothing is normalised."""
    alphabet = set("".join(lines)) - {" "} | {WORD_START}
    if config.size < len(SPECIALS) + len(alphabet):
        raise VocabularyError(
            f"size is {config.size}, but the text has {len(alphabet)} different characters: ask for"
            f" at least {len(SPECIALS) + len(alphabet)}, or clean the text."
        )
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=_once(lines),
        model_writer=model,
        model_type=config.kind,
        vocab_size=config.size,
        hard_vocab_limit=False,  # fewer pieces rather than an error
        character_coverage=1.0,
        normalization_rule_name="identity",
        max_sentence_length=2**30,  # in bytes; longer lines would be skipped in silence
        num_threads=1,  # the number of threads is written into the model
        minloglevel=2,
        pad_id=PAD,
        bos_id=BOS,
        eos_id=EOS,
        unk_id=UNK,
    )
    return model.getvalue()


def _once(lines: Iterable[str]) -> Iterator[str]:
    """Drop passages that occurred before, line for line, as in an augmented corpus.

    SentencePiece looks for repeats across lines and takes the square of their length.
    """
    known: set[tuple[str, str]] = set()
    for pair in pairwise(chain([""], lines)):
        if pair not in known:
            known.add(pair)
            yield pair[1]


def _pieces(processor: SentencePieceProcessor) -> tuple[str, ...]:
    return tuple(processor.id_to_piece(i) for i in range(processor.get_piece_size()))


CONTINUES = "@@"
_END = "</w>"


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
        characters = [form for c in alphabet for form in (c, c + CONTINUES)]
        left = dict.fromkeys([*characters, *map(_merged, merges)])  # what merges can leave, once
        pieces = (*SPECIALS, *left)
        return cls(config=config, pieces=pieces, note=_size_note(pieces, config), merges=merges)

    @classmethod
    def restore(cls, content: Mapping[str, Any]) -> Self:
        """Build the vocabulary that a file's content describes."""
        merges = tuple(content["merges"])
        if not all(len(merge.split(" ")) == 2 for merge in merges):
            raise ValueError("a merge does not have two parts")
        return super().restore({**content, "merges": merges})

    def content(self) -> dict[str, Any]:
        return super().content() | {"merges": list(self.merges)}

    def decode(self, ids: Iterable[int]) -> str:
        """Return detokenised text; an unfinished last token is returned as far as it goes."""
        pieces = (piece if piece.endswith(CONTINUES) else f"{piece} " for piece in self.spell(ids))
        tokens = "".join(piece.removesuffix(CONTINUES) for piece in pieces).split()
        return moses.detokenise(tokens, self.config.language)

    def _encode(self, text: str) -> list[int]:
        tokens = moses.tokenise(text, self.config.language)
        return [self.ids.get(piece, UNK) for piece in self._bpe.segment_tokens(tokens)]

    @cached_property
    def _bpe(self) -> BPE:
        merges = self.merges or (f"{_END} {_END}",)  # one that is never met: none is refused
        return BPE(io.StringIO("\n".join(["#version: 0.2", *merges])))


def _learn_merges(words: Counter[str], room: int) -> tuple[str, ...]:
    """Learn the most frequent merges of pairs seen at least twice that make at most `room` tokens.

    Two merges may make the same piece (ab+c, a+bc), so a few more are learned than there is room.
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


def _merged(merge: str) -> str:
    """Return the token that a merge makes. One that reaches the end of its word has no `@@`."""
    piece = merge.replace(" ", "")
    return piece.removesuffix(_END) if piece.endswith(_END) else piece + CONTINUES


SOURCE_FILE, TARGET_FILE = "vocab.source.json", "vocab.target.json"  # beside a model
_CLASSES = {
    "unigram": SentencePieceVocabulary,
    "bpe": SentencePieceVocabulary,
    "subword_nmt": SubwordNmtVocabulary,
    "characters": CharacterVocabulary,
    "phonemes": PhonemeVocabulary,
}


def learn(texts: Iterable[str], config: VocabularyConfig) -> Vocabulary:
    """Learn a vocabulary from lines of text: the same lines give the same vocabulary.

    A corpus too small for the size asked gives the largest vocabulary it can; `note` says so.
    """
    if isinstance(texts, str):
        raise VocabularyError("texts is one string; give a list of lines.")
    lines = [line for text in texts if (line := prepare(text, config))]
    if not lines:
        raise VocabularyError("There is no text to learn from: no lines, or only blank ones.")
    return _CLASSES[config.kind].learn(lines, config)


def load(path: Path) -> Vocabulary:
    """Load the vocabulary from a file that `save` wrote."""
    content = read_content(path)
    try:
        config = VocabularyConfig(**content["config"])
        return _CLASSES[config.kind].restore(content)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise VocabularyError(f"{path} does not hold a usable vocabulary: {error}") from error
