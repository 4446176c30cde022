"""Which data a run has learnt from: digests of its corpus' tables, kept in the run's directory.

A corpus that was built anew under its old name from other texts looks the same from outside, and
what an earlier one has taught or scored would be taken for its own.
"""

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from data_pipelines.shard import write_whole
from data_pipelines.utterance import CorpusError

FILE_NAME = "corpus.json"


def digest(corpus: Path, split: str) -> str | None:
    """Of all that a split's table says: lengths, ids, speakers and texts; None if it is not there.

    >>> digest(Path("nowhere"), "train")
    """
    table = corpus / f"{split}.tsv"
    return _digest(table, table.stat().st_mtime_ns) if table.exists() else None


@cache
def _digest(table: Path, written: int) -> str:
    return hashlib.sha256(table.read_bytes()).hexdigest()[:16]


def keep(run: Path, tables: Mapping[str, tuple[Path, str]]) -> None:
    """Notes what the run learns from: by role, a corpus and its split."""
    told = {role: digest(corpus, split) for role, (corpus, split) in tables.items()}
    write_whole(run / FILE_NAME, json.dumps(told, indent=2) + "\n")


def check(run: Path, tables: Mapping[str, tuple[Path, str]]) -> None:
    """Refuses to go on with a run whose corpus is another one now; old runs have no notes."""
    if not (run / FILE_NAME).exists():
        return
    kept = json.loads((run / FILE_NAME).read_text())
    for role, (corpus, split) in tables.items():
        there = digest(corpus, split)
        if None not in (there, kept.get(role)) and there != kept[role]:
            raise CorpusError(
                f"{run} has learnt from another {split} than {corpus} holds now: it was built anew "
                "under its old name. Put the old one back, or give the run or the corpus another "
                "name"
            )
