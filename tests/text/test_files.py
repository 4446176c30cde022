"""Vocabulary files that are not what they should be: each is refused by name."""

import json

import pytest

from simuljax.text import VocabularyError, load
from simuljax.text.vocabulary import read_content, write_content
from tests.text.samples import SPELLING_KINDS, vocabulary


@pytest.fixture
def saved(tmp_path):
    return vocabulary("subword_nmt").save(tmp_path / "vocab")


def refused(path, reason):
    with pytest.raises(VocabularyError, match=reason) as refusal:
        load(path)
    assert str(path) in str(refusal.value)


@pytest.mark.parametrize("kind", SPELLING_KINDS)
@pytest.mark.parametrize("part", [0.0, 0.3, 0.99])
def test_a_file_cut_short(kind, part, tmp_path):
    path = vocabulary(kind).save(tmp_path / "vocab")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(part * len(whole))])
    refused(path, "damaged")


def test_a_character_changed_in_the_middle(saved):
    text = saved.read_text(encoding="utf-8")
    saved.write_text(text.replace('"a@@"', '"b@@"'), encoding="utf-8")
    refused(saved, "checksum")


def test_bytes_that_are_no_text(saved):
    saved.write_bytes(b"\xff\xfe\x00")
    refused(saved, "damaged")


def test_another_version(saved):
    document = json.loads(saved.read_text(encoding="utf-8"))
    saved.write_text(json.dumps(document | {"version": 2}))
    refused(saved, "version 2, but this simuljax reads 1")


@pytest.mark.parametrize("content", ["[]", "{}", '{"model": {"type": "BPE"}}'])
def test_a_file_of_something_else(saved, content):
    saved.write_text(content)
    refused(saved, "not a vocabulary of simuljax")


def test_no_file(tmp_path):
    refused(tmp_path / "vocab.json", "does not exist")


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "characters"])
def test_content_of_another_kind(saved, kind):
    content = read_content(saved)
    content["config"]["kind"] = kind
    write_content(saved, content)
    refused(saved, "does not hold a usable vocabulary")


@pytest.mark.parametrize(
    "change",
    [
        {"pieces": ["a", "b"]},
        {"merges": ["a b c"]},
        {"config": {"kind": "subword_nmt", "colour": "red"}},
    ],
)
def test_content_that_makes_no_sense(saved, change):
    write_content(saved, read_content(saved) | change)
    refused(saved, "does not hold a usable vocabulary")


@pytest.mark.parametrize("model", ["", "!!!", "AAAA"])
def test_a_model_that_is_none(tmp_path, model):
    path = vocabulary("unigram").save(tmp_path / "vocab")
    write_content(path, read_content(path) | {"model": model})
    refused(path, "does not hold a usable vocabulary")


def test_pieces_of_another_model(tmp_path):
    path = vocabulary("unigram").save(tmp_path / "vocab")
    write_content(path, read_content(path) | {"pieces": list(vocabulary("bpe").pieces)})
    refused(path, "not those of the model")
