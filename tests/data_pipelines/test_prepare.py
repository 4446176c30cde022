"""The same options give the same bytes, however the preparation went; errors say what to do."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import tensorflow_datasets as tfds

from data_pipelines import prepare as preparing
from data_pipelines.corpora import CoVoST2, Manifest, Phrasebook
from data_pipelines.dataset import open_corpus
from data_pipelines.prepare import Limits, Preparation, prepare
from data_pipelines.utterance import CorpusError, Listing, Utterance, Voice
from tests.helpers.corpora import build, finished, python, shards_of, times, tree, write_hums

HUMS = Preparation(corpus=Manifest())


def test_the_same_options_give_the_same_bytes(hums, hums_root, tmp_path):
    with shards_of(10):
        prepare(HUMS, hums_root, tmp_path / "again", workers=1)
    assert tree(tmp_path / "again") == tree(hums.directory)


@pytest.mark.slow
def test_synthesis_gives_the_same_bytes(spoken, spoken_corpus, tmp_path):
    build(spoken_corpus, None, tmp_path / "again")
    assert tree(tmp_path / "again") == tree(spoken.directory)
    build(replace(spoken_corpus, seed=1), None, tmp_path / "other")
    assert tree(tmp_path / "other")["train.tsv"] != tree(spoken.directory)["train.tsv"]


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


def test_options_of_the_same_name_are_distinguished():
    short, shorter = (Preparation(corpus=CoVoST2(min_seconds=s)) for s in (1.0, 0.5))
    assert short.described() != shorter.described()


def test_directories_with_other_things_are_refused(hums_root, tmp_path):
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "mine.txt").write_text("Dear Ann")
    for place in (tmp_path / "letters", tmp_path / "letters" / "mine.txt"):
        with pytest.raises(CorpusError, match="holds something else: name an empty or a new"):
            prepare(HUMS, hums_root, place)
    assert tree(tmp_path / "letters") == {"mine.txt": b"Dear Ann"}


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


def test_killed_while_tidying_up(hums, hums_root, tmp_path):
    shutil.copytree(hums.directory, tmp_path / "copy")
    (tmp_path / "copy" / ".work").mkdir()
    (tmp_path / "copy" / ".work" / "train-00000.json").write_text("{}")
    prepare(HUMS, hums_root, tmp_path / "copy")
    assert tree(tmp_path / "copy") == tree(hums.directory)


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


def test_tfds_reads_what_was_prepared(hums):
    read = tfds.builder_from_directory(hums.directory)
    assert read.info.splits["train"].num_examples == 37
    source: Any = read.as_data_source("train")  # pyright: ignore[reportCallIssue]
    assert [example["id"].decode() for example in source] == list(hums["train"].table.id)


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
    with pytest.raises(CorpusError, match="phrasebook in None holds no sentence"):
        prepare(Preparation(corpus=Phrasebook(train=0, valid=0, test=0)), None, tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_a_split_called_all_is_refused(tmp_path):
    with pytest.raises(CorpusError, match="`all` means every split"):
        build(Manifest(), write_hums(tmp_path / "tree", {"all": 1}), tmp_path / "to")
    assert not (tmp_path / "to").exists()
