"""MuST-C, Europarl-ST and How2: recordings that are cut by lists of segments."""

import pytest
import yaml

from data_pipelines.corpora import EuroparlST, How2, MustC
from data_pipelines.corpora.segments import read_yaml
from data_pipelines.utterance import Clip, CorpusError
from tests.helpers.corpora import rows, sizes, skips, tone, write

# As in the release: one flow-style entry a line, with counts of words that nobody needs.
ENTRY = (
    "- {{duration: {}, offset: {}, rW: 9, uW: 0, speaker_id: spk.{talk}, wav: ted_{talk}.wav}}\n"
)
# U+2028 stands in real subtitles; it does not end a line.
ENGLISH = "There was\u2028day.\nAll right.\nThank you.\n"
GERMAN = "Es gab\u2028Tag.\nSchön, früh üben.\nDanke.\n"


def entries(*times: tuple[float, float, int]) -> str:
    return "".join(
        ENTRY.format(f"{duration:.6f}", f"{offset:.6f}", talk=talk)
        for duration, offset, talk in times
    )


THREE = entries((0.5, 0, 1), (0.25, 0.5, 1), (0.3, 0.1, 7))


def plant_ted(root, split="train", segments=THREE):
    folder = root / "en-de" / "data" / split
    for suffix, text in (("yaml", segments), ("en", ENGLISH), ("de", GERMAN)):
        write(folder / "txt" / f"{split}.{suffix}", text)
    tone(folder / "wav" / "ted_1.wav", 1.0)
    tone(folder / "wav" / "ted_7.wav", 1.0)
    return folder


CUT = "FZCEymcpq7I_0_1"
FIRST, SECOND = "en.20080924.31.3-243", "en.20080924.4.3-018"


def plant_debate(root, split="train"):
    folder = root / "en" / "de" / split
    write(folder / "segments.lst", f"{FIRST} 0.00 0.35\n{FIRST} 0.35 0.9\n{SECOND} 0.1 0.4\n")
    write(folder / "segments.en", "Madam President,\nI agree.\nThank you.\n")
    write(folder / "segments.de", "Frau Präsidentin!\nIch stimme zu.\nDanke schön.\n")
    write(folder / "speeches.lst", f"{FIRST}\n{SECOND}\n")
    write(folder / "speakers.lst", "Ann Müller\nBob\n")
    for name in (FIRST, SECOND):
        tone(root / "en" / "audios" / f"{name}.flac", 1.0)
    write(root / "en" / "audios" / f"{FIRST}.m4a", "the original may stay")
    return folder


def plant_video(root, split="train"):
    folder, names = root / "data" / split, ("-fZc293MpJk", "FZCEymcpq7I")
    ids = "-fZc293MpJk_0", "FZCEymcpq7I_0_1"
    for name, values in (
        ("segments", ("-fZc293MpJk 0.33 0.68", "FZCEymcpq7I 0.47 0.9")),
        ("text.id.en", ("Hi!", "Let's  go on.")),
        ("text.id.pt", ("Oi!", "Não pare, avó.")),
        ("utt2spk", names),
    ):
        write(folder / name, "".join(f"{i} {v}\n" for i, v in zip(ids, values, strict=True)))
    tone(root / "wav" / "-fZc293MpJk.wav", 1.0)
    tone(root / "wav" / "FZCEymcpq7I_0_1.wav", 0.43)  # this one is cut already
    return folder


PLANT = {MustC: plant_ted, EuroparlST: plant_debate, How2: plant_video}
LISTED = {
    MustC: [
        ("train_ted_1_0", "There was\u2028day.", "Es gab\u2028Tag.", "spk.1", "ted_1.wav", 0, 0.5),
        ("train_ted_1_1", "All right.", "Schön, früh üben.", "spk.1", "ted_1.wav", 0.5, 0.25),
        ("train_ted_7_0", "Thank you.", "Danke.", "spk.7", "ted_7.wav", 0.1, 0.3),
    ],
    EuroparlST: [
        *(
            (f"train_{FIRST}_{n}", said, meant, "Ann Müller", f"{FIRST}.flac", start, duration)
            for n, said, meant, start, duration in (
                (0, "Madam President,", "Frau Präsidentin!", 0.0, 0.35),
                (1, "I agree.", "Ich stimme zu.", 0.35, 0.55),
            )
        ),
        (f"train_{SECOND}_0", "Thank you.", "Danke schön.", "Bob", f"{SECOND}.flac", 0.1, 0.3),
    ],
    How2: [
        ("-fZc293MpJk_0", "Hi!", "Oi!", "-fZc293MpJk", "-fZc293MpJk.wav", 0.33, 0.35),
        (CUT, "Let's  go on.", "Não pare, avó.", "FZCEymcpq7I", f"{CUT}.wav", 0, None),
    ],
}


@pytest.fixture
def ted(tmp_path):
    return plant_ted(tmp_path)


@pytest.fixture
def debate(tmp_path):
    return plant_debate(tmp_path)


@pytest.fixture
def video(tmp_path):
    return plant_video(tmp_path)


@pytest.mark.parametrize("corpus", PLANT)
def test_what_is_listed(corpus, tmp_path):
    PLANT[corpus](tmp_path)
    listing = corpus().read(tmp_path)
    assert not listing.skipped
    assert list(listing.splits) == ["train"]
    assert rows(listing.splits["train"]) == LISTED[corpus]


@pytest.mark.parametrize(
    ("corpus", "splits"),
    [
        (MustC, {"dev": "valid", "tst-COMMON": "test", "tst-HE": "tst_he"}),
        (EuroparlST, {"dev": "valid", "test": "test", "train-noisy": "train_noisy"}),
        (How2, {"val": "valid", "dev5": "test"}),
    ],
)
def test_the_splits_and_their_names(corpus, splits, tmp_path):
    for split in splits:
        folder = PLANT[corpus](tmp_path, split)
        for path in folder.glob("*"):
            if corpus is How2:  # its ids are those of the corpus
                write(path, path.read_text(encoding="utf-8").replace("_0 ", f"_{split} "))
    assert set(corpus().read(tmp_path).splits) == set(splits.values())


def test_the_root_may_be_the_pair_itself(ted, tmp_path):
    assert sizes(MustC().read(tmp_path / "en-de")) == {"train": 3}


def test_converted_audio_serves(ted, tmp_path):
    (ted / "wav" / "ted_7.wav").unlink()
    tone(ted / "wav" / "ted_7.flac")
    tone(ted / "wav" / "ted_7.mp3")  # the lossless one is preferred
    assert rows(MustC().read(tmp_path).splits["train"])[-1][4] == "ted_7.flac"


@pytest.mark.parametrize(
    "style",
    [{"default_flow_style": False}, {"width": 40}, {"width": 10**6}, {"default_style": '"'}],
)
def test_any_other_yaml_reads_the_same(ted, tmp_path, style):
    path = ted / "txt" / "train.yaml"
    plain, listing = path.read_text(), MustC().read(tmp_path)
    path.write_text(yaml.safe_dump(yaml.safe_load(plain), **style))
    assert path.read_text() != plain
    assert MustC().read(tmp_path) == listing


def test_lines_are_read_as_yaml_would(tmp_path):
    path = write(tmp_path / "a.yaml", entries((3.5, 16.08, 767), (1e-6, 0, 2)))
    for mine, theirs in zip(read_yaml(path), yaml.safe_load(path.read_text()), strict=True):
        assert mine.keys() == theirs.keys()
        assert {k: float(mine[k]) for k in ("duration", "offset")}.items() <= theirs.items()
        assert {k: mine[k] for k in ("wav", "speaker_id")}.items() <= theirs.items()


def test_what_is_skipped_of_must_c(tmp_path):
    segments = entries((0.0, 0, 1), (0.25, 0.5, 9)) + "- {offset: 1.0, wav: ted_7.wav}\n"
    plant_ted(tmp_path, segments=segments)
    write(plant_ted(tmp_path, "dev") / "txt" / "dev.de", "\nSchön.\nDanke.\n")
    listing = MustC().read(tmp_path)
    assert sizes(listing) == {"valid": 2}
    assert skips(listing) == [
        ("train_ted_1_0", "duration is not positive"),
        ("train_ted_9_0", "missing audio file"),
        ("train_ted_7_0", "malformed row"),
        ("dev_ted_1_0", "empty text"),
    ]


def test_what_is_skipped_of_europarl_st(debate, tmp_path):
    folder = plant_debate(tmp_path, "dev")
    (tmp_path / "en" / "audios" / f"{SECOND}.flac").unlink()
    write(folder / "segments.lst", f"{FIRST} 0.35 0.35\n{FIRST} 0.35\n{FIRST} 1 2\n")
    write(folder / "segments.en", "Madam President,\nI agree.\n\n")
    listing = EuroparlST().read(tmp_path)
    assert sizes(listing) == {"train": 2}
    assert skips(listing) == [
        (f"train_{SECOND}_0", "missing audio file"),
        (f"dev_{FIRST}_0", "duration is not positive"),
        (f"dev_{FIRST}_1", "malformed row"),
        (f"dev_{FIRST}_2", "empty text"),
    ]


def test_what_is_skipped_of_how2(video, tmp_path):
    ids = ["-fZc293MpJk_0", "a", "b", "c", "d"]
    times = ["-fZc293MpJk 0.33 0.68", "-fZc293MpJk 1", "-fZc293MpJk 2 1", "-fZc293MpJk 0 1"]
    for name, values in (
        ("segments", [*times, "gone 0 1"]),
        ("text.id.en", ["Hi!", "A", "B", "", "D"]),
        ("text.id.pt", ["Oi!", "A", "B", "C", "D"]),
    ):
        write(video / name, "".join(f"{i} {v}\n" for i, v in zip(ids, values, strict=True)))
    listing = How2().read(tmp_path)
    assert rows(listing.splits["train"]) == LISTED[How2][:1]
    assert skips(listing) == [
        ("a", "malformed row"),
        ("b", "duration is not positive"),
        ("c", "empty text"),
        ("d", "missing audio file"),
    ]


@pytest.mark.parametrize(
    ("corpus", "lost"),
    [
        *((MustC, f"txt/train.{suffix}") for suffix in ("yaml", "en", "de")),
        (EuroparlST, "segments.en"),
        (How2, "text.id.pt"),
    ],
)
def test_a_lost_file_is_named(corpus, lost, tmp_path):
    (PLANT[corpus](tmp_path) / lost).unlink()
    name = lost.rpartition("/")[2]
    with pytest.raises(CorpusError, match=rf"no file {name} in .*[\s\S]*Expected:\n    ROOT"):
        corpus().read(tmp_path)


@pytest.mark.parametrize(
    ("corpus", "name", "text", "message"),
    [
        (MustC, "txt/train.de", "Eins.\nZwei.\n", r"Line counts differ: .*en has 3, .*de has 2"),
        (MustC, "txt/train.yaml", entries((1, 0, 1)), r"Line counts differ: .*yaml has 1, .*has 3"),
        (MustC, "txt/train.yaml", "- {duration: 1, [\n", r"train.yaml: not YAML"),
        (MustC, "txt/train.yaml", "duration: 1\n", r"not a list of entries"),
        (EuroparlST, "segments.de", "Eins.\n", r"Line counts differ: .*segments.de has 1"),
        (How2, "text.id.pt", "-fZc293MpJk_0 Oi!\n", r"differ: .*2 utterances, text.id.pt has 1"),
        (How2, "text.id.pt", "-fZc293MpJk_0 Oi!\n" * 2, r"1 ids occur twice"),
    ],
)
def test_files_that_disagree_or_are_broken(corpus, name, text, message, tmp_path):
    write(PLANT[corpus](tmp_path) / name, text)
    with pytest.raises(CorpusError, match=message):
        corpus().read(tmp_path)


def test_wrong_places(ted, debate, tmp_path):
    with pytest.raises(CorpusError, match=r"no directory en-es/data in .*found .*en-de"):
        MustC(target="es").read(tmp_path)
    with pytest.raises(CorpusError, match=r"no directory en-es/data"):
        MustC(target="es").read(tmp_path / "en-de")
    with pytest.raises(CorpusError, match=r"no directory train, dev, test, .* in .*en/es"):
        EuroparlST(target="es").read(tmp_path)
    (tmp_path / "en" / "audios").rename(tmp_path / "en" / "audio")
    with pytest.raises(CorpusError, match=r"no directory of audio in .*audios"):
        EuroparlST().read(tmp_path)
    with pytest.raises(CorpusError, match=r"no directory train, val, dev5 in"):
        How2().read(tmp_path)


def test_only_m4a_says_how_to_convert(debate, tmp_path):
    for path in (tmp_path / "en" / "audios").glob("*.flac"):
        path.unlink()
    with pytest.raises(CorpusError, match=r'libsndfile cannot.*\n.*ffmpeg -i "\$f" -ac 1'):
        EuroparlST().read(tmp_path)


def test_speakers_are_optional(debate, tmp_path):
    (debate / "speakers.lst").unlink()
    assert {u.speaker for u in EuroparlST().read(tmp_path).splits["train"]} == {""}


def test_a_cut_utterance_goes_before_its_video(video, tmp_path):
    tone(tmp_path / "wav" / "FZCEymcpq7I.wav", 1.0)
    assert rows(How2().read(tmp_path).splits["train"]) == LISTED[How2]
    (tmp_path / "wav" / "FZCEymcpq7I_0_1.wav").unlink()
    found = How2().read(tmp_path).splits["train"][1].audio
    assert found == Clip(path=tmp_path / "wav" / "FZCEymcpq7I.wav", offset_s=0.47, duration_s=0.43)


def test_audio_elsewhere(video, tmp_path):
    (tmp_path / "wav").rename(tmp_path / "sound")
    listing = How2(audio=tmp_path / "sound").read(tmp_path)
    assert rows(listing.splits["train"]) == LISTED[How2]
    with pytest.raises(CorpusError, match=r"no audio file .*and no wav.scp in .*train"):
        How2().read(tmp_path)
    scp = video / "wav.scp"
    write(scp, "-fZc293MpJk ../../sound/-fZc293MpJk.wav\nFZCEymcpq7I /gone.wav\n")
    listing = How2().read(tmp_path)
    assert rows(listing.splits["train"]) == LISTED[How2][:1]
    assert skips(listing) == [("FZCEymcpq7I_0_1", "missing audio file")]
    write(scp, "-fZc293MpJk ffmpeg -i a.mp4 -f wav - |\n")
    with pytest.raises(CorpusError, match=r"is a command"):
        How2().read(tmp_path)
