"""Unigram and BPE vocabularies by SentencePiece (Kudo and Richardson 2018).

A piece that begins a word begins with `▁`, so a word is known to be over when the next one begins.
"""

import base64
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, Self

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from simuljax.text.base import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary, VocabularyConfig
from simuljax.text.errors import VocabularyError

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
        note = ""
        if len(pieces) < config.size:
            note = f"size {config.size} was asked for, but the text carries {len(pieces)} pieces"
        return cls(config=config, pieces=pieces, note=note, model=model)

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
