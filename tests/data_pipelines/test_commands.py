"""`simuljax prepare`, `simuljax speak` and `simuljax profile data` as a user types them."""

import importlib.util
import json

import pytest

from data_pipelines.dataset import open_corpus
from simuljax.cli.main import main
from tests.helpers.corpora import stored

pytest.importorskip("espeakng_loader", reason="speech needs pip install 'simuljax[speech]'")


@pytest.fixture(scope="module")
def phrasebook(tmp_path_factory):
    """A small phrasebook, built by the command."""
    to = tmp_path_factory.mktemp("commands") / "phrasebook"
    main(["prepare", "phrasebook", "--to", str(to), "--train", "40", "--valid", "4", "--test", "4"])
    return to


def test_prepare_ends_with_what_there_is(phrasebook, capsys):
    args = ["--train", "40", "--valid", "4", "--test", "4", "--to", str(phrasebook)]
    main(["prepare", "phrasebook", *args])  # nothing is left to do but to tell
    said = capsys.readouterr().out
    assert "train                   40" in said
    assert "shapes; padding:" in said and "of frames" in said and "of target" in said


def test_what_the_usual_settings_cannot_hold_is_a_note(tmp_path, capsys):
    letters = "".join(chr(0x4E00 + n) for n in range(9000))
    for language in ("en", "de"):
        (tmp_path / f"train.{language}").write_text(f"{letters}\n")
    main(["prepare", "parallel-text", "--from", str(tmp_path), "--to", str(tmp_path / "to")])
    assert "training needs other settings than the usual" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["prepare phrasebook --voice hibari", "speak text"])
def test_speech_without_its_packages_names_the_extra(command, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as end:
        main([*command.split(), "--to", str(tmp_path / "to")])
    assert end.value.code == 2
    assert "pip install 'simuljax[speech]'" in capsys.readouterr().err
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("form", ["pair of files", "table", "prepared"])
def test_speak_reads_text_of_any_form(form, tmp_path, phrasebook):
    english, german = ["A dog runs.", "Two men wait."], ["Ein Hund läuft.", "Zwei Männer warten."]
    text = tmp_path / "text"
    if form == "pair of files":
        text.mkdir()
        (text / "train.en").write_text("\n".join(english) + "\n")
        (text / "train.de").write_text("\n".join(german) + "\n")
    elif form == "table":
        text = tmp_path / "pairs.tsv"
        text.write_text("".join(f"{e}\t{g}\n" for e, g in zip(english, german, strict=True)))
    else:
        main(["prepare", "phrasebook", "--voice", "none", "--train", "2", "--valid", "1",
              "--test", "1", "--distil", "cat", "--to", str(text)])  # fmt: skip
        assert open_corpus(text)["train"].table.samples.sum() == 0
    main(["speak", str(text), "--to", str(tmp_path / "speech")])
    spoken = open_corpus(tmp_path / "speech")
    tables = [split.table for split in spoken.splits.values()]
    assert sum(map(len, tables)) >= 2
    origins = {example["translation_origin"] for example in stored(spoken["train"])}
    assert origins == {b"distilled by cat" if form == "prepared" else b""}
    assert all((table.samples > 8_000).all() and (table.words > 0).all() for table in tables)


@pytest.mark.slow
def test_profile_data(phrasebook, tmp_path, capsys):
    path = tmp_path / "data.json"
    main(["profile", "data", "--corpus", str(phrasebook), "--batches", "2", "--json", str(path)])
    report = json.loads(path.read_text())
    assert [row["way"] for row in report["rows"]] == ["one core", "8 threads", "device memory"]
    assert all(row["utterances_per_s"] > 0 for row in report["rows"])
    assert "times_step" in capsys.readouterr().out
