"""The base class of all vocabularies: ids, configuration, file."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from simuljax.config.fields import check, setting
from simuljax.text import files
from simuljax.text.errors import VocabularyError
from simuljax.text.normalise import clean

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
        """Return the kind of vocabulary."""
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
        return cls(**_fields(content))

    def content(self) -> dict[str, Any]:
        """Return the content of the vocabulary's file."""
        return {"config": asdict(self.config), "pieces": list(self.pieces), "note": self.note}

    def save(self, path_prefix: str | Path) -> Path:
        """Write `path_prefix.json`, which is all that `load` needs, and return its path."""
        path = files.path_of(path_prefix)
        files.write(path, self.content())
        return path

    def spell(self, ids: Iterable[int]) -> Iterator[str]:
        """Return the tokens of the ids; unknown shows as ⁇, other special tokens are left out."""
        for i in map(int, ids):
            self.check(i)
            if i >= UNK:
                yield UNKNOWN if i == UNK else self.pieces[i]

    def check(self, i: int) -> None:
        """Check that an id belongs to this vocabulary."""
        if not 0 <= i < self.size:
            raise VocabularyError(f"id {i} is outside this vocabulary of {self.size} pieces.")

    @cached_property
    def ids(self) -> dict[str, int]:
        """Map each ordinary token to its id (a text may contain the letters `<s>`)."""
        return {self.pieces[i]: i for i in range(len(SPECIALS), self.size)}


def prepare(text: str, config: VocabularyConfig) -> str:
    """Normalise a text as this vocabulary reads it."""
    return clean(text.lower() if config.lowercase else text)


def _fields(content: Mapping[str, Any]) -> dict[str, Any]:
    config = VocabularyConfig(**content["config"])
    pieces = tuple(content["pieces"])
    if pieces[: len(SPECIALS)] != SPECIALS or not all(isinstance(p, str) for p in pieces):
        raise ValueError("the pieces do not begin with the four special ones")
    return dict(content) | {"config": config, "pieces": pieces}
