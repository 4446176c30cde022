"""The compiled functions of a run: one update from one batch or several, one validation."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.batch import Batch
from simuljax.models.initialise import initialise
from simuljax.train.flops import BACKWARD, forward_flops
from simuljax.train.parallel import Replicas
from simuljax.train.step import Gathered, Report, TrainState, Update, Validation

Shape = tuple[tuple[int, ...] | None, ...]


class Driver:
    """`Update` on the devices of a run. Every function is compiled once per shape of a batch.

    Once a shape has been seen, its updates send nothing between host and devices but the batch: any
    other transfer would make one wait for the other, and is an error.
    """

    def __init__(self, update: Update, replicas: Replicas, *, seed: int = 0):
        self.replicas, self.model, self.seed = replicas, update, seed
        self._seed = replicas.replicate(np.int32(seed))
        self.compile_s = 0.0  # spent so far in first calls
        self._numbers: list[jax.Array] = []  # 0, 1, ... on the devices, for micro-batches
        self._flops: dict[Shape, float] = {}
        self._seen: set[tuple[Shape, bool]] = set()
        self._initialise = jax.jit(lambda key: initialise(update.model, key))
        self._whole = replicas.wrap(update.whole, donate=0)
        self._totals = replicas.wrap(update.totals)
        self._gather = replicas.wrap(update.gather)
        self._validate = replicas.wrap(update.validate)
        self._apply = jax.jit(update.apply, donate_argnums=0)
        self._add = jax.jit(_add, donate_argnums=0)

    def first(self, begin: Callable[[Any], Any] | None = None) -> TrainState:
        """The state before any update; `begin` may change the parameters."""
        params, statistics = self._initialise(self._key())
        params = begin(params) if begin is not None else params
        return self.replicas.replicate(self._state_of(params, statistics))

    def template(self) -> TrainState:
        """Shape and place of every array of a state, for all hosts; nothing is computed."""
        shapes = jax.eval_shape(self._initialise, self._key())
        return self.replicas.over_all_hosts(jax.eval_shape(self._state_of, *shapes))

    def update(
        self, state: TrainState, batches: Sequence[Batch], weights: Mapping[str, jax.Array]
    ) -> tuple[TrainState, Report]:
        """One update; several batches count as one, of whatever shapes. The state is given away."""
        kinds = {(shape_of(batch), len(batches) > 1) for batch in batches}
        shared = [self.replicas.share(batch) for batch in batches]
        while len(self._numbers) < len(batches):
            self._numbers.append(self.replicas.replicate(np.int32(len(self._numbers))))
        if kinds <= self._seen:
            with jax.transfer_guard("disallow"):
                return self._update(state, shared, weights)
        start = time.perf_counter()
        result = self._update(state, shared, weights)
        self.compile_s += time.perf_counter() - start
        self._seen |= kinds
        return result

    def validate(self, state: TrainState, batches: Iterable[Batch]) -> Validation:
        """The sums over all batches."""
        total = None
        for batch in batches:
            seen = self._validate(state, self.replicas.share(batch))
            total = seen if total is None else self._add(total, seen)
        if total is None:
            raise ValueError("there is no batch to validate on: the split is empty")
        return total

    def flops(self, batches: Sequence[Batch]) -> float:
        """What an update from these batches is worth on all devices; traced once per shape."""
        for batch in batches:
            if shape_of(batch) not in self._flops:
                self._flops[shape_of(batch)] = self._count(batch)
        return sum(self._flops[shape_of(batch)] for batch in batches)

    def _update(
        self, state: TrainState, shared: Sequence[Batch], weights: Mapping[str, jax.Array]
    ) -> tuple[TrainState, Report]:
        if len(shared) == 1:
            return self._whole(state, shared[0], weights, self._seed)
        totals = self._totals(state, shared[0])
        for batch in shared[1:]:
            totals = self._add(totals, self._totals(state, batch))
        gathered, walking = None, state  # BatchNorm's statistics go from batch to batch
        for number, batch in zip(self._numbers, shared, strict=False):
            part: Gathered = self._gather(walking, batch, weights, self._seed, number, totals)
            walking = dataclasses.replace(walking, statistics=part.statistics)
            part = dataclasses.replace(part, statistics={})
            gathered = part if gathered is None else self._add(gathered, part)
        assert gathered is not None  # there is a batch
        gathered = dataclasses.replace(gathered, statistics=walking.statistics)
        return self._apply(state, gathered, weights)

    def _key(self) -> jax.Array:
        return jax.random.key(self.seed, impl="rbg")

    def _state_of(self, params: Any, statistics: Any) -> TrainState:
        return TrainState(
            step=jnp.int32(0),
            params=params,
            statistics=statistics,
            optimiser=self.model.optimiser.init(params),
        )

    def _count(self, batch: Batch) -> float:
        """Three forward passes, on every replica."""
        spread = Replicas(mesh=self.replicas.mesh, way="shard_map")
        rows = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((len(x) * jax.process_count(), *x.shape[1:]), x.dtype),
            batch,
        )
        forward = forward_flops(spread.wrap(self.model.validate), self.template(), rows)
        return forward * (1 + BACKWARD) * self.replicas.count


def shape_of(batch: Batch) -> Shape:
    """What decides which compiled program a batch goes to."""
    arrays = [getattr(batch, field.name) for field in dataclasses.fields(batch)]
    return tuple(None if array is None else array.shape for array in arrays)


def _add(one: Any, other: Any) -> Any:
    """Leaf by leaf; of dictionaries, an entry that only one has counts as it is."""
    if isinstance(one, dict):
        names = {**one, **other}
        return {
            name: _add(one[name], other[name]) if name in one and name in other else names[name]
            for name in names
        }
    if dataclasses.is_dataclass(one):
        fields = [field.name for field in dataclasses.fields(one)]
        parts = {name: _add(getattr(one, name), getattr(other, name)) for name in fields}
        return dataclasses.replace(one, **parts)  # pyright: ignore[reportArgumentType]
    return jax.tree.map(lambda a, b: a + b, one, other)
