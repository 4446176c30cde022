"""Where compiled programs are kept."""

import sys
import time
from collections.abc import Iterator
from typing import Any

import jax
import pytest

from simuljax.cache import announce_compilation, enable_compilation_cache

CONFIG: Any = jax.config


@pytest.fixture
def unset() -> Iterator[None]:
    before = CONFIG.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    jax.config.update("jax_compilation_cache_dir", before)


def test_the_directory_of_jax_stays(unset, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    assert enable_compilation_cache() == tmp_path
    assert CONFIG.jax_compilation_cache_dir == str(tmp_path)


@pytest.mark.parametrize(
    ("variable", "below"), [("XDG_CACHE_HOME", "simuljax/xla"), ("HOME", ".cache/simuljax/xla")]
)
def test_otherwise_it_is_in_the_users_cache(unset, tmp_path, monkeypatch, variable, below):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    assert enable_compilation_cache() == tmp_path / below
    assert CONFIG.jax_compilation_cache_dir == str(tmp_path / below)


def test_a_cache_that_cannot_be_made_is_a_warning(unset, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("no directory")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    enable_compilation_cache()
    assert CONFIG.jax_compilation_cache_dir is None
    assert "warning" in capsys.readouterr().err


@pytest.mark.parametrize("terminal", [True, False])
def test_a_compilation_is_announced_on_a_terminal(tmp_path, monkeypatch, capsys, terminal):
    directory = {"jax_compilation_cache_dir": str(tmp_path)}
    monkeypatch.setattr(type(jax.config), "values", directory)
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
    assert "compiling: 0 s of about 12 s, cached next time" in printed[0]
    assert "0 s of about 0 s" in printed[1] and "cached next time" not in printed[1]
