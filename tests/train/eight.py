"""Train on eight pretended devices and on one: `python -m tests.train.eight`."""

import jax

from simuljax.batch import Batch
from simuljax.profile.measure import collectives
from simuljax.train.step import CompiledUpdate
from tests.train import small
from tests.train.test_parallel import (
    STEPS,
    WAYS,
    assert_same,
    compile_update,
    driver_of,
    update,
    weights_of,
)


def exchanged(driver: CompiledUpdate, batch: Batch) -> dict[str, dict[str, float]]:
    state, weights = driver.first(), weights_of(driver)
    driver.compile(state, [batch], weights)
    (compiled,) = driver._compiled.values()
    return collectives(compiled.as_text())


def main() -> None:
    assert jax.device_count() == 8
    model = update(speech=None)
    batches = [small.batch(rows=8, seed=seed, seconds=0.1) for seed in range(STEPS)]
    alone = compile_update(driver_of(model, 1, "shard_map"), batches)
    gradient = 4e-6 * sum(leaf.size for leaf in jax.tree.leaves(alone[0]))
    for way in WAYS:
        driver = driver_of(model, 8, way)
        found = exchanged(driver, batches[0])
        assert set(found) == {"all-reduce"}, found
        assert gradient <= found["all-reduce"]["mbyte"] < 1.01 * gradient + 1e-3, (found, gradient)
        assert_same(compile_update(driver, batches), alone)
        print(way)


if __name__ == "__main__":
    main()
