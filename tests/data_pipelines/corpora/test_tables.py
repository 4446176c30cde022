"""CoVoST 2, Mboshi, IWSLT non-native and Multi30k speech: tables with a row per clip."""

import gzip
import io
import zipfile

import pytest
import soundfile

from data_pipelines.corpora import CoVoST2, IwsltNonNative, Mboshi, Multi30kSpeech
from data_pipelines.corpora.tables import time_phonemes
from data_pipelines.utterance import Clip, CorpusError
from tests.helpers.corpora import real_corpus, rows, sizes, skips, spans, tone, write

VALIDATED = (
    "client_id\tpath\tsentence\tup_votes\tdown_votes\tage\tgender\taccent\n"
    'ann\tcommon_voice_en_1.mp3\tHe said "no".\t2\t0\t\t\t\n'
    "bob\tcommon_voice_en_2.mp3\tGood evening.\t2\t0\t\t\t\n"
    "cid\tcommon_voice_en_3.mp3\tThank you.\t2\t0\t\t\t\n"
    "dan\tcommon_voice_en_4.mp3\tUnused.\t2\t0\t\t\t\n"
)
# As written by the corpus' makers, quotes are escaped.
COVOST = (
    "path\ttranslation\tsplit\n"
    'common_voice_en_1.mp3\tEr sagte \\"nein\\".\ttrain\n'
    "common_voice_en_2.mp3\tSchönen Abend.\ttrain_covost\n"
    "common_voice_en_3.mp3\tDanke für Öl.\tdev\n"
)
CLIP = "common_voice_en_{}"
COVOST_LISTED = {
    "train": [
        *(
            (CLIP.format(n), said, meant, speaker, CLIP.format(n) + ".mp3", 0, None)
            for n, said, meant, speaker in (
                (1, 'He said "no".', 'Er sagte "nein".', "ann"),
                (2, "Good evening.", "Schönen Abend.", "bob"),
            )
        )
    ],
    "valid": [
        (CLIP.format(3), "Thank you.", "Danke für Öl.", "cid", CLIP.format(3) + ".mp3", 0, None)
    ],
}


def listed(listing):
    return {split: rows(found) for split, found in listing.splits.items()}


@pytest.fixture
def voices(tmp_path):
    for number, length in ((1, 1.0), (2, 7.0), (3, 6.0)):
        tone(tmp_path / "en" / "clips" / f"common_voice_en_{number}.mp3", length)
    write(tmp_path / "en" / "validated.tsv", VALIDATED)
    write(tmp_path / "en" / "covost_v2.en_de.tsv", COVOST)
    return tmp_path / "en"


def test_covost_lists_a_joined_table(voices):
    listing = CoVoST2().read(voices)
    assert listed(listing) == COVOST_LISTED
    assert not listing.skipped
    assert CoVoST2().read(voices.parent) == listing
    write(voices / "covost_v2.en_de.tsv", COVOST.replace("\tdev\n", "\ttest_covost\n"))
    assert sizes(CoVoST2().read(voices)) == {"train": 2, "test_covost": 1}


def test_covost_lists_a_file_per_split(voices):
    (voices / "covost_v2.en_de.tsv").unlink()
    (voices / "validated.tsv").unlink()
    for split, found in (("train", "train"), ("dev", "valid")):
        lines = ["path\tsentence\ttranslation\tclient_id"]
        for key, *texts, speaker, _, _, _ in COVOST_LISTED[found]:
            escaped = (text.replace('"', '\\"') for text in texts)
            lines.append("\t".join([f"{key}.mp3", *escaped, speaker]))
        write(voices / f"covost_v2.en_de.{split}.tsv", "\n".join(lines) + "\n")
    assert listed(CoVoST2().read(voices)) == COVOST_LISTED


def test_covost_translations_elsewhere(voices):
    elsewhere = voices.parent / "covost"
    elsewhere.mkdir()
    (voices / "covost_v2.en_de.tsv").rename(elsewhere / "covost_v2.en_de.tsv")
    assert listed(CoVoST2(translations=elsewhere).read(voices)) == COVOST_LISTED
    with pytest.raises(CorpusError, match=r"no file covost_v2.en_de.tsv in .*clips, validated"):
        CoVoST2().read(voices)


def test_covost_durations(voices):
    listing = CoVoST2(min_seconds=6.0).read(voices)  # by the headers of the clips
    assert sizes(listing) == {"train": 1, "valid": 1}
    assert skips(listing) == [(CLIP.format(1), "shorter than min_seconds")]
    write(voices / "clip_durations.tsv", "clip\tduration[ms]\ncommon_voice_en_1.mp3\t9000\n")
    listing = CoVoST2(min_seconds=6.0).read(voices)  # the table says otherwise than the headers
    assert [u.id for u in listing.splits["train"]] == [CLIP.format(1)]
    assert skips(listing) == [(CLIP.format(n), "unreadable audio file") for n in (2, 3)]


def test_what_is_skipped_of_covost(voices):
    more = (
        "common_voice_en_4.mp3\tUnbenutzt.\ttrain\n"
        "common_voice_en_5.mp3\tUnbekannt.\ttrain\n"
        "common_voice_en_3.mp3\ttrain\n"
        "common_voice_en_1.mp3\tEin zweites Mal.\ttest\n"
    )
    write(voices / "clips" / "common_voice_en_2.mp3", "not a sound")
    write(voices / "covost_v2.en_de.tsv", COVOST.replace("Danke für Öl.", "") + more)
    listing = CoVoST2(min_seconds=0.1).read(voices)
    assert sizes(listing) == {"train": 1}
    assert skips(listing) == [
        ("common_voice_en_2", "unreadable audio file"),
        ("common_voice_en_4", "missing audio file"),
        ("common_voice_en_5", "not in validated.tsv"),
        ("covost_v2.en_de.tsv:7", "malformed row"),
        ("common_voice_en_3", "empty text"),
        ("common_voice_en_1", "duplicate id"),
    ]


def test_wrong_places_of_covost(voices):
    with pytest.raises(CorpusError, match=r"no directory clips in .*found en"):
        CoVoST2(source="fr").read(voices.parent)
    (voices / "validated.tsv").unlink()
    with pytest.raises(CorpusError, match=r"no file validated.tsv"):
        CoVoST2().read(voices)
    write(voices / "validated.tsv", "path\tsentence\n")
    with pytest.raises(CorpusError, match=r"validated.tsv: no column client_id"):
        CoVoST2().read(voices)


MBOSHI = "id\tsplit\tspeaker\tseconds\tmboshi\tfrench\tword_alignment(silver: word@start-end s)\n"
SINGE = (
    "abiayi_1\ttrain\tabiayi\t0.5\tKyéma yeékirá\tCe singe où\t"
    "SIL@0.116-0.216 kyema@0.216-0.3 SIL@0.3-0.35 yeekirá@0.35-0.45\n"
)
MONTRE = "kouarata_2\tdev\tkouarata\t0.5\tMósωngώsώ\tMontre-moi.\tmosωngώsώ@0.1-0.4\n"


@pytest.fixture
def field_speech(tmp_path):
    write(tmp_path / "manifest.tsv", MBOSHI + SINGE + MONTRE)
    return tmp_path


def pack(archive, *names):
    with zipfile.ZipFile(archive, "w") as packed:
        for name in names:
            packed.write(tone(archive.parent.parent / f"{name}.opus"), f"{name}.opus")
    return archive


def test_mboshi_lists_an_archive(field_speech):
    archive = pack(field_speech / "mboshi_fr.opus.zip", "abiayi_1", "kouarata_2")
    listing = Mboshi().read(field_speech)
    assert not listing.skipped
    (first,), (second,) = listing.splits["train"], listing.splits["valid"]
    assert rows([first])[0][:4] == ("abiayi_1", "Kyéma yeékirá", "Ce singe où", "abiayi")
    assert first.audio == Clip(path=archive, member="abiayi_1.opus")
    assert spans(first.words) == [("kyema", 216.0, 300.0), ("yeekirá", 350.0, 450.0)]
    assert rows([second])[0][:4] == ("kouarata_2", "Mósωngώsώ", "Montre-moi.", "kouarata")
    assert spans(second.words) == [("mosωngώsώ", 100.0, 400.0)]


@pytest.mark.parametrize("folder", [".", "audio"])
def test_mboshi_lists_extracted_audio(field_speech, folder):
    for name in ("abiayi_1", "kouarata_2"):
        tone(field_speech / folder / f"{name}.wav")
    (found,) = Mboshi().read(field_speech).splits["train"]
    assert found.audio == Clip(path=field_speech / folder / "abiayi_1.wav")


def test_what_is_skipped_of_mboshi(field_speech):
    pack(field_speech / "mboshi_fr.opus.zip", "abiayi_1", "x")
    bad = "x\ttrain\ta\t1\tM\tF\tword@1\nx\ttrain\ta\t1\tM\tF\tw@2-1\nx\ttrain\n"
    table = MBOSHI + SINGE + MONTRE + bad + "x\ttrain\ta\t1\t\tF\t\n"
    write(field_speech / "manifest.tsv", table)
    listing = Mboshi().read(field_speech)
    assert sizes(listing) == {"train": 1}
    assert skips(listing) == [
        ("x", "malformed row"),
        ("x", "malformed row"),
        ("manifest.tsv:6", "malformed row"),
        ("x", "empty text"),
        ("kouarata_2", "missing audio file"),
    ]


def test_wrong_places_of_mboshi(field_speech):
    with pytest.raises(CorpusError, match=r"no zip archive of audio, nor .*found manifest.tsv"):
        Mboshi().read(field_speech)
    write(field_speech / "mboshi_fr.opus.zip", "PK cut short")
    with pytest.raises(CorpusError, match=r"not a whole zip archive"):
        Mboshi().read(field_speech)
    with pytest.raises(CorpusError, match=r"no file manifest.tsv"):
        Mboshi().read(field_speech.parent)
    write(field_speech / "manifest.tsv", MBOSHI.replace("french", "francais"))
    pack(field_speech / "mboshi_fr.opus.zip", "abiayi_1")
    with pytest.raises(CorpusError, match=r"no column french"):
        Mboshi().read(field_speech)


def test_the_real_mboshi():
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


IWSLT = "doc\tsent\tstart_s\tend_s\ten_OSt\ten_OStt\tword_end_s\tde\tcs\tcs2\n"
HOW = (
    "dev_ami-IS1001a\t0\t14.48\t17.37\tHow are you?\tHow are you?\t15.99 16.07 17.37\t"
    "Wie geht's, Jürg?\tJak se máš?\t\n"
)
HELLO = "test_x\t3\t0.5\t1.0\tHello.\tHello.\t1.0\tGrüß Gott. \tDobrý den.\tAhoj.\n"


@pytest.fixture
def talks(tmp_path):
    write(tmp_path / "manifest.tsv", IWSLT + HOW + HELLO)
    tone(tmp_path / "dev_ami-IS1001a.opus")
    tone(tmp_path / "test_x.opus")
    return tmp_path


def test_iwslt_lists_timed_words(talks):
    listing = IwsltNonNative().read(talks)
    assert not listing.skipped
    doc = "dev_ami-IS1001a"
    text = ("How are you?", "Wie geht's, Jürg?")
    assert rows(listing.splits["valid"]) == [(f"{doc}_0", *text, doc, f"{doc}.opus", 14.48, 2.89)]
    words = [("How", 0.0, 1510.0), ("are", 1510.0, 1590.0), ("you?", 1590.0, 2890.0)]
    assert spans(listing.splits["valid"][0].words) == words
    assert [u.translation for u in listing.splits["test"]] == ["Grüß Gott."]
    czech = IwsltNonNative(target="cs").read(talks)
    assert czech.splits["valid"][0].translation == "Jak se máš?"


def test_iwslt_has_a_word_that_outlives_its_sentence(talks):
    late = HOW.replace("15.99 16.07 17.37", "15.99 18.00 17.37")
    write(talks / "manifest.tsv", IWSLT + late)
    words = IwsltNonNative().read(talks).splits["valid"][0].words
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
def test_what_is_skipped_of_iwslt(talks, cells, reason):
    write(talks / "manifest.tsv", IWSLT + HOW + cells + "\n")
    listing = IwsltNonNative().read(talks)
    assert sizes(listing) == {"valid": 1}
    assert [r for _, r in skips(listing)] == [reason]


def test_wrong_places_of_iwslt(talks):
    with pytest.raises(CorpusError, match=r"no file manifest.tsv in"):
        IwsltNonNative().read(talks.parent)
    write(talks / "manifest.tsv", IWSLT.replace("word_end_s", "ends"))
    with pytest.raises(CorpusError, match=r"no column word_end_s"):
        IwsltNonNative().read(talks)


def test_the_real_iwslt():
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


CAPTIONS = "id\tvoice\tspeed\tseconds\ten\tphonemes\tphone_end_frames_25ms\n"
BAR = "test_2016_flickr_00001\tbf_lily\t1\t0.4\tA bar.\tɐ bˈɑː.\t4 5 6 8 9 11 12 14 16\n"


@pytest.fixture
def captions(tmp_path):
    root = tmp_path / "speech"
    write(root / "test_2016_flickr.first500.tsv", CAPTIONS + BAR)
    pack(root / "test_2016_flickr.first500.opus.zip", "test_2016_flickr_00001")
    write(root / "test_2016_flickr.de", "Ein Hut.\nEine Bar für alle.\n")
    return root


def test_multi30k_lists_words_and_phonemes(captions):
    listing = Multi30kSpeech().read(captions)
    assert not listing.skipped
    (found,) = listing.splits["test"]
    key = "test_2016_flickr_00001"
    assert rows([found])[0][:4] == (key, "A bar.", "Eine Bar für alle.", "bf_lily")
    archive = captions / "test_2016_flickr.first500.opus.zip"
    assert found.audio == Clip(path=archive, member=f"{key}.opus")
    assert spans(found.words) == [("A", 15, 40), ("bar.", 65, 215)]
    assert spans(found.phonemes) == [("ɐ", 15, 40), ("b", 65, 115), ("ˈɑː", 115, 215)]
    ((first,), *_) = time_phonemes("a", [1, 4, 5])  # the delay never leads before the beginning
    assert (first.start_ms, first.end_ms) == (0, 15)


def test_multi30k_translations_elsewhere(captions):
    text = (captions / "test_2016_flickr.de").read_bytes()
    (captions / "test_2016_flickr.de").unlink()
    (captions / "text").mkdir()
    (captions / "text" / "test_2016_flickr.de.gz").write_bytes(gzip.compress(text))
    (found,) = Multi30kSpeech(translations=captions / "text").read(captions).splits["test"]
    assert found.translation == "Eine Bar für alle."
    with pytest.raises(CorpusError, match=r"no file test_2016_flickr.de\[.gz\] in"):
        Multi30kSpeech().read(captions)


def test_what_is_skipped_of_multi30k(captions):
    short, unspoken = BAR.replace(" 16\n", "\n"), BAR.replace("00001", "00000")
    strange, cut = BAR.replace("_00001", "_one"), "test_2016_flickr_00001\n"
    table = CAPTIONS + short + unspoken + strange + cut + BAR
    write(captions / "test_2016_flickr.first500.tsv", table)
    listing = Multi30kSpeech().read(captions)
    assert sizes(listing) == {"test": 1}
    assert skips(listing) == [
        ("test_2016_flickr_00001", "malformed row"),
        ("test_2016_flickr_00000", "missing audio file"),
        ("test_2016_flickr.first500.tsv:4", "malformed row"),
        ("test_2016_flickr.first500.tsv:5", "malformed row"),
    ]


def test_wrong_places_of_multi30k(captions):
    write(captions / "test_2016_flickr.de", "Ein Hut.\n")
    with pytest.raises(CorpusError, match=r"00001 is beyond the 1 lines of test_2016_flickr.de"):
        Multi30kSpeech().read(captions)
    (captions / "test_2016_flickr.first500.tsv").unlink()
    with pytest.raises(CorpusError, match=r"no file test_2016_flickr.first500.tsv"):
        Multi30kSpeech().read(captions)
    with pytest.raises(CorpusError, match=r"no archive \*.opus.zip"):
        Multi30kSpeech().read(captions / "nowhere")


def test_the_real_multi30k_speech():
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
