import gzip
import zipfile

import pytest

from data_pipelines.corpora import ParallelText, Tsv
from data_pipelines.utterance import CorpusError, Utterance
from tests.helpers.corpora import real_corpus, sizes, skips, write

SGM = """<srcset setid="newstest2019" srclang="any">
<doc docid="a"><p>
<seg id="1">Tom &amp; Jerry &quot;met&quot;.</seg>
<seg id="2">R & D,
  again.</seg>
</p></doc></srcset>"""
XML = """<?xml version='1.0' encoding='utf-8'?>
<dataset id="newstest2021">
  <doc origlang="en" id="x">
    <src lang="en"><p><seg id="1">A &amp; B.</seg><seg id="2">Late.</seg></p></src>
    <ref lang="de" translator="A"><p><seg id="1">A und B.</seg><seg id="2">Spät.</seg></p></ref>
    <ref lang="de" translator="B"><p><seg id="1">Anders.</seg><seg id="2">Anders.</seg></p></ref>
  </doc>
  <doc origlang="en" id="y">
    <src lang="en"><p><seg id="1">End.</seg></p></src>
    <ref lang="de" translator="A"><p><seg id="1">Ende.</seg></p></ref>
  </doc>
</dataset>"""


def plant(root, stem, english, german):
    write(root / f"{stem}.en", english)
    (root / f"{stem}.de.gz").write_bytes(gzip.compress(german.encode()))


def pairs(found):
    return [(u.transcript, u.translation) for u in found]


def test_pairs_of_files(tmp_path):
    plant(tmp_path, "train", "One.\nTwo.\n", "Eins.\nZwei für dich.\n")
    plant(tmp_path, "val", "Three.\n\nSeven.\n", "Drei.\nSechs.\n\n")
    plant(tmp_path, "test_2016_flickr", "Four.\n", "Vier.\n")
    plant(tmp_path, "IWSLT16.TED.dev2010.de-en", "Five.\n", "Fünf.\n")
    write(tmp_path / "lonely.en", "Six.\n")
    listing = ParallelText().read(tmp_path)
    assert list(listing.splits) == ["train", "valid", "test", "IWSLT16_TED_dev2010_de_en"]
    assert listing.splits["train"] == [
        Utterance(id="train_00000", transcript="One.", translation="Eins."),
        Utterance(id="train_00001", transcript="Two.", translation="Zwei für dich."),
    ]
    assert pairs(listing.splits["IWSLT16_TED_dev2010_de_en"]) == [("Five.", "Fünf.")]
    assert skips(listing) == [("val_00001", "empty text"), ("val_00002", "empty text")]


def test_the_other_direction_and_chosen_names(tmp_path):
    plant(tmp_path, "news", "One.\n", "Eins.\n")
    plant(tmp_path, "train", "Two.\n", "Zwei.\n")
    listing = ParallelText(source="de", target="en", test="news").read(tmp_path)
    assert list(listing.splits) == ["train", "test"]
    assert pairs(listing.splits["test"]) == [("Eins.", "One.")]
    with pytest.raises(CorpusError, match=r"no pair old; there are news, train"):
        ParallelText(test="old").read(tmp_path)


def test_sgm_and_xml(tmp_path):
    write(tmp_path / "newstest2019-ende-src.en.sgm", SGM)
    write(tmp_path / "newstest2019-ende-ref.de.sgm", SGM.replace("Tom", "Töm"))
    write(tmp_path / "newstest2021.en-de.xml", XML)
    splits = ParallelText(test="newstest2019-ende").read(tmp_path).splits
    assert pairs(splits["test"]) == [
        ('Tom & Jerry "met".', 'Töm & Jerry "met".'),
        ("R & D, again.", "R & D, again."),
    ]
    wanted = [("A & B.", "A und B."), ("Late.", "Spät."), ("End.", "Ende.")]
    assert pairs(splits["newstest2021"]) == wanted


GZIPPED = gzip.compress(b"Hi.\tHallo.\n" * 300)
SIDES = "a-src.en.sgm", "a-ref.de.sgm"
BAD = [
    (
        {"a.b.en": "1", "a.b.de": "1", "a-b.en": "1", "a-b.de": "1"},
        r"both a-b and a.b would be a_b",
    ),
    ({"train.en": "One.\n"}, r"no pair of files \*.en and \*.de in .*found train.en"),
    ({"a.en": "1\n", "a.de": "1\n2\n"}, r"Line counts differ: .*a.en has 1, .*a.de has 2"),
    ({SIDES[0]: SGM, SIDES[1]: "Eins.\n"}, r"no <seg>"),
    ({"a.en-de.xml": XML.replace('lang="de"', 'lang="fr"')}, r"no <ref lang='de'>"),
    ({"a.en-de.xml": XML[:200]}, r"not XML"),
    ({"a.en-de.xml": XML.replace('id="2"', 'id="1"')}, r"document 'x', <src lang='en'>: two <seg>"),
    ({"deu.txt.gz": GZIPPED[: len(GZIPPED) // 2]}, r"deu.txt.gz: broken gzip file"),
    ({"deu.zip": b"no zip"}, r"deu.zip: not a whole zip archive"),
]


@pytest.mark.parametrize(("files", "message"), BAD)
def test_files_that_are_wrong_are_named(files, message, tmp_path):
    for name, held in files.items():
        (tmp_path / name).write_bytes(held if isinstance(held, bytes) else held.encode())
    reader = Tsv() if min(files).startswith("deu") else ParallelText()
    with pytest.raises(CorpusError, match=message):
        reader.read(tmp_path)


def table(count: int) -> str:
    rows = (f"Sentence {i // 3}.\tSatz {i} für dich.\tCC-BY\n" for i in range(count))
    return "".join(rows)


def test_a_table_never_parts_the_translations_of_a_sentence(tmp_path):
    path = write(tmp_path / "deu.txt", table(3000))
    corpus = Tsv(valid_fraction=0.1, test_fraction=0.2)
    splits = corpus.read(path).splits
    sources = {split: {u.transcript for u in found} for split, found in splits.items()}
    assert sum(map(len, sources.values())) == len(set.union(*sources.values())) == 1000
    assert 0.07 < len(sources["valid"]) / 1000 < 0.13
    assert 0.16 < len(sources["test"]) / 1000 < 0.24
    # Control: a split by the translations, which are all different, would part them.
    others = [corpus.split_of(f"Satz {i} für dich.") for i in range(3000)]
    assert any(others[i] != others[i + 1] for i in range(0, 3000, 3))


def test_the_split_of_a_sentence_is_forever():
    corpus = Tsv(valid_fraction=0.25, test_fraction=0.25)
    sentences = ("Hi.", "Run!", "Thank you.", "Where?", "Schön.")
    found = [corpus.split_of(sentence) for sentence in sentences]
    assert found == ["train", "valid", "test", "valid", "test"]
    for i in range(30):
        found = corpus.split_of(f"Schön {i}.")
        assert corpus.split_of(f"  schön   {i}. ") == found
        assert corpus.split_of(f"Scho\u0308n {i}.") == found


def test_the_same_table_in_other_wrappings(tmp_path):
    plain = write(tmp_path / "a" / "deu.txt", table(90))
    expected = Tsv().read(plain)
    assert expected.splits["train"][0] == Utterance(
        id="deu_000001", transcript="Sentence 0.", translation="Satz 0 für dich."
    )
    (tmp_path / "deu.txt.gz").write_bytes(gzip.compress(plain.read_bytes()))
    assert Tsv().read(tmp_path / "deu.txt.gz") == expected
    with zipfile.ZipFile(tmp_path / "deu-eng.zip", "w") as archive:
        archive.write(plain, "deu.txt")
        archive.writestr("_about.txt", "about")
    assert Tsv().read(tmp_path / "deu-eng.zip") == expected
    assert Tsv().read(tmp_path / "a") == expected
    with pytest.raises(CorpusError, match=r"2 tables; give the file itself"):
        Tsv().read(tmp_path)
    with pytest.raises(CorpusError, match=r"set member to one of \['deu.txt', '_about.txt'\]"):
        Tsv(member="x.txt").read(tmp_path / "deu-eng.zip")


def test_excluded_pairs(tmp_path):
    path = write(tmp_path / "deu.txt", "Hi.\tHallo!\nHi.\tGrüß Gott!\nRun!\tLauf!\n")
    test = write(tmp_path / "test.txt", "deu\teng\tServus!\tHI.\n")
    listing = Tsv(exclude=(test,), valid_fraction=0, test_fraction=0).read(path)
    assert pairs(listing.splits["train"]) == [("Run!", "Lauf!")]
    excluded = "in the excluded file"
    assert skips(listing) == [("deu_000001", excluded), ("deu_000002", excluded)]
    with pytest.raises(CorpusError, match=r"gone.txt: no such file"):
        Tsv(exclude=(tmp_path / "gone.txt",)).read(path)


def test_columns_and_what_is_skipped(tmp_path):
    path = write(tmp_path / "a.tsv", "eng\tpor\tHi.\tOlá!\neng\tpor\tRun!\n\neng\tpor\tNo.\t\n")
    corpus = Tsv(source_column=3, target_column=4, valid_fraction=0, test_fraction=0)
    listing = corpus.read(path)
    assert pairs(listing.splits["train"]) == [("Hi.", "Olá!")]
    assert skips(listing) == [("a_000002", "malformed row"), ("a_000004", "empty text")]
    with pytest.raises(CorpusError, match=r"count from 1"):
        Tsv(source_column=0).read(path)
    with pytest.raises(CorpusError, match=r"at most 1"):
        Tsv(valid_fraction=0.9, test_fraction=0.2).read(path)
    with pytest.raises(CorpusError, match=r"at least 0"):
        Tsv(valid_fraction=-0.1, test_fraction=0.2).read(path)
    with pytest.raises(CorpusError, match=r"no table in"):
        Tsv().read(tmp_path / "nowhere")


def test_real_pairs_of_files():
    sizes_of = sizes(ParallelText().read(real_corpus("text/multi30k")))
    assert [sizes_of[split] for split in ("train", "valid", "test")] == [29_000, 1014, 1000]
    listing = ParallelText(source="de", target="en").read(real_corpus("text/iwslt_ted_de_en"))
    assert (len(listing.splits), sum(sizes(listing).values())) == (9, 11_825)


def test_real_tatoeba():
    folder = real_corpus("text/tatoeba")
    test = folder / "tatoeba-test-v2023-09-26.deu-eng.txt.gz"
    listing = Tsv(exclude=(test,)).read(folder / "deu-eng.zip")
    assert sum(sizes(listing).values()) + len(listing.skipped) == 169813
    assert {reason for _, reason in skips(listing)} == {"in the excluded file"}
    lines = gzip.decompress(test.read_bytes()).decode().split("\n")[:-1]
    held_out = {line.split("\t")[3] for line in lines}
    assert len(held_out) > 10000
    kept = {u.transcript for found in listing.splits.values() for u in found}
    assert not kept & held_out
