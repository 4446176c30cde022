"""Every reader of files that others may have written: good files, and how they are read."""

import base64
import contextlib
import functools
import gzip
import hashlib
import io
import json
import lzma
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import soundfile

from data_pipelines import dataset
from data_pipelines.corpora import Manifest, ParallelText, Tsv
from data_pipelines.corpora.segments import read_yaml
from simuljax.audio import Features, read_audio
from simuljax.audio.features import load_features
from simuljax.config.decoding import Decoding
from simuljax.config.experiment import read_experiment
from simuljax.config.fields import read_object, to_json
from simuljax.config.options import to_options
from simuljax.errors import SimuljaxError
from simuljax.eval.logs import NAME, as_records, find_faults, read_archive, read_records
from simuljax.eval.long_form import read_segments
from simuljax.eval.scores import build_report
from simuljax.models.fairseq import load_fairseq
from simuljax.models.tensor_file import (
    digest,
    packed,
    quantise,
    read_params,
    read_tensors,
    write_params,
    write_tensors,
)
from simuljax.models.whisper.config import Dimensions
from simuljax.models.whisper.tokenizer import _byte_characters, read_tiktoken, read_tokenizer_json
from simuljax.models.whisper.weights import _generation, dimensions_of, read_checkpoint
from simuljax.report.results import curves_of
from simuljax.text import load
from simuljax.text.vocabulary import VocabularyConfig, learn, read_content, write_content
from simuljax.train.checkpoint import SEAL, damage
from simuljax.train.run import read_decoding
from simuljax.train.run_log import repair
from tests.eval.logs import made_up
from tests.helpers.corpora import finished, python, tree, write_hums
from tests.helpers.experiments import experiment
from tests.models.whisper.small import (
    Call,
    Global,
    ggml_bytes,
    random_tensors,
    safetensors_bytes,
    torch_bytes,
)

SIZES = Dimensions(
    width=64, audio_layers=1, text_layers=1, vocabulary=12, mels=4, audio_positions=6,
    text_positions=5,
)  # fmt: skip


class Reader(NamedTuple):
    """The name of a file, its bytes as they should be, and the function that reads its path."""

    file: str
    good: Callable[[], bytes]
    read: Callable[[Path], object]


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _lines(*values: Any) -> bytes:
    return b"".join(_json(value) + b"\n" for value in values)


def _sound(form: str) -> bytes:
    out, tone = io.BytesIO(), np.sin(np.arange(4_000) / 9).astype(np.float32) / 2
    soundfile.write(out, tone, 8_000, format=form.upper())
    return out.getvalue()


def _zip(name: str, data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return out.getvalue()


def _tar(data: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo(f"r/e/{NAME}")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def _score(path: Path) -> None:
    records = as_records(read_records(path))
    find_faults(records)
    build_report(records)


def _archive(path: Path) -> None:
    read_archive.__wrapped__(path)  # without its cache


def _packed_archive(path: Path) -> None:
    """Read an archive that was damaged before it was compressed."""
    path.write_bytes(lzma.compress(path.read_bytes(), preset=0))
    _archive(path)


def _weights(path: Path) -> None:
    checkpoint = read_checkpoint(path)
    dimensions_of(checkpoint)
    for tensor in checkpoint.tensors.values():
        tensor.tobytes()


def _whole_numbers() -> bytes:
    stored = {}
    for name, tensor in TENSORS().items():
        matrix = tensor.ndim > 1
        stored |= quantise(name, tensor, 1, 63) if matrix else {name: tensor}
    with tempfile.TemporaryDirectory() as folder:
        write_tensors(path := Path(folder) / "a", stored, {})
        return path.read_bytes()


def _fairseq() -> bytes:
    return torch_bytes(
        {name: np.ones((3, 2), np.float32) for name in FAIRSEQ},
        entry="model",
        extra={"args": Call(Global("argparse", "Namespace"))},
    )


def _pickled(archive: bytes) -> bytes:
    return zipfile.ZipFile(io.BytesIO(archive)).read(PICKLE)


def _resealed(path: Path, archive: bytes) -> Path:
    """Write a .pt file with another pickle, whose checksum is right."""
    old, out = zipfile.ZipFile(io.BytesIO(archive)), path.with_name("a.pt")
    with zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            new.writestr(name, path.read_bytes() if name == PICKLE else old.read(name))
    return out


def _exported() -> bytes:
    state = {"params": {"a": {"kernel": np.ones((3, 2)), "bias": np.ones(2)}}, "statistics": {}}
    with tempfile.TemporaryDirectory() as folder:
        write_params(path := Path(folder) / "params", state, (3,), "int8")
        return path.read_bytes()


def _times(path: Path) -> None:
    references = path.with_name("references")
    references.write_text("a\nb\n")
    read_segments(path, references)


def _manifest(path: Path) -> None:
    path.with_name("a.wav").touch()  # it is opened later
    Manifest().read(path.parent)


def _parallel(path: Path) -> None:
    path.with_name("train.de").write_text("ein Hund\nrennt\n")
    ParallelText().read(path.parent)


def _metrics(path: Path) -> None:
    curves_of(path.parent)
    repair(path, 2)


PREPARE = """
import sys
from pathlib import Path
from data_pipelines.corpora import Manifest
from data_pipelines.prepare import Preparation, prepare
prepare(Preparation(corpus=Manifest()), Path(sys.argv[1]), Path(sys.argv[2]), workers=1)
"""


@functools.cache
def _corpus() -> dict[str, bytes]:
    """Return the files of a prepared corpus of one utterance.

    Another process makes it: its threads would not survive the fork of a fuzzer.
    """
    with tempfile.TemporaryDirectory() as folder:
        hums = write_hums(Path(folder) / "hums", {"train": 1})
        finished(python(PREPARE, hums, Path(folder) / "corpus"))
        return tree(Path(folder) / "corpus")


def _in_corpus(file: str) -> Reader:
    """Return the reader of one file among the others of a corpus."""

    def read(path: Path) -> None:
        for name, data in _corpus().items():
            if name != file and not (path.parent / name).exists():
                (path.parent / name).write_bytes(data)
        corpus = dataset.open_corpus(path.parent)
        corpus["train"].read([0])

    return Reader(file, lambda: _corpus()[file], read)


def _vocabulary() -> bytes:
    config = VocabularyConfig(kind="characters", size=20)
    with tempfile.TemporaryDirectory() as folder:
        learn(["a few words", "and more"], config).save(Path(folder) / "vocab.json")
        return _json(read_content(Path(folder) / "vocab.json"))


def _resealed_vocabulary(path: Path) -> None:
    """Read content that was changed before its checksum was taken."""
    with contextlib.suppress(ValueError, RecursionError):
        write_content(path, json.loads(path.read_bytes()))
    load(path)


def _resealed_checkpoint(path: Path) -> None:
    body = path.read_bytes().rstrip(b"\n")
    digest = hashlib.sha256(body).hexdigest().encode()
    (path.parent / SEAL).write_bytes(digest + b"\n" + body + b"\n")
    problem = damage(path.parent, thorough=False)
    if problem and not problem.endswith("is missing") and "as step" not in problem:
        raise SimuljaxError(problem)


def _resealed_params(path: Path) -> None:
    """Read an export whose header was changed before its digest was taken."""
    text, numbers = path.read_bytes(), bytes(range(64))

    def write(header: bytes) -> None:
        path.write_bytes(len(header).to_bytes(8, "little") + header + numbers)

    write(text)
    tensors, told = read_tensors(path)
    header = json.loads(text)
    header["__metadata__"] = told | {"sha256": digest(tensors, str(told.get("steps")))}
    write(json.dumps(header).encode())
    read_params(path)


LOG = _lines(*made_up(0, count=3))
ROW = {"id": "a", "audio": "a.wav", "transcript": "one two", "translation": "eins zwei"}
ROW |= {"offset_s": 0.1, "duration_s": 0.5, "words": [["one", 0.1, 0.2], ["two", 0.3, 0.4]]}
TABLE = "\t".join(dataset.COLUMNS) + "\n" + "100\t2\t0\ta\ts\tone two\teins zwei\n"
ROWS = b"id\taudio\ttranscript\ttranslation\na\ta.wav\tone\teins\n" * 2
PAIRS = b"a dog\tein Hund\nruns\trennt\n" * 9
METRICS = [{"step": i, "time": 1.5, "values": {"loss": 2}} for i in range(3)]
BODY = {"step": 3, "score": 1.0, "files": {"a": [1, "x"]}, "arrays": {"b": [[1], "f"]}}
FEATURES = {"features": to_json(Features())}
FEATURES |= {"statistics": {"frames": 9, "mean": [0.0] * 80, "std": [1.0] * 80}}
TOKENIZER = {"model": {"vocab": _byte_characters()}}
FLOW = b"- {duration: 1.5, offset: 0.2, speaker_id: a, wav: a.wav}\n" * 2
BLOCK = b"- wav: a.wav\n  offset: 1\n  duration: 2.5\n" * 2
XML = (
    b'<dataset><doc id="1"><src lang="en"><p><seg id="1">a dog</seg></p></src>'
    b'<ref lang="de"><p><seg id="1">ein Hund</seg></p></ref></doc></dataset>'
)
SUMMARY = {
    "preparation": {"corpus": "manifest"},
    "splits": {"train": {"sentences": 3, "hours": 0.1, "speakers": 1, "timed_words": 0}},
    "skipped": {"too short": 1},
    "changed": {},
}
EXPORTED = {
    "params/a/kernel": {"dtype": "I8", "shape": [2, 3], "data_offsets": [16, 22]},
    "params/a/kernel:scale": {"dtype": "F32", "shape": [1, 3], "data_offsets": [0, 12]},
    "__metadata__": {"steps": "[3, 4]"},
}
FAIRSEQ = (
    *("decoder.embed_tokens.weight", "decoder.layers.0.fc1.weight"),
    *("decoder.layer_norm.weight", "decoder.output.weight"),
)
PICKLE = "archive/data.pkl"
HEADS = {"alignment_heads": [[0, 0]], "is_multilingual": False, "other": 1}
BYTES = [bytes([byte]) for byte in range(256)]


def _tiktoken() -> bytes:
    return b"".join(base64.b64encode(token) + b" %d\n" % i for i, token in enumerate(BYTES))


TENSORS = functools.cache(functools.partial(random_tensors, SIZES))

READERS = {
    "log": Reader("a.log", lambda: LOG, _score),
    "log.gz": Reader("a.log.gz", lambda: gzip.compress(LOG), _score),
    "logs.tar.xz": Reader("logs.tar.xz", lambda: lzma.compress(_tar(LOG), preset=0), _archive),
    "logs.tar": Reader("logs.tar.xz", lambda: _tar(LOG)[:4096], _packed_archive),
    "times of segments": Reader("times", lambda: BLOCK, _times),
    "segments.yaml": Reader("a.yaml", lambda: FLOW, read_yaml),
    "manifest.jsonl": Reader("train.jsonl", lambda: _lines(ROW, ROW | {"id": "b"}), _manifest),
    "manifest.tsv": Reader("train.tsv", lambda: ROWS, _manifest),
    "text.gz": Reader("train.en.gz", lambda: gzip.compress(b"a dog\nruns\n"), _parallel),
    "table.zip": Reader("pairs.zip", lambda: _zip("deu.txt", PAIRS), lambda path: Tsv().read(path)),
    "wmt.xml": Reader("test.en-de.xml", lambda: XML, lambda path: ParallelText().read(path.parent)),
    "ggml": Reader("ggml.bin", lambda: ggml_bytes(TENSORS()), _weights),
    "pt": Reader("a.pt", lambda: torch_bytes(TENSORS()), _weights),
    "fairseq": Reader("a.pt", _fairseq, lambda path: load_fairseq(path, {})),
    "pickle of fairseq": Reader(
        "data.pkl",
        lambda: _pickled(_fairseq()),
        lambda path: load_fairseq(_resealed(path, _fairseq()), {}),
    ),
    "pickle of pt": Reader(
        "data.pkl",
        lambda: _pickled(torch_bytes(TENSORS())),
        lambda path: _weights(_resealed(path, torch_bytes(TENSORS()))),
    ),
    "safetensors": Reader("a.safetensors", lambda: safetensors_bytes(TENSORS()), _weights),
    "safetensors of int7": Reader("a.safetensors", _whole_numbers, _weights),
    "safetensors.gz": Reader("a.safetensors.gz", lambda: packed(_whole_numbers()), _weights),
    "exported parameters": Reader("params.safetensors", _exported, lambda path: read_params(path)),
    "tokenizer.json": Reader("tokenizer.json", lambda: _json(TOKENIZER), read_tokenizer_json),
    "tiktoken": Reader("a.tiktoken", _tiktoken, read_tiktoken),
    "generation_config": Reader(
        "generation_config.json", lambda: _json(HEADS), lambda path: _generation(path, SIZES)
    ),
    "config.json": Reader(
        "config.json",
        lambda: _json(to_json(experiment(Path("corpus"), Path("run")))),
        lambda path: read_experiment(path.parent),
    ),
    "header of params": Reader("params.safetensors", lambda: _json(EXPORTED), _resealed_params),
    "decoding.json": Reader("decoding.json", lambda: _json(to_options(Decoding())), read_decoding),
    "vocabulary": Reader("vocab.json", _vocabulary, _resealed_vocabulary),
    "features of a run": Reader("features.json", lambda: _json(FEATURES), load_features),
    "metrics.jsonl": Reader("metrics.jsonl", lambda: _lines(*METRICS), _metrics),
    "results": Reader("a.json", lambda: _json({"BLEU": 1}), read_object),
    "summary.json": Reader(
        "summary.json",
        lambda: _json(SUMMARY),
        lambda path: dataset.describe(dataset.read_summary(path.parent)),
    ),
    "dataset_info.json": _in_corpus("dataset_info.json"),
    "features of a corpus": _in_corpus("features.json"),
    "records": _in_corpus("manifest-train.array_record-00000-of-00001"),
    "corpus.json": Reader(
        "corpus.json",
        lambda: _json({"train": "abc"}),
        lambda path: dataset.check_used_data(path.parent, {"train": (path, "train")}),
    ),
    "table of contents": Reader("train.tsv", TABLE.encode, lambda path: dataset.read_table(path)),
    "seal of a checkpoint": Reader("body", lambda: _json(BODY), _resealed_checkpoint),
}
for form in ("wav", "flac", "ogg", "mp3"):
    READERS[form] = Reader(f"a.{form}", functools.partial(_sound, form), read_audio)
