"""Table 1 of Dugan et al. 2023: its cells, and the whole of it on a real recording."""

import subprocess
import sys
from pathlib import Path

import pytest

from experiments.dugan2023.recordings import Recording
from experiments.dugan2023.table_1 import PUBLISHED, ROWS, Table, plan
from simuljax.config.fields import ConfigError
from simuljax.eval import read_records

ROOT = Path(__file__).parents[2]
TINY = ROOT / ".." / "shared" / "data" / "weights" / "whisper-tiny"
RECORDINGS = [
    Recording(index=i, file=Path(f"{i}.wav"), language=language, reference="x")
    for i, language in enumerate(["es", "fr", "es", "es"])
]


def table(**options):
    return Table(folder=Path("talks"), model=Path("tiny.bin"), to=Path("to"), **options)


def test_the_table_has_every_cell():
    cells = plan(table(), RECORDINGS)
    assert len(cells) == len({cell.folder for cell in cells}) == 2 * 2 * 8
    assert [cell.language for cell in cells] == ["es"] * 16 + ["fr"] * 16
    one = next(cell for cell in cells if cell.folder.name == "es-2s-consensus-0.75")
    assert one.interpreting.policy == ROWS["consensus-0.75"]
    assert (one.interpreting.window_s, one.interpreting.language) == (2.0, "es")
    assert [recording.index for recording in one.recordings] == [0, 2, 3]


def test_parts_of_the_table():
    cells = plan(table(languages=("fr",), windows=(1,), policies=("greedy",), aware=5), RECORDINGS)
    assert [(cell.folder.name, cell.aware) for cell in cells] == [("fr-1s-greedy", 1)]
    assert len(plan(table(first=2), RECORDINGS)[0].recordings) == 2


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="no policy 'gready'; there are confidence"):
        table(policies=("gready",))
    with pytest.raises(ConfigError, match="nothing in 'de', but"):
        plan(table(languages=("de",)), RECORDINGS)
    with pytest.raises(ConfigError, match="--speak needs"):
        table(speak=True)


def test_the_published_table_is_whole():
    assert set(PUBLISHED) == {"ja", "es", "ru", "ar"}
    for rows in PUBLISHED.values():
        assert set(rows) == set(ROWS) - {"align-att", "local-agreement"}
        assert rows["offline"][0] == rows["offline"][1]
        assert rows["greedy"][0] < rows["greedy"][1] < rows["offline"][0]


def command(*words):
    line = [sys.executable, "-m", "experiments.dugan2023.table_1", *map(str, words)]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.skipif(
    not (TINY / "ggml-tiny.bin").exists(),
    reason="Whisper tiny is not among the shared data (weights/whisper-tiny)",
)
def test_the_command_on_a_real_recording(tmp_path):
    said = (
        "And so my fellow Americans ask not what your country can do for you ask what you can do"
        " for your country"
    )
    (tmp_path / "jfk.flac").symlink_to((TINY / "jfk.flac").resolve())
    lines = ["file\tlanguage\treference\tsegments", f"jfk.flac\ten\t{said}\t0.3-10.6"]
    (tmp_path / "manifest.tsv").write_text("\n".join(lines) + "\n")
    to, options = tmp_path / "to", ["--task", "transcribe", "--windows", 2, "--aware", 1]
    options += [
        "--repeats",
        1,
        "--policies",
        "greedy",
        "offline",
        "--model",
        TINY / "ggml-tiny.bin",
    ]
    done = command(tmp_path, "--to", to, *options)
    assert done.returncode == 0, done.stderr
    assert (to / "figure.png").exists() and "| offline | 0.0 (" in done.stdout
    greedy, offline = (read_records(to / f"en-2s-{row}")[0] for row in ("greedy", "offline"))
    assert greedy.delays[0] < offline.delays[0] == pytest.approx(11_000)
    before = (to / "en-2s-greedy" / "instances.log").stat().st_mtime_ns
    assert command(tmp_path, "--to", to, *options).stdout == done.stdout
    assert (to / "en-2s-greedy" / "instances.log").stat().st_mtime_ns == before
    other = command(tmp_path, "--to", to, *options, "--padding", "short")
    assert other.returncode == 1 and "padding was 'full' and is 'short'" in other.stderr
