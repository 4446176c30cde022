"""`simuljax prepare` and `simuljax speak`: from the user's copy to a directory ready for training.

The directory holds ArrayRecord shards with TFDS's metadata, a table of contents per split
(`train.tsv`), `skipped.tsv`, `statistics.json` of the training features, and `summary.json`, which
is written last. While the work goes on, `.work/` keeps a report per finished shard: a preparation
that was killed goes on where it was.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from data_pipelines.builder import CorpusBuilder, plan_shards, reports, write_shards
from data_pipelines.corpora import Corpus
from data_pipelines.moments import feature_record
from data_pipelines.prepared import (
    SKIPPED,
    STATISTICS,
    SUMMARY,
    PreparedCorpus,
    open_corpus,
    open_split,
    write_table,
)
from data_pipelines.shard import Limits, Shard, write_whole
from data_pipelines.summary import skip_table, summarise
from data_pipelines.transform import Transform
from data_pipelines.utterance import CorpusError, Listing
from simuljax import __version__
from simuljax.audio import save_features

WORK = ".work"


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """What is to be done, apart from where: equal ones on equal data give the same bytes."""

    corpus: Corpus
    limits: Limits = field(default_factory=Limits)
    transform: Transform = field(default_factory=Transform)

    def described(self) -> dict[str, Any]:
        """As it stands in the summary."""
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
    """Builds the corpus in `to`, or goes on building it; nothing is done when it is there."""
    if (to / SUMMARY).exists():
        _refuse_another(wanted, to)
        shutil.rmtree(to / WORK, ignore_errors=True)
        print(f"{to} is there already, and left as it is: to build it anew, remove it")
        return open_corpus(to)
    listing = wanted.corpus.read(root or Path())
    if not any(listing.splits.values()):
        raise CorpusError(f"{wanted.corpus.name} in {root} holds no sentence")
    if "all" in listing.splits:
        raise CorpusError("a split called `all` means every split to TFDS: give it another name")
    work = _begin(to, wanted, listing)
    listing = wanted.transform(listing, work)
    builder = CorpusBuilder(corpus=wanted.corpus, root=root, limits=wanted.limits, data_dir=to)
    shards = plan_shards(builder, listing, to, work)
    write_shards(shards, workers)
    _finish(builder, wanted, listing, to, shards)
    return open_corpus(to)


def _refuse_another(wanted: Preparation, to: Path) -> None:
    there, asked = json.loads((to / SUMMARY).read_text())["preparation"], wanted.described()
    differs = sorted(key for key in there | asked if there.get(key) != asked.get(key))
    if differs:
        found = ", ".join(f"{key} {there.get(key)}, not {asked.get(key)}" for key in differs)
        raise CorpusError(
            f"{to} already holds a corpus that was prepared otherwise ({found}): name another "
            "directory, or remove that one"
        )


def _begin(to: Path, wanted: Preparation, listing: Listing) -> Path:
    """The directory of reports; refuses to go on with what was begun for other data."""
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
    write_whole(kept, fingerprint)
    return work


def _fingerprint(wanted: Preparation, listing: Listing) -> str:
    digest = hashlib.sha256(repr((__version__, sorted(wanted.described().items()))).encode())
    for split, utterances in listing.splits.items():
        digest.update(split.encode())
        for utterance in utterances:
            digest.update(repr(utterance).encode())
    return digest.hexdigest()


def _finish(
    builder: CorpusBuilder,
    wanted: Preparation,
    listing: Listing,
    to: Path,
    shards: Mapping[str, Sequence[Shard]],
) -> None:
    results = {split: reports(parts) for split, parts in shards.items()}
    for split, parts in results.items():
        write_table(to / f"{split}.tsv", (row for part in parts for row in part.rows))
    builder.set_splits(to, shards)
    builder.info.write_to_directory(to)
    if any(row[0] for part in results.get("train", ()) for row in part.rows):
        save_features(to / STATISTICS, feature_record(open_split(to, "train")))
    skipped = [
        *listing.skipped,
        *(s for parts in results.values() for p in parts for s in p.skipped),
    ]
    (to / SKIPPED).write_text(skip_table(skipped), encoding="utf-8")
    for stray in (path for path in to.glob(".*") if path.is_file()):
        stray.unlink()
    summary = summarise(results, skipped, wanted.described())
    write_whole(to / SUMMARY, json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    shutil.rmtree(to / WORK)
