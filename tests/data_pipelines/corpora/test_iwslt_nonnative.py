import pytest
import soundfile

from data_pipelines.corpora import IwsltNonNative
from data_pipelines.utterance import Clip, CorpusError, Span, Utterance
from tests.helpers.corpora import real_corpus, sizes, skips, tone, write

HEADER = "doc\tsent\tstart_s\tend_s\ten_OSt\ten_OStt\tword_end_s\tde\tcs\tcs2\n"
FIRST = (
    "dev_ami-IS1001a\t0\t14.48\t17.37\tHow are you?\tHow are you?\t15.99 16.07 17.37\t"
    "Wie geht's, Jürg?\tJak se máš?\t\n"
)
SECOND = "test_x\t3\t0.5\t1.0\tHello.\tHello.\t1.0\tGrüß Gott. \tDobrý den.\tAhoj.\n"


@pytest.fixture
def root(tmp_path):
    write(tmp_path / "manifest.tsv", HEADER + FIRST + SECOND)
    tone(tmp_path / "dev_ami-IS1001a.opus")
    tone(tmp_path / "test_x.opus")
    return tmp_path


def test_what_is_listed(root):
    listing = IwsltNonNative().read(root)
    assert not listing.skipped
    assert listing.splits["valid"] == [
        Utterance(
            id="dev_ami-IS1001a_0",
            transcript="How are you?",
            translation="Wie geht's, Jürg?",
            audio=Clip(path=root / "dev_ami-IS1001a.opus", offset_s=14.48, duration_s=2.89),
            speaker="dev_ami-IS1001a",
            words=(
                Span(text="How", start_ms=0.0, end_ms=1510.0),
                Span(text="are", start_ms=1510.0, end_ms=1590.0),
                Span(text="you?", start_ms=1590.0, end_ms=2890.0),
            ),
        )
    ]
    assert [u.translation for u in listing.splits["test"]] == ["Grüß Gott."]


def test_czech(root):
    listing = IwsltNonNative(target="cs").read(root)
    assert listing.splits["valid"][0].translation == "Jak se máš?"


def test_a_word_that_outlives_its_sentence(root):
    late = FIRST.replace("15.99 16.07 17.37", "15.99 18.00 17.37")
    write(root / "manifest.tsv", HEADER + late)
    words = IwsltNonNative().read(root).splits["valid"][0].words
    assert [(w.start_ms, w.end_ms) for w in words] == [(0, 1510), (1510, 2890), (2890, 2890)]


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ("dev_a\t0\t\t\tHi.\t\t\tHallo.\tAhoj.\t", "no times"),
        ("dev_a\t0\t2\t2\tHi.\tHi.\t2\tHallo.\tAhoj.\t", "duration is not positive"),
        ("dev_a\t0\t2\t1.5\tHi.\t\t\tHallo.\tAhoj.\t", "duration is not positive"),
        ("dev_a\t0\t2\tnan\tHi.\t\t\tHallo.\tAhoj.\t", "malformed row"),
        ("dev_a\t0\t2\t3\tHi.\tHi.\t2.5 3\tHallo.\tAhoj.\t", "malformed row"),
        ("dev_a\t0\t2\t3\tHi.\tHi.\t1.5\tHallo.\tAhoj.\t", "malformed row"),
        ("dev_a\t0\t2\t3\tHi.\tHi.\t3\t\tAhoj.\t", "missing audio file"),
        ("test_x\t0\t2\t3\tHi.\tHi.\t3\t\tAhoj.\t", "empty text"),
        ("test_x\t0\t2\t3", "malformed row"),
    ],
)
def test_what_is_skipped(root, cells, reason):
    write(root / "manifest.tsv", HEADER + FIRST + cells + "\n")
    listing = IwsltNonNative().read(root)
    assert sizes(listing) == {"valid": 1}
    assert [r for _, r in skips(listing)] == [reason]


def test_wrong_places(root):
    with pytest.raises(CorpusError, match=r"no file manifest.tsv in"):
        IwsltNonNative().read(root.parent)
    write(root / "manifest.tsv", HEADER.replace("word_end_s", "ends"))
    with pytest.raises(CorpusError, match=r"no column word_end_s"):
        IwsltNonNative().read(root)


def test_the_real_corpus():
    listing = IwsltNonNative().read(real_corpus("speech/iwslt2020_nonnative"))
    assert sizes(listing) == {"valid": 538, "test": 802}
    assert [reason for _, reason in skips(listing)] == ["no times"] * 14
    found = [u for split in listing.splits.values() for u in split]
    assert len(found) + len(listing.skipped) == 1354
    assert sum(len(u.words) for u in found) == 12961
    lengths = {}
    for u in found:
        assert isinstance(u.audio, Clip) and u.audio.duration_s
        path = u.audio.path
        lengths[path] = lengths.get(path) or soundfile.info(path).duration
        assert u.audio.offset_s + u.audio.duration_s <= lengths[path] + 0.5
        assert all(0 <= w.start_ms <= w.end_ms <= u.audio.duration_s * 1e3 + 1 for w in u.words)
    assert len(lengths) == 46  # of the 47 documents, one has no times
