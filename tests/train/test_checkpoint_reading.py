"""What a damaged checkpoint does to whoever only reads the run: it is named, or all of them are."""

import hashlib
import shutil
import warnings
from pathlib import Path

import jax.numpy as jnp
import pytest

from simuljax.train.checkpoint import CHECKPOINTS, CheckpointError, Checkpoints
from simuljax.train.transfer import AVERAGED, Loaded, average_around_best, load


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three validated steps, the last of which is the best."""
    run = tmp_path_factory.mktemp("written")
    checkpoints = Checkpoints(run / CHECKPOINTS)
    for step in (1, 2, 3):
        state = {"params": {"w": jnp.full(8, float(step))}, "statistics": {}}
        checkpoints.save(step, state, {}, score=float(step))
    checkpoints.close()
    return run


@pytest.fixture
def run(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "run")


def cut(run: Path, step: int) -> None:
    """Every file of the state ends half way."""
    for file in (run / CHECKPOINTS / str(step) / "state").rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip(run: Path, step: int) -> None:
    """One bit of the arrays; no size shows it."""
    file = next((run / CHECKPOINTS / str(step) / "state" / "d").iterdir())
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


def is_of(loaded: Loaded, step: int) -> bool:
    return loaded.steps == (step,) and bool((loaded.params["w"] == step).all())


@pytest.mark.parametrize("damaged", [cut, flip])
@pytest.mark.parametrize("which", ["best", "last"])
def test_a_damaged_one_is_passed_over_by_name(run: Path, which, damaged) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert is_of(load(run, which), 3), "nothing is said of whole ones"
    damaged(run, 3)
    with pytest.warns(
        UserWarning, match=r"checkpoints/3 is damaged \(state/.*: passed over"
    ) as said:
        assert is_of(load(run, which), 2)
    assert len(said) == 1


def test_all_damaged_is_not_none(run: Path) -> None:
    cut(run, 3)
    flip(run, 2)
    shutil.rmtree(run / CHECKPOINTS / "1" / "extra")
    with pytest.raises(CheckpointError, match=r"(?s)are damaged:.*step 3: .*step 2: .*step 1: "):
        load(run)
    shutil.rmtree(run / CHECKPOINTS)
    with pytest.raises(CheckpointError, match=r"holds no checkpoint\.$"):
        load(run)


def test_a_step_that_was_asked_for_is_refused(run: Path) -> None:
    cut(run, 2)
    with pytest.raises(CheckpointError, match=r"2 is damaged .*\[1, 3\]"):
        load(run, 2)


def test_an_average_is_of_the_others_and_its_lack_says_what_to_set(run: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"averaged holds no checkpoint: `--training\.average"
    ):
        load(run, "averaged")
    cut(run, 2)
    with pytest.warns(UserWarning, match="2 is damaged"):
        assert average_around_best(run, 2) == (1, 3)
    assert (run / AVERAGED).is_dir() and float(load(run, "averaged").params["w"][0]) == 2.0


def test_loading_hashes_every_file_once(run: Path, monkeypatch) -> None:
    hashed: list[str] = []
    digest = hashlib.file_digest

    def counted(file, kind):
        hashed.append(file.name)
        return digest(file, kind)

    monkeypatch.setattr("hashlib.file_digest", counted)
    load(run, "best")
    load(run, "last")  # the same step
    assert hashed and len(hashed) == len(set(hashed))
    assert all(f"{CHECKPOINTS}/3/" in name for name in hashed)
