"""The TFDS builder of every corpus: what is stored, and the shards it is written in.

    builder = CorpusBuilder(corpus=MustC(target="de"), root=Path("MuST-C"), data_dir=...)
    builder.download_and_prepare()

is the way of TFDS: one process, from the start. `simuljax prepare` writes the same bytes through
`write_shards`: on all cores, and going on after a kill.
"""

import functools
import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds
from tensorflow_datasets.core.splits import SplitDict
from tensorflow_datasets.core.writer import ExampleWriter
from tqdm import tqdm

from data_pipelines.corpora import Corpus
from data_pipelines.record import encode, features, in_order
from data_pipelines.shard import Limits, Shard, ShardReport, read_report, records, write_shard
from data_pipelines.utterance import CorpusError, Listing, Skip, Utterance

UTTERANCES_PER_SHARD = 250
ANY_LENGTH = Limits()


class CorpusBuilder(tfds.core.ShardBasedBuilder):
    """Stores a corpus as ArrayRecord files, which TFDS reads without TensorFlow."""

    VERSION = tfds.core.Version("1.0.0")
    # Where TFDS would look for checksums of downloads, through a package that it does not declare.
    code_path = None

    def __init__(
        self,
        *,
        corpus: Corpus,
        root: Path | None = None,
        limits: Limits = ANY_LENGTH,
        **kwargs: Any,
    ):
        self.name = corpus.name  # pyright: ignore[reportAttributeAccessIssue]
        self.corpus, self.root, self.limits = corpus, root, limits
        super().__init__(file_format="array_record", **kwargs)

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            features=features(),
            description=self.corpus.description,
            homepage=self.corpus.homepage,
            citation=self.corpus.citation,
            disable_shuffling=True,
        )

    def _shard_iterators_per_split(self, dl_manager: Any) -> dict[str, list[Any]]:
        del dl_manager  # the user has the corpus already
        shards = plan_shards(
            self, self.corpus.read(self.root or Path()), Path(self.data_path), Path()
        )
        return {
            split: [functools.partial(_keyed_examples, part) for part in parts]
            for split, parts in shards.items()
        }

    def _example_writer(self) -> ExampleWriter:
        return _Writer(file_format=tfds.core.FileFormat.ARRAY_RECORD)

    def set_splits(self, directory: Path, shards: Mapping[str, Sequence[Shard]]) -> None:
        """Enters the finished shards into the builder's info."""
        template = tfds.core.ShardedFileTemplate(
            data_dir=tfds.core.Path(directory),
            dataset_name=self.name,
            filetype_suffix="array_record",
        )
        infos = [
            tfds.core.SplitInfo(
                name=split,
                shard_lengths=[len(report.rows) for report in reports(parts)],
                num_bytes=sum(part.path.stat().st_size for part in parts),
                filename_template=template,
            )
            for split, parts in shards.items()
        ]
        self.info.set_splits(SplitDict(infos))


class _Writer(ExampleWriter):
    """Writes an example's fields in a fixed order, as `write_shard` does."""

    def write(self, path: Any, examples: Iterable[tuple[Any, bytes]]) -> Any:
        return super().write(path, ((key, in_order(example)) for key, example in examples))


def _keyed_examples(shard: Shard) -> Iterator[tuple[str, dict[str, Any]]]:
    for record in records(shard, Counter()):
        if not isinstance(record, Skip):
            yield record.utterance.id, encode(record)


def plan_shards(
    builder: CorpusBuilder, listing: Listing, directory: Path, reports: Path
) -> dict[str, list[Shard]]:
    """The shards of every split, written or not. Only training data is cut to the limits."""
    return {
        split: [
            Shard(
                path=directory / f"{builder.name}-{split}.array_record-{k:05d}-of-{len(parts):05d}",
                report=reports / f"{split}-{k:05d}.json",
                utterances=part,
                limits=builder.limits if split.startswith("train") else ANY_LENGTH,
                transcribed=any(utterance.transcript for utterance in utterances),
            )
            for k, part in enumerate(parts)
        ]
        for split, utterances in listing.splits.items()
        for parts in [_cut(utterances)]
    }


def _cut(utterances: Sequence[Utterance]) -> list[Sequence[Utterance]]:
    starts = range(0, max(1, len(utterances)), UTTERANCES_PER_SHARD)
    return [utterances[start : start + UTTERANCES_PER_SHARD] for start in starts]


def write_shards(shards: Mapping[str, Sequence[Shard]], workers: int | None = None) -> None:
    """Writes the shards that have no report yet, on all cores, and shows the progress."""
    everything = [shard for parts in shards.values() for shard in parts]
    todo = [shard for shard in everything if not shard.report.exists()]
    done = sum(len(s.utterances) for s in everything) - sum(len(s.utterances) for s in todo)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["data_pipelines.shard"])
    with (
        ProcessPoolExecutor(
            max_workers=min(processes(workers), max(1, len(todo))),
            mp_context=context,
            initializer=_end_with_parent,
        ) as pool,
        tqdm(
            total=sum(len(s.utterances) for s in everything), initial=done, unit="utt", smoothing=0
        ) as bar,
    ):
        sizes = {pool.submit(write_shard, shard): len(shard.utterances) for shard in todo}
        try:
            for finished in as_completed(sizes):
                finished.result()
                bar.update(sizes[finished])
        except BrokenProcessPool as error:
            raise CorpusError(
                "a worker process died, perhaps for want of memory: run the command again to go on,"
                " with fewer --workers"
            ) from error
        except BaseException:
            pool.shutdown(cancel_futures=True)  # else the error is told when all else is done
            raise


def processes(workers: int | None) -> int:
    """As many as asked for; by default one for each core."""
    if workers is not None and workers < 1:
        raise CorpusError(f"workers is {workers}: it must be 1 or more; leave it out for all cores")
    return workers or len(os.sched_getaffinity(0))


def reports(shards: Iterable[Shard]) -> list[ShardReport]:
    """What became of finished shards."""
    return [read_report(shard.report) for shard in shards]


def _end_with_parent() -> None:
    """Ends this worker when the process that asked for it is gone, however that went."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
