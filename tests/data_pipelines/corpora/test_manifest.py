"""What all readers of corpora have in common, and manifests."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
import tyro

from data_pipelines.corpora import CORPORA, Corpus, Manifest, MustC, Tsv
from data_pipelines.utterance import Clip, CorpusError, Span, Utterance
from tests.helpers.corpora import sizes, skips, tone, write

WORDS = (Span(text="Good", start_ms=0, end_ms=250), Span(text="day.", start_ms=250, end_ms=300))
HEADER = "id\taudio\toffset_s\tduration_s\ttranscript\ttranslation\tspeaker\twords\n"
ROWS = (
    'a1\tsound/a.wav\t0.1\t0.3\tGood day.\tSchönen "Tag".\tann\tGood@0-0.25 day.@0.25-0.3\n'
    "a2\tsound/a.wav\t\t\tThank you.\tDanke.\t\t\n"
)


@pytest.fixture
def root(tmp_path):
    tone(tmp_path / "sound" / "a.wav")
    return tmp_path


def expected(root):
    audio = root / "sound" / "a.wav"
    return [
        Utterance(
            id="a1",
            transcript="Good day.",
            translation='Schönen "Tag".',
            audio=Clip(path=audio, offset_s=0.1, duration_s=0.3),
            speaker="ann",
            words=WORDS,
        ),
        Utterance(id="a2", transcript="Thank you.", translation="Danke.", audio=Clip(path=audio)),
    ]


def test_a_table(root):
    path = write(root / "train.tsv", HEADER + ROWS)
    wanted = {"train": expected(root)}
    assert Manifest().read(root).splits == Manifest().read(path).splits == wanted
    write(path, "\ufeff" + (HEADER + ROWS).replace("\n", "\r\n"))  # as Windows writes it
    assert Manifest().read(root).splits == wanted
    timed = ROWS.replace("Good@0-0.25 day.@0.25-0.3", '[["Good",0,0.25],["day.",0.25,0.3]]')
    write(path, HEADER + timed)
    assert Manifest().read(root).splits == wanted


@pytest.mark.parametrize(
    "words", [[["Good", 0, 0.25], ["day.", 0.25, 0.3]], '[["Good", 0, 0.25], ["day.", 0.25, 0.3]]']
)
def test_json_lines(root, words):
    first = {
        "id": "a1",
        "audio": "sound/a.wav",
        "offset_s": 0.1,
        "duration_s": 0.3,
        "transcript": "Good day.",
        "translation": 'Schönen "Tag".',
        "speaker": "ann",
        "words": words,
    }
    second = {"id": "a2", "audio": str(root / "sound" / "a.wav"), "duration_s": None}
    second |= {"transcript": "Thank you.", "translation": "Danke."}
    write(root / "dev.jsonl", f"{json.dumps(first)}\n\n{json.dumps(second)}\n")
    assert Manifest().read(root).splits == {"valid": expected(root)}


def test_a_column_of_splits(root):
    rows = "".join(
        f"{split}\tsound/a.wav\tDanke.\n" for split in ("train", "val", "tst-HE", "train")
    )
    path = write(root / "all.tsv", "split\taudio\ttranslation\n" + rows)
    listing = Manifest().read(path)
    assert sizes(listing) == {"train": 2, "valid": 1, "tst_HE": 1}
    assert [u.id for u in listing.splits["train"]] == ["all.tsv:2", "all.tsv:5"]


def test_no_transcripts_an_archive_and_two_files_of_one_split(root):
    write(root / "a.zip", "the archive is opened later")
    write(root / "test.tsv", "audio\tmember\ttranslation\na.zip\tx/1.wav\tDanke.\n")
    write(root / "test.jsonl", '\n{"audio": "sound/a.wav", "translation": "Bitte."}\n')
    other, found = Manifest().read(root).splits["test"]
    assert (other.id, found.id) == ("test.jsonl:2", "test.tsv:2")
    assert (found.transcript, found.translation) == ("", "Danke.")
    assert found.audio == Clip(path=root / "a.zip", member="x/1.wav")


def test_transcription(root):
    write(root / "test.tsv", "audio\ttranscript\nsound/a.wav\tThank you.\n")
    (found,) = Manifest(task="transcription").read(root).splits["test"]
    assert (found.transcript, found.translation) == ("Thank you.", "Thank you.")
    with pytest.raises(CorpusError, match=r"no column translation"):
        Manifest().read(root)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("audio\ttranslaton", r"unknown column 'translaton'. Did you mean 'translation'"),
        ("translation\tspeaker", r"no column audio; the columns are"),
    ],
)
def test_columns(root, header, message):
    write(root / "train.tsv", header + "\n")
    with pytest.raises(CorpusError, match=message):
        Manifest().read(root)
    row = dict.fromkeys(header.split("\t"), "x")
    (root / "train.tsv").unlink()
    write(root / "train.jsonl", json.dumps(row) + "\n")
    with pytest.raises(CorpusError, match=message):
        Manifest().read(root)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("b\tsound/b.wav\t0\t1\tHi.\tHallo.\t\t", "missing audio file"),
        ("b\t\t0\t1\tHi.\tHallo.\t\t", "malformed row"),
        ("b\tsound/a.wav\t0\tlong\tHi.\tHallo.\t\t", "malformed row"),
        ("b\tsound/a.wav\t-1\t1\tHi.\tHallo.\t\t", "duration is not positive"),
        ("b\tsound/a.wav\t0\t0\tHi.\tHallo.\t\t", "duration is not positive"),
        ("b\tsound/a.wav\t0\t1\t\tHallo.\t\t", "empty text"),
        ("b\tsound/a.wav\t0\t1\tHi.\t\t\t", "empty text"),
        ("b\tsound/a.wav\t0\t1\tHi.\tHallo.\t\tHi.@1", "malformed row"),
        ("b\tsound/a.wav\t0\t1\tHi.\tHallo.\t\t[1]", "malformed row"),
        ("b\tsound/a.wav\t0\t1", "malformed row"),
        ("a1\tsound/a.wav\t0\t1\tHi.\tHallo.\t\t", "duplicate id"),
    ],
)
def test_what_is_skipped(root, row, reason):
    write(root / "train.tsv", HEADER + ROWS + row + "\n")
    listing = Manifest().read(root)
    assert listing.splits == {"train": expected(root)}
    assert [r for _, r in skips(listing)] == [reason]


def test_lines_that_are_no_objects(root):
    good = json.dumps({"audio": "sound/a.wav", "translation": "Danke."})
    halves = [good.replace("Danke.", "\\ud83d"), good.replace("a.wav", "\\ud83d.wav")]
    lines = [good, "{", "[1]", *halves]
    write(root / "train.jsonl", "\n".join(lines) + "\n")
    assert skips(Manifest().read(root)) == [
        (f"train.jsonl:{number}", "malformed row") for number in range(2, 6)
    ]


def test_wrong_places(root):
    with pytest.raises(CorpusError, match=r"no file \*.tsv or \*.jsonl in .*found sound"):
        Manifest().read(root)
    write(root / "train.tsv", "audio\ttranslation\nsound/b.wav\tDanke.\n")
    with pytest.raises(CorpusError, match=r"not one usable example. Left out: 1 x missing audio"):
        Manifest().read(root)
    (root / "train.tsv").write_bytes(HEADER.encode() + ROWS.encode("latin-1"))
    with pytest.raises(CorpusError, match=r"train.tsv, line 2: not UTF-8"):
        Manifest().read(root)


@pytest.mark.parametrize("corpus", CORPORA, ids=lambda corpus: corpus.name)
def test_a_corpus_explains_itself(corpus, tmp_path, capsys):
    assert corpus().metadata["description"].endswith(".")
    assert bool(corpus().metadata["citation"]) == bool(corpus().metadata["homepage"])
    with pytest.raises(CorpusError, match=r"nowhere[\s\S]*Expected:\n    ROOT"):
        corpus().read(tmp_path / "nowhere")
    with pytest.raises(SystemExit):
        tyro.cli(corpus, args=["--help"])
    lines = capsys.readouterr().out
    shown = " ".join(re.sub(r"[^\x20-\x7e]", " ", lines).split())
    for field in dataclasses.fields(corpus):
        option = "--" + field.name.replace("_", "-")
        match = re.search(rf"{option} (.*?) \(default", shown)
        assert match and len(match[1].split()) > 2, option  # more than the name of its type
    for column in ("audio", "transcript", "id") if corpus is Manifest else ():
        assert any(re.match(rf"\W*- {column}:", line) for line in lines.splitlines()), column


def test_a_corpus_is_chosen_on_the_command_line():
    def parse(*args: str) -> Corpus:
        return tyro.cli(Corpus, args=args)  # pyright: ignore[reportCallIssue, reportArgumentType]

    assert parse("must-c", "--target", "es") == MustC(target="es")
    assert parse("tsv", "--exclude", "a.txt") == Tsv(exclude=(Path("a.txt"),))
