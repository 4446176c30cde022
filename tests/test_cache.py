"""Where compiled programs are kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
