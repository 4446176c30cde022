"""What a prepared directory holds, its statistics, and what is said when it is damaged."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data_pipelines import dataset
from data_pipelines.batches import iterate
from data_pipelines.corpora import Manifest
from data_pipelines.dataset import Split, Table, describe, open_corpus
from data_pipelines.input import feature_record
from data_pipelines.plan import make_plan
from data_pipelines.prepare import Limits
from data_pipelines.utterance import CorpusError
from simuljax.audio import Features, extract, load_features
from simuljax.config.experiment import Budget
from simuljax.config.fields import ConfigError
from tests.helpers import corpora
from tests.helpers.corpora import RATE, SIZES, batches_of, build, build_rows, hum, stored, tree

FILES = {"dataset_info.json", "features.json", "skipped.tsv", "statistics.json", "summary.json"}


def test_what_a_prepared_directory_holds(hums):
    shards = {"train": 4, "valid": 1, "test": 1}
    records = {
        f"manifest-{split}.array_record-{k:05d}-of-{count:05d}"
        for split, count in shards.items()
        for k in range(count)
    }
    assert set(tree(hums.directory)) == FILES | records | {f"{split}.tsv" for split in SIZES}
    assert {name: len(split) for name, split in hums.splits.items()} == SIZES
    numbers = hums.summary["splits"]["train"]
    samples = sum(len(example["audio"]) for example in stored(hums["train"]))
    assert numbers["sentences"] == 37 and numbers["speakers"] == 3 and numbers["skipped"] == 0
    assert numbers["hours"] == pytest.approx(samples / RATE / 3600, abs=1e-4)
    assert numbers["timed_words"] == sum(1 + n % 4 for n in range(37))
    assert "train                   37" in describe(hums.summary)
    assert "no utterance has word times" not in describe(hums.summary)


def test_records_and_table_say_what_the_corpus_says(hums, hums_root):
    rows = [json.loads(line) for line in (hums_root / "train.jsonl").read_text().splitlines()]
    table = hums["train"].table
    for n, (row, example) in enumerate(zip(rows, stored(hums["train"]), strict=True)):
        assert example["id"].decode() == table.id[n] == row["id"]
        assert example["speaker"].decode() == table.speaker[n] == row["speaker"]
        assert example["transcript"].decode() == table.transcript[n] == row["transcript"]
        assert example["translation"].decode() == table.translation[n] == row["translation"]
        assert example["words"].decode().split() == [word for word, _, _ in row["words"]]
        seconds = [(start, end) for _, start, end in row["words"]]
        np.testing.assert_allclose(example["word_ms"], 1000 * np.array(seconds), atol=1e-3)
        assert len(example["audio"]) == table.samples[n] and table.words[n] == len(row["words"])
    np.testing.assert_array_equal(stored(hums["train"])[0]["audio"], hum(0.3, 150))


def test_statistics_are_those_of_the_real_frames(hums):
    audio = [example["audio"] for example in stored(hums["train"])]
    padded = np.zeros((len(audio), max(map(len, audio))), np.int16)
    for row, samples in zip(padded, audio, strict=True):
        row[: len(samples)] = samples
    values = np.asarray(extract(padded, Features()), np.float64)
    counts = [1 + (len(samples) - 400) // 160 for samples in audio]
    real = np.concatenate([value[:count] for value, count in zip(values, counts, strict=True)])
    record = load_features(hums.directory / "statistics.json")
    assert record.statistics.frames == len(real)
    mean, std = real.mean(0), real.std(0)
    tones = mean > 8  # far above a hum's tones a bin holds float32 rounding, which differs by CPU
    assert tones.sum() > 20
    np.testing.assert_allclose(record.statistics.mean[tones], mean[tones], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(record.statistics.mean, mean, atol=5e-3)
    np.testing.assert_allclose(record.statistics.std[tones], std[tones], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(record.statistics.std, std, rtol=1e-2, atol=1e-2)


class Memory(list):
    """Examples by position, as a data source gives them."""

    def __getitems__(self, rows: list[int]) -> list[dict[str, np.ndarray]]:
        return [self[row] for row in rows]


def test_statistics_of_an_utterance_longer_than_any_batch():
    long = np.random.default_rng(0).integers(-99, 99, 401 * RATE).astype(np.int16)
    source, zeros, none = Memory([{"audio": long}, {"audio": hum(0.5)}]), np.zeros(2, int), ("", "")
    samples = np.array([len(example["audio"]) for example in source])
    texts = dict.fromkeys(("id", "speaker", "transcript", "translation"), none)
    table = Table(samples=samples, words=zeros, phonemes=zeros, **texts)
    record = feature_record(Split(name="train", table=table, source=source))
    assert record.statistics.frames == sum(1 + (samples - 400) // 160)


def test_without_speech_to_train_on_there_are_no_statistics(tmp_path, text):
    root = corpora.write_hums(tmp_path / "tree", {"valid": 3})  # which has no word times
    corpus = build(Manifest(), root, tmp_path / "to")
    assert list(corpus.splits) == ["valid"] and len(corpus["valid"]) == 3
    assert "no utterance has word times" in describe(corpus.summary)
    with pytest.raises(CorpusError, match="has no split 'train'; it has valid"):
        corpus["train"]
    assert "word times" not in describe(text.summary)
    assert text.summary["splits"]["train"]["hours"] == 0 and len(text["train"]) == 50
    for without in (corpus, text):
        assert not (without.directory / "statistics.json").exists()


def test_a_split_of_which_nothing_is_left(tmp_path):
    root = corpora.write_hums(tmp_path, {"train": 3, "valid": 2, "train_b": 1})
    corpus = build(Manifest(), root, tmp_path / "to", limits=Limits(max_seconds=0.2))
    assert [len(corpus[name]) for name in ("train", "train_b", "valid")] == [0, 0, 2]
    assert corpus.summary["skipped"] == {"too long": 4}
    assert not (corpus.directory / "statistics.json").exists()
    with pytest.raises(ValueError, match="the split is empty"):
        make_plan(corpora.examples_of(corpus).lengths, Budget())
    assert len(next(iterate(batches_of(corpus, "valid"))).index) == 4


def test_tabs_and_line_breaks_in_names(tmp_path):
    corpora.write_hums(tmp_path, {"some": 2})
    rows = [
        {"audio": "some0.wav", "translation": "Ja.\u2028Nein.", "id": "a\tb", "speaker": "c\nd"},
        {"audio": "some1.wav", "translation": '"', "id": "e\rf", "speaker": ""},
    ]
    (tmp_path / "some.jsonl").unlink()
    table = build_rows(tmp_path, {"train": rows})["train"].table
    assert table.id == ("a b", "e f") and table.speaker == ("c d", "")
    assert table.translation == ("Ja. Nein.", '"')


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def template(corpus: Path) -> None:
    """TFDS would format a name of a gigabyte."""
    path = corpus / "dataset_info.json"
    path.write_text(path.read_text().replace("{DATASET}-{SPLIT}", "{SPLIT:>999999999}"))


SHARD = "manifest-train.array_record-00001-of-00004"
DAMAGE = {
    "no table": (lambda d: (d / "test.tsv").unlink(), "test.tsv is missing"),
    "empty table": (lambda d: cut(d / "train.tsv", 0), "not a whole table"),
    "table cut in a row": (lambda d: cut(d / "train.tsv", 1000), "not a whole table"),
    "table cut after a row": (
        lambda d: cut(d / "train.tsv", (d / "train.tsv").read_bytes()[:1000].rindex(b"\n") + 1),
        "lists .* the records hold 37",
    ),
    "no shard": (lambda d: (d / SHARD).unlink(), "the records of train have .* and had"),
    "shard cut": (lambda d: cut(d / SHARD, 70_000), "the records of train have .* and had"),
    "no features": (lambda d: (d / "features.json").unlink(), "features.json is missing"),
    "a name to format": (template, "filepathtemplate is '{SPLIT:>999999999}"),
    "no summary": (lambda d: (d / "summary.json").unlink(), "there is no summary.json"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_corpus_says_what_is_wrong(hums, tmp_path, kind):
    harm, message = DAMAGE[kind]
    shutil.copytree(hums.directory, tmp_path / "copy")
    assert len(open_corpus(tmp_path / "copy")["train"]) == 37
    harm(tmp_path / "copy")
    with pytest.raises(CorpusError, match=message) as caught:
        open_corpus(tmp_path / "copy")
    assert str(tmp_path) in str(caught.value) and "prepare" in str(caught.value)


def test_a_corpus_of_other_texts_under_the_same_name_is_refused(tmp_path):
    tables = {name: (tmp_path, name) for name in ("train", "valid", "gone")}
    for split in ("train", "valid"):
        (tmp_path / f"{split}.tsv").write_text(f"{split}, as it was")
    dataset.check_used_data(tmp_path, tables)  # nothing is recorded
    dataset.record_used_data(tmp_path, tables)
    assert json.loads((tmp_path / dataset.USED_DATA).read_text())["gone"] is None
    (tmp_path / "train.tsv").unlink()
    dataset.check_used_data(tmp_path, tables)  # what is gone is not compared
    (tmp_path / "valid.tsv").write_text("of other texts")
    os.utime(tmp_path / "valid.tsv", ns=(1, 1))
    with pytest.raises(CorpusError, match=r"trained on another valid than .* holds now"):
        dataset.check_used_data(tmp_path, tables)


def test_a_corpus_cannot_name_modules_to_import(hums, tmp_path, monkeypatch):
    corpus = shutil.copytree(hums.directory, tmp_path / "corpus")
    (tmp_path / "planted.py").write_text("raise SystemExit('it was imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    features = json.loads((corpus / "features.json").read_text())
    features["featuresDict"]["features"]["id"] = {"pythonClassName": "planted.Text"}
    (corpus / "features.json").write_text(json.dumps(features))
    with pytest.raises(CorpusError, match=r"names the class 'planted\.Text'"):
        open_corpus(corpus)


@pytest.mark.parametrize("name", ["dataset_info.json", "features.json", "summary.json"])
@pytest.mark.parametrize("content", ["{", "[]", "[" * 100_000, '{"splits": 3}'])
def test_damaged_metadata_is_named(hums, tmp_path, name, content):
    corpus = shutil.copytree(hums.directory, tmp_path / "corpus")
    (corpus / name).write_text(content)
    with pytest.raises((ConfigError, CorpusError), match=f"(?s){name}.*damaged|damaged.*{name}"):
        open_corpus(corpus)


def test_damaged_records_are_named_when_they_are_read(hums, tmp_path):
    corpus = shutil.copytree(hums.directory, tmp_path / "corpus")
    train = open_corpus(corpus)["train"]
    assert len(train.read([11, 12])) == 2
    data = bytearray((corpus / SHARD).read_bytes())  # of the examples 10 to 19
    data[300:20_000] = bytes(19_700)
    (corpus / SHARD).write_bytes(data)
    train = open_corpus(corpus)["train"]
    assert len(train.read([0, 36])) == 2
    with pytest.raises(CorpusError, match="the records of train are damaged"):
        train.read([*range(10, 20)])
    other = replace(train, table=replace(train.table, samples=train.table.samples + 1))
    with pytest.raises(CorpusError, match="other lengths than the table lists"):
        other.read([0])
