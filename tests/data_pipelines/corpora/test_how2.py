import pytest

from data_pipelines.corpora import How2
from data_pipelines.utterance import Clip, CorpusError, Utterance
from tests.helpers.corpora import sizes, skips, tone, write


def plant(root, split):
    folder = root / "data" / split
    write(
        folder / "segments",
        "-fZc293MpJk_0 -fZc293MpJk 0.33 0.68\nFZCEymcpq7I_0_1 FZCEymcpq7I 0.47 0.9\n",
    )
    write(folder / "text.id.en", "-fZc293MpJk_0 Hi!\nFZCEymcpq7I_0_1 Let's  go on.\n")
    write(folder / "text.id.pt", "-fZc293MpJk_0 Oi!\nFZCEymcpq7I_0_1 Não pare, avó.\n")
    write(folder / "utt2spk", "-fZc293MpJk_0 -fZc293MpJk\nFZCEymcpq7I_0_1 FZCEymcpq7I\n")
    return folder


@pytest.fixture
def root(tmp_path):
    plant(tmp_path, "train")
    tone(tmp_path / "wav" / "-fZc293MpJk.wav", 1.0)
    tone(tmp_path / "wav" / "FZCEymcpq7I_0_1.wav", 0.43)  # this one is cut already
    return tmp_path


def expected(root):
    return [
        Utterance(
            id="-fZc293MpJk_0",
            transcript="Hi!",
            translation="Oi!",
            audio=Clip(path=root / "wav" / "-fZc293MpJk.wav", offset_s=0.33, duration_s=0.35),
            speaker="-fZc293MpJk",
        ),
        Utterance(
            id="FZCEymcpq7I_0_1",
            transcript="Let's  go on.",
            translation="Não pare, avó.",
            audio=Clip(path=root / "wav" / "FZCEymcpq7I_0_1.wav"),
            speaker="FZCEymcpq7I",
        ),
    ]


def test_what_is_listed(root):
    listing = How2().read(root)
    assert listing.splits == {"train": expected(root)}
    assert not listing.skipped


def test_a_cut_utterance_goes_before_its_video(root):
    tone(root / "wav" / "FZCEymcpq7I.wav", 1.0)
    assert How2().read(root).splits["train"] == expected(root)
    (root / "wav" / "FZCEymcpq7I_0_1.wav").unlink()
    found = How2().read(root).splits["train"][1].audio
    assert found == Clip(path=root / "wav" / "FZCEymcpq7I.wav", offset_s=0.47, duration_s=0.43)


def test_the_splits_and_their_names(root):
    for split in ("val", "dev5"):
        folder = plant(root, split)
        for name in ("segments", "text.id.en", "text.id.pt"):
            path = folder / name
            write(path, path.read_text(encoding="utf-8").replace("_0", f"_{split}"))
    listing = How2().read(root)
    assert sizes(listing) == {"train": 2, "valid": 1, "test": 1}
    assert [skip.reason for skip in listing.skipped] == ["missing audio file"] * 2


def test_audio_elsewhere(root):
    (root / "wav").rename(root.parent / "sound")
    found = How2(audio=root.parent / "sound").read(root).splits["train"][0].audio
    assert isinstance(found, Clip) and found.path.parent == root.parent / "sound"
    with pytest.raises(CorpusError, match=r"no audio file .*and no wav.scp in .*train"):
        How2().read(root)


def test_wav_scp(root):
    (root / "wav").rename(root / "sound")
    scp = root / "data" / "train" / "wav.scp"
    write(scp, "-fZc293MpJk ../../sound/-fZc293MpJk.wav\nFZCEymcpq7I /gone.wav\n")
    listing = How2().read(root)
    found = listing.splits["train"][0].audio
    assert isinstance(found, Clip) and found.path.samefile(root / "sound" / "-fZc293MpJk.wav")
    assert (found.offset_s, found.duration_s) == (0.33, 0.35)
    assert skips(listing) == [("FZCEymcpq7I_0_1", "missing audio file")]
    write(scp, "-fZc293MpJk ffmpeg -i a.mp4 -f wav - |\n")
    with pytest.raises(CorpusError, match=r"is a command"):
        How2().read(root)


def test_what_is_skipped(root):
    folder = root / "data" / "train"
    ids = ["-fZc293MpJk_0", "a", "b", "c"]
    times = ["-fZc293MpJk 0.33 0.68", "-fZc293MpJk 1", "-fZc293MpJk 2 1", "-fZc293MpJk 0 1"]
    for name, values in (
        ("segments", times),
        ("text.id.en", ["Hi!", "A", "B", ""]),
        ("text.id.pt", ["Oi!", "A", "B", "C"]),
    ):
        write(folder / name, "".join(f"{i} {v}\n" for i, v in zip(ids, values, strict=True)))
    listing = How2().read(root)
    assert listing.splits == {"train": expected(root)[:1]}
    assert skips(listing) == [
        ("a", "malformed row"),
        ("b", "duration is not positive"),
        ("c", "empty text"),
    ]


def test_tables_that_disagree(root):
    folder = root / "data" / "train"
    write(folder / "text.id.pt", "-fZc293MpJk_0 Oi!\n")
    with pytest.raises(CorpusError, match=r"Line counts differ: .*2 utterances, text.id.pt has 1"):
        How2().read(root)
    write(folder / "text.id.pt", "-fZc293MpJk_0 Oi!\n-fZc293MpJk_0 Oi!\n")
    with pytest.raises(CorpusError, match=r"1 ids occur twice"):
        How2().read(root)


def test_wrong_places(root):
    with pytest.raises(CorpusError, match=r"no directory train, val, dev5 in"):
        How2().read(root / "data")
    (root / "data" / "train" / "text.id.pt").unlink()
    with pytest.raises(CorpusError, match=r"no file text.id.pt in"):
        How2().read(root)
