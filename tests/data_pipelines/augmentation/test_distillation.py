"""A run that was trained here as the teacher of a corpus: `--distil RUN`."""

import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from data_pipelines.augmentation import Transform, distillation
from data_pipelines.augmentation.distillation import CommandTeacher, RunTeacher, teacher_of
from data_pipelines.augmentation.distillation import translate_transcripts as ask
from data_pipelines.corpora import Manifest
from data_pipelines.dataset import open_corpus
from data_pipelines.utterance import CorpusError, Listing
from simuljax.cli import main as cli
from simuljax.serve import translator as live
from simuljax.train.checkpoint import CHECKPOINTS
from tests.helpers.corpora import write_hums
from tests.written_runs import UPDATES, write_run

SIZES = {"train": 7, "test": 2}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hums(tmp_path_factory.mktemp("few"), SIZES)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "mt", seed=1)


@pytest.fixture(scope="module")
def wanted(root: Path, run: Path) -> list[str]:
    """By hand, one after the other."""
    translator = live.load(run)
    train = Manifest().read(root).splits["train"]
    return [translator.translate_text(u.transcript, beam=5) for u in train]


def transformed(root: Path, work: Path, run: Path | str, **options: Any) -> Listing:
    return Transform(distil=str(run), **options)(Manifest().read(root), work)


@pytest.mark.slow
def test_a_run_translates_the_transcripts(root, run, wanted, tmp_path, monkeypatch):
    monkeypatch.setattr(distillation, "LINES_AT_A_TIME", 3)
    train = transformed(root, tmp_path, run, distil_mode="join").splits["train"]
    assert [u.translation for u in train[7:]] == wanted
    assert len(set(wanted)) > 2
    assert {u.translation_origin for u in train[:7]} == {""}
    name = f"{run} (updates {UPDATES}, beam 5)"
    assert {u.translation_origin for u in train[7:]} == {f"distilled by {name}"}
    assert len(list((tmp_path / "teacher").glob("*.txt"))) == 3


ECHO = "import sys\nfor line in sys.stdin: print('Lehrer:', line, end='')"
STOPS = "import sys; print('eins', flush=True); sys.exit('out of memory')"


@pytest.fixture
def teach(monkeypatch):
    """Has another program speak for the run, a sentence at a time."""
    monkeypatch.setattr(distillation, "LINES_AT_A_TIME", 1)

    def by(program: str) -> None:
        monkeypatch.setattr(distillation, "_teach", lambda run: [sys.executable, "-c", program])

    return by


def test_what_a_run_has_said_is_kept_when_it_stops(root, run, tmp_path, teach):
    train = Manifest().read(root).splits["train"]
    teacher = RunTeacher(run=run, name="mt (updates 7)")
    teach(STOPS)
    with pytest.raises(CorpusError, match=r"the teacher .*mt stopped: out of memory"):
        ask(teacher, train, tmp_path)
    teach(ECHO)
    said = ask(teacher, train, tmp_path)
    assert [*said.values()] == ["eins", *(f"Lehrer: {u.transcript}" for u in train[1:])]
    teach(STOPS)
    assert ask(teacher, train, tmp_path) == said, "nothing is asked again"
    later = RunTeacher(run=run, name="mt (updates 9)")
    with pytest.raises(CorpusError, match=r"by mt \(updates 7\).* now mt \(updates 9\): remove"):
        ask(later, train, tmp_path)


@pytest.mark.slow
def test_a_run_that_cannot_teach_says_why(root, run, tmp_path):
    shutil.copytree(run, tmp_path / "mt")
    shutil.rmtree(tmp_path / "mt" / CHECKPOINTS)
    with pytest.raises(CorpusError, match=r"mt cannot teach: simuljax: .*holds no checkpoint"):
        transformed(root, tmp_path, tmp_path / "mt")
    assert not (tmp_path / "teacher").exists()


def test_what_a_teacher_is(run, tmp_path):
    assert isinstance(teacher_of("cat -"), CommandTeacher)
    assert isinstance(teacher_of("no such thing"), CommandTeacher)
    with pytest.raises(CorpusError, match=r"is no run \(there is no config.json\)"):
        teacher_of(str(tmp_path))


@pytest.mark.slow
def test_synthesis_takes_a_teacher_too(tmp_path):
    pytest.importorskip("espeakng_loader", reason="needs `pip install 'simuljax[speech]'`")
    (tmp_path / "text").mkdir()
    for language, lines in {
        "en": "A dog runs.\nTwo men wait.\n",
        "de": "Ein Hund.\nZwei.\n",
    }.items():
        (tmp_path / "text" / f"train.{language}").write_text(lines)
    loud = shlex.join([sys.executable, "-c", "import sys; print(sys.stdin.read().upper(), end='')"])
    to = str(tmp_path / "speech")
    command = ["speak", str(tmp_path / "text"), "--to", to, "--distil-mode", "join"]
    cli.main([*command, "--distil", loud])
    table = open_corpus(to)["train"].table
    assert [*table.translation] == ["Ein Hund.", "Zwei.", "A DOG RUNS.", "TWO MEN WAIT."]
