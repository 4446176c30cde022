"""Build a corpus: from the user's copy to a directory ready for training.

The directory holds ArrayRecord shards with TFDS's metadata, a table of contents per split
(`train.tsv`), `skipped.tsv`, `statistics.json` of the training features, and `summary.json`, which
is written last. During the work, `.work/` keeps a report per finished shard, so that an interrupted
preparation continues where it was.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from data_pipelines.augmentation import Transform
from data_pipelines.corpora import Corpus
from data_pipelines.dataset import (
    SKIPPED,
    STATISTICS,
    SUMMARY,
    PreparedCorpus,
    open_corpus,
    open_split,
    skip_table,
    summarise,
    write_atomically,
    write_table,
)
from data_pipelines.shards import (
    Limits,
    Shard,
    plan_shards,
    read_reports,
    write_shards,
)
from data_pipelines.utterance import CorpusError, Listing
from simuljax import __version__

WORK = ".work"


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """Settings of a prepared corpus: equal ones on equal data give the same bytes."""

    corpus: Corpus
    limits: Limits = field(default_factory=Limits)
    transform: Transform = field(default_factory=Transform)

    def described(self) -> dict[str, Any]:
        """Return the options as the summary stores them."""
        parts = {"corpus": self.corpus, "limits": self.limits, "transform": self.transform}
        options = {
            f"{part}.{name}": str(value)
            for part, chosen in parts.items()
            for name, value in asdict(chosen).items()
        }
        return {"corpus": self.corpus.name, **options}


def prepare(
    wanted: Preparation, root: Path | None, to: Path, workers: int | None = None
) -> PreparedCorpus:
    """Build the corpus in `to`, or continue building it; do nothing if it is finished."""
    if (to / SUMMARY).exists():
        _check_same_options(wanted, to)
        shutil.rmtree(to / WORK, ignore_errors=True)
        print(f"{to} is prepared already and was not changed: remove it to build it again")
        return open_corpus(to)
    listing = wanted.corpus.read(root or Path())
    if not any(listing.splits.values()):
        raise CorpusError(f"{wanted.corpus.name} in {root} holds no sentence")
    if "all" in listing.splits:
        raise CorpusError("a split called `all` means every split to TFDS: give it another name")
    work = _start(to, wanted, listing)
    listing = wanted.transform(listing, work)
    shards = plan_shards(wanted.corpus.name, listing, wanted.limits, to, work)
    write_shards(shards, workers)
    _finish(wanted, root, listing, to, shards)
    return open_corpus(to)


def _check_same_options(wanted: Preparation, to: Path) -> None:
    there, asked = json.loads((to / SUMMARY).read_text())["preparation"], wanted.described()
    differs = sorted(key for key in there | asked if there.get(key) != asked.get(key))
    if differs:
        found = ", ".join(f"{key} {there.get(key)}, not {asked.get(key)}" for key in differs)
        raise CorpusError(
            f"{to} already holds a corpus with other options ({found}): name another "
            "directory, or remove that one"
        )


def _start(to: Path, wanted: Preparation, listing: Listing) -> Path:
    """Return the directory of reports; refuse to continue a preparation of other data."""
    work = to / WORK
    if to.exists() and not work.exists() and (not to.is_dir() or any(to.iterdir())):
        raise CorpusError(f"{to} holds something else: name an empty or a new directory")
    work.mkdir(parents=True, exist_ok=True)
    fingerprint, kept = _fingerprint(wanted, listing), work / "fingerprint"
    if kept.exists() and kept.read_text() != fingerprint:
        raise CorpusError(
            f"{to} holds an unfinished preparation of other data or with other options: remove it "
            "and start again, or name another directory"
        )
    write_atomically(kept, fingerprint)
    return work


def _fingerprint(wanted: Preparation, listing: Listing) -> str:
    digest = hashlib.sha256(repr((__version__, sorted(wanted.described().items()))).encode())
    for split, utterances in listing.splits.items():
        digest.update(split.encode())
        for utterance in utterances:
            digest.update(repr(utterance).encode())
    return digest.hexdigest()


def _finish(
    wanted: Preparation,
    root: Path | None,
    listing: Listing,
    to: Path,
    shards: Mapping[str, Sequence[Shard]],
) -> None:
    """Write the tables, TFDS's metadata, the statistics and, last, the summary."""
    from data_pipelines.builder import CorpusBuilder
    from data_pipelines.input import feature_record
    from simuljax.audio import save_features

    reports = {split: read_reports(parts) for split, parts in shards.items()}
    for split, parts in reports.items():
        write_table(to / f"{split}.tsv", (row for part in parts for row in part.rows))
    builder = CorpusBuilder(corpus=wanted.corpus, root=root, limits=wanted.limits, data_dir=to)
    builder.set_splits(to, shards)
    builder.info.write_to_directory(to)
    if any(row[0] for part in reports.get("train", ()) for row in part.rows):
        save_features(to / STATISTICS, feature_record(open_split(to, "train")))
    left_out = [skip for parts in reports.values() for part in parts for skip in part.skipped]
    skipped = [*listing.skipped, *left_out]
    (to / SKIPPED).write_text(skip_table(skipped), encoding="utf-8")
    for stray in (path for path in to.glob(".*") if path.is_file()):
        stray.unlink()
    summary = summarise(reports, skipped, wanted.described())
    write_atomically(to / SUMMARY, json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    shutil.rmtree(to / WORK)
