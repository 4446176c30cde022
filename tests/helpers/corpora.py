"""Corpora for tests: hums with known word times, small trees of sound files, and real corpora."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from data_pipelines import prepare as preparing
from data_pipelines.batches import Batches, Examples, Host, Vocabularies, tokenise_split
from data_pipelines.corpora import Corpus, Manifest
from data_pipelines.dataset import PreparedCorpus, Split
from data_pipelines.plan import make_plan
from data_pipelines.prepare import Preparation, prepare
from data_pipelines.utterance import Clip, Listing, Span, Utterance
from simuljax.batch import Batch
from simuljax.config.experiment import Budget
from simuljax.text import VocabularyConfig, learn

REPOSITORY = Path(__file__).parents[2]
RATE = 16_000
SIZES = {"train": 37, "valid": 5, "test": 6}  # valid has no alignment
BUDGET = Budget(frames=1000, tokens=1000, row_multiple=4, shapes=3)


def hum(seconds: float, hertz: float = 220.0) -> np.ndarray:
    times = np.arange(round(RATE * seconds)) / RATE
    return np.rint(8000 * np.sin(2 * np.pi * hertz * times)).astype(np.int16)


def seconds_of(number: int) -> float:
    """From 0.3 to 1.9 s, no two neighbours alike."""
    return 0.3 + 0.16 * (number * 7 % 11)


def words_of(number: int) -> list[tuple[str, float, float]]:
    """Words with silence before, between and after; the times fall on no frame's middle."""
    count = 1 + number % 4
    step = seconds_of(number) / count
    return [(f"w{k}", (k + 0.21) * step, (k + 0.83) * step) for k in range(count)]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """A manifest of JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_hums(root: Path, sizes: Mapping[str, int] = SIZES) -> Path:
    """The tree that the manifest reader lists."""
    root.mkdir(parents=True, exist_ok=True)
    for split, size in sizes.items():
        rows = [_row(root, split, number) for number in range(size)]
        write_rows(root / f"{split}.jsonl", rows)
    return root


def _row(root: Path, split: str, number: int) -> dict[str, Any]:
    name = f"{split}{number}"
    soundfile.write(root / f"{name}.wav", hum(seconds_of(number), 150 + 10 * number), RATE)
    words = words_of(number)
    row = {
        "id": name,
        "audio": f"{name}.wav",
        "speaker": f"speaker {number % 3}",
        "transcript": " ".join(word for word, _, _ in words),
        "translation": f'Satz "{number}" äöü {"lang " * (number % 5)}.',
    }
    return row if split == "valid" else row | {"words": words}


def write_lines(root: Path, sizes: Mapping[str, int]) -> Path:
    """Sentences of different lengths in two languages, without speech."""
    for split, size in sizes.items():
        for language, word in (("en", "hum"), ("de", "Summen")):
            lines = [f"{word} {'la ' * (n % 9)}{split} {n}\n" for n in range(size)]
            (root / f"{split}.{language}").write_text("".join(lines))
    return root


@contextlib.contextmanager
def shards_of(utterances: int) -> Iterator[None]:
    """Cuts corpora into smaller shards, so that a small one has several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparing, "UTTERANCES_PER_SHARD", utterances)
        yield


def build(corpus: Corpus, root: Path | None, to: Path, **wanted: Any) -> PreparedCorpus:
    with shards_of(10):
        return prepare(Preparation(corpus=corpus, **wanted), root, to)


def build_rows(place: Path, rows: dict[str, list[dict[str, Any]]], **wanted: Any) -> PreparedCorpus:
    """Prepares a manifest: rows by split, audio in `place` already."""
    for split, listed in rows.items():
        write_rows(place / f"{split}.jsonl", listed)
    return build(Manifest(), place, place / "prepared", **wanted)


def tree(directory: Path) -> dict[str, bytes]:
    """Every file, dotfiles too."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def times(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in directory.rglob("*")}


def letters(corpus: PreparedCorpus) -> Vocabularies:
    """Characters: decoding gives the text back exactly."""
    tables = [split.table for split in corpus.splits.values()]
    config = VocabularyConfig(kind="characters", size=300)
    return Vocabularies(
        source=learn(["-", *(text for table in tables for text in table.transcript)], config),
        target=learn([text for table in tables for text in table.translation], config),
    )


def examples_of(corpus: PreparedCorpus, split: str = "train") -> Examples:
    return tokenise_split(corpus[split], letters(corpus))


def batches_of(
    corpus: PreparedCorpus, split: str = "train", *, host: Host | None = None, **plan: Any
) -> Batches:
    examples = examples_of(corpus, split)
    made = make_plan(examples.lengths, plan.pop("budget", BUDGET), **plan)
    return Batches(examples=examples, plan=made, host=host or Host())


def real(batch: Batch) -> list[int]:
    index = np.asarray(batch.index)
    return index[index >= 0].tolist()


def epoch(batches: Batches, number: int = 0) -> list[Batch]:
    steps = batches.plan.steps_per_epoch
    return [batches[step] for step in range(number * steps, (number + 1) * steps)]


def stored(split: Split) -> list[dict[str, Any]]:
    return list(split.source.__getitems__(list(range(len(split)))))


def python(code: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """A process of its own that runs the code in the repository."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(
        command,
        cwd=REPOSITORY,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


def finished(process: subprocess.Popen[str]) -> str:
    """What it printed; it must have ended well."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err[-3000:]
    return out


def assert_same_batch(one: Batch, other: Batch) -> None:
    for field in Batch.__dataclass_fields__:
        left, right = getattr(one, field), getattr(other, field)
        assert (left is None) == (right is None), field
        if left is not None:
            assert left.dtype == right.dtype, field
            np.testing.assert_array_equal(left, right, field)


REAL = Path(__file__).parents[2] / ".." / "shared" / "data"


def real_corpus(name: str) -> Path:
    """The directory of a real corpus; skips the test where it is not kept."""
    if not (REAL / name).exists():
        pytest.skip(f"no {name} in {REAL}")
    return REAL / name


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    return path


def tone(path: Path, seconds: float = 0.5) -> Path:
    """A sound file in the format that its suffix names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    times = np.arange(int(16000 * seconds)) / 16000
    sound = 0.1 * np.sin(2 * np.pi * 440 * times)
    opus = path.suffix == ".opus"
    coding, container = ("OPUS", "OGG") if opus else (None, None)
    soundfile.write(path, sound, 16000, subtype=coding, format=container)
    return path


def sizes(listing: Listing) -> dict[str, int]:
    return {split: len(found) for split, found in listing.splits.items()}


def skips(listing: Listing) -> list[tuple[str, str]]:
    return [(skip.id, skip.reason) for skip in listing.skipped]


def rows(utterances: Sequence[Utterance]) -> list[tuple[Any, ...]]:
    """Id, texts, speaker, and name, offset and duration of the audio."""
    found = []
    for u in utterances:
        assert isinstance(u.audio, Clip)
        clip = (u.audio.path.name, u.audio.offset_s, u.audio.duration_s)
        found.append((u.id, u.transcript, u.translation, u.speaker, *clip))
    return found


def spans(timed: Sequence[Span]) -> list[tuple[str, float, float]]:
    return [(span.text, span.start_ms, span.end_ms) for span in timed]
