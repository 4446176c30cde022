"""The commands `simuljax prepare` and `simuljax speak`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from data_pipelines import plan
from data_pipelines.batches import Vocabularies, tokenised
from data_pipelines.builder import processes
from data_pipelines.corpora import (
    CoVoST2,
    EuroparlST,
    How2,
    IwsltNonNative,
    Manifest,
    Mboshi,
    Multi30kSpeech,
    MustC,
    ParallelText,
    Phrasebook,
    Spoken,
    Tsv,
)
from data_pipelines.corpora.spoken import Engine, text_corpus
from data_pipelines.phrasebook.corpus import check_counts
from data_pipelines.prepare import Preparation, prepare
from data_pipelines.prepared import PreparedCorpus
from data_pipelines.shard import Limits
from data_pipelines.summary import describe
from data_pipelines.transform import Transform
from data_pipelines.utterance import CorpusError
from simuljax.config.data import Budget
from simuljax.text import SPECIALS, VocabularyConfig, learn

PREVIEWED = 20_000  # sentences that a preview's vocabularies are learnt from, at most


@dataclass(frozen=True, kw_only=True)
class Preview:
    """The batches that are shown at the end; training chooses its own."""

    frames_per_batch: int = 40_000
    """Frames of 10 ms in a global batch."""
    vocabulary: int = 8_000
    """Size of the unigram vocabularies that count the tokens."""

    def __post_init__(self) -> None:
        if self.frames_per_batch < 1:
            raise CorpusError(f"frames_per_batch is {self.frames_per_batch}: it must be positive")
        if self.vocabulary <= len(SPECIALS):
            raise CorpusError(
                f"vocabulary is {self.vocabulary}: the special pieces alone take {len(SPECIALS)}"
            )


Named = (
    Annotated[Phrasebook, tyro.conf.subcommand("phrasebook", prefix_name=False)]
    | Annotated[MustC, tyro.conf.subcommand("must-c", prefix_name=False)]
    | Annotated[CoVoST2, tyro.conf.subcommand("covost2", prefix_name=False)]
    | Annotated[EuroparlST, tyro.conf.subcommand("europarl-st", prefix_name=False)]
    | Annotated[How2, tyro.conf.subcommand("how2", prefix_name=False)]
    | Annotated[Mboshi, tyro.conf.subcommand("mboshi", prefix_name=False)]
    | Annotated[IwsltNonNative, tyro.conf.subcommand("iwslt-nonnative", prefix_name=False)]
    | Annotated[Multi30kSpeech, tyro.conf.subcommand("multi30k-speech", prefix_name=False)]
    | Annotated[Manifest, tyro.conf.subcommand("manifest", prefix_name=False)]
    | Annotated[ParallelText, tyro.conf.subcommand("parallel-text", prefix_name=False)]
    | Annotated[Tsv, tyro.conf.subcommand("tsv", prefix_name=False)]
)


def prepare_command(
    corpus: Named,
    to: Path,
    transform: Transform,
    preview: Preview,
    from_: Annotated[Path | None, tyro.conf.arg(name="from")] = None,
    max_seconds: float = 60.0,
    workers: int | None = None,
) -> Callable[[], object]:
    """Build a corpus from your copy of it (phrasebook needs none); run again to go on after a kill.

    Args:
        corpus: The corpus.
        to: The directory to build it in.
        transform: Changes to the training split.
        preview: The batches that are shown at the end.
        from_: Where your copy is.
        max_seconds: Longer training examples are left out, and counted.
        workers: Processes; by default one for each core.
    """
    if from_ is None and not isinstance(corpus, Phrasebook):
        raise CorpusError(f"{corpus.name} needs --from, the place of your copy")
    if from_ is not None and not from_.exists():
        raise CorpusError(f"--from {from_}: that is not there; say where your copy is")
    if isinstance(corpus, Phrasebook):
        check_counts({"train": corpus.train, "valid": corpus.valid, "test": corpus.test})
    if not max_seconds > 0:
        raise CorpusError(f"max_seconds is {max_seconds}: nothing would be left to train on")
    processes(workers)  # refuses a number that cannot be
    wanted = Preparation(corpus=corpus, limits=Limits(max_seconds=max_seconds), transform=transform)
    return lambda: show(prepare(wanted, from_, to, workers), preview)


def speak_command(
    text: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(name="TEXT_CORPUS")],
    to: Path,
    transform: Transform,
    preview: Preview,
    source: str = "en",
    target: str = "de",
    engine: Engine = "espeak",
    seed: int = 0,
    workers: int | None = None,
) -> Callable[[], object]:
    """Turn a text corpus into a speech translation corpus, with the times of words and phonemes.

    Args:
        text: A directory of files like train.en and train.de (also .gz), a tab-separated file
            (also in .gz or .zip), or a directory that `simuljax prepare` built.
        to: The directory to build it in.
        transform: Changes to the training split.
        preview: The batches that are shown at the end.
        source: The language that is spoken, and the suffix of its files.
        target: The language of the translations, and the suffix of its files.
        engine: espeak has dozens of robotic voices in many languages, hibari a natural English one.
        seed: Another seed, other voices.
        workers: Processes; by default one for each core.
    """
    processes(workers)  # refuses a number that cannot be
    reader = text_corpus(text, source=source, target=target)
    wanted = Preparation(corpus=Spoken(text=reader, engine=engine, seed=seed), transform=transform)
    return lambda: show(prepare(wanted, text, to, workers), preview)


def show(corpus: PreparedCorpus, preview: Preview) -> None:
    """Prints what there is, and how it would be batched."""
    print(f"{corpus.summary['preparation']['corpus']} in {corpus.directory}")
    print(describe(corpus.summary))
    if "train" not in corpus.splits or not len(corpus["train"]):
        return
    table = corpus["train"].table
    config = VocabularyConfig(size=preview.vocabulary)
    source = table.transcript if any(table.transcript) else table.translation
    vocabularies = Vocabularies(
        source=learn(_some(source), config), target=learn(_some(table.translation), config)
    )
    lengths = tokenised(corpus["train"], vocabularies).lengths
    print(f"train in batches of {preview.frames_per_batch:,} frames:")
    budget = Budget(frames=preview.frames_per_batch, tokens=preview.frames_per_batch)
    try:
        print(plan.describe(plan.make_plan(lengths, budget)))
    except ValueError as error:
        raise CorpusError(f"the corpus is ready, but fits no batch: {error}") from error


def _some(texts: Sequence[str]) -> Sequence[str]:
    """Enough of them to say how long the others would be in pieces."""
    said = [text for text in texts if text]
    return said[:: max(1, -(-len(said) // PREVIEWED))]
