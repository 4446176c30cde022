"""A run as a teacher: every line is translated as if it were alone, whatever its company."""

import numpy as np
import pytest

from simuljax.serve import teacher as teach
from simuljax.serve import translator as live
from simuljax.serve.teacher import Teaching, batches, translate_lines
from tests.written_runs import WORDS, write_run

LINES = [
    *(" ".join(np.random.default_rng(i).choice(WORDS, 1 + 3 * i)) for i in range(4)),
    "",
    "abc \n",  # as it is read from a file
    " ",
]


@pytest.fixture(scope="module")
def translator(tmp_path_factory) -> live.Translator:
    return live.load(
        write_run(tmp_path_factory.mktemp("runs") / "mt", seed=7, speech=None, decoder_layers=1)
    )


@pytest.mark.slow
def test_company_does_not_matter(translator):
    together = translate_lines(translator, LINES, beam=3, tokens=32)
    alone = [translator.translate_text(line, beam=3) if line.strip() else "" for line in LINES]
    assert together == alone
    assert len(set(together)) > 3, "they are all alike: this shows little"
    assert translate_lines(translator, LINES, beam=1, tokens=32) != together


def test_every_line_is_in_one_batch_that_holds_it():
    lengths = np.random.default_rng(0).integers(0, 200, 500).tolist()
    parts = list(batches(lengths, 512))
    assert sorted(i for some, _ in parts for i in some) == [i for i, n in enumerate(lengths) if n]
    for indices, (rows, tokens) in parts:
        assert len(indices) <= rows <= max(1, 512 // tokens)
        longest = max(lengths[i] for i in indices)
        assert longest <= tokens < max(2 * longest, teach.SHORTEST + 1)
    assert len({shape for _, shape in parts}) <= 5
    assert list(batches([0, 0], 512)) == list(batches([], 512)) == []


def test_it_says_who_it_is(translator, monkeypatch, capsys):
    monkeypatch.setattr(teach, "enable_compilation_cache", lambda: None)
    run = translator.run.directory
    teach.main(Teaching(run=run, beam=3, who=True))
    assert capsys.readouterr().out == f"{run} (updates 7, beam 3)\n"
