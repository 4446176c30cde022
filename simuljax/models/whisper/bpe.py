"""Byte pairs as GPT-2 merges them: text to pieces, pieces to ids, by the ranks of a vocabulary.

A piece is a contraction ('s 't 're 've 'm 'll 'd), or letters, digits or other signs with a space
before them if there is one, or white space; the last white space before a sign stays with it.
Within a piece, the two neighbours whose union has the lowest rank become one, until none has any.
"""

import base64
import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path

import regex

_PIECE = regex.compile(r"'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


def pieces(text: str) -> list[str]:
    """Split a text into the parts that are merged separately."""
    return _PIECE.findall(text)


def encode(text: str, ranks: Mapping[bytes, int]) -> list[int]:
    """The ids of a text."""
    return [i for piece in pieces(text) for i in _merge(piece.encode("utf-8"), ranks)]


def _merge(piece: bytes, ranks: Mapping[bytes, int]) -> list[int]:
    if piece in ranks:
        return [ranks[piece]]
    parts = [piece[k : k + 1] for k in range(len(piece))]
    while len(parts) > 1:
        unions = [ranks.get(a + b) for a, b in itertools.pairwise(parts)]
        best = min((rank for rank in unions if rank is not None), default=None)
        if best is None:
            break
        k = unions.index(best)
        parts[k : k + 2] = [parts[k] + parts[k + 1]]
    return [ranks[part] for part in parts]


def read_tiktoken(path: Path) -> list[bytes]:
    """Tokens in the order of their ids, from lines of `base64 rank`."""
    ranks: dict[int, bytes] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.strip():
            try:
                token, rank = line.split()
                empty = token == b"="  # the one token without bytes; nothing is spelt with it
                ranks[int(rank)] = b"" if empty else base64.b64decode(token, validate=True)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {line!r} is not `base64 rank`") from error
    return _in_order(ranks, path)


def read_tokenizer_json(path: Path) -> list[bytes]:
    """The same from Hugging Face's `tokenizer.json` or `vocab.json`."""
    document = json.loads(path.read_bytes())
    vocabulary = document["model"]["vocab"] if "model" in document else document
    special = re.compile(r"<\|.*\|>")
    spelt = {i: token for token, i in vocabulary.items() if not special.fullmatch(token)}
    return _in_order({i: _bytes(token) for i, token in spelt.items()}, path)


def _in_order(ranks: Mapping[int, bytes], path: Path) -> list[bytes]:
    missing = set(range(len(ranks))) - ranks.keys()
    if missing or len(ranks) < 256:
        raise ValueError(f"{path} is not a whole vocabulary: {len(ranks)} ids, without {missing}")
    return [ranks[i] for i in range(len(ranks))]


def _bytes(token: str) -> bytes:
    return bytes(_BYTES[character] for character in token)


def _byte_characters() -> dict[str, int]:
    """GPT-2 writes a byte as itself where Latin-1 prints it, others from U+0100 on, in order."""
    printed = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printed]
    shown = {chr(byte): byte for byte in printed}
    return shown | {chr(0x100 + k): byte for k, byte in enumerate(others)}


_BYTES = _byte_characters()
