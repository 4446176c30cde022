"""Damage to files: of bytes, of lines, and of the values in JSON."""

import json
import random
from typing import Any

ODD = (  # values that a reader has to refuse, or to live with
    *(None, True, -1, 0, 2**31, 2**63, 10**400, 1e308, -0.5, float("nan"), float("inf")),
    *("", "x", "\0", "../../etc/passwd", "\ud800", "9" * 5000, [], {}, [[]], [1, "a"], {"a": 1}),
)
PIECES = (  # bytes that mean something somewhere
    *(b"", b"\0", b"\xff" * 8, b"-1", b"9" * 5000, b"NaN", b"null", b"1e999", b"[" * 5000),
    *(b"{", b'"', b"\n", b"\t", b"\r\n", b"&a ", b"*a", b"- ", b": ", b"\xef\xbb\xbf"),
    *(b"\xe2\x80\xa8", b"../", b"</doc>", b"\x7f\xff\xff\xff", b"999999999", b"r\xff\xff\xff\x7f"),
)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Return the data with one to four faults."""
    for _ in range(rng.randint(1, 4)):
        data = rng.choice((_flip, _cut, _replace, _repeat, _number, _value, _value))(data, rng)
    return data


def _flip(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 4, 16))):
        changed[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(changed)


def _cut(data: bytes, rng: random.Random) -> bytes:
    start, end = sorted(rng.randint(0, len(data)) for _ in range(2))
    return rng.choice((data[:start], data[:start] + data[end:], data[end:]))


def _replace(data: bytes, rng: random.Random) -> bytes:
    start = rng.randint(0, len(data))
    end = min(len(data), start + rng.choice((0, 1, 4, 8)))
    return data[:start] + rng.choice(PIECES) + data[end:]


def _repeat(data: bytes, rng: random.Random) -> bytes:
    start, end = sorted(rng.randint(0, len(data)) for _ in range(2))
    return data[:end] + data[start : min(end, start + 10_000)] + data[end:]


def _number(data: bytes, rng: random.Random) -> bytes:
    """Overwrite four or eight bytes, near the beginning more often, with an extreme number."""
    size, near = rng.choice((4, 8)), rng.choice((64, 512, len(data)))
    start = rng.randint(0, max(0, min(near, len(data)) - size))
    number = rng.choice((0, 1, 2 ** (8 * size) - 1, 2 ** (8 * size - 1), rng.getrandbits(8 * size)))
    return (
        data[:start] + number.to_bytes(size, rng.choice(("little", "big"))) + data[start + size :]
    )


def _value(data: bytes, rng: random.Random) -> bytes:
    """Replace a value of a JSON text, or of one of its lines; other data is cut at random."""
    lines = data.split(b"\n")
    place = rng.randrange(len(lines))
    for before, text, after in ((b"", data, b""), (None, lines[place], None)):
        try:
            held = _spoil(json.loads(text), rng)
            text = json.dumps(held).encode()
        except (ValueError, RecursionError):
            continue
        if before is None or after is None:
            return b"\n".join([*lines[:place], text, *lines[place + 1 :]])
        return text
    return _flip(data, rng)


def _spoil(value: Any, rng: random.Random) -> Any:
    """Return the value with one part replaced, removed or renamed."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.1:
        return rng.choice(ODD)
    if isinstance(value, list):
        place = rng.randrange(len(value))
        return [*value[:place], _spoil(value[place], rng), *value[place + 1 :]]
    key = rng.choice([*value])
    kept = {name: part for name, part in value.items() if name != key}
    change = rng.random()
    if change < 0.1:
        return kept
    return kept | {"other" if change < 0.2 else key: _spoil(value[key], rng)}
