"""The compiled functions of a run: one update from one batch or several, one validation."""

import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.batch import Batch
from simuljax.models.initialise import initialise
from simuljax.train.flops import BACKWARD, forward_flops
from simuljax.train.parallel import Replicas
from simuljax.train.step import Gathered, Report, TrainState, Update, Validation

Change = Callable[[Any], Any]  # of parameters
Shape = tuple[tuple[int, ...] | None, ...]


class CompiledUpdate:
    """`Update` on the devices of a run. Every function is compiled once per shape of a batch.

    Once a shape has been seen, its updates send nothing between host and devices but the batch: any
    other transfer would make one wait for the other, and is an error.
    """

    def __init__(self, update: Update, replicas: Replicas, *, seeds: Sequence[int] = (0,)):
        self.replicas, self.model, self.seeds = replicas, update, tuple(seeds)
        self.compile_s = 0.0  # spent so far in first calls
        self._seed = replicas.replicate(self._stack([np.int32(seed) for seed in seeds]))
        self._numbers: list[jax.Array] = []  # 0, 1, ... on the devices, for micro-batches
        self._flops: dict[Shape, float] = {}
        self._seen: set[tuple[Shape, bool]] = set()
        self._compiled: dict[Shape, Any] = {}  # updates that were compiled ahead
        self._initialise = jax.jit(lambda key: initialise(update.model, key))
        self._whole = replicas.wrap(self._each(update.whole, (0, None, 0, 0)), donate=0)
        self._totals = replicas.wrap(self._each(update.totals, (0, None)))
        self._gather = replicas.wrap(self._each(update.gather, (0, None, 0, 0, None, 0)))
        self._validate = replicas.wrap(self._each(update.validate, (0, None)))
        self._apply = jax.jit(self._each(update.apply, (0, 0, 0)), donate_argnums=0)
        self._add = jax.jit(_add, donate_argnums=0)

    @property
    def members(self) -> int:
        """Return the number of runs updated together; if several, arrays have an axis of runs."""
        return len(self.seeds)

    def of(self, tree: Any, member: int) -> Any:
        """Return the part of one of the runs."""
        return tree if self.members == 1 else jax.tree.map(lambda a: a[member], tree)

    def weights(self, weights: Sequence[Mapping[str, float]]) -> Mapping[str, jax.Array]:
        """Return the weights of the terms of each run, on the devices."""
        each = [{name: np.float32(weight) for name, weight in one.items()} for one in weights]
        return self.replicas.replicate(self._stack(each))

    def first(
        self,
        begin: Sequence[Change | None] | None = None,
        teach: Sequence[Change | None] | None = None,
    ) -> TrainState:
        """Return the state before any update.

        `begin` may change the first parameters of each run; `teach` makes those of DAR's teacher,
        if it has its own, from the same. Without it a teacher begins as the run does.
        """
        states, none = [], [None] * self.members
        for seed, change, taught in zip(self.seeds, begin or none, teach or none, strict=True):
            drawn, statistics = self._initialise(self.model.first_key(seed))
            params = change(drawn) if change is not None else drawn
            state = self._state_of(params, statistics)
            if taught is not None:
                teacher = self.model.first_teacher(taught(drawn))
                state = dataclasses.replace(state, teacher=teacher)
            states.append(state)
        return self.replicas.replicate(self._stack(states))

    def template(self) -> TrainState:
        """Return shape and place of every array of one run's state; nothing is computed."""
        shapes = jax.eval_shape(self._initialise, self.model.first_key(self.seeds[0]))
        return self.replicas.over_all_hosts(jax.eval_shape(self._state_of, *shapes))

    def joined(self, states: Sequence[TrainState]) -> TrainState:
        """Join states like `template`, one of each run, as `update` takes them."""
        own = [self.replicas.over_own_host(state) for state in states]
        return own[0] if self.members == 1 else self.replicas.replicate(self._stack(own))

    def _stack(self, trees: Sequence[Any]) -> Any:
        if self.members == 1:
            return trees[0]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)

    def _each(self, function: Callable[..., Any], axes: tuple[int | None, ...]) -> Callable:
        """Return the function of all runs at once; `axes` tells which arguments differ."""
        return function if self.members == 1 else jax.vmap(function, in_axes=axes)

    def compile(
        self, state: TrainState, batches: Iterable[Batch], weights: Mapping[str, jax.Array]
    ) -> None:
        """Compile the update for the shapes of these batches, new ones in parallel."""
        start = time.perf_counter()
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            compiled = {}
            for batch in batches:
                if shape_of(batch) in self._compiled:
                    continue
                lowered = self._whole.lower(state, self.replicas.share(batch), weights, self._seed)
                compiled[shape_of(batch)] = pool.submit(lowered.compile)
            self._compiled |= {shape: each.result() for shape, each in compiled.items()}
        self.compile_s += time.perf_counter() - start

    def update(
        self, state: TrainState, batches: Sequence[Batch], weights: Mapping[str, jax.Array]
    ) -> tuple[TrainState, Report]:
        """Make one update from one or several batches of any shapes; the state is donated."""
        kinds = {(shape_of(batch), len(batches) > 1) for batch in batches}
        shared = [self.replicas.share(batch) for batch in batches]
        while len(self._numbers) < len(batches):
            self._numbers.append(self.replicas.replicate(np.int32(len(self._numbers))))
        if kinds <= self._seen:
            with jax.transfer_guard("disallow"):
                return self._update(state, batches, shared, weights)
        start = time.perf_counter()
        result = self._update(state, batches, shared, weights)
        self.compile_s += time.perf_counter() - start
        self._seen |= kinds
        return result

    def validate(self, state: TrainState, batches: Iterable[Batch]) -> Validation:
        """Return the sums over all batches."""
        total = None
        for batch in batches:
            seen = self._validate(state, self.replicas.share(batch))
            total = seen if total is None else self._add(total, seen)
        if total is None:
            raise ValueError("there is no batch to validate on: the split is empty")
        return total

    def flops(self, batches: Sequence[Batch]) -> float:
        """Return the FLOPs of an update on all devices; traced once per shape."""
        for batch in batches:
            if shape_of(batch) not in self._flops:
                self._flops[shape_of(batch)] = self._count(batch)
        return sum(self._flops[shape_of(batch)] for batch in batches)

    def _update(
        self,
        state: TrainState,
        batches: Sequence[Batch],
        shared: Sequence[Batch],
        weights: Mapping[str, jax.Array],
    ) -> tuple[TrainState, Report]:
        if len(shared) == 1:
            whole = self._compiled.get(shape_of(batches[0]), self._whole)
            return whole(state, shared[0], weights, self._seed)
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

    def _state_of(self, params: Any, statistics: Any) -> TrainState:
        return TrainState(
            step=jnp.int32(0),
            params=params,
            statistics=statistics,
            optimiser=self.model.optimiser.init(params),
            teacher=self.model.first_teacher(params),
        )

    def _count(self, batch: Batch) -> float:
        """Count three forward passes, on every replica."""
        spread = Replicas(mesh=self.replicas.mesh, parallelism="shard_map")
        rows = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((len(x) * jax.process_count(), *x.shape[1:]), x.dtype),
            batch,
        )
        forward = forward_flops(spread.wrap(self.model.terms), self.template(), rows)
        return forward * (1 + BACKWARD) * self.replicas.count * self.members


def shape_of(batch: Batch) -> Shape:
    """Return the shapes of a batch, which decide the compiled program."""
    arrays = [getattr(batch, field.name) for field in dataclasses.fields(batch)]
    return tuple(None if array is None else array.shape for array in arrays)


def _add(one: Any, other: Any) -> Any:
    """Add trees leaf by leaf; an entry that only one dictionary has stays as it is."""
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
