"""Saving and restoring: bit by bit, onto other devices, past damage, and not into another model."""

import dataclasses
import functools
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

from simuljax.train.checkpoint import CheckpointError, Checkpoints, MismatchError, Retention
from tests.train.states import assert_same_bits, state_of


@pytest.fixture
def checkpoints(tmp_path: Path) -> Iterator[Checkpoints]:
    opened = Checkpoints(tmp_path / "run" / "checkpoints")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def three_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("three")
    saved = Checkpoints(directory)
    for step in (1, 2, 3):
        saved.save(step, state_of(step), {"step": step})
    saved.close()
    return directory


def over(devices: int, spec: PartitionSpec | None = None) -> NamedSharding:
    return NamedSharding(
        Mesh(np.array(jax.devices()[:devices]), ("replicas",)), spec or PartitionSpec()
    )


def test_a_restored_state_has_the_same_bits(checkpoints: Checkpoints) -> None:
    extra = {"iterator": {"position": [1, 2]}, "best": 0.25, "patience": None, "name": "süß"}
    checkpoints.save(7, state_of(7), extra, score=1.5)
    restored = checkpoints.restore(state_of(0))
    assert restored is not None and restored.step == 7 and restored.extra == extra
    assert_same_bits(restored.state, state_of(7))
    with pytest.raises(AssertionError):
        assert_same_bits(restored.state, state_of(8))


def test_an_empty_directory_gives_none_and_is_not_created(checkpoints: Checkpoints) -> None:
    assert checkpoints.restore(state_of(0)) is None
    assert checkpoints.steps() == [] and checkpoints.best() is None
    assert not checkpoints.directory.exists()


def test_a_template_of_shapes_is_enough(three_steps: Path) -> None:
    shapes = jax.eval_shape(functools.partial(state_of, 0, vocabulary=11))
    restored = Checkpoints(three_steps).restore(shapes)
    assert restored is not None
    assert_same_bits(restored.state, state_of(3))


def test_a_part_is_restored_alone(three_steps: Path) -> None:
    restored = Checkpoints(three_steps).restore(state_of(0).params, 2, part="params")
    assert restored is not None and restored.step == 2
    assert_same_bits(restored.state, state_of(2).params)


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_restores_onto_other_devices(checkpoints: Checkpoints, devices: int) -> None:
    checkpoints.save(5, jax.device_put(state_of(5), over(4)), {})
    template = jax.device_put(state_of(0), over(devices))
    restored = checkpoints.restore(template)
    assert restored is not None
    assert_same_bits(restored.state, state_of(5))
    for leaf in jax.tree.leaves(restored.state):
        assert leaf.sharding.device_set == set(jax.devices()[:devices])


def test_the_template_decides_the_sharding(checkpoints: Checkpoints) -> None:
    split = jax.device_put({"w": jnp.arange(16.0)}, over(4, PartitionSpec("replicas")))
    checkpoints.save(1, split, {})
    halves = over(2, PartitionSpec("replicas"))
    restored = checkpoints.restore({"w": jax.ShapeDtypeStruct((16,), "float32", sharding=halves)})
    assert restored is not None and restored.state["w"].sharding == halves
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


def damaged(file: Path, how: str) -> None:
    content = file.read_bytes()
    if how == "deleted":
        file.unlink()
    elif how == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif how == "emptied":
        file.write_bytes(b"")
    elif how == "garbage":
        file.write_bytes(np.random.default_rng(0).bytes(len(content)))
    else:
        middle = len(content) // 2
        file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])


@pytest.mark.parametrize("how", ["deleted", "cut", "emptied", "garbage", "flipped"])
def test_damage_to_any_file_falls_back_or_does_no_harm(
    three_steps: Path, tmp_path: Path, how: str
) -> None:
    names = [f.relative_to(three_steps) for f in (three_steps / "3").rglob("*") if f.is_file()]
    noticed = 0
    for number, name in enumerate(names):
        copy = tmp_path / str(number)
        shutil.copytree(three_steps, copy)
        damaged(copy / name, how)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            restored = Checkpoints(copy).restore(state_of(0))
        assert restored is not None and restored.extra == {"step": restored.step}
        assert_same_bits(restored.state, state_of(restored.step))
        said = [str(w.message) for w in caught if str(copy / "3") in str(w.message)]
        assert restored.step == (2 if said else 3)
        noticed += bool(said)
    assert noticed >= len(names) - 2  # all but Orbax's two notes that nothing is read from


def test_falls_back_further_and_names_each(three_steps: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(three_steps, tmp_path / "copy")
    shutil.rmtree(copy / "3" / "extra")
    shutil.rmtree(copy / "2" / "state")
    with pytest.warns(UserWarning) as caught:
        restored = Checkpoints(copy).restore(state_of(0))
    assert restored is not None and restored.step == 1
    assert [re.search(r"copy/(\d)", str(w.message))[1] for w in caught] == ["3", "2"]  # pyright: ignore


def test_nothing_usable_lists_what_was_tried(three_steps: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(three_steps, tmp_path / "copy")
    for step in "123":
        (copy / step / "state" / "manifest.ocdbt").unlink()
    with (
        pytest.warns(UserWarning),
        pytest.raises(CheckpointError, match=r"(?s)step 3: .*manifest.*step 2: .*step 1: "),
    ):
        Checkpoints(copy).restore(state_of(0))


def test_a_named_step_is_not_replaced_by_another(three_steps: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(three_steps, tmp_path / "copy")
    (copy / "2" / "state" / "manifest.ocdbt").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"damaged .*manifest.*\[1, 3\]"):
        Checkpoints(copy).restore(state_of(0), 2)
    with pytest.raises(CheckpointError, match=r"no step 9; it has \[1, 2, 3\]"):
        Checkpoints(copy).restore(state_of(0), 9)


def test_training_goes_on_after_damage(three_steps: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(three_steps, tmp_path / "copy")
    damaged(next(f for f in (copy / "3" / "state" / "d").iterdir()), "flipped")
    resumed = Checkpoints(copy)
    with pytest.warns(UserWarning, match="is damaged"):
        assert resumed.restore(state_of(0)).step == 2  # pyright: ignore
    assert resumed.steps() == [1, 2]
    resumed.save(3, state_of(33), {"again": True})
    restored = resumed.restore(state_of(0))
    resumed.close()
    assert restored is not None and restored.step == 3 and restored.extra == {"again": True}
    assert_same_bits(restored.state, state_of(33))


def without(tree: dict, name: str) -> dict:
    return {key: value for key, value in tree.items() if key != name}


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (
            state_of(0, vocabulary=13),
            r"model:\s+params/embedding/embedding: float32\[11,4\] in the checkpoint, "
            r"float32\[13,4\] wanted.*vocabulary",
        ),
        (state_of(0, rows=401), r"kernel: bfloat16\[400,30\].*bfloat16\[401,30\].*width"),
        (
            dataclasses.replace(state_of(0), params=without(state_of(0).params, "encoder")),
            r"kernel: bfloat16\[400,30\] in the checkpoint, nothing wanted.*architecture",
        ),
        (
            dataclasses.replace(state_of(0), params=state_of(0).params | {"new": jnp.zeros(2)}),
            r"params/new: nothing in the checkpoint, float32\[2\] wanted.*architecture",
        ),
        (
            dataclasses.replace(state_of(0), optimiser=()),
            r"optimiser/1/0/count: int32\[\] in the checkpoint, nothing wanted.*another optimiser",
        ),
        (
            jax.tree.map(lambda x: x.astype("float32"), state_of(0)),
            r"bfloat16\[400,30\].*float32\[400,30\] wanted.*precision",
        ),
    ],
    ids=["vocabulary", "rows", "missing", "extra", "optimiser", "dtype"],
)
def test_another_model_is_refused_by_name(three_steps: Path, template: object, words: str) -> None:
    with pytest.raises(MismatchError, match=f"(?s){words}"):
        Checkpoints(three_steps).restore(template)


def test_another_number_of_layers_is_recognised(checkpoints: Checkpoints) -> None:
    checkpoints.save(1, {"decoder": {"layer": {"bias": jnp.zeros((6, 4))}}}, {})
    with pytest.raises(MismatchError, match="another number of layers"):
        checkpoints.restore({"decoder": {"layer": {"bias": jnp.zeros((8, 4))}}})


def test_few_differences_are_shown_of_many(checkpoints: Checkpoints) -> None:
    checkpoints.save(1, {f"w{i}": jnp.zeros(2) for i in range(9)}, {})
    with pytest.raises(MismatchError, match="and 4 more"):
        checkpoints.restore({f"w{i}": jnp.zeros(3) for i in range(9)})


def test_retention_keeps_last_best_and_every(tmp_path: Path) -> None:
    scores = {10: 0.1, 20: 0.9, 30: 0.8, 40: None, 50: 0.9, 60: 0.2, 70: 0.3, 80: float("nan")}
    kept = Checkpoints(tmp_path, keep_last=2, keep_best=2, every=40)
    for step, score in scores.items():
        kept.save(step, {"w": jnp.full(2, step)}, {}, score=score)
    kept.close()
    assert kept.steps() == [20, 40, 50, 70, 80]
    assert kept.best() == 20  # the first of equals
    assert sorted(p.name for p in tmp_path.iterdir()) == ["20", "40", "50", "70", "80"]


def test_retention_as_a_rule() -> None:
    rule = Retention(keep_last=1, keep_best=1, every=None)
    assert rule.kept({}) == set()
    assert rule.kept({1: 3.0, 2: 1.0, 3: None}) == {1, 3}
    with pytest.raises(ValueError, match="keep_last is 0"):
        Retention(keep_last=0, keep_best=1, every=None)


def test_a_new_phase_has_a_best_of_its_own(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path, keep_last=1, keep_best=1)
    for step, score, since in ((1, 0.9, 0), (2, 0.8, 0), (3, 0.2, 2), (4, 0.3, 2), (5, 0.1, 2)):
        kept.save(step, {"w": jnp.full(2, step)}, {}, score=score, since=since)
    kept.close()
    assert kept.best() == 4 and kept.scored() == [4, 5]
    assert kept.steps() == [1, 4, 5]  # the best of the phase before, the best, the last


def test_the_neighbours_of_the_best_stay() -> None:
    rule = Retention(keep_last=1, keep_best=1, every=None, around=3)
    scores: dict[int, float | None] = {step: -abs(step - 5) for step in range(1, 10)}
    assert rule.kept(scores) == {4, 5, 6, 7, 8, 9}
    assert rule.kept({1: None, 2: None}) == {1, 2}


def test_an_earlier_step_is_saved_only_after_discarding(three_steps: Path, tmp_path: Path) -> None:
    opened = Checkpoints(shutil.copytree(three_steps, tmp_path / "copy"))
    for step in (2, 3):
        with pytest.raises(ValueError, match=rf"holds step 3.*discard_after\({step - 1}\)"):
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
