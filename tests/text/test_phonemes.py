"""Real runs of eSpeak NG."""

import sys
from pathlib import Path

import pytest

from simuljax.text import VocabularyConfig, VocabularyError, learn, load
from simuljax.text.phonemes import fresh_library, phonemize
from simuljax.text.vocabulary import PhonemeVocabulary
from tests.text.samples import ENGLISH

pytest.importorskip("espeakng_loader", reason="eSpeak NG (simuljax[speech]) is missing")


def test_without_espeak_the_message_names_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    with pytest.raises(ImportError, match=r"pip install 'simuljax\[speech\]'"):
        phonemize("hello", "en")


def test_phonemes_of_words():
    assert phonemize("Hello, world!", "en") == "h ə l ˈəʊ | w ˈɜː l d"
    assert phonemize("Schöne Grüße", "de") == "ʃ ˈøː n ə | ɡ ɾ ˈyː s ə"


@pytest.mark.parametrize("text", ["", "...", " | "])
def test_nothing_said(text):
    assert phonemize(text, "en") == ""


@pytest.mark.parametrize("language", ["en", "en-us", "de", "fr", "es", "ja"])
def test_the_separators_are_ours_alone(language):
    text = "Das iPhone, the foo_bar | l'homme (en) 日本 <b> 5 % a_b"
    words = [word.split() for word in phonemize(text, language).split("|")]
    assert len(words) > 3 and all(words)
    assert not set("_()|") & {letter for word in words for part in word for letter in part}


def test_an_unknown_language_is_refused():
    with pytest.raises(VocabularyError, match="'xx'"):
        phonemize("hello", "xx")


def test_a_vocabulary_of_phonemes(tmp_path):
    vocab = learn(ENGLISH, VocabularyConfig(kind="phonemes", language="en"))
    assert isinstance(vocab, PhonemeVocabulary)
    for sentence in ENGLISH:
        spoken = phonemize(sentence, "en")
        assert vocab.decode(vocab.encode(sentence)) == spoken
        assert [vocab.ids[phoneme] for phoneme in spoken.split()] == vocab.encode(sentence)
    assert load(vocab.save(tmp_path / "vocab.json")) == vocab
    again = learn(ENGLISH, VocabularyConfig(kind="phonemes", language="en"))
    assert (
        again.save(tmp_path / "again.json").read_bytes() == (tmp_path / "vocab.json").read_bytes()
    )


def test_phonemes_leave_nothing_behind_for_a_synthesiser():
    with fresh_library() as library:
        loaded = library._handle
    phonemize("Good morning.", "en")
    maps = Path("/proc/self/maps").read_text()
    assert loaded and "libespeak-ng" not in maps
