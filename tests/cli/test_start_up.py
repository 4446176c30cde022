"""Commands import what they use: the quick ones none of the heavy packages."""

import subprocess
import sys

import pytest

from simuljax.eval.logs import as_records, write_records
from tests.eval.logs import made_up

HEAVY = {"jax", "flax", "optax", "orbax", "grain", "tensorflow_datasets", "scipy", "matplotlib"}
CODE = """
import sys
from simuljax.cli.main import main
try:
    main(sys.argv[1:])
finally:
    print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


def imported_by(*args: str) -> set[str]:
    """The packages that a process has imported when the command has ended."""
    done = subprocess.run([sys.executable, "-c", CODE, *args], capture_output=True, text=True)
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("command", ["--version", "--help", "trian", "score LOG", "score --help"])
def test_a_quick_command_imports_nothing_heavy(command, tmp_path):
    write_records(tmp_path / "a.log", as_records(made_up(0)))
    imported = imported_by(*command.replace("LOG", str(tmp_path / "a.log")).split())
    assert "simuljax" in imported and not imported & HEAVY


def test_a_heavy_import_would_be_seen():
    assert imported_by("train", "--help") >= {"jax", "flax", "orbax"}


@pytest.mark.slow
def test_child_processes_ignore_packages_in_the_working_directory(tmp_path):
    for package in ("simuljax", "data_pipelines", "experiments"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise SystemExit('the wrong package')")
    size = ["--train", "4", "--valid", "1", "--test", "1", "--workers", "2"]
    command = [sys.executable, "-P", "-m", "simuljax.cli.main", "prepare", "phrasebook"]
    done = subprocess.run(
        [*command, "--to", "corpus", *size], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "corpus" / "summary.json").exists()
