"""A damaged file is read or refused with a sentence, whichever reader gets it."""

import gzip
import io
import json
import lzma
import pickle
import struct
import tarfile
import time
import zipfile
import zlib

import numpy as np
import pytest

from data_pipelines.corpora import Manifest
from simuljax.errors import SimuljaxError
from tests.fuzz.readers import READERS, ROW, TENSORS
from tests.fuzz.run import inputs, read
from tests.models.whisper.small import ggml_bytes, torch_bytes

COUNT = 30  # damaged files a reader, fewer where each is slow; `make fuzz` reads for minutes
SLOW = ("dataset_info.json", "features of a corpus", "records")


@pytest.mark.parametrize("name", READERS)
def test_no_damage_ends_in_a_traceback(name, tmp_path):
    good, *damaged = inputs(name, seed=1, count=COUNT // 4 if name in SLOW else COUNT)
    assert read(name, tmp_path, good) == "read"
    outcomes = {read(name, tmp_path, data) for data in damaged}
    assert "refused" in outcomes


def safetensors(**entries: object) -> bytes:
    header = json.dumps(entries).encode()
    return struct.pack("<Q", len(header)) + header + bytes(16)


def entry(start: object, end: object, shape: object = (2,)) -> dict[str, object]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}


WHOLE = {"dtype": "I8", "shape": [3], "data_offsets": [8, 11]}


def pt(program: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a/data.pkl", program)
    return out.getvalue()


def alias_bomb() -> bytes:
    lines = ["- &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"- &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]" for i in range(12)]
    return "\n".join(lines).encode()


def ggml_with(name: str, *shape: int) -> bytes:
    return ggml_bytes(TENSORS() | {name: np.zeros(shape, np.float32)})


def entity_bomb() -> bytes:
    kinds = "".join(f'<!ENTITY a{i + 1} "{f"&a{i};" * 10}">' for i in range(9))
    return f'<!DOCTYPE d [<!ENTITY a0 "x">{kinds}]><d>&a9;</d>'.encode()


def archive(data: bytes, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as packed:
        packed.writestr("deu.txt", data)
    return out.getvalue()


def large_dictionary() -> bytes:
    """An xz file whose decoder would take 4 GiB."""
    data = bytearray(lzma.compress(b"x", preset=0))
    header = slice(12, 12 + 4 * (data[12] + 1))  # of the first block; its end is a checksum
    data[data.index(b"\x21\x01", 12) + 2] = 40
    data[header.stop - 4 : header.stop] = struct.pack("<I", zlib.crc32(data[12 : header.stop - 4]))
    return bytes(data)


def tar(size: int, kind: bytes = tarfile.REGTYPE, count: int = 1) -> bytes:
    """An archive whose headers state a size; nothing follows them."""
    member = tarfile.TarInfo("a")
    member.size, member.type = size, kind
    return lzma.compress(member.tobuf(tarfile.GNU_FORMAT) * count)


ZEROS = bytes(80_000_000)
GZIPPED = gzip.compress(ZEROS)
DEEP, DIGITS = b"[" * 100_000, b"9" * 5000
TABLE = READERS["table of contents"].good().replace(b"100", b"abc")
PACKED = torch_bytes(TENSORS(), compression=zipfile.ZIP_DEFLATED)
DTYPE = pt(b"\x80\x02ctorch\nFloatStorage\n(K\x03tb.")
BAD = {  # reader, bytes, and a fact that the sentence names
    "JSON 100,000 deep": ("log", DEEP, "line 1: not JSON that can be read: nested"),
    "an integer of 5,000 digits": ("log", b'{"source_length":' + DIGITS + b"}", "5000 digits"),
    "an integer beyond floats": ("log", b'{"delays":[],"source_length":1%0400d}' % 0, "401 digits"),
    "a source of 95,000 years": ("log", b'{"delays":[],"source_length":3e15}', "3000000000000000"),
    "a log that expands": ("log.gz", GZIPPED, "expand to more than"),
    "a text that expands": ("text.gz", GZIPPED, "expand to more than"),
    "a table that expands": ("table.zip", archive(ZEROS), "expand to more than"),
    "a table in bzip2": ("table.zip", archive(b"a", zipfile.ZIP_BZIP2), "an unusual way"),
    "logs that expand": ("logs.tar.xz", lzma.compress(ZEROS, preset=0), "expand to more than"),
    "a dictionary of 4 GiB": ("logs.tar.xz", large_dictionary(), "xz file is damaged"),
    "a member beyond the archive": ("logs.tar.xz", tar(1 << 40), "is damaged"),
    "a member of negative size": ("logs.tar.xz", tar(-1024), "is damaged"),
    "10,000 long names": ("logs.tar.xz", tar(0, tarfile.GNUTYPE_LONGNAME, 10_000), "is damaged"),
    "XML with entities": ("wmt.xml", entity_bomb(), "not XML"),
    "YAML 100,000 deep": ("times of segments", DEEP, "nested deeper"),
    "YAML 100,000 blocks": ("times of segments", b"- " * 100_000, "nested deeper"),
    "YAML with aliases": ("times of segments", alias_bomb(), "aliases"),
    "segments 100,000 deep": ("segments.yaml", b"- " + DEEP, "nested deeper"),
    "segments with aliases": ("segments.yaml", alias_bomb(), "aliases"),
    "config 100,000 deep": ("config.json", DEEP, "config.json is damaged"),
    "config of a list": ("config.json", b"[]", "it must hold an object"),
    "summary of a list": ("summary.json", b"[]", "it must hold an object"),
    "summary without splits": ("summary.json", b"{}", "'preparation' must be an object"),
    "corpus.json cut": ("corpus.json", b'{"train": "a', "corpus.json is damaged"),
    "table without numbers": ("table of contents", TABLE, "not a whole table"),
    "metrics cut in the middle": ("metrics.jsonl", b'{"step": 1}\n{"st\n{"step": 3}\n', "line 2"),
    "tokenizer without a vocabulary": ("tokenizer.json", b'{"model": 3}', "not a vocabulary"),
    "tokenizer cut": ("tokenizer.json", b'{"model": {"vo', "tokenizer.json is damaged"),
    "tiktoken with text": ("tiktoken", b"hello world again\n", "line 1"),
    "heads of a text": ("generation_config", b'{"alignment_heads": "ab"}', "is damaged"),
    "languages of text": ("generation_config", b'{"is_multilingual": "no"}', "is_multilingual"),
    "heads beyond the model": ("generation_config", b'{"alignment_heads": [[9, 0]]}', "lacks"),
    "block 999999999": ("ggml", ggml_with("decoder.blocks.999999999.x", 4), "up to 999999999"),
    "an empty tensor": ("ggml", ggml_with("x", 9, 0), "x is empty"),
    "an empty bias": ("ggml", ggml_with("x.bias", 9, 0), "x.bias is empty"),
    "decoding of a list": ("decoding.json", b'[[1, "a"]]', "must hold an object"),
    "decoding by a program": ("decoding.json", b'{"policy": "a.py:Policy"}', "a.py:Policy"),
    "LONG_BINPUT": ("pt", pt(b"\x80\x02}r\xff\xff\xff\x7f."), "these are not weights"),
    "BYTEARRAY8": ("pt", pt(b"\x80\x05\x96" + b"\xff" * 7 + b"\x0f."), "cannot be read"),
    "state of a dtype": ("pt", DTYPE, "these are not weights"),
    "a compressed pickle": ("pt", PACKED, "is compressed"),
    "another class": ("pt", pt(pickle.dumps(print)), "builtins.print"),
    "negative offsets": ("safetensors", safetensors(a=entry(-8, 0)), "not a tensor"),
    "offsets of fractions": ("safetensors", safetensors(a=entry(0.0, 8.0)), "not a tensor"),
    "sizes of text": ("safetensors", safetensors(a=entry(0, 8, ["x" * 9, 2**31])), "not a tensor"),
    "negative sizes": ("safetensors", safetensors(a=entry(0, 8, [-1, -2])), "not a tensor"),
    "int8 without a scale": ("safetensors", safetensors(a=WHOLE), "'a' is of whole numbers"),
    "a scale too many": ("safetensors", safetensors(**{"a:scale": entry(0, 8)}), "scale of no"),
    "a scale too wide": (
        "safetensors",
        safetensors(**{"a": WHOLE, "a:scale": entry(0, 8)}),
        "'a:scale' (2,) is the scale of no",
    ),
    "weights that expand": ("safetensors.gz", GZIPPED, "expand to more than"),
    "overlap": ("safetensors", safetensors(a=entry(0, 8), b=entry(4, 12)), "'a' and 'b' overlap"),
    "offsets beyond the file": ("safetensors", safetensors(a=entry(2**62, 2**62 + 8)), "ends"),
    "header of 2^64 bytes": ("safetensors", b"\xff" * 8 + b"{", "the header"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_file_made_to_hurt_is_refused_with_a_sentence(case, tmp_path):
    name, data, fact = BAD[case]
    path = tmp_path / READERS[name].file
    path.write_bytes(data)
    started = time.monotonic()
    with pytest.raises(SimuljaxError) as caught:
        READERS[name].read(path)
    assert fact in str(caught.value) and len(str(caught.value)) < 600
    assert time.monotonic() - started < 10


def test_a_broken_row_of_a_manifest_is_skipped_and_counted(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_bytes(DEEP + b"\n" + json.dumps(ROW).encode())
    with pytest.raises(SimuljaxError, match="1 x malformed row, 1 x missing audio file"):
        Manifest().read(tmp_path)
