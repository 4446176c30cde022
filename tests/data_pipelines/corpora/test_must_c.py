import pytest
import yaml

from data_pipelines.corpora import MustC
from data_pipelines.corpora.must_c import read_yaml
from data_pipelines.utterance import Clip, CorpusError, Utterance
from tests.helpers.corpora import sizes, skips, tone, write

# As in the release: one flow-style entry a line, with counts of words that nobody needs.
ENTRY = (
    "- {{duration: {}, offset: {}, rW: 9, uW: 0, speaker_id: spk.{talk}, wav: ted_{talk}.wav}}\n"
)
# U+2028 stands in real subtitles; it does not end a line.
ENGLISH = "There was\u2028day.\nAll right.\nThank you.\n"
GERMAN = "Es gab\u2028Tag.\nSchön, früh üben.\nDanke.\n"


def entries(*rows: tuple[float, float, int]) -> str:
    return "".join(
        ENTRY.format(f"{duration:.6f}", f"{offset:.6f}", talk=talk)
        for duration, offset, talk in rows
    )


THREE = entries((0.5, 0, 1), (0.25, 0.5, 1), (0.3, 0.1, 7))


def plant(data, split="train", segments=THREE):
    write(data / split / "txt" / f"{split}.yaml", segments)
    write(data / split / "txt" / f"{split}.en", ENGLISH)
    write(data / split / "txt" / f"{split}.de", GERMAN)
    tone(data / split / "wav" / "ted_1.wav", 1.0)
    tone(data / split / "wav" / "ted_7.wav", 1.0)
    return data


@pytest.fixture
def root(tmp_path):
    plant(tmp_path / "en-de" / "data")
    return tmp_path


def test_what_is_listed(root):
    wav = root / "en-de" / "data" / "train" / "wav"
    listing = MustC().read(root)
    assert not listing.skipped
    assert listing.splits == {
        "train": [
            Utterance(
                id="train_ted_1_0",
                transcript="There was\u2028day.",
                translation="Es gab\u2028Tag.",
                audio=Clip(path=wav / "ted_1.wav", offset_s=0.0, duration_s=0.5),
                speaker="spk.1",
            ),
            Utterance(
                id="train_ted_1_1",
                transcript="All right.",
                translation="Schön, früh üben.",
                audio=Clip(path=wav / "ted_1.wav", offset_s=0.5, duration_s=0.25),
                speaker="spk.1",
            ),
            Utterance(
                id="train_ted_7_0",
                transcript="Thank you.",
                translation="Danke.",
                audio=Clip(path=wav / "ted_7.wav", offset_s=0.1, duration_s=0.3),
                speaker="spk.7",
            ),
        ]
    }


def test_the_splits_and_their_names(root):
    for split in ("dev", "tst-COMMON", "tst-HE"):
        plant(root / "en-de" / "data", split)
    assert sizes(MustC().read(root)) == {"train": 3, "valid": 3, "test": 3, "tst_he": 3}


def test_the_root_may_be_the_pair_itself(root):
    assert sizes(MustC().read(root / "en-de")) == {"train": 3}


def test_converted_audio_serves(root):
    wav = root / "en-de" / "data" / "train" / "wav"
    (wav / "ted_7.wav").unlink()
    tone(wav / "ted_7.flac")
    tone(wav / "ted_7.mp3")  # the lossless one is preferred
    (*_, last) = MustC().read(root).splits["train"]
    assert isinstance(last.audio, Clip) and last.audio.path == wav / "ted_7.flac"


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda entries: yaml.safe_dump(entries, default_flow_style=False),
        lambda entries: yaml.safe_dump(entries, default_flow_style=None, width=40),
        lambda entries: yaml.safe_dump(entries, default_flow_style=True, width=10**6),
        lambda entries: yaml.safe_dump(entries, default_flow_style=None, default_style='"'),
    ],
)
def test_any_other_yaml_reads_the_same(root, rewrite):
    path = root / "en-de" / "data" / "train" / "txt" / "train.yaml"
    plain, listing = path.read_text(), MustC().read(root)
    path.write_text(rewrite(yaml.safe_load(plain)))
    assert path.read_text() != plain
    assert MustC().read(root) == listing


def test_lines_are_read_as_yaml_would(tmp_path):
    path = write(tmp_path / "a.yaml", entries((3.5, 16.08, 767), (1e-6, 0, 2)))
    for mine, theirs in zip(read_yaml(path), yaml.safe_load(path.read_text()), strict=True):
        assert mine.keys() == theirs.keys()
        assert float(mine["duration"]) == theirs["duration"]
        assert float(mine["offset"]) == theirs["offset"]
        assert (mine["wav"], mine["speaker_id"]) == (theirs["wav"], theirs["speaker_id"])


def test_what_is_skipped(tmp_path):
    segments = entries((0.0, 0, 1), (0.25, 0.5, 9)) + "- {offset: 1.0, wav: ted_7.wav}\n"
    data = plant(tmp_path / "en-de" / "data", segments=segments)
    plant(tmp_path / "en-de" / "data", "dev")
    write(data / "dev" / "txt" / "dev.de", "\nSchön.\nDanke.\n")
    listing = MustC().read(tmp_path)
    assert sizes(listing) == {"valid": 2}
    assert skips(listing) == [
        ("train_ted_1_0", "duration is not positive"),
        ("train_ted_9_0", "missing audio file"),
        ("train_ted_7_0", "malformed row"),
        ("dev_ted_1_0", "empty text"),
    ]


def test_unequal_line_counts(root):
    texts = root / "en-de" / "data" / "train" / "txt"
    write(texts / "train.de", "Eins.\nZwei.\n")
    with pytest.raises(CorpusError, match=r"Line counts differ: .*train.en has 3, .*de has 2"):
        MustC().read(root)
    write(texts / "train.de", GERMAN)
    write(texts / "train.yaml", entries((1, 0, 1)))
    with pytest.raises(CorpusError, match=r"Line counts differ: .*yaml has 1, .*en has 3"):
        MustC().read(root)


@pytest.mark.parametrize("lost", ["txt/train.yaml", "txt/train.en", "txt/train.de"])
def test_a_lost_file_is_named(root, lost):
    (root / "en-de" / "data" / "train" / lost).unlink()
    with pytest.raises(CorpusError, match=rf"no file {lost[4:]} in .*Expected:\n.*ted_1.wav"):
        MustC().read(root)


def test_wrong_places(root):
    with pytest.raises(CorpusError, match=r"no directory en-es/data in .*found en-de"):
        MustC(target="es").read(root)
    with pytest.raises(CorpusError, match=r"no directory en-es/data"):
        MustC(target="es").read(root / "en-de")
    with pytest.raises(CorpusError, match=r"does not exist"):
        MustC().read(root / "nowhere")


def test_broken_yaml(root):
    path = root / "en-de" / "data" / "train" / "txt" / "train.yaml"
    write(path, "- {duration: 1, [\n")
    with pytest.raises(CorpusError, match=r"train.yaml: not yaml"):
        MustC().read(root)
    write(path, "duration: 1\n")
    with pytest.raises(CorpusError, match=r"not a list of entries"):
        MustC().read(root)
