"""What all readers have in common."""

import dataclasses
import re
from pathlib import Path

import pytest
import tyro

from data_pipelines.corpora import CORPORA, Corpus, Manifest, MustC, Tsv
from data_pipelines.utterance import CorpusError


@pytest.mark.parametrize("corpus", CORPORA, ids=lambda corpus: corpus.name)
def test_metadata(corpus):
    assert re.fullmatch(r"[a-z0-9_]+", corpus.name)
    assert corpus().metadata["description"].endswith(".")
    assert corpus.__doc__ and not corpus.__doc__.startswith(corpus.__name__ + "(")
    assert bool(corpus().metadata["citation"]) == bool(corpus().metadata["homepage"])
    assert corpus() == corpus() and hash(corpus()) == hash(corpus())
    assert [other.name for other in CORPORA].count(corpus.name) == 1


@pytest.mark.parametrize("corpus", CORPORA, ids=lambda corpus: corpus.name)
def test_a_place_that_is_not_there(corpus, tmp_path):
    with pytest.raises(CorpusError, match=r"nowhere[\s\S]*Expected:\n    ROOT"):
        corpus().read(tmp_path / "nowhere")


@pytest.mark.parametrize("corpus", CORPORA, ids=lambda corpus: corpus.name)
def test_every_option_is_explained_on_the_command_line(corpus, capsys):
    with pytest.raises(SystemExit):
        tyro.cli(corpus, args=["--help"])
    shown = " ".join(re.sub(r"[^\x20-\x7e]", " ", capsys.readouterr().out).split())
    for field in dataclasses.fields(corpus):
        option = "--" + field.name.replace("_", "-")
        match = re.search(rf"{option} (.*?) \(default", shown)
        assert match and len(match[1].split()) > 2, option  # more than the name of its type


def test_the_columns_of_a_manifest_are_a_list_on_the_command_line(capsys):
    with pytest.raises(SystemExit):
        tyro.cli(Manifest, args=["--help"])
    lines = capsys.readouterr().out.splitlines()
    for column in ("audio", "offset_s", "transcript", "translation", "speaker", "id"):
        assert any(re.match(rf"\W*- {column}:", line) for line in lines), column


def test_a_corpus_is_chosen_on_the_command_line():
    def parse(*args: str) -> Corpus:
        return tyro.cli(Corpus, args=args)  # pyright: ignore[reportCallIssue, reportArgumentType]

    assert parse("must-c", "--target", "es") == MustC(target="es")
    assert parse("tsv", "--exclude", "a.txt") == Tsv(exclude=(Path("a.txt"),))
