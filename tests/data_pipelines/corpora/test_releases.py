"""Readers of published corpora, on small trees with the layout of the releases.

MuST-C, Europarl-ST and How2 are recordings that are cut by lists of segments; CoVoST 2, Mboshi,
IWSLT non-native and Multi30k speech are tables with a row per clip.
"""

import gzip
import math
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from data_pipelines.corpora import (
    CoVoST2,
    EuroparlST,
    How2,
    IwsltNonNative,
    Mboshi,
    Multi30kSpeech,
    MustC,
)
from data_pipelines.corpora.tables import time_phonemes
from data_pipelines.utterance import Clip, CorpusError, Listing
from tests.helpers.corpora import real_corpus, rows, sizes, skips, spans, tone, write


class Tree(NamedTuple):
    """A corpus as it is released, and what its reader lists."""

    corpus: Any
    files: dict[str, str]
    sounds: dict[str, float]  # seconds; `a.zip!b.opus` is a member of an archive
    listed: dict[str, list[str]]  # id|transcript|translation|speaker|file|offset|duration


def segments(*times: tuple[float, float, int]) -> str:
    """As in MuST-C: one flow-style entry a line, with counts of words that nobody needs."""
    return "".join(
        f"- {{duration: {duration:.6f}, offset: {offset:.6f}, rW: 9, uW: 0, "
        f"speaker_id: spk.{talk}, wav: ted_{talk}.wav}}\n"
        for duration, offset, talk in times
    )


def table(*lines: str) -> str:
    """Cells separated by | instead of tabs."""
    return "".join(line.replace("|", "\t") + "\n" for line in lines)


TED, CLIP = "en-de/data/{0}/txt/{0}.", "common_voice_en_{}"
FIRST, SECOND = "en.20080924.31.3-243", "en.20080924.4.3-018"  # of Europarl-ST
VIDEO, CUT = "-fZc293MpJk", "FZCEymcpq7I_0_1"  # of How2; the second is cut already
VALIDATED = ("client_id|path|sentence|up_votes", 'ann|common_voice_en_1.mp3|He said "no".|2')
VALIDATED += ("bob|common_voice_en_2.mp3|Good evening.|2", "cid|common_voice_en_3.mp3|Thank you.|2")
VALIDATED += ("dan|common_voice_en_4.mp3|Unused.|2",)
COVOST = (  # as written by its makers, quotes are escaped
    *("path|translation|split", 'common_voice_en_1.mp3|Er sagte \\"nein\\".|train'),
    "common_voice_en_2.mp3|Schönen Abend.|train_covost",
    "common_voice_en_3.mp3|Danke für Öl.|dev",
)
MBOSHI = (
    "id|split|speaker|seconds|mboshi|french|word_alignment(silver: word@start-end s)",
    "abiayi_1|train|abiayi|0.5|Kyéma yeékirá|Ce singe où|"
    "SIL@0.116-0.216 kyema@0.216-0.3 SIL@0.3-0.35 yeekirá@0.35-0.45",
    "kouarata_2|dev|kouarata|0.5|Mósωngώsώ|Montre-moi.|mosωngώsώ@0.1-0.4",
)
IWSLT = "doc|sent|start_s|end_s|en_OSt|en_OStt|word_end_s|de|cs|cs2"
HOW = "dev_a|0|14.48|17.37|How are you?|How are you?|15.99 16.07 17.37|Wie geht's, Jürg?|Jak?|"
HELLO = "test_x|3|0.5|1.0|Hello.|Hello.|1.0|Grüß Gott. |Dobrý den.|Ahoj."
CAPTIONS = "id|voice|speed|seconds|en|phonemes|phone_end_frames_25ms"
BAR = "test_2016_flickr_00001|bf_lily|1|0.4|A bar.|ɐ bˈɑː.|4 5 6 8 9 11 12 14 16"
FLICKR, KEY = "test_2016_flickr.first500", "test_2016_flickr_00001"
TREES = {
    "must_c": Tree(
        MustC,
        {
            TED.format("train") + "yaml": segments((0.5, 0, 1), (0.25, 0.5, 1), (0.3, 0.1, 7)),
            # U+2028 stands in real subtitles; it does not end a line.
            TED.format("train") + "en": "There was\u2028day.\nAll right.\nThank you.\n",
            TED.format("train") + "de": "Es gab\u2028Tag.\nSchön, früh üben.\nDanke.\n",
        },
        {f"en-de/data/train/wav/ted_{n}.wav": 1.0 for n in (1, 7)},
        {
            "train": [
                "train_ted_1_0|There was\u2028day.|Es gab\u2028Tag.|spk.1|ted_1.wav|0|0.5",
                "train_ted_1_1|All right.|Schön, früh üben.|spk.1|ted_1.wav|0.5|0.25",
                "train_ted_7_0|Thank you.|Danke.|spk.7|ted_7.wav|0.1|0.3",
            ]
        },
    ),
    "europarl_st": Tree(
        EuroparlST,
        {
            "en/de/train/segments.lst": f"{FIRST} 0.00 0.35\n{FIRST} 0.35 0.9\n{SECOND} 0.1 0.4\n",
            "en/de/train/segments.en": "Mr President,\nI agree.\nThank you.\n",
            "en/de/train/segments.de": "Herr Präsident!\nIch stimme zu.\nDanke schön.\n",
            "en/de/train/speeches.lst": f"{FIRST}\n{SECOND}\n",
            "en/de/train/speakers.lst": "Ann Müller\nBob\n",
            f"en/audios/{FIRST}.m4a": "the original may stay",
        },
        {f"en/audios/{name}.flac": 1.0 for name in (FIRST, SECOND)},
        {
            "train": [
                f"train_{FIRST}_0|Mr President,|Herr Präsident!|Ann Müller|{FIRST}.flac|0|0.35",
                f"train_{FIRST}_1|I agree.|Ich stimme zu.|Ann Müller|{FIRST}.flac|0.35|0.55",
                f"train_{SECOND}_0|Thank you.|Danke schön.|Bob|{SECOND}.flac|0.1|0.3",
            ]
        },
    ),
    "how2": Tree(
        How2,
        {
            "data/train/segments": f"{VIDEO}_0 {VIDEO} 0.33 0.68\n{CUT} FZCEymcpq7I 0.47 0.9\n",
            "data/train/text.id.en": f"{VIDEO}_0 Hi!\n{CUT} Let's  go on.\n",
            "data/train/text.id.pt": f"{VIDEO}_0 Oi!\n{CUT} Não pare, avó.\n",
            "data/train/utt2spk": f"{VIDEO}_0 {VIDEO}\n{CUT} FZCEymcpq7I\n",
        },
        {f"wav/{VIDEO}.wav": 1.0, f"wav/{CUT}.wav": 0.43},
        {
            "train": [
                f"{VIDEO}_0|Hi!|Oi!|{VIDEO}|{VIDEO}.wav|0.33|0.35",
                f"{CUT}|Let's  go on.|Não pare, avó.|FZCEymcpq7I|{CUT}.wav|0|",
            ]
        },
    ),
    "covost2": Tree(
        CoVoST2,
        {"en/validated.tsv": table(*VALIDATED), "en/covost_v2.en_de.tsv": table(*COVOST)},
        {f"en/clips/{CLIP.format(n)}.mp3": length for n, length in ((1, 1.0), (2, 7.0), (3, 6.0))},
        {
            "train": [
                'common_voice_en_1|He said "no".|Er sagte "nein".|ann|common_voice_en_1.mp3|0|',
                "common_voice_en_2|Good evening.|Schönen Abend.|bob|common_voice_en_2.mp3|0|",
            ],
            "valid": ["common_voice_en_3|Thank you.|Danke für Öl.|cid|common_voice_en_3.mp3|0|"],
        },
    ),
    "mboshi": Tree(
        Mboshi,
        {"manifest.tsv": table(*MBOSHI)},
        {"mboshi_fr.opus.zip!abiayi_1.opus": 0.5, "mboshi_fr.opus.zip!kouarata_2.opus": 0.5},
        {
            "train": ["abiayi_1|Kyéma yeékirá|Ce singe où|abiayi|mboshi_fr.opus.zip|0|"],
            "valid": ["kouarata_2|Mósωngώsώ|Montre-moi.|kouarata|mboshi_fr.opus.zip|0|"],
        },
    ),
    "iwslt_nonnative": Tree(
        IwsltNonNative,
        {"manifest.tsv": table(IWSLT, HOW, HELLO)},
        {"dev_a.opus": 0.5, "test_x.opus": 0.5},
        {
            "valid": ["dev_a_0|How are you?|Wie geht's, Jürg?|dev_a|dev_a.opus|14.48|2.89"],
            "test": ["test_x_3|Hello.|Grüß Gott.|test_x|test_x.opus|0.5|0.5"],
        },
    ),
    "multi30k_speech": Tree(
        Multi30kSpeech,
        {
            f"{FLICKR}.tsv": table(CAPTIONS, BAR),
            "test_2016_flickr.de": "Ein Hut.\nEine Bar für alle.\n",
        },
        {f"{FLICKR}.opus.zip!test_2016_flickr_00001.opus": 0.4},
        {"test": [f"{KEY}|A bar.|Eine Bar für alle.|bf_lily|{FLICKR}.opus.zip|0|"]},
    ),
}


def plant(root: Path, name: str, changes: Any = None) -> None:
    """Write the tree, with other or without some files; a number is a sound of that length."""
    files = TREES[name].files | TREES[name].sounds | (changes or {})
    for path, held in files.items():
        archive, _, member = path.partition("!")
        if isinstance(held, str):
            write(root / path, held)
        elif held is not None and member:
            with zipfile.ZipFile(root / archive, "a") as packed:
                packed.write(tone(root.parent / f"{root.name}-{member}", held), member)
        elif held is not None:
            tone(root / path, held)


def texts(listing: Listing) -> dict[str, list[str]]:
    def cell(value: object) -> str:
        return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)

    splits = listing.splits.items()
    return {split: ["|".join(map(cell, row)) for row in rows(found)] for split, found in splits}


def read(root: Path, name: str, changes: Any = None, **options: Any) -> Listing:
    plant(root, name, changes)
    return TREES[name].corpus(**options).read(root)


@pytest.mark.parametrize("name", TREES)
def test_what_is_listed(name, tmp_path):
    listing = read(tmp_path, name)
    assert not listing.skipped
    assert texts(listing) == TREES[name].listed


@pytest.mark.parametrize(
    ("name", "splits"),
    [
        ("must_c", {"dev": "valid", "tst-COMMON": "test", "tst-HE": "tst_he"}),
        ("europarl_st", {"dev": "valid", "test": "test", "train-noisy": "train_noisy"}),
        ("how2", {"val": "valid", "dev5": "test"}),
    ],
)
def test_the_splits_and_their_names(name, splits, tmp_path):
    plant(tmp_path, name)
    for split in splits:
        for path in [p for p in tmp_path.rglob("*") if "train" in p.parts and p.is_file()]:
            moved = Path(*(part.replace("train", split) for part in path.parts))
            moved.parent.mkdir(parents=True, exist_ok=True)
            own = b"_0 " if name == "how2" else b"\0"  # its ids are those of the corpus
            moved.write_bytes(path.read_bytes().replace(own, f"_{split} ".encode()))
    assert set(TREES[name].corpus().read(tmp_path).splits) == {"train", *splits.values()}


def test_times_of_words_and_phonemes(tmp_path):
    found = read(tmp_path / "mboshi", "mboshi").splits
    assert found["train"][0].audio == Clip(
        path=tmp_path / "mboshi" / "mboshi_fr.opus.zip", member="abiayi_1.opus"
    )
    assert spans(found["train"][0].words) == [("kyema", 216.0, 300.0), ("yeekirá", 350.0, 450.0)]
    found = read(tmp_path / "iwslt", "iwslt_nonnative", target="cs").splits["valid"][0]
    assert found.translation == "Jak?"
    assert spans(found.words) == [("How", 0, 1510), ("are", 1510, 1590), ("you?", 1590, 2890)]
    late = table(IWSLT, HOW.replace("16.07", "18.00"))  # a word that outlives its sentence
    found = read(tmp_path / "iwslt", "iwslt_nonnative", {"manifest.tsv": late}).splits["valid"][0]
    assert spans(found.words)[1:] == [("are", 1510, 2890), ("you?", 2890, 2890)]
    (found,) = read(tmp_path / "multi30k", "multi30k_speech").splits["test"]
    assert spans(found.words) == [("A", 15, 40), ("bar.", 65, 215)]
    assert spans(found.phonemes) == [("ɐ", 15, 40), ("b", 65, 115), ("ˈɑː", 115, 215)]
    ((first,), *_) = time_phonemes("a", [1, 4, 5])  # the delay never leads before the beginning
    assert (first.start_ms, first.end_ms) == (0, 15)


HOW2_IDS = (f"{VIDEO}_0", "a", "b", "c", "d")


def keyed(*values: str) -> str:
    return "".join(f"{key} {value}\n" for key, value in zip(HOW2_IDS, values, strict=True))


MALFORMED, EMPTY, MISSING = "malformed row", "empty text", "missing audio file"
NO_DURATION = "duration is not positive"
SKIPPED: dict[str, tuple[str, Any, dict[str, Any], dict[str, int], list[tuple[str, str]]]] = {
    "must_c": (
        "must_c",
        {
            TED.format("train") + "yaml": segments((0.0, 0, 1), (0.25, 0.5, 9))
            + "- {offset: 1.0, wav: ted_7.wav}\n",
            TED.format("dev") + "yaml": segments((0.5, 0, 1), (0.25, 0.5, 1)),
            TED.format("dev") + "en": "A\nB\n",
            TED.format("dev") + "de": "\nSchön.\n",
            "en-de/data/dev/wav/ted_1.wav": 1.0,
        },
        {},
        {"valid": 1},
        [
            *(("train_ted_1_0", NO_DURATION), ("train_ted_9_0", MISSING)),
            *(("train_ted_7_0", MALFORMED), ("dev_ted_1_0", EMPTY)),
        ],
    ),
    "europarl_st": (
        "europarl_st",
        {
            f"en/audios/{SECOND}.flac": None,
            "en/de/dev/segments.lst": f"{FIRST} 0.35 0.35\n{FIRST} 0.35\n{FIRST} 1 2\n",
            "en/de/dev/segments.en": "Mr President,\nI agree.\n\n",
            "en/de/dev/segments.de": "A\nB\nC\n",
        },
        {},
        {"train": 2},
        [
            *((f"train_{SECOND}_0", MISSING), (f"dev_{FIRST}_0", NO_DURATION)),
            *((f"dev_{FIRST}_1", MALFORMED), (f"dev_{FIRST}_2", EMPTY)),
        ],
    ),
    "how2": (
        "how2",
        {
            "data/train/segments": keyed(
                f"{VIDEO} 0.33 0.68", f"{VIDEO} 1", f"{VIDEO} 2 1", f"{VIDEO} 0 1", "gone 0 1"
            ),
            "data/train/text.id.en": keyed("Hi!", "A", "B", "", "D"),
            "data/train/text.id.pt": keyed("Oi!", "A", "B", "C", "D"),
        },
        {},
        {"train": 1},
        [("a", MALFORMED), ("b", NO_DURATION), ("c", EMPTY), ("d", MISSING)],
    ),
    "covost2": (
        "covost2",
        {
            "en/clips/common_voice_en_2.mp3": "not a sound",
            "en/covost_v2.en_de.tsv": table(*COVOST).replace("Danke für Öl.", "")
            + table(
                "common_voice_en_4.mp3|Unbenutzt.|train",
                "common_voice_en_5.mp3|Unbekannt.|train",
                "common_voice_en_3.mp3|train",
                "common_voice_en_1.mp3|Ein zweites Mal.|test",
            ),
        },
        {"min_seconds": 0.1},
        {"train": 1},
        [
            *((CLIP.format(2), "unreadable audio file"), (CLIP.format(4), MISSING)),
            *((CLIP.format(5), "not in validated.tsv"), ("covost_v2.en_de.tsv:7", MALFORMED)),
            *((CLIP.format(3), EMPTY), (CLIP.format(1), "duplicate id")),
        ],
    ),
    "covost2, short by the headers of the clips": (
        *("covost2", {}, {"min_seconds": 6.0}, {"train": 1, "valid": 1}),
        [(CLIP.format(1), "shorter than min_seconds")],
    ),
    "covost2, short by a table that says otherwise": (
        "covost2",
        {"en/clip_durations.tsv": "clip\tduration[ms]\ncommon_voice_en_1.mp3\t9000\n"},
        *({"min_seconds": 6.0}, {"train": 1}),
        [(CLIP.format(n), "unreadable audio file") for n in (2, 3)],
    ),
    "mboshi": (
        "mboshi",
        {
            "manifest.tsv": table(
                *(*MBOSHI, "x|train|a|1|M|F|word@1", "x|train|a|1|M|F|w@2-1", "x|train"),
                "abiayi_1|train|a|1||F|",
            ),
            "mboshi_fr.opus.zip!kouarata_2.opus": None,
            "mboshi_fr.opus.zip!x.opus": 0.5,
        },
        {},
        {"train": 1},
        [
            *(("x", MALFORMED), ("x", MALFORMED), ("manifest.tsv:6", MALFORMED)),
            *(("abiayi_1", EMPTY), ("kouarata_2", MISSING)),
        ],
    ),
    "iwslt_nonnative": (
        "iwslt_nonnative",
        {
            "manifest.tsv": table(
                *(IWSLT, HOW, "dev_a|1|||Hi.|||Hallo.|Ahoj.|", "dev_a|2|2|2|Hi.|Hi.|2|Hallo.|A|"),
                *("dev_a|3|2|1.5|Hi.|||Hallo.|Ahoj.|", "dev_a|4|2|nan|Hi.|||Hallo.|Ahoj.|"),
                *("dev_a|5|2|3|Hi.|Hi.|2.5 3|Hallo.|A|", "dev_a|6|2|3|Hi.|Hi.|1.5|Hallo.|A|"),
                *("dev_b|7|2|3|Hi.|Hi.|3||Ahoj.|", "dev_a|8|2|3|Hi.|Hi.|3||Ahoj.|", "dev_a|9|2"),
            )
        },
        {},
        {"valid": 1},
        [
            *(("dev_a_1", "no times"), ("dev_a_2", NO_DURATION), ("dev_a_3", NO_DURATION)),
            *(("dev_a_4", MALFORMED), ("dev_a_5", MALFORMED), ("dev_a_6", MALFORMED)),
            *(("dev_b_7", MISSING), ("dev_a_8", EMPTY), ("manifest.tsv:11", MALFORMED)),
        ],
    ),
    "multi30k_speech": (
        "multi30k_speech",
        {
            f"{FLICKR}.tsv": table(
                *(CAPTIONS, BAR.removesuffix(" 16"), BAR.replace("00001", "00000")),
                *(BAR.replace("_00001", "_one"), "test_2016_flickr_00001", BAR),
            )
        },
        {},
        {"test": 1},
        [
            *(("test_2016_flickr_00001", MALFORMED), ("test_2016_flickr_00000", MISSING)),
            *((f"{FLICKR}.tsv:4", MALFORMED), (f"{FLICKR}.tsv:5", MALFORMED)),
        ],
    ),
}


@pytest.mark.parametrize("case", SKIPPED)
def test_what_is_skipped(case, tmp_path):
    name, changes, options, kept, skipped = SKIPPED[case]
    listing = read(tmp_path, name, changes, **options)
    assert (sizes(listing), skips(listing)) == (kept, skipped)


LAYOUT = r"[\s\S]*Expected:\n    ROOT"
TRAIN = TED.format("train")
WRONG: list[tuple[str, dict[str, Any], Any, str]] = [
    ("must_c", {TRAIN + "yaml": None}, {}, f"no file train.yaml in .*{LAYOUT}"),
    ("must_c", {TRAIN + "de": "Eins.\nZwei.\n"}, {}, r"differ: .*en has 3, .*de has 2"),
    ("must_c", {TRAIN + "yaml": segments((1, 0, 1))}, {}, r"differ: .*yaml has 1, .*has 3"),
    ("must_c", {TRAIN + "yaml": "- {duration: 1, [\n"}, {}, r"train.yaml: not YAML"),
    ("must_c", {}, {"target": "es"}, r"no directory en-es/data in .*found .*en-de"),
    ("europarl_st", {"en/de/train/segments.de": "Eins.\n"}, {}, r"differ: .*segments.de has 1"),
    ("europarl_st", {}, {"target": "es"}, r"no directory train, dev, test, .* in .*en/es"),
    (
        *("europarl_st", {f"en/audios/{name}.flac": None for name in (FIRST, SECOND)}, {}),
        r'libsndfile cannot.*\n.*ffmpeg -i "\$f" -ac 1',
    ),
    ("how2", {"data/train/text.id.pt": f"{VIDEO}_0 Oi!\n"}, {}, r"differ: .*text.id.pt has 1"),
    ("how2", {"data/train/text.id.pt": f"{VIDEO}_0 Oi!\n" * 2}, {}, r"1 ids occur twice"),
    ("how2", {"data/train/wav.scp": f"{VIDEO} ffmpeg -i a.mp4 - |\n"}, {}, r"is a command"),
    ("how2", {}, {"audio": Path("nowhere")}, r"no audio file .*and no wav.scp in .*train"),
    ("covost2", {}, {"source": "fr"}, r"no directory clips in .*found en"),
    ("covost2", {"en/covost_v2.en_de.tsv": None}, {}, r"no file covost_v2.en_de.tsv in .*clips"),
    ("mboshi", {"manifest.tsv": table("id|split|speaker|mboshi|fr")}, {}, r"no column french"),
    ("mboshi", {"mboshi_fr.opus.zip!x.opus": None, "b.zip": "PK cut"}, {}, r"not a whole zip"),
    ("multi30k_speech", {"test_2016_flickr.de": "Ein Hut.\n"}, {}, r"00001 is beyond the 1 lines"),
    (
        "multi30k_speech",
        {"test_2016_flickr.de": None},
        {},
        r"no file test_2016_flickr.de\[.gz\] in",
    ),
]


@pytest.mark.parametrize(("name", "changes", "options", "message"), WRONG)
def test_what_is_wrong_is_named(name, changes, options, message, tmp_path):
    with pytest.raises(CorpusError, match=message):
        read(tmp_path, name, changes, **options)


# What only one of them has.


def test_must_c_may_be_the_pair_itself_and_have_converted_audio(tmp_path):
    wav = "en-de/data/train/wav/ted_7"
    plant(tmp_path, "must_c", {f"{wav}.wav": None, f"{wav}.mp3": 0.5, f"{wav}.flac": 0.5})
    found = MustC().read(tmp_path / "en-de").splits["train"]
    assert rows(found)[-1][4] == "ted_7.flac"  # the lossless one is preferred
    with pytest.raises(CorpusError, match=r"no directory en-es/data"):
        MustC(target="es").read(tmp_path / "en-de")


@pytest.mark.parametrize("style", [{"default_flow_style": False}, {"default_style": '"'}])
def test_any_other_yaml_of_must_c_reads_the_same(tmp_path, style):
    listing, path = read(tmp_path, "must_c"), tmp_path / (TRAIN + "yaml")
    plain = path.read_text()
    path.write_text(yaml.safe_dump(yaml.safe_load(plain), **style))
    assert path.read_text() != plain
    assert MustC().read(tmp_path) == listing


def test_audio_of_how2_is_cut_or_whole_or_elsewhere(tmp_path):
    video = {f"wav/{CUT}.wav": None, "wav/FZCEymcpq7I.wav": 1.0}
    found = rows(read(tmp_path / "whole", "how2", video).splits["train"])
    assert found[1][4:] == ("FZCEymcpq7I.wav", 0.47, 0.43)
    both = {"wav/FZCEymcpq7I.wav": 1.0}  # the utterance goes before its video
    assert rows(read(tmp_path / "both", "how2", both).splits["train"])[1][4] == f"{CUT}.wav"
    listing = read(tmp_path / "x", "how2", audio=tmp_path / "both" / "wav")
    assert texts(listing) == TREES["how2"].listed
    scp = {"data/train/wav.scp": f"{VIDEO} ../../sound.wav\nFZCEymcpq7I /gone.wav\n"}
    gone = dict.fromkeys(TREES["how2"].sounds) | {"sound.wav": 1.0}
    listing = read(tmp_path / "listed", "how2", scp | gone)
    assert [row[4] for row in rows(listing.splits["train"])] == ["sound.wav"]
    assert skips(listing) == [(CUT, MISSING)]


def test_covost_has_a_joined_table_or_a_file_per_split_perhaps_elsewhere(tmp_path):
    whole = read(tmp_path, "covost2")
    assert CoVoST2().read(tmp_path / "en") == whole
    (tmp_path / "covost").mkdir()
    (tmp_path / "en" / "covost_v2.en_de.tsv").rename(tmp_path / "covost" / "covost_v2.en_de.tsv")
    assert CoVoST2(translations=tmp_path / "covost").read(tmp_path) == whole
    (tmp_path / "en" / "validated.tsv").unlink()
    for split, found in (("train", "train"), ("dev", "valid")):
        lines = ["path|sentence|translation|client_id"]
        for row in TREES["covost2"].listed[found]:
            key, said, meant, speaker, *_ = row.replace('"', '\\"').split("|")
            lines.append(f"{key}.mp3|{said}|{meant}|{speaker}")
        write(tmp_path / "en" / f"covost_v2.en_de.{split}.tsv", table(*lines))
    assert CoVoST2().read(tmp_path) == whole
    ends = {"en/covost_v2.en_de.tsv": table(*COVOST).replace("\tdev\n", "\\\\\tdev\n")}
    assert [u.translation[-1] for u in read(tmp_path, "covost2", ends).splits["valid"]] == ["\\"]
    other = {"en/covost_v2.en_de.tsv": table(*COVOST).replace("\tdev\n", "\ttest_covost\n")}
    assert sizes(read(tmp_path, "covost2", other)) == {"train": 2, "test_covost": 1}


def test_audio_of_mboshi_may_be_extracted(tmp_path):
    changes = {f"mboshi_fr.opus.zip!{n}.opus": None for n in ("abiayi_1", "kouarata_2")}
    plant(tmp_path, "mboshi", changes)
    with pytest.raises(CorpusError, match=r"no zip archive of audio, nor .*found manifest.tsv"):
        Mboshi().read(tmp_path)
    tone(tmp_path / "audio" / "abiayi_1.wav")
    (found,) = Mboshi().read(tmp_path).splits["train"]
    assert found.audio == Clip(path=tmp_path / "audio" / "abiayi_1.wav")


def test_translations_of_multi30k_may_be_elsewhere(tmp_path):
    plant(tmp_path, "multi30k_speech", {"test_2016_flickr.de": None})
    text = TREES["multi30k_speech"].files["test_2016_flickr.de"].encode()
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "test_2016_flickr.de.gz").write_bytes(gzip.compress(text))
    (found,) = Multi30kSpeech(translations=tmp_path / "text").read(tmp_path).splits["test"]
    assert found.translation == "Eine Bar für alle."


REAL = [  # the reader of a real corpus, and how much it lists and skips
    (Mboshi(), "speech/mboshi_fr", {"train": 4616, "valid": 514}, 0),
    (IwsltNonNative(), "speech/iwslt2020_nonnative", {"valid": 538, "test": 802}, 14),
    (Multi30kSpeech(), "speech/multi30k_kokoro", {"test": 500}, 0),
]


@pytest.mark.parametrize(("corpus", "place", "kept", "skipped"), REAL, ids=lambda c: str(c)[:9])
def test_the_real_ones(corpus, place, kept, skipped):
    """Word times rise, and lie within the audio."""
    if isinstance(corpus, Multi30kSpeech):
        corpus = Multi30kSpeech(translations=real_corpus("text/multi30k"))
    listing = corpus.read(real_corpus(place))
    assert (sizes(listing), len(listing.skipped)) == (kept, skipped)
    found = [u for split in listing.splits.values() for u in split]
    assert sum(bool(u.words) for u in found) > 0.99 * len(found)
    for u in found:
        times = [t for w in u.words for t in (w.start_ms, w.end_ms)]
        assert times == sorted(times) and isinstance(u.audio, Clip)
        assert not times or times[-1] <= (u.audio.duration_s or math.inf) * 1e3 + 1
