"""More speech and other translations: what is stored, and what a teacher may and may not do."""

import shlex
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_pipelines.augmentation import Transform, distillation
from data_pipelines.augmentation.effects import Augmented
from data_pipelines.corpora import Manifest
from data_pipelines.dataset import PreparedCorpus, Record, decode
from data_pipelines.prepare import Limits, Shard, read_records
from data_pipelines.utterance import CorpusError, Listing
from tests.helpers.corpora import build, stored, write_hums

TEACHER = """
import sys
lines = sys.stdin.read().splitlines()
with open(sys.argv[1], "a") as calls:
    calls.write(f"{len(lines)}\\n")
for line in lines:
    print(f"Lehrer: {line}")
"""
SIZES = {"train": 7, "test": 2}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hums(tmp_path_factory.mktemp("few"), SIZES)


@pytest.fixture
def teacher(tmp_path: Path) -> str:
    """A command; it notes in `calls` how many lines it was given."""
    (tmp_path / "teacher.py").write_text(TEACHER)
    return shlex.join([sys.executable, str(tmp_path / "teacher.py"), str(tmp_path / "calls")])


def calls(tmp_path: Path) -> list[int]:
    noted = tmp_path / "calls"
    return [int(line) for line in noted.read_text().split()] if noted.exists() else []


def says(code: str) -> str:
    return shlex.join([sys.executable, "-c", code])


def records(corpus: PreparedCorpus, split: str = "train") -> dict[str, Record]:
    return {record.utterance.id: record for record in map(decode, stored(corpus[split]))}


def transformed(root: Path, work: Path, **options: Any) -> Listing:
    return Transform(**options)(Manifest().read(root), work)


def ids(*suffixes: str) -> list[str]:
    return [f"train{n}{suffix}" for suffix in suffixes for n in range(SIZES["train"])]


def test_speed_makes_three_copies(root, tmp_path):
    corpus = build(Manifest(), root, tmp_path / "to", transform=Transform(augment="speed"))
    made = records(corpus)
    assert list(made) == ids("", "-speed0.9", "-speed1.1")
    assert list(records(corpus, "test")) == ["test0", "test1"]
    for n in range(SIZES["train"]):
        plain = made[f"train{n}"]
        assert plain.utterance.audio_origin == ""
        for factor in (0.9, 1.1):
            copy = made[f"train{n}-speed{factor}"]
            assert len(copy.audio) == round(len(plain.audio) / factor)
            assert copy.utterance.audio_origin == f"speed {factor}"
            assert copy.utterance.translation == plain.utterance.translation
            assert pitch_of(copy.audio) == pytest.approx(pitch_of(plain.audio) * factor, rel=0.02)
            np.testing.assert_allclose(spans(copy), spans(plain) / factor, atol=0.1)
    numbers = corpus.summary["splits"]["train"]
    assert numbers["sentences"] == 21 and corpus.summary["preparation"]["transform.augment"]


def spans(record: Record) -> np.ndarray:
    return np.array([(word.start_ms, word.end_ms) for word in record.utterance.words])


def pitch_of(samples: np.ndarray) -> float:
    """In Hertz, of a sine."""
    return float(np.argmax(np.abs(np.fft.rfft(samples, 1 << 16))) * 16_000 / (1 << 16))


def test_effects_and_a_teacher_give_as_much_of_either(root, tmp_path, teacher):
    options = Transform(augment="effects", distil=teacher, distil_mode="join")
    corpus = build(Manifest(), root, tmp_path / "to", transform=options)
    made = records(corpus)
    assert list(made) == ids("", "-speech", "-text")
    for n in range(SIZES["train"]):
        plain, speech, said = (made[f"train{n}{suffix}"] for suffix in ("", "-speech", "-text"))
        assert plain.utterance.audio_origin == plain.utterance.translation_origin == ""
        # Augmented speech goes with the original translation,
        assert speech.utterance.audio_origin.startswith("tempo ")
        assert speech.utterance.translation_origin == ""
        assert speech.utterance.translation == plain.utterance.translation
        tempo = float(speech.utterance.audio_origin.split()[1])
        assert len(speech.audio) == round(len(plain.audio) / tempo)
        np.testing.assert_allclose(spans(speech), spans(plain) / tempo, atol=0.1)
        # and original speech with the teacher's.
        assert said.utterance.audio_origin == ""
        assert said.utterance.translation_origin == f"distilled by {teacher}"
        assert said.utterance.translation == f"Lehrer: {plain.utterance.transcript}"
        np.testing.assert_array_equal(said.audio, plain.audio)
    assert not (corpus.directory / ".work").exists() and calls(tmp_path) == [7]


@pytest.mark.parametrize("mode", ["replace", "join"])
def test_a_teachers_translations_replace_or_join_the_others(root, tmp_path, teacher, mode):
    listing, plain = (
        transformed(root, tmp_path, distil=teacher, distil_mode=mode),
        Manifest().read(root),
    )
    train = listing.splits["train"]
    assert [u.id for u in train] == (ids("") if mode == "replace" else ids("", "-text"))
    assert mode == "replace" or train[:7] == plain.splits["train"]
    for utterance in train[-7:]:
        assert utterance.translation == f"Lehrer: {utterance.transcript}"
        assert utterance.translation_origin == f"distilled by {teacher}"
    assert listing.splits["test"] == plain.splits["test"]


def test_speed_after_a_teacher(root, tmp_path, teacher):
    train = transformed(root, tmp_path, distil=teacher, augment="speed").splits["train"]
    assert [u.id for u in train] == ids("", "-speed0.9", "-speed1.1")
    assert all(u.translation.startswith("Lehrer:") for u in train)
    assert [type(u.audio) for u in train[7:]] == [Augmented] * 14


def test_nothing_asked_nothing_done(root, tmp_path):
    listing = Manifest().read(root)
    assert Transform()(listing, tmp_path / "none") is listing
    assert not (tmp_path / "none").exists()


def test_effects_do_not_depend_on_the_company_and_need_audio(root, tmp_path):
    alone, *_, silent = (listing := Manifest().read(root)).splits["train"]
    silent = replace(silent, audio=None)
    some = Transform(augment="effects")(replace(listing, splits={"train": [alone, silent]}), root)
    assert [u.id for u in some.splits["train"]] == [alone.id, silent.id, f"{alone.id}-speech"]
    everyone = transformed(root, tmp_path, augment="effects").splits["train"]
    assert some.splits["train"][-1] in everyone
    assert len({u.audio_origin for u in everyone}) == 8  # seven chains, and none


def test_effects_need_the_references():
    with pytest.raises(ValueError, match="use --distil-mode join, or --augment speed"):
        Transform(augment="effects", distil="cat")
    Transform(augment="effects")


BAD = {
    "fails": (says("import sys; sys.exit('no model here')"), r"exit status 1: no model here"),
    "too few lines": (says("print('one')"), r"answered 7 lines with 1: it must write exactly one"),
    "too many": (says("[print(n) for n in range(8)]"), r"answered 7 lines with 8"),
    "silent": (says("pass"), r"answered 7 lines with 0"),
    "missing": ("no-such-translator --fast", r"`no-such-translator --fast` cannot be run"),
    "not UTF-8": (says(r"import sys; sys.stdout.buffer.write(b'\xff\n' * 7)"), r"cannot be run"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_teacher_that_does_not_do_it(root, tmp_path, kind):
    command, message = BAD[kind]
    with pytest.raises(CorpusError, match=message):
        transformed(root, tmp_path, distil=command)
    assert not list((tmp_path / "teacher").glob("*.txt"))  # nothing of it is kept


def test_the_last_line_may_lack_its_end(root, tmp_path):
    code = "import sys; sys.stdout.write(sys.stdin.read().strip())"
    train = transformed(root, tmp_path, distil=says(code)).splits["train"]
    assert [u.translation for u in train] == [u.transcript for u in train]


def test_a_teacher_needs_transcripts_and_a_training_split(tmp_path):
    write_hums(tmp_path / "few", {"test": 1})
    with pytest.raises(CorpusError, match="no training split to augment or distil"):
        transformed(tmp_path / "few", tmp_path, distil="cat")
    (tmp_path / "few" / "train.tsv").write_text("audio\ttranslation\ntest0.wav\tJa\n")
    with pytest.raises(CorpusError, match="--distil needs transcripts"):
        transformed(tmp_path / "few", tmp_path, distil="cat")


def test_what_was_said_is_not_asked_again(root, tmp_path, teacher, monkeypatch):
    monkeypatch.setattr(distillation, "LINES_AT_A_TIME", 3)
    whole = transformed(root, tmp_path / "whole", distil=teacher)
    assert calls(tmp_path) == [3, 3, 1]
    (tmp_path / "whole" / "teacher" / "000000003.txt").unlink()
    (tmp_path / "whole" / "teacher" / "000000003.unfinished").write_text("Lehrer: ha")
    assert transformed(root, tmp_path / "whole", distil=teacher) == whole
    assert calls(tmp_path) == [3, 3, 1, 3]


def test_speech_that_was_changed_already_is_changed_again(root, tmp_path):
    """Half of the sentences in `--voice both` have a speed before `--augment speed`."""
    listing, slower = Manifest().read(root), Transform(augment="speed")
    first, *_ = listing.splits["train"]
    twice = {u.id: u for u in slower(slower(listing, tmp_path), tmp_path).splits["train"]}
    both = [first, twice[f"{first.id}-speed0.9-speed0.9"]]
    nowhere = {"path": tmp_path, "report": tmp_path, "limits": Limits(), "transcribed": True}
    plain, changed = read_records(Shard(utterances=both, **nowhere), Counter())
    assert isinstance(plain, Record) and isinstance(changed, Record)
    assert len(changed.audio) == pytest.approx(len(plain.audio) / 0.9**2, abs=2)
