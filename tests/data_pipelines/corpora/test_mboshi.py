import io
import zipfile

import pytest
import soundfile

from data_pipelines.corpora import Mboshi
from data_pipelines.utterance import Clip, CorpusError, Span, Utterance
from tests.helpers.corpora import real_corpus, sizes, skips, tone, write

HEADER = "id\tsplit\tspeaker\tseconds\tmboshi\tfrench\tword_alignment(silver: word@start-end s)\n"
FIRST = (
    "abiayi_1\ttrain\tabiayi\t0.5\tKyéma yeékirá\tCe singe où\t"
    "SIL@0.116-0.216 kyema@0.216-0.3 SIL@0.3-0.35 yeekirá@0.35-0.45\n"
)
SECOND = "kouarata_2\tdev\tkouarata\t0.5\tMósωngώsώ\tMontre-moi.\tmosωngώsώ@0.1-0.4\n"


@pytest.fixture
def root(tmp_path):
    write(tmp_path / "manifest.tsv", HEADER + FIRST + SECOND)
    return tmp_path


def pack(root, *names):
    with zipfile.ZipFile(root / "mboshi_fr.opus.zip", "w") as archive:
        for name in names:
            path = tone(root.parent / f"{name}.opus")
            archive.write(path, path.name)
    return root / "mboshi_fr.opus.zip"


def test_what_is_listed(root):
    archive = pack(root, "abiayi_1", "kouarata_2")
    listing = Mboshi().read(root)
    assert not listing.skipped
    assert listing.splits == {
        "train": [
            Utterance(
                id="abiayi_1",
                transcript="Kyéma yeékirá",
                translation="Ce singe où",
                audio=Clip(path=archive, member="abiayi_1.opus"),
                speaker="abiayi",
                words=(
                    Span(text="kyema", start_ms=216.0, end_ms=300.0),
                    Span(text="yeekirá", start_ms=350.0, end_ms=450.0),
                ),
            )
        ],
        "valid": [
            Utterance(
                id="kouarata_2",
                transcript="Mósωngώsώ",
                translation="Montre-moi.",
                audio=Clip(path=archive, member="kouarata_2.opus"),
                speaker="kouarata",
                words=(Span(text="mosωngώsώ", start_ms=100.0, end_ms=400.0),),
            )
        ],
    }


@pytest.mark.parametrize("folder", [".", "audio"])
def test_extracted_audio(root, folder):
    for name in ("abiayi_1", "kouarata_2"):
        tone(root / folder / f"{name}.wav")
    (found,) = Mboshi().read(root).splits["train"]
    assert found.audio == Clip(path=root / folder / "abiayi_1.wav")


def test_what_is_skipped(root):
    pack(root, "abiayi_1", "x")
    rows = ("x\ttrain\ta\t1\tM\tF\tword@1\n", "x\ttrain\ta\t1\tM\tF\tw@2-1\n", "x\ttrain\n")
    write(
        root / "manifest.tsv", HEADER + FIRST + SECOND + "".join(rows) + "x\ttrain\ta\t1\t\tF\t\n"
    )
    listing = Mboshi().read(root)
    assert sizes(listing) == {"train": 1}
    assert skips(listing) == [
        ("x", "malformed row"),
        ("x", "malformed row"),
        ("manifest.tsv:6", "malformed row"),
        ("x", "empty text"),
        ("kouarata_2", "missing audio file"),
    ]


def test_wrong_places(root):
    with pytest.raises(CorpusError, match=r"no zip archive of audio, nor .*found manifest.tsv"):
        Mboshi().read(root)
    write(root / "mboshi_fr.opus.zip", "PK cut short")
    with pytest.raises(CorpusError, match=r"not a whole zip archive"):
        Mboshi().read(root)
    with pytest.raises(CorpusError, match=r"no file manifest.tsv"):
        Mboshi().read(root.parent)
    write(root / "manifest.tsv", HEADER.replace("french", "francais"))
    pack(root, "abiayi_1")
    with pytest.raises(CorpusError, match=r"no column french"):
        Mboshi().read(root)


def test_the_real_corpus():
    listing = Mboshi().read(real_corpus("speech/mboshi_fr"))
    assert sizes(listing) == {"train": 4616, "valid": 514}
    assert not listing.skipped
    found = [u for split in listing.splits.values() for u in split]
    assert len({u.speaker for u in found}) == 3
    assert sum(len(u.words) for u in found) == 39787 - 9231  # all but the silences
    first = found[0]
    assert isinstance(first.audio, Clip) and first.audio.member
    with zipfile.ZipFile(first.audio.path) as archive:
        length = soundfile.info(io.BytesIO(archive.read(first.audio.member))).duration
    assert first.words[-1].end_ms < length * 1e3 < first.words[-1].end_ms + 1000
