import pytest

from data_pipelines.corpora import EuroparlST
from data_pipelines.utterance import Clip, CorpusError, Utterance
from tests.helpers.corpora import sizes, skips, tone, write

FIRST, SECOND = "en.20080924.31.3-243", "en.20080924.4.3-018"


def plant(root, split):
    folder = root / "en" / "de" / split
    write(folder / "segments.lst", f"{FIRST} 0.00 0.35\n{FIRST} 0.35 0.9\n{SECOND} 0.1 0.4\n")
    write(folder / "segments.en", "Madam President,\nI agree.\nThank you.\n")
    write(folder / "segments.de", "Frau Präsidentin!\nIch stimme zu.\nDanke schön.\n")
    write(folder / "speeches.lst", f"{FIRST}\n{SECOND}\n")
    write(folder / "speakers.lst", "Ann Müller\nBob\n")
    return folder


@pytest.fixture
def root(tmp_path):
    plant(tmp_path, "train")
    tone(tmp_path / "en" / "audios" / f"{FIRST}.flac", 1.0)
    tone(tmp_path / "en" / "audios" / f"{SECOND}.flac", 1.0)
    write(tmp_path / "en" / "audios" / f"{FIRST}.m4a", "the original may stay")
    return tmp_path


def test_what_is_listed(root):
    listing = EuroparlST().read(root)
    audios = root / "en" / "audios"
    assert not listing.skipped
    assert listing.splits["train"] == [
        Utterance(
            id=f"train_{FIRST}_0",
            transcript="Madam President,",
            translation="Frau Präsidentin!",
            audio=Clip(path=audios / f"{FIRST}.flac", offset_s=0.0, duration_s=0.35),
            speaker="Ann Müller",
        ),
        Utterance(
            id=f"train_{FIRST}_1",
            transcript="I agree.",
            translation="Ich stimme zu.",
            audio=Clip(path=audios / f"{FIRST}.flac", offset_s=0.35, duration_s=0.55),
            speaker="Ann Müller",
        ),
        Utterance(
            id=f"train_{SECOND}_0",
            transcript="Thank you.",
            translation="Danke schön.",
            audio=Clip(path=audios / f"{SECOND}.flac", offset_s=0.1, duration_s=0.3),
            speaker="Bob",
        ),
    ]


def test_the_splits_and_their_names(root):
    for split in ("dev", "test", "train-noisy"):
        plant(root, split)
    assert sizes(EuroparlST().read(root)) == {"train": 3, "valid": 3, "test": 3, "train_noisy": 3}


def test_only_m4a_says_how_to_convert(root):
    for path in (root / "en" / "audios").glob("*.flac"):
        path.unlink()
    with pytest.raises(CorpusError, match=r'libsndfile cannot.*\n.*ffmpeg -i "\$f" -ac 1'):
        EuroparlST().read(root)


def test_what_is_skipped(root):
    (root / "en" / "audios" / f"{SECOND}.flac").unlink()
    folder = plant(root, "dev")
    write(folder / "segments.lst", f"{FIRST} 0.35 0.35\n{FIRST} 0.35\n{FIRST} 1 2\n")
    write(folder / "segments.en", "Madam President,\nI agree.\n\n")
    listing = EuroparlST().read(root)
    assert sizes(listing) == {"train": 2}
    assert skips(listing) == [
        (f"train_{SECOND}_0", "missing audio file"),
        (f"dev_{FIRST}_0", "duration is not positive"),
        (f"dev_{FIRST}_1", "malformed row"),
        (f"dev_{FIRST}_2", "empty text"),
    ]


def test_unequal_line_counts(root):
    write(root / "en" / "de" / "train" / "segments.de", "Eins.\n")
    with pytest.raises(CorpusError, match=r"Line counts differ: .*segments.de has 1"):
        EuroparlST().read(root)


def test_wrong_places(root):
    with pytest.raises(CorpusError, match=r"no directory train, dev or test in .*en/es"):
        EuroparlST(target="es").read(root)
    (root / "en" / "de" / "train" / "segments.en").unlink()
    with pytest.raises(CorpusError, match=r"no file segments.en in"):
        EuroparlST().read(root)
    (root / "en" / "audios").rename(root / "en" / "audio")
    with pytest.raises(CorpusError, match=r"no directory of audio in .*audios"):
        EuroparlST().read(root)


def test_speakers_are_optional(root):
    (root / "en" / "de" / "train" / "speakers.lst").unlink()
    assert {u.speaker for u in EuroparlST().read(root).splits["train"]} == {""}
