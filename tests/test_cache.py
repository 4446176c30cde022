"""Where compiled programs are kept."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from simuljax.cache import enable_compilation_cache

CODE = "from simuljax.cache import enable_compilation_cache as e; print(e()); import jax; " \
    "print(jax.config.jax_compilation_cache_dir)"  # fmt: skip


def test_the_directory_of_jax_stays(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env=os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == [str(tmp_path)] * 2


@pytest.mark.parametrize(
    ("variable", "below"), [("XDG_CACHE_HOME", "simuljax/xla"), ("HOME", ".cache/simuljax/xla")]
)
def test_otherwise_it_is_in_the_users_cache(tmp_path: Path, monkeypatch, variable, below):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    before = jax.config.jax_compilation_cache_dir
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        assert enable_compilation_cache() == tmp_path / below
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / below)
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
