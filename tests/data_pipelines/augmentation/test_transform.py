"""More speech and other translations: what is stored, and what a teacher may and may not do."""

import shlex
import shutil
import sys
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from data_pipelines.augmentation import Transform, distillation
from data_pipelines.augmentation.distillation import Teacher, distilled, teacher_of
from data_pipelines.augmentation.effects import (
    Augmented,
    Effects,
    augment_speech,
    echo,
    random_effects,
    speed,
    tempo,
)
from data_pipelines.corpora import Manifest
from data_pipelines.dataset import Example, PreparedCorpus
from data_pipelines.prepare import Limits, Shard, read_examples
from data_pipelines.synthesis import Speech, espeak
from data_pipelines.utterance import CorpusError, Listing, Span, Voice
from simuljax.train.checkpoint import CHECKPOINTS
from tests.helpers.corpora import build, stored, write_hums
from tests.helpers.grids import QUICK
from tests.written_runs import UPDATES, write_run

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


def records(corpus: PreparedCorpus, split: str = "train") -> dict[str, SimpleNamespace]:
    """Stored examples by id."""
    found = {}
    for example in stored(corpus[split]):
        texts = {k: v.decode() for k, v in example.items() if isinstance(v, bytes)}
        found[texts["id"]] = SimpleNamespace(**example | texts)
    return found


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
        assert plain.audio_origin == ""
        for factor in (0.9, 1.1):
            copy = made[f"train{n}-speed{factor}"]
            assert len(copy.audio) == round(len(plain.audio) / factor)
            assert copy.audio_origin == f"speed {factor}"
            assert copy.translation == plain.translation
            assert pitch_of(copy.audio) == pytest.approx(pitch_of(plain.audio) * factor, rel=0.02)
            np.testing.assert_allclose(copy.word_ms, plain.word_ms / factor, atol=0.1)
    numbers = corpus.summary["splits"]["train"]
    assert numbers["sentences"] == 21 and corpus.summary["preparation"]["transform.augment"]


def test_effects_and_a_teacher_give_as_much_of_either(root, tmp_path, teacher):
    options = Transform(augment="effects", distil=teacher, distil_mode="join")
    corpus = build(Manifest(), root, tmp_path / "to", transform=options)
    made = records(corpus)
    assert list(made) == ids("", "-speech", "-text")
    for n in range(SIZES["train"]):
        plain, speech, said = (made[f"train{n}{suffix}"] for suffix in ("", "-speech", "-text"))
        assert plain.audio_origin == plain.translation_origin == ""
        # Augmented speech goes with the original translation,
        assert speech.audio_origin.startswith("tempo ")
        assert speech.translation_origin == ""
        assert speech.translation == plain.translation
        tempo = float(speech.audio_origin.split()[1])
        assert len(speech.audio) == round(len(plain.audio) / tempo)
        np.testing.assert_allclose(speech.word_ms, plain.word_ms / tempo, atol=0.1)
        # and original speech with the teacher's.
        assert said.audio_origin == ""
        assert said.translation_origin == f"distilled by {teacher}"
        assert said.translation == f"Lehrer: {plain.transcript}"
        np.testing.assert_array_equal(said.audio, plain.audio)
    assert not (corpus.directory / ".work").exists() and calls(tmp_path) == [7]


def test_a_teachers_translations_replace_the_others_before_the_speed_changes(
    root, tmp_path, teacher
):
    listing = transformed(root, tmp_path, distil=teacher, augment="speed")
    train, plain = listing.splits["train"], Manifest().read(root)
    assert [u.id for u in train] == ids("", "-speed0.9", "-speed1.1")
    assert [type(u.audio) for u in train[7:]] == [Augmented] * 14
    for utterance in train:
        assert utterance.translation == f"Lehrer: {utterance.transcript}"
        assert utterance.translation_origin == f"distilled by {teacher}"
    assert listing.splits["test"] == plain.splits["test"]
    assert Transform()(plain, tmp_path / "none") is plain


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
    "missing": ("no-such-translator --fast", r"`no-such-translator --fast` cannot be run"),
    "not UTF-8": (says(r"import sys; sys.stdout.buffer.write(b'\xff\n' * 7)"), r"writes no UTF-8"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_teacher_that_does_not_do_it(root, tmp_path, kind):
    command, message = BAD[kind]
    with pytest.raises(CorpusError, match=message):
        transformed(root, tmp_path, distil=command)
    assert not list((tmp_path / "teacher").glob("*.txt"))  # nothing of it is kept


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


def test_a_carriage_return_ends_no_line(root, tmp_path):
    command = says(r"[print('a\rb') for _ in range(7)]")
    for _ in range(2):  # written, then read again
        listing = transformed(root, tmp_path, distil=command)
        assert [u.translation for u in listing.splits["train"]] == ["a\rb"] * 7


def test_speech_that_was_changed_already_is_changed_again(root, tmp_path):
    """Half of the sentences in `--voice both` have a speed before `--augment speed`."""
    listing, slower = Manifest().read(root), Transform(augment="speed")
    first, *_ = listing.splits["train"]
    twice = {u.id: u for u in slower(slower(listing, tmp_path), tmp_path).splits["train"]}
    both = [first, twice[f"{first.id}-speed0.9-speed0.9"]]
    nowhere = {"path": tmp_path, "report": tmp_path, "limits": Limits(), "transcribed": True}
    plain, changed = read_examples(Shard(utterances=both, **nowhere), Counter())
    assert isinstance(plain, Example) and isinstance(changed, Example)
    assert len(changed.audio) == pytest.approx(len(plain.audio) / 0.9**2, abs=2)


RATE = 16_000
SECONDS = 2.0


def sine(hertz: float, amplitude: float = 8000.0) -> np.ndarray:
    at = np.arange(int(SECONDS * RATE)) / RATE
    return (amplitude * np.sin(2 * np.pi * hertz * at)).astype(np.int16)


def pitch_of(samples: np.ndarray) -> float:
    inner = samples[1600:-1600].astype(float)
    spectrum = np.abs(np.fft.rfft(inner * np.hanning(len(inner)), 1 << 18))
    return float(spectrum.argmax() * RATE / (1 << 18))


@pytest.mark.parametrize(("factor", "hertz"), [(0.85, 110.0), (1.3, 313.0)])
def test_tempo_changes_the_duration_and_not_the_pitch(factor, hertz):
    samples = sine(hertz)
    changed = tempo(samples, factor)
    assert len(changed) == round(len(samples) / factor)
    assert pitch_of(changed) == pytest.approx(hertz, rel=0.01)
    # Windows that did not fit would beat: the loudness of a sine must stay as it is.
    peaks = np.abs(changed[800:-800]).astype(int)[: len(changed) // 800 * 800 - 1600]
    assert peaks.reshape(-1, 400).max(1).min() > 0.9 * 8000


def test_speed_changes_both_and_pitch_alone_keeps_the_duration():
    for factor in (0.9, 1.1):
        changed = speed(sine(200.0), factor)
        assert len(changed) == pytest.approx(SECONDS * RATE / factor, abs=1)
        assert pitch_of(changed) == pytest.approx(200.0 * factor, rel=0.001)
    for cents in (-300, 120):
        changed = Effects(pitch_cents=cents).apply(sine(200.0))
        assert len(changed) == SECONDS * RATE
        assert pitch_of(changed) == pytest.approx(200.0 * 2 ** (cents / 1200), rel=0.01)


def test_the_echo_of_a_click():
    click = np.zeros(1600)
    click[100] = 1.0
    late = echo(click, 45, 0.1)
    assert {int(i): float(late[i]) for i in np.nonzero(late)[0]} == {100: 1.0, 100 + 720: 0.1}
    assert np.count_nonzero(echo(click, 200, 0.1)) == 1  # after the end: cut off


def test_loud_audio_saturates():
    loud = sine(100.0, amplitude=32700.0)
    late = echo(loud, 10.0, 0.9)  # one period later: in phase, so 1.9 times as loud
    inside = slice(200, None)
    assert late.max() == 32767 and late.min() == -32768
    assert np.all(np.sign(late[inside]) * np.sign(loud[inside]) >= 0)  # wrapping flips the sign
    square = np.where(np.arange(8000) // 80 % 2, 32767, -32768).astype(np.int16)
    overshoot = speed(square.astype(np.float64), 1.1)
    assert overshoot.max() > 32767  # the control: there is something to saturate
    saturated = speed(square, 1.1).astype(float)
    assert np.array_equal(saturated, np.clip(np.rint(overshoot), -32768, 32767))


@pytest.mark.parametrize("dtype", [np.int16, np.float32])
def test_neutral_effects_are_the_identity(dtype):
    samples = np.random.default_rng(0).normal(0, 3000, 5000).astype(dtype)
    same = (tempo(samples, 1), speed(samples, 1), echo(samples, 50, 0), Effects().apply(samples))
    for each in same:
        assert each.dtype == dtype and each is not samples
        assert np.array_equal(each, samples)


@pytest.mark.parametrize("count", [0, 1, 100, 700])
def test_short_audio(count):
    chain = Effects(tempo=1.2, pitch_cents=200, echo_ms=30, echo_decay=0.2)
    changed = chain.apply(np.full(count, 1000, np.int16))
    assert len(changed) == round(count / 1.2)


def test_random_effects_are_reproducible_and_in_range():
    drawn = [random_effects(f"u{number}") for number in range(200)]
    assert drawn == [random_effects(f"u{number}") for number in range(200)]
    assert str(drawn[0]) == "tempo 0.889 pitch -111 echo 186/0.113"
    assert len(set(drawn)) == 200
    ranges = {"tempo": (0.85, 1.3), "pitch_cents": (-300, 300), "echo_ms": (20, 200)}
    for field, (low, high) in (ranges | {"echo_decay": (0.05, 0.2)}).items():
        values = [getattr(chain, field) for chain in drawn]
        assert low <= min(values) < low + 0.1 * (high - low)
        assert high >= max(values) > high - 0.1 * (high - low)


def onset_after(samples: np.ndarray, at_ms: float) -> float:
    """When it is first loud again."""
    loud = np.abs(samples.astype(float)) > 0.05 * np.abs(samples.astype(float)).max()
    at = int(at_ms * RATE / 1000)
    return (at + int(np.argmax(loud[at:]))) * 1000 / RATE


@pytest.mark.parametrize("factor", [0.85, 1.3])
def test_word_times_still_fit_the_audio(factor):
    text = "Apples, oranges, ice, eggs, animals, and avenues, all of it."
    said = espeak.speak(text, Voice(engine="espeak", variant="m3"))
    chain = Effects(tempo=factor, pitch_cents=150, echo_ms=20, echo_decay=0.05)
    changed = augment_speech(said, chain)
    assert [w.text for w in changed.words] == text.split()
    times = [t for w in changed.words for t in (w.start_ms, w.end_ms)]
    assert times == sorted(times) and times[-1] <= changed.duration_ms
    assert len(changed.phonemes) == len(said.phonemes)
    assert max(p.end_ms for p in changed.phonemes) <= changed.duration_ms

    moved, unmoved = [], []  # from a word's start behind a pause to where its sound starts
    for number, (before, word) in enumerate(pairwise(changed.words), start=1):
        if word.start_ms - before.end_ms > 50:
            onset = onset_after(changed.samples, (before.end_ms + word.start_ms) / 2)
            moved.append(onset - word.start_ms)
            unmoved.append(onset - said.words[number].start_ms)
    assert len(moved) == 6
    assert np.abs(moved).max() < 25
    assert np.abs(unmoved).max() > 200  # the control: times that did not follow the audio


def test_word_times_stay_inside_when_the_length_is_rounded():
    word = Span(text="all", start_ms=0.0, end_ms=1001 * 1000 / RATE)
    said = Speech(samples=np.ones(1001, np.int16), words=(word,), phonemes=())
    changed = augment_speech(said, Effects(tempo=1.3))
    assert changed.words[0].end_ms == changed.duration_ms == 770 * 1000 / RATE


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "mt", seed=1)


@pytest.mark.slow
def test_a_run_translates_the_transcripts(root, run, tmp_path, monkeypatch):
    """In a process of its own; `serve/test_teach` has what it says."""
    monkeypatch.setenv("XLA_FLAGS", " ".join(QUICK))
    monkeypatch.setattr(distillation, "LINES_AT_A_TIME", 3)
    train = transformed(root, tmp_path, distil=str(run), distil_mode="join").splits["train"]
    said = {u.transcript: u.translation for u in train[7:]}
    assert len(set(said.values())) > 2 and said.keys() == {u.transcript for u in train[:7]}
    assert {u.translation_origin for u in train[:7]} == {""}
    name = f"{run} (updates {UPDATES}, beam 5)"
    assert {u.translation_origin for u in train[7:]} == {f"distilled by {name}"}
    assert len(list((tmp_path / "teacher").glob("*.txt"))) == 3


def run_teacher(program: str, updates: int = 7) -> Teacher:
    """Has another program speak for the run, a sentence at a time."""
    command, name = [sys.executable, "-c", program], f"mt (updates {updates})"
    return Teacher(name=name, command=command, is_run=True)


ECHO = "import sys\nfor line in sys.stdin: print('Lehrer:', line, end='')"
STOPS = "import sys; print('eins', flush=True); sys.exit('out of memory')"


def test_what_a_run_has_said_is_kept_when_it_stops(root, tmp_path, monkeypatch):
    monkeypatch.setattr(distillation, "LINES_AT_A_TIME", 1)
    train = Manifest().read(root).splits["train"]
    with pytest.raises(CorpusError, match=r"the teacher .*mt .*: out of memory"):
        distilled(train, tmp_path, run_teacher(STOPS))
    said = distilled(train, tmp_path, run_teacher(ECHO))
    wanted = ["eins", *(f"Lehrer: {u.transcript}" for u in train[1:])]
    assert [u.translation for u in said] == wanted
    assert distilled(train, tmp_path, run_teacher(STOPS)) == said, "nothing is asked again"
    with pytest.raises(CorpusError, match=r"by mt \(updates 7\).* now mt \(updates 9\): remove"):
        distilled(train, tmp_path, run_teacher(ECHO, updates=9))


@pytest.mark.slow
def test_a_run_that_cannot_teach_says_why(root, run, tmp_path):
    shutil.copytree(run, tmp_path / "mt")
    shutil.rmtree(tmp_path / "mt" / CHECKPOINTS)
    with pytest.raises(CorpusError, match=r"mt cannot teach: simuljax: .*holds no checkpoint"):
        transformed(root, tmp_path, distil=str(tmp_path / "mt"))
    assert not (tmp_path / "teacher").exists()


def test_a_directory_must_be_a_run(tmp_path):
    assert not teacher_of("no such thing").is_run
    with pytest.raises(CorpusError, match=r"is no run \(there is no config.json\)"):
        teacher_of(str(tmp_path))
