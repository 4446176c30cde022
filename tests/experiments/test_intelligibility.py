import functools
import gzip
from pathlib import Path

import numpy as np
import pytest

from experiments.dugan2023 import intelligibility
from experiments.dugan2023.intelligibility import Chosen, Understood, edits, main, read, report

ROOT = Path(__file__).parents[2]
WEIGHTS = ROOT / ".." / "shared" / "data" / "weights" / "whisper-tiny" / "ggml-tiny.bin"


def obvious_edits(a: tuple[str, ...], b: tuple[str, ...]) -> int:
    @functools.cache
    def between(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        same = between(i - 1, j - 1) + (a[i - 1] != b[j - 1])
        return min(between(i - 1, j) + 1, between(i, j - 1) + 1, same)

    return between(len(a), len(b))


def test_edits():
    random = np.random.default_rng(0)
    for _ in range(100):
        a, b = (tuple(random.choice(list("abc"), random.integers(0, 9))) for _ in range(2))
        assert edits(a, b) == obvious_edits(a, b)


def test_punctuation_and_case_are_no_errors(capsys):
    lines = [
        Understood(line="A well-known man's hat.", heard="a well known man’s hat", seconds=30),
        Understood(line="Two dogs.", heard="2 dogs run", seconds=30),
    ]
    assert report("lines", lines) == pytest.approx(100 * 2 / 7)
    told = capsys.readouterr().out
    assert "WER 28.57 %: 2 errors in 7 words; 1 of 2 lines without one; 1.0 min" in told


def test_lines_of_a_file(tmp_path):
    (tmp_path / "lines.txt").write_text("One.\n\n...\nÄ two\nthree\n", encoding="utf-8")
    (tmp_path / "lines.gz").write_bytes(gzip.compress((tmp_path / "lines.txt").read_bytes()))
    assert read(tmp_path / "lines.txt", 2) == ["One.", "Ä two"]
    assert read(tmp_path / "lines.gz", None) == ["One.", "Ä two", "three"]


@pytest.mark.slow
def test_hibari_is_understood_and_noise_is_not(tmp_path, capsys, monkeypatch):
    if not WEIGHTS.exists():
        pytest.skip("no weights of Whisper tiny beside the repository")
    lines = ["A girl in karate uniform breaking a stick.", "People are fixing the roof of a house."]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    chosen = Chosen(lines=tmp_path / "lines.txt", model=WEIGHTS, batch=2)
    main(chosen)
    assert "WER 0.00 %: 0 errors in 16 words" in capsys.readouterr().out
    monkeypatch.setattr(intelligibility, "say", lambda *_: np.zeros(24_000, np.int16))
    main(chosen)
    assert "0 of 2 lines without one" in capsys.readouterr().out
