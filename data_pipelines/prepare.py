"""`simuljax prepare` and `simuljax speak`: from the user's copy to a directory ready for training.

The directory holds ArrayRecord shards with TFDS's metadata, a table of contents per split
(`train.tsv`), `skipped.tsv`, `statistics.json` of the training features, and `summary.json`, which
is written last. During the work, `.work/` keeps a report per finished shard, so that an interrupted
preparation continues where it was.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union

import tyro

from data_pipelines.augmentation import Transform
from data_pipelines.corpora import CORPORA, Corpus, Phrasebook, Spoken
from data_pipelines.corpora.spoken import Engine, text_corpus
from data_pipelines.dataset import (
    SKIPPED,
    STATISTICS,
    SUMMARY,
    PreparedCorpus,
    describe,
    open_corpus,
    open_split,
    skip_table,
    summarise,
    write_atomically,
    write_table,
)
from data_pipelines.phrasebook.corpus import check_counts
from data_pipelines.shards import (
    Limits,
    Shard,
    plan_shards,
    read_reports,
    worker_count,
    write_shards,
)
from data_pipelines.synthesis import check_engine
from data_pipelines.utterance import CorpusError, Listing
from simuljax import __version__
from simuljax.text import SPECIALS

WORK = ".work"
PREVIEW_SENTENCES = 20_000  # from which a preview learns its vocabularies, at most


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """What to build, apart from where: equal ones on equal data give the same bytes."""

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


@dataclass(frozen=True, kw_only=True)
class Preview:
    """The batches that are shown at the end; training has its own settings."""

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
    preview: Preview,
    from_: Annotated[Path | None, tyro.conf.arg(name="from")] = None,
    max_seconds: float = 60.0,
    workers: int | None = None,
) -> Callable[[], object]:
    """Build a corpus from your copy of it (phrasebook needs none); run again to continue.

    Args:
        corpus: The corpus.
        to: The directory to build it in.
        transform: Changes to the training split.
        preview: The batches that are shown at the end.
        from_: The directory or file of your copy.
        max_seconds: Longer training examples are left out and counted.
        workers: Processes; by default one for each core.
    """
    if isinstance(corpus, Phrasebook):
        check_counts({"train": corpus.train, "valid": corpus.valid, "test": corpus.test})
        if corpus.voice != "none":
            check_engine(corpus.voice)
    elif from_ is None:
        raise CorpusError(f"{corpus.name} needs --from, the place of your copy")
    if from_ is not None and not from_.exists():
        raise CorpusError(f"--from {from_} does not exist; give the place of your copy")
    if not max_seconds > 0:
        raise CorpusError(f"max_seconds is {max_seconds}: it must be above 0")
    worker_count(workers)  # checks the number
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
        seed: Another seed gives other voices.
        workers: Processes; by default one for each core.
    """
    worker_count(workers)  # checks the number
    check_engine(engine)
    reader = text_corpus(text, source=source, target=target)
    wanted = Preparation(corpus=Spoken(text=reader, engine=engine, seed=seed), transform=transform)
    return lambda: show(prepare(wanted, text, to, workers), preview)


def show(corpus: PreparedCorpus, preview: Preview) -> None:
    """Print the summary of a corpus, and a plan of its batches."""
    from data_pipelines.batches import Vocabularies, tokenise_split
    from data_pipelines.batching import describe_plan, make_plan
    from simuljax.config.data import Budget
    from simuljax.text import VocabularyConfig, learn

    print(f"{corpus.summary['preparation']['corpus']} in {corpus.directory}")
    print(describe(corpus.summary))
    if "train" not in corpus.splits or not len(corpus["train"]):
        return
    table = corpus["train"].table
    config = VocabularyConfig(size=preview.vocabulary)
    source = table.transcript if any(table.transcript) else table.translation
    vocabularies = Vocabularies(
        source=learn(_sample(source), config), target=learn(_sample(table.translation), config)
    )
    lengths = tokenise_split(corpus["train"], vocabularies).lengths
    print(f"train in batches of {preview.frames_per_batch:,} frames:")
    budget = Budget(frames=preview.frames_per_batch, tokens=preview.frames_per_batch)
    try:
        print(describe_plan(make_plan(lengths, budget)))
    except ValueError as error:
        raise CorpusError(f"the corpus is ready, but fits no batch: {error}") from error


def _sample(texts: Sequence[str]) -> Sequence[str]:
    """Return enough texts to estimate how many pieces the others have."""
    filled = [text for text in texts if text]
    return filled[:: max(1, -(-len(filled) // PREVIEW_SENTENCES))]
