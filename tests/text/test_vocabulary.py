"""What holds for every kind of vocabulary."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simuljax.text import BOS, EOS, PAD, UNK, VocabularyConfig, VocabularyError, clean, learn, load
from simuljax.text.vocabulary import read_content, write_content
from tests.text.samples import (
    CORPORA,
    ENGLISH,
    GERMAN,
    JAPANESE,
    KINDS,
    SPELLING_KINDS,
    real_lines,
    vocabulary,
)

LANGUAGES = ("en", "de")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("kind", SPELLING_KINDS)
def test_a_sentence_comes_back_as_it_was(kind, language):
    vocab = vocabulary(kind, language)
    for sentence in CORPORA[language]:
        ids = vocab.encode(sentence)
        assert vocab.decode(ids) == sentence
        assert UNK not in ids
        assert vocab.decode([PAD, BOS, *ids, EOS, PAD]) == sentence


@pytest.mark.parametrize("kind", ["characters", "unigram", "bpe"])
def test_japanese_comes_back_as_it_was(kind):
    vocab = vocabulary(kind, "ja")
    assert [vocab.decode(vocab.encode(s)) for s in JAPANESE] == list(JAPANESE)


def test_ids_may_be_an_array():
    vocab = vocabulary("unigram")
    assert vocab.decode(np.array(vocab.encode(ENGLISH[0]))) == ENGLISH[0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_special_ids_are_the_same_everywhere(kind):
    vocab = vocabulary(kind)
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
    assert vocab.pieces[:4] == ("<pad>", "<s>", "</s>", "<unk>")
    assert vocab.decode([PAD, BOS, EOS]) == ""
    assert vocab.decode([UNK]) == "⁇"
    assert vocab.kind == kind
    assert vocab.size == len(vocab.pieces)


@pytest.mark.parametrize("kind", SPELLING_KINDS)
def test_a_text_about_special_pieces_has_none(kind):
    vocab = learn(["<s> and </s> and <unk> and <pad>"], VocabularyConfig(kind=kind, size=100))
    ids = vocab.encode("<s> and </s> and <unk>")
    assert not {PAD, BOS, EOS} & set(ids)
    if kind not in ("unigram", "bpe"):  # SentencePiece learns nothing from its own symbols
        assert vocab.decode(ids) == "<s> and </s> and <unk>"


@pytest.mark.parametrize("kind", SPELLING_KINDS)
def test_what_was_never_seen_is_unknown_and_stays_visible(kind):
    vocab = vocabulary(kind)
    ids = vocab.encode("the Ω house")
    assert UNK in ids
    assert vocab.decode(ids) == "the ⁇ house"


@pytest.mark.parametrize("kind", SPELLING_KINDS)
def test_text_is_cleaned_before_it_is_read(kind):
    vocab = vocabulary(kind, "de")
    decomposed = "  Das\tHaus ist scho\u0308n\u00ad,\n aber "
    assert vocab.encode(decomposed) == vocab.encode("Das Haus ist schön, aber")


@pytest.mark.parametrize("kind", SPELLING_KINDS)
def test_lower_case(kind):
    vocab = learn(GERMAN, VocabularyConfig(kind=kind, size=200, lowercase=True, language="de"))
    assert not any(piece != piece.lower() for piece in vocab.pieces[4:])
    assert vocab.decode(vocab.encode("Das HAUS")) == "das haus"


@pytest.mark.parametrize("kind", SPELLING_KINDS)
def test_saved_and_loaded_is_equal(kind, tmp_path):
    vocab = vocabulary(kind, "de")
    path = vocab.save(tmp_path / "vocab")
    assert list(tmp_path.iterdir()) == [path]
    for again in (load(path), load(tmp_path / "vocab"), pickle.loads(pickle.dumps(vocab))):
        assert again == vocab
        assert again.encode(GERMAN[1]) == vocab.encode(GERMAN[1])
        assert again.decode(vocab.encode(GERMAN[1])) == GERMAN[1]


LEARN = """
import sys
from simuljax.text import VocabularyConfig, learn
from tests.text.samples import GERMAN
for kind in sys.argv[2:]:
    config = VocabularyConfig(kind=kind, size=150, language="de")
    learn(GERMAN, config).save(f"{sys.argv[1]}/{kind}")
"""


def test_the_same_lines_give_the_same_bytes(tmp_path):
    """In two processes that hash strings differently."""
    for seed in ("1", "2"):
        (tmp_path / seed).mkdir()
        environment = os.environ | {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", LEARN, str(tmp_path / seed), *SPELLING_KINDS]
        subprocess.run(command, check=True, env=environment, cwd=Path(__file__).parents[2])
    for kind in SPELLING_KINDS:
        one, two = ((tmp_path / seed / f"{kind}.json").read_bytes() for seed in ("1", "2"))
        assert one == two, kind
    assert (tmp_path / "1/bpe.json").read_bytes() != (tmp_path / "1/unigram.json").read_bytes()


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_passage_that_is_there_twice_is_read_once(kind):
    config = VocabularyConfig(kind=kind, size=120)
    twice = learn([*ENGLISH, *ENGLISH, *GERMAN], config)
    assert twice == learn([*ENGLISH, ENGLISH[0], *GERMAN], config)
    assert twice != learn([*ENGLISH, *ENGLISH[::-1], *GERMAN], config)  # other neighbours count


@pytest.mark.parametrize("kind", ["unigram", "bpe", "subword_nmt"])
def test_the_size_is_met_where_the_text_carries_it(kind):
    lines = real_lines("multi30k/train.de.gz", 1500)
    vocab = learn(lines, VocabularyConfig(kind=kind, size=600, language="de"))
    assert (vocab.size, vocab.note) == (600, "")
    assert len(set(vocab.pieces)) == 600
    same = [vocab.decode(vocab.encode(line)) == clean(line) for line in lines]
    assert np.mean(same) > 0.995  # Moses drops the space of "Mann ,"
    assert kind == "subword_nmt" or all(same)


@pytest.mark.parametrize("kind", SPELLING_KINDS)
def test_a_small_corpus_gives_what_it_can_and_says_so(kind):
    vocab = learn(["ein Haus", "ein Haus am See"], VocabularyConfig(kind=kind))
    assert vocab.size < 60
    assert "8000" in vocab.note
    assert vocab.decode(vocab.encode("ein See am Haus")) == "ein See am Haus"


@pytest.mark.parametrize("kind", SPELLING_KINDS)
def test_one_letter_is_a_corpus(kind):
    vocab = learn(["a"], VocabularyConfig(kind=kind))
    assert vocab.decode(vocab.encode("a a")) == "a a"


def test_characters_beyond_the_size_are_unknown_the_rare_ones_first():
    vocab = learn(["aaab b c"], VocabularyConfig(kind="characters", size=7))
    assert vocab.pieces[4:] == ("a", " ", "b")
    assert "1 rarest" in vocab.note
    assert vocab.decode(vocab.encode("a c")) == "a ⁇"


@pytest.mark.parametrize("kind", ["unigram", "bpe", "subword_nmt"])
def test_a_size_below_the_alphabet_is_refused_with_the_size_needed(kind):
    with pytest.raises(VocabularyError, match="at least") as refusal:
        learn(ENGLISH, VocabularyConfig(kind=kind, size=20))
    needed = int(str(refusal.value).split("at least ")[1].split(",")[0].rstrip("."))
    assert learn(ENGLISH, VocabularyConfig(kind=kind, size=needed)).size == needed
    with pytest.raises(VocabularyError, match="at least"):
        learn(ENGLISH, VocabularyConfig(kind=kind, size=needed - 1))


@pytest.mark.parametrize("texts", [[], ["", "  \t", "\u00ad"]])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_learn_from_is_refused(kind, texts):
    with pytest.raises(VocabularyError, match="no text to learn from"):
        learn(texts, VocabularyConfig(kind=kind))


def test_bad_arguments_are_refused():
    with pytest.raises(VocabularyError, match="list of lines"):
        learn("one string", VocabularyConfig())
    with pytest.raises(VocabularyError, match=r"'wordpiece'.*'unigram'"):
        VocabularyConfig(kind="wordpiece")  # pyright: ignore[reportArgumentType]
    with pytest.raises(VocabularyError, match="size is 4"):
        VocabularyConfig(size=4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("i", [-1, 10**6])
def test_foreign_ids_are_refused(kind, i):
    with pytest.raises(VocabularyError, match=f"id {i} is outside"):
        vocabulary(kind).decode([i])


# Vocabulary files that are not what they should be: each is refused by name.


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  a\u00a0 b\t\nc\u3000d ", "a b c d"),
        ("scho\u0308n", "schön"),
        ("a\x00b\x07 \ufeffc\u00adode\u200b", "ab code"),
        ("o\u00ad\u0308", "ö"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("\ud800x", "x"),
        ("\x85", ""),
    ],
)
def test_clean(text, expected):
    assert clean(text) == expected


@settings(deadline=None)
@given(st.text(max_size=30))
def test_cleaning_twice_changes_nothing(text):
    once = clean(text)
    assert clean(once) == once
    assert once == " ".join(once.split())
    once.encode("utf-8")
