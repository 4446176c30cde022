"""Parse and unpack what others wrote; every fault is a `ParseError` that says what it is."""

import gzip
import io
import json
import lzma
import os
import zipfile
import zlib
from typing import IO, Any, cast

from simuljax.errors import SimuljaxError

LONGEST = 300  # digits of an integer
DEEPEST = 64  # lists and objects inside each other in a YAML file
LARGEST, GREATEST_RATIO = 1 << 26, 100  # bytes of any file, and more for each compressed byte
DICTIONARY = 1 << 27  # bytes that the decoder of xz may take; `xz -9` needs half of it


class ParseError(SimuljaxError):
    """A text that is not what it should be."""


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text."""
    try:
        return json.loads(text, parse_int=_integer)
    except RecursionError:
        raise ParseError("not JSON that can be read: nested too deeply") from None
    except ValueError as error:  # UnicodeDecodeError too
        raise ParseError(f"not JSON ({error})") from None


def _integer(digits: str) -> int:
    """Return an integer that fits into a float."""
    if len(digits) > LONGEST:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)


def parse_yaml(text: str) -> Any:
    """Return the value of a YAML text of plain types, without aliases.

    The parser recurses in C and overflows the stack on deep nesting. Its events come first, which
    it reads without recursion.
    """
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        depth = 0
        for event in yaml.parse(text, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise ParseError(f"not YAML that can be read: nested deeper than {DEEPEST}")
            if isinstance(event, yaml.AliasEvent):
                raise ParseError("not YAML that can be read: it has aliases; write values out")
        return yaml.load(text, Loader=loader)
    except ParseError:
        raise
    except (yaml.YAMLError, ValueError) as error:  # a date that does not exist is a ValueError
        problem = " ".join(str(error).replace('in "<unicode string>", ', "at ").split())
        raise ParseError(f"not YAML: {problem}") from None


def check_expansion(size: int, packed: int) -> None:
    """Raise ParseError if so many compressed bytes may not become as many as `size`."""
    most = LARGEST + GREATEST_RATIO * packed
    if size > most:
        raise ParseError(
            f"{packed:,} compressed bytes expand to more than {most >> 20} MiB; unpack it first"
        )


class BoundedReader(io.RawIOBase):
    """Decompressed bytes of a stream; refuses more than `packed` compressed bytes may become."""

    def __init__(self, stream: Any, packed: int):
        self.stream, self.packed, self.count = stream, packed, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.stream.read(len(buffer))
        self.count += len(data)
        check_expansion(self.count, self.packed)
        buffer[: len(data)] = data
        return len(data)


def open_member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """Open a file of a zip archive; KeyError if it has none of that name.

    Python bounds what it unpacks at once for the usual compression only.
    """
    member, file = archive.getinfo(name), cast(IO[bytes], archive.fp)  # which is open
    size = os.fstat(file.fileno()).st_size
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ParseError(f"{name} is compressed in an unusual way; unpack it first")
    check_expansion(member.file_size, min(member.compress_size, size))
    return archive.open(member)


def unpack_gzip(data: bytes) -> bytes:
    """Return what a gzip file holds."""
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
        try:
            return io.BufferedReader(BoundedReader(packed, len(data))).read()
        except (EOFError, OSError, zlib.error) as error:
            raise ParseError(f"the gzip file is damaged ({error})") from None


def unpack_xz(data: bytes) -> bytes:
    """Return what an xz file of one stream holds."""
    decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=DICTIONARY)
    try:
        held = decoder.decompress(data, LARGEST + GREATEST_RATIO * len(data) + 1)
    except lzma.LZMAError as error:
        raise ParseError(f"the xz file is damaged ({error})") from None
    check_expansion(len(held), len(data))
    if not decoder.eof:
        raise ParseError("the xz file is cut off")
    return held
