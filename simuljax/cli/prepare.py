"""The command `simuljax prepare`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union

import tyro

from data_pipelines.augmentation import Transform
from data_pipelines.batches import Vocabularies, tokenise_split
from data_pipelines.corpora import CORPORA, Corpus, Phrasebook
from data_pipelines.dataset import PreparedCorpus, describe
from data_pipelines.phrasebook.corpus import check_counts
from data_pipelines.plan import describe_plan, make_plan
from data_pipelines.prepare import Limits, Preparation, prepare, worker_count
from data_pipelines.synthesis import check_engines
from data_pipelines.utterance import CorpusError
from simuljax.config.experiment import Budget
from simuljax.text import VocabularyConfig, learn

PREVIEW_SENTENCES = 20_000  # from which a preview learns its vocabularies, at most


def _subcommands(*readers: type[Corpus]) -> Any:
    """Return the union of the readers, each a subcommand with the corpus' name."""
    named = [
        Annotated[reader, tyro.conf.subcommand(reader.name.replace("_", "-"), prefix_name=False)]
        for reader in readers
    ]
    return Union[tuple(named)]  # noqa: UP007 (as many as there are)


if TYPE_CHECKING:
    Reader = Corpus
else:
    Reader = _subcommands(Phrasebook, *CORPORA)


def prepare_command(
    corpus: Reader,
    to: Path,
    transform: Transform,
    from_: Annotated[Path | None, tyro.conf.arg(name="from")] = None,
    max_seconds: float = 60.0,
    workers: int | None = None,
) -> Callable[[], object]:
    """Build a corpus from your copy of it (phrasebook needs none); run again to continue.

    Args:
        corpus: The corpus.
        to: The directory to build it in.
        transform: Changes to the training split.
        from_: The directory or file of your copy.
        max_seconds: Longer training examples are left out and counted.
        workers: Processes; by default one for each core.
    """
    if isinstance(corpus, Phrasebook):
        check_counts({"train": corpus.train, "valid": corpus.valid, "test": corpus.test})
        check_engines(corpus.voice)
    elif from_ is None:
        raise CorpusError(f"{corpus.name} needs --from, the place of your copy")
    if from_ is not None and not from_.exists():
        raise CorpusError(f"--from {from_} does not exist; give the place of your copy")
    if not max_seconds > 0:
        raise CorpusError(f"max_seconds is {max_seconds}: it must be above 0")
    worker_count(workers)  # checks the number
    wanted = Preparation(corpus=corpus, limits=Limits(max_seconds=max_seconds), transform=transform)
    return lambda: show(prepare(wanted, from_, to, workers))


def show(corpus: PreparedCorpus) -> None:
    """Print the summary of a corpus, and a plan of its batches with the usual settings."""
    print(f"{corpus.summary['preparation']['corpus']} in {corpus.directory}")
    print(describe(corpus.summary))
    if "train" not in corpus.splits or not len(corpus["train"]):
        return
    table, config, budget = corpus["train"].table, VocabularyConfig(), Budget()
    source = table.transcript if any(table.transcript) else table.translation
    try:
        vocabularies = Vocabularies(
            source=learn(_sample(source), config), target=learn(_sample(table.translation), config)
        )
        lengths = tokenise_split(corpus["train"], vocabularies).lengths
        plan = describe_plan(make_plan(lengths, budget))
    except ValueError as error:
        print(f"The corpus is ready; training needs other settings than the usual: {error}")
        return
    print(f"train in batches of {budget.frames:,} frames:\n{plan}")


def _sample(texts: Sequence[str]) -> Sequence[str]:
    """Return enough texts to estimate how many pieces the others have."""
    filled = [text for text in texts if text]
    return filled[:: max(1, -(-len(filled) // PREVIEW_SENTENCES))]
