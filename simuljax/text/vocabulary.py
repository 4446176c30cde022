"""Learn a vocabulary from text, or load one from a file."""

from collections.abc import Iterable
from pathlib import Path
from typing import assert_never

from simuljax.text import files
from simuljax.text.base import Kind, Vocabulary, VocabularyConfig, prepare
from simuljax.text.character_vocabulary import CharacterVocabulary
from simuljax.text.errors import VocabularyError
from simuljax.text.phoneme_vocabulary import PhonemeVocabulary
from simuljax.text.sentencepiece_vocabulary import SentencePieceVocabulary
from simuljax.text.subword_nmt_vocabulary import SubwordNmtVocabulary

__all__ = ["SOURCE_FILE", "TARGET_FILE", "Vocabulary", "VocabularyConfig", "learn", "load"]

SOURCE_FILE, TARGET_FILE = "vocab.source.json", "vocab.target.json"  # beside a model


def learn(texts: Iterable[str], config: VocabularyConfig) -> Vocabulary:
    """Learn a vocabulary from lines of text: the same lines give the same vocabulary.

    A corpus too small for the size asked gives the largest vocabulary it can; `note` says so.
    """
    if isinstance(texts, str):
        raise VocabularyError("texts is one string; give a list of lines.")
    lines = [line for text in texts if (line := prepare(text, config))]
    if not lines:
        raise VocabularyError("There is no text to learn from: no lines, or only blank ones.")
    return _class_of(config.kind).learn(lines, config)


def load(path: str | Path) -> Vocabulary:
    """Load the vocabulary from a file that `save` wrote; `path` with or without `.json`."""
    path = files.path_of(path)
    content = files.read(path)
    try:
        config = VocabularyConfig(**content["config"])
        return _class_of(config.kind).restore(content)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise VocabularyError(f"{path} does not hold a usable vocabulary: {error}") from error


def _class_of(
    kind: Kind,
) -> type[SentencePieceVocabulary | SubwordNmtVocabulary | CharacterVocabulary | PhonemeVocabulary]:
    match kind:
        case "unigram" | "bpe":
            return SentencePieceVocabulary
        case "subword_nmt":
            return SubwordNmtVocabulary
        case "characters":
            return CharacterVocabulary
        case "phonemes":
            return PhonemeVocabulary
        case _:
            assert_never(kind)
