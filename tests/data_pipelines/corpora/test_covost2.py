import pytest

from data_pipelines.corpora import CoVoST2
from data_pipelines.utterance import Clip, CorpusError, Utterance
from tests.helpers.corpora import sizes, skips, tone, write

VALIDATED = (
    "client_id\tpath\tsentence\tup_votes\tdown_votes\tage\tgender\taccent\n"
    'ann\tcommon_voice_en_1.mp3\tHe said "no".\t2\t0\t\t\t\n'
    "bob\tcommon_voice_en_2.mp3\tGood evening.\t2\t0\t\t\t\n"
    "cid\tcommon_voice_en_3.mp3\tThank you.\t2\t0\t\t\t\n"
    "dan\tcommon_voice_en_4.mp3\tUnused.\t2\t0\t\t\t\n"
)
# As written by the corpus' makers, quotes are escaped.
TABLE = (
    "path\ttranslation\tsplit\n"
    'common_voice_en_1.mp3\tEr sagte \\"nein\\".\ttrain\n'
    "common_voice_en_2.mp3\tSchönen Abend.\ttrain_covost\n"
    "common_voice_en_3.mp3\tDanke für Öl.\tdev\n"
)


@pytest.fixture
def root(tmp_path):
    for number, length in ((1, 1.0), (2, 7.0), (3, 6.0)):
        tone(tmp_path / "en" / "clips" / f"common_voice_en_{number}.mp3", length)
    write(tmp_path / "en" / "validated.tsv", VALIDATED)
    write(tmp_path / "en" / "covost_v2.en_de.tsv", TABLE)
    return tmp_path / "en"


def utterance(root, number, speaker, transcript, translation):
    return Utterance(
        id=f"common_voice_en_{number}",
        transcript=transcript,
        translation=translation,
        audio=Clip(path=root / "clips" / f"common_voice_en_{number}.mp3"),
        speaker=speaker,
    )


def expected(root):
    return {
        "train": [
            utterance(root, 1, "ann", 'He said "no".', 'Er sagte "nein".'),
            utterance(root, 2, "bob", "Good evening.", "Schönen Abend."),
        ],
        "valid": [utterance(root, 3, "cid", "Thank you.", "Danke für Öl.")],
    }


def test_what_is_listed(root):
    listing = CoVoST2().read(root)
    assert listing.splits == expected(root)
    assert not listing.skipped
    assert CoVoST2().read(root.parent) == listing


def test_a_file_per_split(root):
    (root / "covost_v2.en_de.tsv").unlink()
    (root / "validated.tsv").unlink()
    for split, rows in (
        ("train", expected(root)["train"]),
        ("dev", expected(root)["valid"]),
    ):
        lines = ["path\tsentence\ttranslation\tclient_id"]
        for u in rows:
            texts = (t.replace('"', '\\"') for t in (u.transcript, u.translation))
            lines.append("\t".join([f"{u.id}.mp3", *texts, u.speaker]))
        write(root / f"covost_v2.en_de.{split}.tsv", "\n".join(lines) + "\n")
    assert CoVoST2().read(root).splits == expected(root)


def test_translations_elsewhere(root):
    elsewhere = root.parent / "covost"
    elsewhere.mkdir()
    (root / "covost_v2.en_de.tsv").rename(elsewhere / "covost_v2.en_de.tsv")
    assert CoVoST2(translations=elsewhere).read(root).splits == expected(root)
    with pytest.raises(CorpusError, match=r"no file covost_v2.en_de.tsv in .*clips, validated"):
        CoVoST2().read(root)


def test_other_splits_keep_their_names(root):
    write(root / "covost_v2.en_de.tsv", TABLE.replace("\tdev\n", "\ttest_covost\n"))
    assert sizes(CoVoST2().read(root)) == {"train": 2, "test_covost": 1}


def test_short_clips_by_their_headers(root):
    listing = CoVoST2(min_seconds=6.0).read(root)
    assert sizes(listing) == {"train": 1, "valid": 1}
    assert skips(listing) == [("common_voice_en_1", "shorter than min_seconds")]


def test_short_clips_by_the_table(root):
    write(root / "clip_durations.tsv", "clip\tduration[ms]\ncommon_voice_en_1.mp3\t9000\n")
    listing = CoVoST2(min_seconds=6.0).read(root)  # the table says otherwise than the headers
    assert [u.id for u in listing.splits["train"]] == ["common_voice_en_1"]
    assert skips(listing) == [
        ("common_voice_en_2", "unreadable audio file"),
        ("common_voice_en_3", "unreadable audio file"),
    ]


def test_what_is_skipped(root):
    rows = (
        "common_voice_en_4.mp3\tUnbenutzt.\ttrain\n"
        "common_voice_en_5.mp3\tUnbekannt.\ttrain\n"
        "common_voice_en_3.mp3\ttrain\n"
        "common_voice_en_1.mp3\tEin zweites Mal.\ttest\n"
    )
    write(root / "clips" / "common_voice_en_2.mp3", "not a sound")
    write(root / "covost_v2.en_de.tsv", TABLE.replace("Danke für Öl.", "") + rows)
    listing = CoVoST2(min_seconds=0.1).read(root)
    assert sizes(listing) == {"train": 1}
    assert skips(listing) == [
        ("common_voice_en_2", "unreadable audio file"),
        ("common_voice_en_4", "missing audio file"),
        ("common_voice_en_5", "not in validated.tsv"),
        ("covost_v2.en_de.tsv:7", "malformed row"),
        ("common_voice_en_3", "empty text"),
        ("common_voice_en_1", "duplicate id"),
    ]


def test_wrong_places(root):
    with pytest.raises(CorpusError, match=r"no directory clips in .*found en"):
        CoVoST2(source="fr").read(root.parent)
    (root / "validated.tsv").unlink()
    with pytest.raises(CorpusError, match=r"no file validated.tsv"):
        CoVoST2().read(root)
    write(root / "validated.tsv", "path\tsentence\n")
    with pytest.raises(CorpusError, match=r"validated.tsv: no column client_id"):
        CoVoST2().read(root)
