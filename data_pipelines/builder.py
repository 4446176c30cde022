"""The TFDS builder of every corpus.

    CorpusBuilder(corpus=MustC(), root=Path("MuST-C"), data_dir=...).download_and_prepare()

builds it as TFDS does: in one process, from the start. `simuljax prepare` writes the same shards on
all cores, and continues after an interruption.
"""

import functools
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds
from tensorflow_datasets.core.writer import ExampleWriter

from data_pipelines.corpora import Corpus
from data_pipelines.dataset import encode, record_features, with_fixed_order
from data_pipelines.prepare import Limits, Shard, plan_shards, read_examples
from data_pipelines.utterance import Skip


class CorpusBuilder(tfds.core.ShardBasedBuilder):
    """Stores a corpus as ArrayRecord files, which TFDS reads without TensorFlow."""

    VERSION = tfds.core.Version("1.0.0")
    # Where TFDS would look for checksums of downloads, through a package that it does not declare.
    code_path = None

    def __init__(self, *, corpus: Corpus, root: Path | None = None, **kwargs: Any):
        self.name = corpus.name  # pyright: ignore[reportAttributeAccessIssue]
        self.corpus, self.root = corpus, root
        super().__init__(file_format="array_record", **kwargs)

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            features=record_features(),
            description=self.corpus.metadata["description"],
            homepage=self.corpus.metadata["homepage"],
            citation=self.corpus.metadata["citation"],
            disable_shuffling=True,
        )

    def _shard_iterators_per_split(self, dl_manager: Any) -> dict[str, list[Any]]:
        del dl_manager  # the user has the corpus already
        listing = self.corpus.read(self.root or Path())
        shards = plan_shards(self.name, listing, Limits(), Path(self.data_path), Path())
        return {
            split: [functools.partial(_keyed_examples, part) for part in parts]
            for split, parts in shards.items()
        }

    def _example_writer(self) -> ExampleWriter:
        return _Writer(file_format=tfds.core.FileFormat.ARRAY_RECORD)


class _Writer(ExampleWriter):
    """Writes an example's fields in a fixed order, as `write_shard` does."""

    def write(self, path: Any, examples: Iterable[tuple[Any, bytes]]) -> Any:
        return super().write(path, ((key, with_fixed_order(example)) for key, example in examples))


def _keyed_examples(shard: Shard) -> Iterator[tuple[str, dict[str, Any]]]:
    for example in read_examples(shard, Counter()):
        if not isinstance(example, Skip):
            yield example.utterance.id, encode(example)
