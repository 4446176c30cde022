"""Saving and restoring: bit by bit, onto other devices, past damage, and not into another model."""

import dataclasses
import functools
import hashlib
import re
import resource
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from simuljax.train.checkpoint import CHECKPOINTS, CheckpointError, Checkpoints, nearest
from simuljax.train.run import AVERAGED, average, average_around_best, load_params
from tests.train.states import assert_same_bits, state_of


@pytest.fixture
def checkpoints(tmp_path: Path) -> Iterator[Checkpoints]:
    opened = Checkpoints(tmp_path / "run" / "checkpoints")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps, the last of which is the best."""
    saved = Checkpoints(tmp_path_factory.mktemp("three") / CHECKPOINTS)
    for step in (1, 2, 3):
        saved.save(step, state_of(step), {"step": step}, score=float(step))
    saved.close()
    return saved.directory


@pytest.fixture
def copy(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / CHECKPOINTS)


def over(devices: int, spec: PartitionSpec | None = None) -> NamedSharding:
    mesh = Mesh(np.array(jax.devices()[:devices]), ("replicas",))
    return NamedSharding(mesh, spec or PartitionSpec())


def test_a_restored_state_has_the_same_bits(checkpoints: Checkpoints) -> None:
    assert checkpoints.restore(state_of(0)) is None
    assert checkpoints.steps() == [] and checkpoints.best() is None
    assert not checkpoints.directory.exists()  # looking creates nothing
    extra = {"iterator": {"position": [1, 2]}, "best": 0.25, "patience": None, "name": "süß"}
    checkpoints.save(7, state_of(7), extra, score=1.5)
    restored = checkpoints.restore(state_of(0))
    assert restored is not None and restored.step == 7 and restored.extra == extra
    assert_same_bits(restored.state, state_of(7))
    with pytest.raises(AssertionError):
        assert_same_bits(restored.state, state_of(8))


def test_shapes_are_enough_and_a_part_is_restored_alone(written: Path) -> None:
    shapes = jax.eval_shape(functools.partial(state_of, 0, vocabulary=11))
    restored = Checkpoints(written).restore(shapes)
    assert restored is not None
    assert_same_bits(restored.state, state_of(3))
    part = Checkpoints(written).read(2, ["params", "teacher"])
    assert part.step == 2 and part.extra == {"step": 2}
    assert_same_bits(part.state, {"params": state_of(2).params, "teacher": {}})
    assert_same_bits(load_params(written.parent, 2).statistics, state_of(2).statistics)


def test_the_template_decides_devices_and_sharding(checkpoints: Checkpoints) -> None:
    split = jax.device_put({"w": jnp.arange(16.0)}, over(4, PartitionSpec("replicas")))
    checkpoints.save(1, split, {})
    for wanted in (over(1), over(2), over(4), over(2, PartitionSpec("replicas"))):
        template = {"w": jax.ShapeDtypeStruct((16,), "float32", sharding=wanted)}
        restored = checkpoints.restore(template)
        assert restored is not None and restored.state["w"].sharding == wanted
        np.testing.assert_array_equal(restored.state["w"], np.arange(16.0))


def test_saving_does_not_wait_and_survives_donation(checkpoints: Checkpoints) -> None:
    state = {"w": jnp.asarray(np.random.default_rng(0).normal(size=(3000, 3000)), "float32")}
    wanted = np.array(state["w"])
    update = jax.jit(lambda s: jax.tree.map(lambda x: x + 1, s), donate_argnums=0)
    extra = {"position": 1}
    checkpoints.save(1, state, extra)
    assert checkpoints.steps() == []  # it is being written
    extra["position"] = 2
    for _ in range(3):
        state = update(state)
    restored = checkpoints.restore(state)
    assert restored is not None and restored.extra == {"position": 1}
    np.testing.assert_array_equal(restored.state["w"], wanted)
    assert float(state["w"][0, 0]) > wanted[0, 0] + 2


def damage(file: Path, how: str) -> None:
    content = bytearray(file.read_bytes())
    if how == "cut":
        content = content[: len(content) // 2]
    else:  # one bit, which no size shows
        content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_damage_to_any_file_falls_back_or_does_no_harm(written: Path, tmp_path: Path) -> None:
    """Cut short or with one other bit, in turn."""
    names = [f.relative_to(written) for f in (written / "3").rglob("*") if f.is_file()]
    noticed = 0
    for number, name in enumerate(names):
        copy = shutil.copytree(written, tmp_path / str(number))
        damage(copy / name, "flipped" if number % 2 else "cut")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            restored = Checkpoints(copy).restore(state_of(0))
        assert restored is not None and restored.extra == {"step": restored.step}
        assert_same_bits(restored.state, state_of(restored.step))
        said = [str(w.message) for w in caught if str(copy / "3") in str(w.message)]
        assert restored.step == (2 if said else 3)
        noticed += bool(said)
    assert noticed >= len(names) - 2  # all but Orbax's two notes that nothing is read from


def test_falls_back_further_and_names_each_until_none_is_left(copy: Path) -> None:
    shutil.rmtree(copy / "3" / "extra")
    shutil.rmtree(copy / "2" / "state")
    with pytest.warns(UserWarning) as caught:
        restored = Checkpoints(copy).restore(state_of(0))
    assert restored is not None and restored.step == 1
    found = [re.search(r"checkpoints/(\d)", str(w.message)) for w in caught]
    assert [match[1] for match in found if match] == ["2", "3"]
    (copy / "1" / "state" / "manifest.ocdbt").unlink()
    all_damaged = r"(?s)are damaged:.*step 3: .*step 2: .*step 1: .*manifest"
    with pytest.raises(CheckpointError, match=all_damaged):
        Checkpoints(copy).restore(state_of(0))
    with pytest.raises(CheckpointError, match=all_damaged):
        load_params(copy.parent)
    shutil.rmtree(copy)
    with pytest.raises(CheckpointError, match=r"holds no checkpoint\.$"):
        load_params(copy.parent)


def test_a_named_step_is_not_replaced_by_another(copy: Path) -> None:
    damage(copy / "2" / "state" / "manifest.ocdbt", "cut")
    for read in (
        lambda: Checkpoints(copy).restore(state_of(0), 2),
        lambda: load_params(copy.parent, 2),
    ):
        with pytest.raises(CheckpointError, match=r"damaged .*manifest.*\[1, 3\]"):
            read()
    with pytest.raises(CheckpointError, match=r"no step 9; it has \[1, 2, 3\]"):
        Checkpoints(copy).restore(state_of(0), 9)


def test_training_goes_on_after_damage(copy: Path) -> None:
    damage(next((copy / "3" / "state" / "d").iterdir()), "flipped")
    resumed = Checkpoints(copy)
    with pytest.warns(UserWarning, match="is damaged"):
        assert resumed.restore(state_of(0)).step == 2  # pyright: ignore
    assert resumed.steps() == [1, 2]
    resumed.save(3, state_of(33), {"again": True})
    restored = resumed.restore(state_of(0))
    resumed.close()
    assert restored is not None and restored.step == 3 and restored.extra == {"again": True}
    assert_same_bits(restored.state, state_of(33))


def test_a_reader_passes_over_a_damaged_checkpoint_and_names_it(copy: Path) -> None:
    run = copy.parent
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is said of whole ones
        assert load_params(run, "last").steps == (3,)
    damage(next((copy / "3" / "state" / "d").iterdir()), "flipped")
    with pytest.warns(UserWarning, match=r"3 is damaged \(state/.*: passed over") as said:
        loaded = load_params(run, "best")
    assert loaded.steps == (2,) and len(said) == 1
    assert_same_bits(loaded.params["embedding"], state_of(2).params["embedding"])


def test_loading_hashes_every_file_once(copy: Path, monkeypatch) -> None:
    hashed: list[str] = []
    digest = hashlib.file_digest

    def counted(file, kind):
        hashed.append(file.name)
        return digest(file, kind)

    monkeypatch.setattr("hashlib.file_digest", counted)
    load_params(copy.parent, "best")
    load_params(copy.parent, "last")  # the same step
    assert hashed and len(hashed) == len(set(hashed))
    assert all(f"{CHECKPOINTS}/3/" in name for name in hashed)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (
            state_of(0, vocabulary=13),
            r"model:\s+params/embedding/embedding: float32\[11,4\] in the checkpoint, "
            r"float32\[13,4\] wanted",
        ),
        (
            dataclasses.replace(state_of(0), params={}, optimiser=()),
            r"kernel: bfloat16\[400,30\] in the checkpoint, nothing wanted.*and \d+ more",
        ),
        (
            jax.tree.map(lambda x: x.astype("float32"), state_of(0)),
            r"bfloat16\[400,30\].*float32\[400,30\] wanted",
        ),
    ],
    ids=["shape", "missing", "dtype"],
)
def test_another_model_is_refused_by_name(written: Path, template: object, words: str) -> None:
    with pytest.raises(CheckpointError, match=f"(?s){words}"):
        Checkpoints(written).restore(template)


NAN = float("nan")
SCORES = {10: 0.1, 20: 0.9, 30: 0.8, 40: None, 50: 0.9, 60: 0.2, 70: 0.3, 80: NAN}


@pytest.mark.parametrize(
    ("options", "scores", "phase", "kept", "best"),
    [
        ({"keep_last": 2, "keep_best": 2, "every": 40}, SCORES, {}, [20, 40, 50, 70, 80], 20),
        # The neighbours of the best, and the last ones, which may be neighbours of a new one.
        ({"around": 3}, {n: -abs(n - 5) for n in range(1, 10)}, {}, [4, 5, 6, 7, 8, 9], 5),
        # The best of the phase before, the best of this one, the last.
        ({}, {1: 0.9, 2: 0.8, 3: 0.2, 4: 0.3, 5: 0.1}, {3: 2, 4: 2, 5: 2}, [1, 4, 5], 4),
    ],
    ids=["of equals the first", "neighbours", "a new phase"],
)
def test_retention(tmp_path: Path, options, scores, phase, kept, best) -> None:
    saved = Checkpoints(tmp_path, **{"keep_last": 1, "keep_best": 1} | options)
    for step, score in scores.items():
        saved.save(step, {"w": jnp.full(2, step)}, {}, score=score, since=phase.get(step, 0))
    saved.close()
    assert saved.steps() == kept and saved.best() == best
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == kept
    assert not phase or saved.scored() == [4, 5]


def test_an_earlier_step_is_saved_only_after_discarding(copy: Path) -> None:
    opened = Checkpoints(copy)
    for step in (2, 3):
        with pytest.raises(ValueError, match="holds step 3"):
            opened.save(step, state_of(step), {})
    opened.discard_after(1)
    opened.save(2, state_of(22), {})
    opened.close()
    assert opened.steps() == [1, 2]
    assert_same_bits(opened.restore(state_of(0)).state, state_of(22))  # pyright: ignore


def test_what_cannot_be_saved_is_refused_at_once(checkpoints: Checkpoints) -> None:
    with pytest.raises(TypeError, match="params/rate is a float"):
        checkpoints.save(1, {"params": {"rate": 0.1}}, {})
    with pytest.raises(TypeError, match="not JSON serializable"):
        checkpoints.save(1, {"w": jnp.zeros(2)}, {"w": jnp.zeros(2)})
    assert checkpoints.restore({"w": jnp.zeros(2)}) is None


def test_a_full_disk_is_raised_by_the_next_call(checkpoints: Checkpoints) -> None:
    state = {"w": jnp.asarray(np.random.default_rng(0).normal(size=2**18))}
    checkpoints.save(1, state, {})
    checkpoints.wait()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        checkpoints.save(2, state, {})
        with pytest.raises(Exception, match=r"(?i)file too large"):
            checkpoints.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert checkpoints.steps() == [1]
    checkpoints.save(3, state, {})
    checkpoints.wait()
    assert checkpoints.steps() == [1, 3]


def params_of(step: int) -> dict:
    generator = np.random.default_rng(step)
    return {
        "w": jnp.asarray(generator.normal(size=(5, 3)), "float32"),
        "half": jnp.asarray(generator.normal(size=(4,)), jnp.bfloat16),
        "large": jnp.float32([1e8, 1.0, -1e8][step % 3]),
        "count": jnp.int32(step // 4),
    }


def test_an_average_is_the_mean_of_the_parameters(tmp_path: Path) -> None:
    saved = Checkpoints(tmp_path, keep_last=9)
    for step in range(1, 5):
        saved.save(step, {"params": params_of(step), "step": jnp.int32(step)}, {})
    saved.close()
    got, held = average(saved, [1, 2, 3])["params"], [params_of(step) for step in (1, 2, 3)]
    for name in ("w", "half"):
        mean = np.mean([np.asarray(p[name], np.float64) for p in held], axis=0)
        assert got[name].dtype == held[0][name].dtype
        np.testing.assert_array_equal(got[name], mean.astype(got[name].dtype))
    assert int(got["count"]) == 0 and got["count"].dtype == jnp.int32
    assert float(got["large"]) == pytest.approx(1 / 3)  # float32 sums would give 0
    with pytest.raises(ValueError, match="'params/count' holds integers that differ"):
        average(saved, [3, 4])


def test_an_average_is_of_the_others_and_its_lack_says_what_to_set(tmp_path: Path) -> None:
    saved = Checkpoints(tmp_path / CHECKPOINTS)
    for step in (1, 2, 3):
        saved.save(step, {"params": {"w": jnp.full(8, float(step))}}, {}, score=float(step))
    saved.close()
    with pytest.raises(CheckpointError, match=r"holds no checkpoint: `--training\.average"):
        load_params(tmp_path, "averaged")
    damage(next((saved.directory / "2" / "state" / "d").iterdir()), "cut")
    with pytest.warns(UserWarning, match="2 is damaged"):
        assert average_around_best(tmp_path, 2) == (1, 3)
    assert (tmp_path / AVERAGED).is_dir()
    assert float(load_params(tmp_path, "averaged").params["w"][0]) == 2.0


def test_the_nearest_to_the_best() -> None:
    steps = [10, 20, 30, 40, 60]
    for best, n, chosen in [
        (30, 1, [30]),
        (30, 2, [20, 30]),
        (60, 3, [30, 40, 60]),
        (10, 5, steps),
    ]:
        assert nearest(steps[::-1], best, n) == chosen
