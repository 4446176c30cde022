"""Where compiled programs are kept."""

import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

from simuljax.cache import announce_compilation

ROOT = Path(__file__).parents[2]
CODE = "from simuljax.cache import enable_compilation_cache as e; print(e()); import jax; " \
    "print(jax.config.jax_compilation_cache_dir)"  # fmt: skip


@pytest.mark.parametrize("variable", ["JAX_COMPILATION_CACHE_DIR", "XDG_CACHE_HOME", "HOME"])
def test_the_directory(tmp_path: Path, variable: str) -> None:
    wanted = {
        "JAX_COMPILATION_CACHE_DIR": tmp_path,
        "XDG_CACHE_HOME": tmp_path / "simuljax" / "xla",
        "HOME": tmp_path / ".cache" / "simuljax" / "xla",
    }[variable]
    others = ("JAX_COMPILATION_CACHE_DIR", "XDG_CACHE_HOME")
    environment = {k: v for k, v in os.environ.items() if k not in others}
    said = subprocess.run(
        [sys.executable, "-c", CODE],
        env=environment | {variable: str(tmp_path)},
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert said.stdout.splitlines() == [str(wanted)] * 2


@pytest.mark.parametrize("terminal", [True, False])
def test_a_compilation_is_announced_on_a_terminal(tmp_path, monkeypatch, capsys, terminal):
    monkeypatch.setitem(jax.config.values, "jax_compilation_cache_dir", str(tmp_path))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setenv("COLUMNS", "80")
    printed = []
    for _ in range(2):
        with announce_compilation("model", about_s=12):
            time.sleep(0.1)
        printed.append(capsys.readouterr().err)
    if not terminal:
        assert printed == ["", ""]
        return
    assert "about 12 s, cached next time" in printed[0]
    assert "about 0 s" in printed[1] and "cached next time" not in printed[1]
