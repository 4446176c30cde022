"""Build a corpus: from the user's copy to a directory ready for training.

The directory holds ArrayRecord shards with TFDS's metadata, a table of contents per split
(`train.tsv`), `skipped.tsv`, `statistics.json` of the training features, and `summary.json`, which
is written last. During the work, `.work/` keeps a report per finished shard, so that an interrupted
preparation continues. A shard is moved to its place when it is whole, and its report is written
last. Its bytes depend on its utterances alone, whichever process works on it.
"""

import contextlib
import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import threading
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from data_pipelines.augmentation import Transform
from data_pipelines.augmentation.effects import Augmented, augment_speech, timed
from data_pipelines.corpora import Corpus
from data_pipelines.dataset import (
    SKIPPED,
    STATISTICS,
    SUMMARY,
    Example,
    PreparedCorpus,
    ShardReport,
    encode,
    open_corpus,
    open_split,
    read_summary,
    record_features,
    skip_table,
    summarise,
    with_fixed_order,
    write_atomically,
    write_table,
)
from data_pipelines.synthesis import Speech, synthesise
from data_pipelines.utterance import Clip, CorpusError, Listing, Skip, Utterance, Voice
from simuljax import __version__
from simuljax.audio import RATE, AudioError, read_audio
from simuljax.config.fields import read_object
from simuljax.lock import try_lock
from simuljax.parsing import open_member
from simuljax.text import clean
from simuljax.voice.base import VoiceError

UTTERANCES_PER_SHARD = 250
TEXT_IS_SMALLER = 40  # times as many utterances without audio go into a shard


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The duration that a training example must have."""

    min_seconds: float = 0.1
    max_seconds: float = float("inf")


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A part of a split, and where it and its report are to be written."""

    path: Path
    report: Path
    utterances: Sequence[Utterance]
    limits: Limits
    transcribed: bool  # the split has transcripts


def plan_shards(
    name: str, listing: Listing, limits: Limits, directory: Path, reports: Path
) -> dict[str, list[Shard]]:
    """Return the shards of every split, written or not. Only training data is cut to the limits."""
    shards: dict[str, list[Shard]] = {}
    for split, utterances in listing.splits.items():
        spoken = any(utterance.audio for utterance in utterances)
        size = UTTERANCES_PER_SHARD * (1 if spoken else TEXT_IS_SMALLER)
        starts = range(0, max(1, len(utterances)), size)
        shards[split] = [
            Shard(
                path=directory / f"{name}-{split}.array_record-{k:05d}-of-{len(starts):05d}",
                report=reports / f"{split}-{k:05d}.json",
                utterances=utterances[start : start + size],
                limits=limits if split.startswith("train") else Limits(),
                transcribed=any(utterance.transcript for utterance in utterances),
            )
            for k, start in enumerate(starts)
        ]
    return shards


def write_shards(shards: Mapping[str, Sequence[Shard]], workers: int | None = None) -> None:
    """Write the shards that have no report yet, on all cores, and show the progress."""
    everything = [shard for parts in shards.values() for shard in parts]
    todo = [shard for shard in everything if not shard.report.exists()]
    total = sum(len(shard.utterances) for shard in everything)
    done = total - sum(len(shard.utterances) for shard in todo)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["data_pipelines.prepare", "tensorflow_datasets"])
    others = multiprocessing.active_children()
    processes = min(worker_count(workers), max(1, len(todo)))
    with (
        ProcessPoolExecutor(processes, context, initializer=_exit_with_parent) as pool,
        tqdm(total=total, initial=done, unit="utt", smoothing=0) as bar,
    ):
        try:
            with _interrupts_held_back():
                sizes = {pool.submit(write_shard, shard): len(shard.utterances) for shard in todo}
            for finished in as_completed(sizes):
                finished.result()
                bar.update(sizes[finished])
        except BrokenProcessPool as error:
            raise CorpusError(
                "a worker process died, perhaps because memory ran out: run the command again to"
                " continue, with fewer --workers"
            ) from error
        except BaseException:  # else it shows when all the work is done
            for worker in multiprocessing.active_children():
                if worker not in others:
                    worker.terminate()
            pool.shutdown(cancel_futures=True)
            raise


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Start processes that are deaf to Ctrl-C; raise it in this one when they have started.

    Without this, each of them would print a traceback, and one that is about to start would be
    unknown to us and could not be ended.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may change how signals are handled
        return
    held: list[int] = []
    resource_tracker.ensure_running()  # later, it would unblock the signal
    before = signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # which children inherit
    try:
        forkserver.ensure_running()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if held:
            signal.raise_signal(signal.SIGINT)


def worker_count(workers: int | None) -> int:
    """Return the number of processes asked for; by default one for each core."""
    if workers is not None and workers < 1:
        raise CorpusError(f"workers is {workers}: it must be 1 or more; leave it out for all cores")
    return workers or len(os.sched_getaffinity(0))


def read_reports(shards: Iterable[Shard]) -> list[ShardReport]:
    """Return the reports of finished shards."""
    found = []
    for shard in shards:
        fields = read_object(shard.report)
        try:
            skipped = [Skip(**skip) for skip in fields["skipped"]]
            found.append(ShardReport(**fields | {"skipped": skipped}))  # pyright: ignore
        except (KeyError, TypeError) as error:
            raise CorpusError(f"{shard.report} is damaged ({error!r}): remove it") from error
    return found


def _exit_with_parent() -> None:
    """End this worker when its parent process is gone, for whatever reason."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def write_shard(shard: Shard) -> None:
    """Write the records and the report of a shard."""
    from array_record.python.array_record_module import ArrayRecordWriter

    rows, skipped, notes = [], [], Counter()
    unfinished = shard.path.with_name(f".{shard.path.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    writer, stored = ArrayRecordWriter(str(unfinished), "group_size:1"), record_features()
    for result in read_examples(shard, notes):
        if isinstance(result, Skip):
            skipped.append(result)
        else:
            writer.write(with_fixed_order(stored.serialize_example(encode(result))))
            rows.append(result.row())
    writer.close()
    os.replace(unfinished, shard.path)
    report = ShardReport(rows=rows, skipped=skipped, notes=dict(sorted(notes.items())))
    write_atomically(shard.report, json.dumps(asdict(report), ensure_ascii=False))


def read_examples(shard: Shard, notes: Counter[str]) -> Iterator[Example | Skip]:
    """Yield every utterance of the shard with its audio, or the reason why it is left out.

    `notes` counts what was done to the recordings that are kept.
    """
    with contextlib.ExitStack() as stack:
        audio = _AudioSource(notes=Counter(), stack=stack)
        for listed in shard.utterances:
            texts = ("id", "speaker", "transcript", "translation")
            utterance = replace(listed, **{name: clean(getattr(listed, name)) for name in texts})
            if not utterance.translation:
                yield Skip(id=utterance.id, reason="empty translation")
            elif shard.transcribed and not utterance.transcript:
                yield Skip(id=utterance.id, reason="empty transcript")
            else:
                audio.notes.clear()
                example = _example(utterance, audio, shard.limits)
                notes.update({} if isinstance(example, Skip) else audio.notes)
                yield example


def _example(utterance: Utterance, audio: "_AudioSource", limits: Limits) -> Example | Skip:
    try:
        speech = audio.fetch(utterance, utterance.audio)
    except AudioError as error:
        return Skip(id=utterance.id, reason=error.reason, detail=error.detail)
    except VoiceError as error:
        return Skip(id=utterance.id, reason="synthesis failed", detail=str(error))
    seconds = len(speech.samples) / RATE
    if utterance.audio and not limits.min_seconds <= seconds <= limits.max_seconds:
        reason = "too short" if seconds < limits.min_seconds else "too long"
        return Skip(id=utterance.id, reason=reason, detail=f"{seconds:.2f} s")
    utterance = replace(utterance, words=speech.words, phonemes=speech.phonemes)
    return Example(utterance=utterance, audio=speech.samples)


@dataclass(frozen=True, kw_only=True)
class _AudioSource:
    """Gets the audio of utterances from files, archives and synthesisers."""

    notes: Counter[str]  # of one utterance
    stack: contextlib.ExitStack  # closes the archives
    archives: dict[Path, zipfile.ZipFile] = field(default_factory=dict)

    def fetch(self, utterance: Utterance, source: Clip | Voice | Augmented | None) -> Speech:
        """Return the audio from this source; raise AudioError or VoiceError if it has none."""
        match source:
            case None:
                return Speech(samples=np.zeros(0, np.int16), words=(), phonemes=())
            case Voice():
                return synthesise(utterance.transcript, source)
            case Augmented(source=plain, effects=effects):
                return augment_speech(self.fetch(utterance, plain), effects)
            case Clip():
                samples = self.read(source)
                return timed(samples, utterance.words, utterance.phonemes)

    def read(self, clip: Clip) -> np.ndarray:
        """Return the samples of a clip, and note what was done to them."""
        stretch = {"offset_s": clip.offset_s, "duration_s": clip.duration_s}
        try:
            with self.open(clip) as file:
                recording = read_audio(file, **stretch)
        except AudioError as error:
            where = f"{clip.path}{f' ({clip.member})' if clip.member else ''}"
            raise AudioError(error.reason, f"{where}: {error.detail}") from error
        if recording.source_rate != RATE:
            self.notes[f"resampled from {recording.source_rate} Hz"] += 1
        if recording.channels != 1:
            self.notes[f"mixed down from {recording.channels} channels"] += 1
        return recording.samples

    def open(self, clip: Clip) -> contextlib.AbstractContextManager[Any]:
        """Return the path of a clip, or its member of an archive, opened."""
        if clip.member is None:
            return contextlib.nullcontext(clip.path)
        try:
            if clip.path not in self.archives:
                self.archives[clip.path] = self.stack.enter_context(zipfile.ZipFile(clip.path))
            return open_member(self.archives[clip.path], clip.member)
        except KeyError as error:
            raise AudioError("no such file", f"{clip.member} is not in the archive") from error
        except (OSError, zipfile.BadZipFile, RuntimeError, ValueError) as error:
            # RuntimeError: encrypted, or a compression that Python does not know
            raise AudioError("corrupt audio", f"the archive cannot be read: {error}") from error


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
    with _locked(work):
        listing = wanted.transform(listing, work)
        shards = plan_shards(wanted.corpus.name, listing, wanted.limits, to, work)
        write_shards(shards, workers)
        _finish(wanted, listing, to, shards)
    return open_corpus(to)


@contextlib.contextmanager
def _locked(work: Path) -> Iterator[None]:
    """Refuse a second preparation of the same directory; a lock ends with its process."""
    with try_lock(work, patience_s=0.0) as mine:
        if not mine:
            raise CorpusError(
                f"another process is preparing {work.parent}: wait, or name another directory"
            )
        yield


def _check_same_options(wanted: Preparation, to: Path) -> None:
    there, asked = read_summary(to)["preparation"], wanted.described()
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
    wanted: Preparation, listing: Listing, to: Path, shards: Mapping[str, Sequence[Shard]]
) -> None:
    """Write the tables, TFDS's metadata, the statistics and, last, the summary."""
    from data_pipelines.input import feature_record
    from simuljax.audio import save_features

    reports = {split: read_reports(parts) for split, parts in shards.items()}
    left_out = [skip for parts in reports.values() for part in parts for skip in part.skipped]
    skipped = [*listing.skipped, *left_out]
    if not any(part.rows for parts in reports.values() for part in parts):
        counts = ", ".join(f"{n} {why}" for why, n in Counter(s.reason for s in skipped).items())
        first = f"; the first is {skipped[0].id} ({skipped[0].detail})" if skipped else ""
        raise CorpusError(f"{wanted.corpus.name}: every example was left out: {counts}{first}")
    for split, parts in reports.items():
        write_table(to / f"{split}.tsv", (row for part in parts for row in part.rows))
    _write_metadata(wanted.corpus, to, shards, reports)
    if any(row[0] for part in reports.get("train", ()) for row in part.rows):
        save_features(to / STATISTICS, feature_record(open_split(to, "train")))
    (to / SKIPPED).write_text(skip_table(skipped), encoding="utf-8")
    for stray in (path for path in to.glob(".*") if path.is_file()):
        stray.unlink()
    summary = summarise(reports, skipped, wanted.described())
    write_atomically(to / SUMMARY, json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    shutil.rmtree(to / WORK)


def _write_metadata(
    corpus: Corpus,
    to: Path,
    shards: Mapping[str, Sequence[Shard]],
    reports: Mapping[str, Sequence[ShardReport]],
) -> None:
    """Write the files by which TFDS knows the records."""
    import tensorflow_datasets as tfds  # takes a second
    from tensorflow_datasets.core.folder_dataset import write_metadata

    template = tfds.core.ShardedFileTemplate(
        data_dir=tfds.core.Path(to), dataset_name=corpus.name, filetype_suffix="array_record"
    )
    splits = [
        tfds.core.SplitInfo(
            name=split,
            shard_lengths=[len(report.rows) for report in reports[split]],
            num_bytes=sum(part.path.stat().st_size for part in parts),
            filename_template=template,
        )
        for split, parts in shards.items()
    ]
    about = {name: corpus.metadata[name] for name in ("description", "homepage", "citation")}
    write_metadata(
        data_dir=to,
        features=record_features(),
        split_infos=splits,
        version="1.0.0",
        filename_template=template,
        check_data=False,
        disable_shuffling=True,
        **about,
    )
