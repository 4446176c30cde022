"""A run remembers what it has learnt from."""

import json
import os

import pytest

from data_pipelines.dataset import USED_DATA, check_used_data, digest, record_used_data
from data_pipelines.utterance import CorpusError


@pytest.fixture
def tables(tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for split in ("train", "valid"):
        rewrite(corpus / f"{split}.tsv", f"{split}, as it was")
    return {"train": (corpus, "train"), "valid": (corpus, "valid")}


def rewrite(table, text):
    before = table.stat().st_mtime_ns if table.exists() else 0
    table.write_text(text)
    os.utime(table, ns=(before + 1, before + 1))


def test_a_corpus_of_other_texts_under_the_same_name_is_refused(tables, tmp_path):
    record_used_data(tmp_path, tables)
    check_used_data(tmp_path, tables)
    rewrite(tables["valid"][0] / "valid.tsv", "of other texts")
    with pytest.raises(CorpusError, match=r"trained on another valid than .*corpus holds now"):
        check_used_data(tmp_path, tables)


def test_what_is_not_known_is_not_refused(tables, tmp_path):
    check_used_data(tmp_path, tables)  # a run from before there were such notes
    record_used_data(tmp_path, tables | {"text": (tmp_path, "train")})
    assert json.loads((tmp_path / USED_DATA).read_text())["text"] is None
    for corpus, split in tables.values():
        (corpus / f"{split}.tsv").unlink()
    check_used_data(tmp_path, tables)  # the corpus was removed: nothing is compared
    assert digest(tmp_path, "train") is None
