"""Text and corpora of the real-speech models: no sentence of a test is in the training text."""

import os
import subprocess
from pathlib import Path

from experiments.real_speech import text

SCRIPT = Path(__file__).parents[2] / "experiments/real_speech/corpora.sh"


def test_excluded_pairs_are_counted_apart_and_a_split_may_be_empty(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(text, "PHRASEBOOK_WRITTEN", 20)
    table, tests = tmp_path / "deu.tsv", tmp_path / "tests.tsv"
    table.write_text("Hi.\tHallo.\nGo.\tGeh.\nalone\n")
    tests.write_text("1\tGo.\n")
    text.main(table, tmp_path / "to", (tests,))
    said = capsys.readouterr().out
    assert "left out: 1 pairs whose source is in a test" in said
    assert "left out: 1 pairs, malformed row" in said
    written = (tmp_path / "to" / "text" / "train.en").read_text()
    assert "Hi." in written and "Go." not in written
    assert (tmp_path / "to" / "speech" / "valid.en").read_text() == ""


def test_text_that_may_hold_test_sentences_is_refused(tmp_path):
    """The commands of the script are replaced by some that only make their directory."""
    home, commands = tmp_path / "data" / "real_speech", tmp_path / ".venv" / "bin"
    commands.mkdir(parents=True)
    for name in ("python", "simuljax"):
        (commands / name).write_text(
            '#!/bin/bash\nmkdir -p "${@: -1}"; echo "$@" > "${@: -1}/summary.json"\n'
        )
        (commands / name).chmod(0o755)
    (tmp_path / "sets").mkdir()
    for name in ("test_2016_flickr.en", "test_2016_flickr.de", "a.tsv"):
        (tmp_path / "sets" / name).write_text("A dog.\n")

    def build(*sets: str) -> subprocess.CompletedProcess[str]:
        settings = {**os.environ, "SIMULJAX_DATA": str(tmp_path / "data")}
        command = ["bash", str(SCRIPT), "deu-eng.zip", *sets]
        return subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True)

    assert build().returncode == 0
    late = build("sets", "sets", "sets")
    assert late.returncode == 1 and f"remove {home} and start again" in late.stderr
    (home / "text").rename(tmp_path / "old")
    for _ in range(2):
        assert build("sets", "sets", "sets").returncode == 0
    assert "--exclude sets/a.tsv sets/a.tsv" in (home / "text" / "summary.json").read_text()
    (tmp_path / "sets" / "a.tsv").write_text("A cat.\n")
    assert build("sets", "sets", "sets").returncode == 1
    assert build().returncode == 0  # training alone
