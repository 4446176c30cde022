"""The same options give the same bytes, however the preparation went; joined recordings."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from data_pipelines import prepare as preparing
from data_pipelines.batches import Host, labels
from data_pipelines.corpora import Manifest, Phrasebook
from data_pipelines.dataset import open_corpus
from data_pipelines.input import TrainingInput, init_run, load_inputs, open_input
from data_pipelines.joining import JoinedSplit, join
from data_pipelines.prepare import Limits, Preparation, prepare
from data_pipelines.utterance import CorpusError, Listing, Utterance, Voice
from simuljax.audio import Features
from simuljax.config.experiment import DataConfig, Joining
from simuljax.text import VocabularyConfig
from tests.helpers.corpora import (
    BUDGET,
    REPOSITORY,
    assert_same_batch,
    build,
    build_rows,
    finished,
    python,
    real,
    shards_of,
    times,
    tree,
    write_hums,
    write_rows,
)

HUMS = Preparation(corpus=Manifest())


def test_the_same_options_give_the_same_bytes(hums, hums_root, tmp_path):
    with shards_of(10):
        prepare(HUMS, hums_root, tmp_path / "again", workers=1)
    assert tree(tmp_path / "again") == tree(hums.directory)


def test_a_finished_preparation_is_not_touched(hums, monkeypatch):
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a worker was asked for")

    monkeypatch.setattr(preparing, "ProcessPoolExecutor", refuse)
    before = times(hums.directory)
    again = prepare(HUMS, Path("the corpus is not even looked at"), hums.directory)
    assert times(hums.directory) == before
    assert len(again["train"]) == 37


def test_other_options_are_refused_and_named(hums, hums_root):
    other = replace(HUMS, limits=Limits(max_seconds=3))
    with pytest.raises(CorpusError, match=r"\(limits.max_seconds inf, not 3\): name another dir"):
        prepare(other, hums_root, hums.directory)
    with pytest.raises(CorpusError, match="corpus manifest, not phrasebook"):
        prepare(Preparation(corpus=Phrasebook()), None, hums.directory)


def test_directories_with_other_things_are_refused(hums_root, tmp_path):
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "mine.txt").write_text("Dear Ann")
    for place in (tmp_path / "letters", tmp_path / "letters" / "mine.txt"):
        with pytest.raises(CorpusError, match="holds something else: name an empty or a new"):
            prepare(HUMS, hums_root, place)
    assert tree(tmp_path / "letters") == {"mine.txt": b"Dear Ann"}


def test_one_process_at_a_time_prepares_a_directory(hums_root, tmp_path):
    (tmp_path / ".work").mkdir()
    with (tmp_path / ".work" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(CorpusError, match=f"another process is preparing {tmp_path}"):
            prepare(HUMS, hums_root, tmp_path)


def interrupt(wanted: Preparation, root: Path, to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A preparation that ends after its shards."""

    def stop(*args: object) -> None:
        raise KeyboardInterrupt

    with shards_of(10), monkeypatch.context() as patch:
        patch.setattr(preparing, "_finish", stop)
        with pytest.raises(KeyboardInterrupt):
            prepare(wanted, root, to)


def test_an_interrupted_preparation_goes_on(hums, hums_root, tmp_path, monkeypatch):
    to = tmp_path / "interrupted"
    interrupt(HUMS, hums_root, to, monkeypatch)
    with pytest.raises(CorpusError, match=r"no prepared corpus .* or run that again"):
        open_corpus(to)
    with pytest.raises(CorpusError, match="unfinished preparation of other data"):
        prepare(replace(HUMS, limits=Limits(max_seconds=1)), hums_root, to)
    lost = to / "manifest-train.array_record-00002-of-00004"
    before = times(to)
    # As kills at different moments leave it: a shard without report, half of one, half a summary.
    (to / ".work" / "train-00002.json").unlink()
    (to / f".{lost.name}.999999").write_bytes(b"half of a sha")
    (to / ".summary.json.999999").write_text('{"prep')
    (to / "statistics.json.partial").write_text("{")
    build(Manifest(), hums_root, to)
    assert tree(to) == tree(hums.directory)
    assert not (to / ".work").exists()
    redone = {name for name in tree(to) if times(to)[name] != before.get(name) and "record" in name}
    assert redone == {lost.name}


@dataclass(frozen=True, kw_only=True)
class Mute:
    """A corpus whose first utterance is an error rather than a bad example."""

    name: ClassVar[str] = "mute"
    good: int = 100

    def read(self, root: Path | None) -> Listing:
        good = [Utterance(id=f"good{n}", transcript="a", translation="b") for n in range(self.good)]
        bad = replace(good[0], id="bad", audio=Voice(engine="a parrot"))
        return Listing(splits={"train": [bad, *good]})


def test_an_error_in_a_worker_is_raised_at_once(tmp_path):
    with shards_of(1), pytest.raises(ValueError, match="engine is 'a parrot'"):
        prepare(Preparation(corpus=Mute()), None, tmp_path / "to", workers=1)  # pyright: ignore
    assert len(list((tmp_path / "to" / ".work").glob("*.json"))) < 100


WITHOUT_TENSORFLOW = """
import sys
from pathlib import Path
import data_pipelines.input, data_pipelines.prepare
assert not {"tensorflow_datasets", "grain", "array_record"} & set(sys.modules)
from data_pipelines.batches import iterate
from data_pipelines.builder import CorpusBuilder
from data_pipelines.corpora import Manifest
from data_pipelines.dataset import open_corpus
from tests.helpers.corpora import batches_of, shards_of

root, prepared, to = map(Path, sys.argv[1:])
batches = batches_of(open_corpus(prepared))
some = iterate(batches)
assert sum((next(some).index >= 0).sum() for _ in range(batches.plan.steps_per_epoch)) == 37
with shards_of(10):
    CorpusBuilder(corpus=Manifest(), root=root, data_dir=to).download_and_prepare()
print([name for name in sys.modules if name.split(".")[0] in ("tensorflow", "torch")])
"""


def test_tfds_builds_the_same_shards_and_nothing_imports_tensorflow(hums, hums_root, tmp_path):
    process = python(WITHOUT_TENSORFLOW, hums_root, hums.directory, tmp_path)
    assert finished(process).splitlines()[-1] == "[]"
    standard, ours = tree(tmp_path / "manifest" / "1.0.0"), tree(hums.directory)
    shards = [name for name in ours if "array_record-" in name]
    assert len(shards) == 6 and all(standard[name] == ours[name] for name in shards)


def test_a_corpus_without_sentences_is_refused(tmp_path):
    """Before anything is written; and so is a split called all."""
    with pytest.raises(CorpusError, match="phrasebook in None holds no sentence"):
        prepare(Preparation(corpus=Phrasebook(train=0, valid=0, test=0)), None, tmp_path / "to")
    with pytest.raises(CorpusError, match="`all` means every split"):
        build(Manifest(), write_hums(tmp_path / "tree", {"all": 1}), tmp_path / "to")
    assert not (tmp_path / "to").exists()


def many_hums(root: Path) -> Path:
    """Work for half a second."""
    write_hums(root, {"train": 37})
    said = {"transcript": "hum", "translation": "Summen"}
    rows = [{"id": f"{n}", "audio": f"train{n % 37}.wav", **said} for n in range(300)]
    write_rows(root / "train.jsonl", rows)
    return root


def state(pid: int) -> list[str]:
    """State, parent and more of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def descendants(pid: int) -> set[int]:
    everyone = {int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()}
    parents = {one: int(found[1]) for one in everyone if (found := state(one))}
    known = {pid}
    while more := {one for one, parent in parents.items() if parent in known} - known:
        known |= more
    return known - {pid}


def alive(pid: int) -> bool:
    return bool(found := state(pid)) and found[0] not in "ZX"


def until(condition: Callable[[], object], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not condition():
        time.sleep(0.002)
    return bool(condition())


def started(place: Path) -> subprocess.Popen[str]:
    """The command, once it has begun."""
    to = place / "to"
    options = ["--from", many_hums(place / "hums"), "--to", to, "--workers", 2]
    command = [sys.executable, "-m", "simuljax.cli.main", "prepare", "manifest", *map(str, options)]
    process = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env=os.environ | {"TQDM_DISABLE": "1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert until(lambda: (to / ".work" / "fingerprint").exists(), 120)
    return process


@pytest.mark.slow
def test_a_killed_preparation_ends_its_workers(tmp_path):
    """`tests/faults` kills it at any moment, and has it go on."""
    process = started(tmp_path)
    assert until(lambda: len(descendants(process.pid)) >= 3, 60)
    workers = descendants(process.pid)
    process.kill()
    process.communicate()
    assert until(lambda: not any(map(alive, workers)), 10), "a worker outlived its parent"


@pytest.mark.slow
@pytest.mark.parametrize("wait_s", [0.0, 2.0])  # imports in the children, then work
def test_an_interrupt_is_one_line_and_ends_the_workers(tmp_path, wait_s):
    process = started(tmp_path)
    time.sleep(wait_s)
    workers = descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (128 + signal.SIGINT, "simuljax: interrupted\n")
    assert until(lambda: not any(map(alive, workers)), 10)


def test_an_interrupt_while_workers_start_is_not_lost(monkeypatch):
    """The kernel gives it to any thread; a loaded program has several."""

    def interrupted() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)

    monkeypatch.setattr(preparing.forkserver, "ensure_running", interrupted)
    over = threading.Event()
    threading.Thread(target=over.wait, daemon=True).start()
    with pytest.raises(KeyboardInterrupt), preparing._interrupts_held_back():
        pass
    over.set()


RATE = 16_000
SEVERAL = Joining(utterances=4, seconds=5.0, pause_s=(0.1, 0.3), lead_s=(0.0, 0.2))
CUT = Joining(lead_s=(-0.2, -0.05), trail_s=(-0.1, -0.1))


def joined(hums, config: Joining, seed: int = 0) -> JoinedSplit:
    made = join(hums["train"], config, seed)
    assert isinstance(made, JoinedSplit)
    return made


def test_every_utterance_is_heard_once_where_its_words_are(hums):
    split, given = joined(hums, SEVERAL), hums["train"]
    members = [member for each in split.groups for member in each.members]
    assert sorted(members) == list(range(len(given)))
    assert {len(each.members) for each in split.groups} == {1, 2, 3, 4}
    examples = split.read(range(len(split)))
    for row, (example, recording) in enumerate(zip(examples, split.groups, strict=True)):
        audio, at, words = example["audio"], 0, []
        assert len(audio) == split.table.samples[row]
        for member, silence in zip(recording.members, recording.silence, strict=False):
            start = at + silence * 16
            assert not audio[at:start].any()
            (stored,) = given.read([member])
            at = start + len(stored["audio"])
            np.testing.assert_array_equal(audio[start:at], stored["audio"])
            words.append(stored["word_ms"] + start / 16)
        assert at == len(audio)  # no trail
        np.testing.assert_allclose(example["word_ms"], np.concatenate(words), atol=1e-3)
        lead, *pauses, _ = recording.silence
        assert 0 <= lead <= 200 and all(100 <= pause <= 300 for pause in pauses)
        texts = [given.table.translation[member] for member in recording.members]
        assert split.table.translation[row] == " ".join(texts)
        assert split.table.words[row] == len(example["word_ms"])


def test_joined_recordings_are_no_longer_than_asked(hums):
    split = joined(hums, replace(SEVERAL, utterances=40, seconds=3.0, lead_s=(0.0, 0.0)))
    several = np.array([len(each.members) > 1 for each in split.groups])
    assert several.any() and (split.table.samples[several] <= 3 * RATE).all()


def test_beginnings_and_ends_are_cut_a_quarter_at_most(hums):
    split, given = joined(hums, CUT), hums["train"]
    for example, recording in zip(split.read(range(len(split))), split.groups, strict=True):
        (stored,) = given.read(recording.members)
        whole, (lead, trail) = stored["audio"], recording.silence
        assert -min(200, len(whole) // 64) <= lead <= -min(50, len(whole) // 64)
        assert trail == -min(100, len(whole) // 64)
        audio = example["audio"]
        np.testing.assert_array_equal(audio, whole[-lead * 16 : len(whole) + trail * 16])
        times = example["word_ms"]
        assert (times >= 0).all() and times.max() <= len(audio) / 16
        inside = (stored["word_ms"] >= -lead) & (stored["word_ms"] <= len(whole) / 16 + trail)
        np.testing.assert_allclose(times[inside], stored["word_ms"][inside] + lead, atol=1e-3)
        frames = labels(times, len(audio) // 160)
        assert frames.max() <= len(times)


def test_recordings_follow_from_the_seed_and_the_option(hums, text):
    one, same, other = (joined(hums, SEVERAL, seed) for seed in (0, 0, 1))
    assert one.groups == same.groups != other.groups
    assert SEVERAL.active and CUT.active and not Joining().active
    assert join(text["train"], SEVERAL, 0) is text["train"]


def test_a_split_without_what_the_model_needs_is_refused(hums_root, tmp_path):
    rows = [json.loads(line) for line in (hums_root / "train.jsonl").read_text().splitlines()[:4]]
    for row in rows:
        row["audio"] = str(hums_root / row["audio"])
    bare = [{name: row[name] for name in ("audio", "translation")} for row in rows]
    build_rows(tmp_path, {"train": rows, "bare": bare})
    small = VocabularyConfig(kind="characters")
    config = DataConfig(
        directory=tmp_path / "prepared", valid="bare", source=small, target=small, budget=BUDGET
    )
    init_run(config, tmp_path / "run")
    bad: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        (
            {},
            {"transcribed": True},
            "split bare: 4 of 4 examples have no transcript, which --model.text",
        ),
        ({"task": "transcription"}, {}, "no target, which --data.task transcription"),
        ({}, {"decides_at": "words"}, "split bare has no times of words"),
        ({"valid": "train"}, {"decides_at": "phonemes"}, "split train has no times of phonemes"),
    ]
    for changes, needs, message in bad:
        with pytest.raises(CorpusError, match=message):
            opened(replace(config, **changes), tmp_path / "run", **needs)
    assert opened(config, tmp_path / "run", decides_at="fixed").steps_per_epoch == 1


def opened(config: DataConfig, run: Path, **options: Any) -> TrainingInput:
    return open_input(config, run, seed=3, host=Host(), devices=1, **options)


def test_the_inputs_of_a_failed_attempt_are_made_anew(hums, tmp_path):
    """Until config.json, which guards the settings of the data, is written."""
    characters = VocabularyConfig(kind="characters")
    config = DataConfig(directory=hums.directory, source=characters, target=characters)
    donor, run = tmp_path / "donor", tmp_path / "run"
    few = replace(config, target=replace(characters, size=8))
    pitch = replace(config, features=Features(pitch=True))
    borrowed = replace(config, vocabularies_of=donor)
    init_run(few, donor)
    for attempt, small in ((config, False), (few, True), (pitch, False), (borrowed, True)):
        init_run(attempt, run)
        vocabularies, record = load_inputs(run)
        assert record.features == attempt.features
        assert (vocabularies.target.size == 8) == small
    (run / "config.json").touch()
    before = tree(run)
    init_run(pitch, run)
    assert tree(run) == before


def test_a_run_reads_joined_batches_from_disk_and_device(hums, tmp_path):
    small, budget = VocabularyConfig(kind="characters"), replace(BUDGET, frames=3000)
    config = DataConfig(
        directory=hums.directory, source=small, target=small, budget=budget, joining=SEVERAL
    )
    init_run(config, tmp_path)
    inputs = [opened(replace(config, held=held), tmp_path) for held in ("disk", "device")]
    for _ in range(inputs[0].steps_per_epoch):
        read, held = (next(each.train) for each in inputs)
        assert_same_batch(held, read)
    alone = opened(replace(config, joining=Joining()), tmp_path)
    rows = [row for _ in range(alone.steps_per_epoch) for row in real(next(alone.train))]
    assert sorted(rows) == list(range(37))  # each utterance alone
    one, several = ([*each.valid()] for each in (alone, inputs[0]))
    for plain, same in zip(one, several, strict=True):  # validation is on utterances
        assert_same_batch(same, plain)
