import gzip
import zipfile

import pytest

from data_pipelines.corpora import Multi30kSpeech
from data_pipelines.corpora.multi30k_speech import time_phonemes
from data_pipelines.utterance import Clip, CorpusError, Span, Utterance
from tests.helpers.corpora import real_corpus, sizes, skips, tone, write

HEADER = "id\tvoice\tspeed\tseconds\ten\tphonemes\tphone_end_frames_25ms\n"
ROW = "test_2016_flickr_00001\tbf_lily\t1\t0.4\tA bar.\tɐ bˈɑː.\t4 5 6 8 9 11 12 14 16\n"


@pytest.fixture
def root(tmp_path):
    write(tmp_path / "test_2016_flickr.first500.tsv", HEADER + ROW)
    with zipfile.ZipFile(tmp_path / "test_2016_flickr.first500.opus.zip", "w") as archive:
        archive.write(tone(tmp_path / "a.opus"), "test_2016_flickr_00001.opus")
    write(tmp_path / "test_2016_flickr.de", "Ein Hut.\nEine Bar für alle.\n")
    return tmp_path


def test_what_is_listed(root):
    listing = Multi30kSpeech().read(root)
    assert not listing.skipped
    archive = root / "test_2016_flickr.first500.opus.zip"
    assert listing.splits == {
        "test": [
            Utterance(
                id="test_2016_flickr_00001",
                transcript="A bar.",
                translation="Eine Bar für alle.",
                audio=Clip(path=archive, member="test_2016_flickr_00001.opus"),
                speaker="bf_lily",
                words=(
                    Span(text="A", start_ms=15, end_ms=40),
                    Span(text="bar.", start_ms=65, end_ms=215),
                ),
                phonemes=(
                    Span(text="ɐ", start_ms=15, end_ms=40),
                    Span(text="b", start_ms=65, end_ms=115),
                    Span(text="ˈɑː", start_ms=115, end_ms=215),
                ),
            )
        ]
    }


def test_the_delay_never_leads_before_the_beginning():
    ((first,), *_) = time_phonemes("a", [1, 4, 5])
    assert (first.start_ms, first.end_ms) == (0, 15)


def test_compressed_translations_elsewhere(root):
    text = (root / "test_2016_flickr.de").read_bytes()
    (root / "test_2016_flickr.de").unlink()
    (root / "text").mkdir()
    (root / "text" / "test_2016_flickr.de.gz").write_bytes(gzip.compress(text))
    (found,) = Multi30kSpeech(translations=root / "text").read(root).splits["test"]
    assert found.translation == "Eine Bar für alle."
    with pytest.raises(CorpusError, match=r"no file test_2016_flickr.de\[.gz\] in"):
        Multi30kSpeech().read(root)


def test_what_is_skipped(root):
    short, unspoken = ROW.replace(" 16\n", "\n"), ROW.replace("00001", "00000")
    strange, cut = ROW.replace("_00001", "_one"), "test_2016_flickr_00001\n"
    table = HEADER + short + unspoken + strange + cut + ROW
    write(root / "test_2016_flickr.first500.tsv", table)
    listing = Multi30kSpeech().read(root)
    assert sizes(listing) == {"test": 1}
    assert skips(listing) == [
        ("test_2016_flickr_00001", "malformed row"),
        ("test_2016_flickr_00000", "missing audio file"),
        ("test_2016_flickr.first500.tsv:4", "malformed row"),
        ("test_2016_flickr.first500.tsv:5", "malformed row"),
    ]


def test_wrong_places(root):
    write(root / "test_2016_flickr.de", "Ein Hut.\n")
    with pytest.raises(CorpusError, match=r"00001 is beyond the 1 lines of test_2016_flickr.de"):
        Multi30kSpeech().read(root)
    (root / "test_2016_flickr.first500.tsv").unlink()
    with pytest.raises(CorpusError, match=r"no file test_2016_flickr.first500.tsv"):
        Multi30kSpeech().read(root)
    with pytest.raises(CorpusError, match=r"no archive \*.opus.zip"):
        Multi30kSpeech().read(root / "nowhere")


def test_the_real_corpus():
    corpus = Multi30kSpeech(translations=real_corpus("text/multi30k"))
    listing = corpus.read(real_corpus("speech/multi30k_kokoro"))
    assert sizes(listing) == {"test": 500}
    found = listing.splits["test"]
    assert found[0].transcript == "A man in an orange hat starring at something."
    assert found[0].translation == "Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt."
    assert len({u.speaker for u in found}) == 28
    assert sum(not u.words for u in found) == 3  # those with numbers, said in several words
    for u in found:
        times = [t for p in u.phonemes for t in (p.start_ms, p.end_ms)]
        assert times == sorted(times)
