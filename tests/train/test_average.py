"""Averages of checkpoints against NumPy's, and the choice of what to average."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.train.checkpoint import CheckpointError, Checkpoints
from simuljax.train.transfer import around_best, average


def params_of(step: int) -> dict:
    generator = np.random.default_rng(step)
    return {
        "w": jnp.asarray(generator.normal(size=(5, 3)), "float32"),
        "half": jnp.asarray(generator.normal(size=(4,)), jnp.bfloat16),
        "large": jnp.float32([1e8, 1.0, -1e8][step % 3]),
        "count": jnp.int32(6),
    }


@pytest.fixture
def saved(tmp_path: Path) -> Checkpoints:
    checkpoints = Checkpoints(tmp_path, keep_last=9)
    for step in range(1, 5):
        checkpoints.save(step, {"params": params_of(step), "step": jnp.int32(step)}, {})
    checkpoints.close()
    return checkpoints


def test_is_the_mean_of_the_parameters(saved: Checkpoints) -> None:
    got = average(saved, [1, 2, 3], params_of(0))
    held = [params_of(step) for step in (1, 2, 3)]
    for name in ("w", "half"):
        mean = np.mean([np.asarray(p[name], np.float64) for p in held], axis=0)
        assert got[name].dtype == held[0][name].dtype
        np.testing.assert_array_equal(got[name], jnp.asarray(mean, got[name].dtype))
    assert int(got["count"]) == 6 and got["count"].dtype == jnp.int32
    assert float(got["large"]) == pytest.approx(1 / 3)  # float32 sums would give 0
    assert np.abs(np.asarray(got["w"] - held[0]["w"])).max() > 0.1


def test_of_one_is_itself(saved: Checkpoints) -> None:
    got = average(saved, [2], params_of(0))
    jax.tree.map(np.testing.assert_array_equal, got, params_of(2))


def test_is_placed_like_the_template(saved: Checkpoints) -> None:
    template = jax.device_put(params_of(0), jax.devices()[1])
    got = average(saved, [1, 4], template)
    assert {d for leaf in jax.tree.leaves(got) for d in leaf.devices()} == {jax.devices()[1]}


def test_refuses_what_has_no_average(saved: Checkpoints) -> None:
    with pytest.raises(ValueError, match="at least one step"):
        average(saved, [], params_of(0))
    with pytest.raises(CheckpointError, match="no step 7"):
        average(saved, [1, 7], params_of(0))
    with pytest.raises(ValueError, match="'step' holds integers that differ"):
        average(saved, [1, 2], jnp.int32(0), part="step")


@pytest.mark.parametrize(
    ("best", "n", "chosen"),
    [(30, 1, [30]), (30, 3, [20, 30, 40]), (30, 2, [20, 30]), (60, 3, [30, 40, 60]), (10, 5, None)],
)
def test_around_best_takes_the_nearest(best: int, n: int, chosen: list[int] | None) -> None:
    steps = [10, 20, 30, 40, 60]
    assert around_best(steps[::-1], best, n) == (chosen or steps)


def test_around_best_says_what_is_lacking() -> None:
    with pytest.raises(ValueError, match=r"7 checkpoints around step 2: 2 are saved \(\[1, 2\]\)"):
        around_best([1, 2], 2, 7)
    with pytest.raises(ValueError, match="best step 3 is not among"):
        around_best([1, 2], 3, 1)
