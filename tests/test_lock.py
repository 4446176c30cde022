"""Locks that need no write access to be seen, and file systems that have none."""

import errno
from pathlib import Path
from typing import Any

import pytest

from simuljax import lock
from simuljax.lock import UNSUPPORTED, is_locked, locked, try_lock


def test_a_lock_is_seen_without_write_access(tmp_path: Path, monkeypatch) -> None:
    modes, opened = [], Path.open

    def opening(path: Path, mode: str = "r", *rest: Any, **named: Any) -> Any:
        modes.append(mode)
        return opened(path, mode, *rest, **named)

    with locked(tmp_path):
        monkeypatch.setattr(Path, "open", opening)
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path) and modes == ["r", "r"]
    with try_lock(tmp_path) as mine:
        assert mine


@pytest.mark.parametrize("number", UNSUPPORTED)
def test_work_goes_on_with_a_warning_where_there_are_no_locks(
    tmp_path: Path, monkeypatch, capsys, number: int
) -> None:
    lock._warn.cache_clear()
    monkeypatch.setattr("fcntl.flock", failing(number))
    with locked(tmp_path), locked(tmp_path):
        assert not is_locked(tmp_path)
    assert capsys.readouterr().err.count("warning: this file system has no locks") == 1


def test_other_errors_of_a_lock_are_raised(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("fcntl.flock", failing(errno.EIO))
    with pytest.raises(OSError, match="flock"), locked(tmp_path):
        pass


def failing(number: int) -> Any:
    def flock(*_: object) -> None:
        raise OSError(number, "flock")

    return flock
