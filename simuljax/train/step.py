"""One update of the parameters: of a replica (`Update`), on devices (`Replicas`), compiled.

A replica takes the gradient of its own numerators over the denominators of the whole update, on
all devices and in all micro-batches, and gradients are summed: the result is that of one device
that sees everything at once. Denominators come from lengths alone, so they are known beforehand.

State goes in and comes out whole: it has no device axis, its sharding replicates it. A batch is
[rows, ...] on the host and divides among the devices of all hosts. `pmap` speaks of the devices of
its own host: on several hosts, its state is replicated over those alone, and `over_all_hosts` and
`over_own_host` lead from one view to the other without copying.

Runs that are trained together are members of one update: its arrays have an axis of members.
"""

import dataclasses
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from simuljax.audio import FeatureRecord
from simuljax.batch import Batch
from simuljax.config.training import Objective, Optimiser, Parallelism, Random
from simuljax.losses.objective import Loss, TermSum, combine
from simuljax.models.joint import JointModel
from simuljax.models.parameters import initialise, path_of, shapes
from simuljax.text import Words
from simuljax.train.flops import BACKWARD, forward_flops
from simuljax.train.forward import Forward, Variables, forward

AXIS = "replicas"
TEXT_PARTS = ("text", "shared", "decoder")  # parameters that a text branch computes with

Weights = Mapping[str, jax.Array]  # of the terms, by name


@flax.struct.dataclass(kw_only=True)
class TrainState(Variables):
    """All that changes in training; the random keys follow from `step` and the run's seed."""

    step: jax.Array  # int32 []: updates made
    optimiser: optax.OptState


@flax.struct.dataclass
class Gathered(Forward):
    """Gradients and sums over some of an update's micro-batches, on all replicas."""

    gradient: Any


@flax.struct.dataclass
class Report:
    """Metrics of an update, over all replicas."""

    loss: Loss
    logged: dict[str, TermSum]
    gradient_norm: jax.Array
    finite: jax.Array  # bool []: whether the update was made
    learning_rate: jax.Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Update:
    """The per-replica functions of training; `Replicas` wraps them for devices.

    Weights and seed are arguments, so that runs that differ in nothing else share what is compiled.
    """

    model: JointModel
    objective: Objective
    optimiser: Optimiser
    front_end: FeatureRecord
    words: Words | None = None
    random: Random = "rbg"

    def whole(
        self, state: TrainState, batch: Batch, weights: Weights, seed: jax.Array
    ) -> tuple[TrainState, Report]:
        """Make one update from one batch."""
        return self.apply(state, self.gather(state, batch, weights, seed, 0, None), weights)

    def totals(self, state: TrainState, batch: Batch) -> dict[str, jax.Array]:
        """Return the denominators of a micro-batch; nothing else is computed."""
        sums = self._forward(state, batch, None).sums
        return jax.lax.psum({name: s.denominator for name, s in sums.items()}, AXIS)

    def gather(
        self,
        state: TrainState,
        batch: Batch,
        weights: Weights,
        seed: jax.Array,
        micro: jax.Array | int,
        totals: Mapping[str, jax.Array] | None,
    ) -> Gathered:
        """Return a micro-batch's part of the gradient; `totals` None: it is the only one."""
        key = jax.random.fold_in(self.first_key(seed), state.step)
        key = jax.random.fold_in(jax.random.fold_in(key, jax.lax.axis_index(AXIS)), micro)

        def trained(keys: tuple, leaf: jax.Array) -> jax.Array:
            return leaf if self.optimiser.factor(path_of(keys)) else jax.lax.stop_gradient(leaf)

        def loss(params: Any) -> tuple[jax.Array, Forward]:
            params = jax.tree_util.tree_map_with_path(trained, params)
            passed = self._forward(dataclasses.replace(state, params=params), batch, key)
            own = {name: s.denominator for name, s in passed.sums.items()}
            whole = jax.lax.psum(own, AXIS) if totals is None else totals
            shares = {name: TermSum(s.numerator, whole[name]) for name, s in passed.sums.items()}
            return combine(shares, weights).total, passed

        gradient, passed = jax.grad(loss, has_aux=True)(state.params)
        gradient, sums, logged = jax.lax.psum((gradient, passed.sums, passed.logged), AXIS)
        return Gathered(gradient=gradient, statistics=passed.statistics, sums=sums, logged=logged)

    @jax.named_scope("optimiser")
    def apply(
        self, state: TrainState, gathered: Gathered, weights: Weights
    ) -> tuple[TrainState, Report]:
        """Apply the gradient, unless it is not finite: then the state stays as it was."""
        norm = jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(gathered.gradient)))
        finite = jnp.isfinite(norm)
        update = self.optimiser.build().update
        change, optimiser = update(gathered.gradient, state.optimiser, state.params)
        params = optax.apply_updates(state.params, change)
        teacher = self._next_teacher(state.teacher, params)
        made = dataclasses.replace(
            state,
            params=params,
            statistics=gathered.statistics,
            optimiser=optimiser,
            teacher=teacher,
        )
        kept = jax.tree.map(lambda new, old: jnp.where(finite, new, old), made, state)
        loss = combine(gathered.sums, weights)
        updates = optax.tree_utils.tree_get_all_with_path(state.optimiser, "count")[0][1]
        report = Report(
            loss=loss,
            logged=gathered.logged,
            gradient_norm=norm,
            finite=finite,
            learning_rate=jnp.asarray(self.optimiser.rate()(updates)),
        )
        return dataclasses.replace(kept, step=state.step + 1), report

    def validate(self, state: TrainState, batch: Batch, *, watch: bool = True) -> Forward:
        """Return the terms without dropout, noise or augmentation, and what else is watched."""
        passed = self._forward(state, batch, None, watch=watch)
        return jax.lax.psum(dataclasses.replace(passed, statistics={}), AXIS)

    def first_teacher(self, params: Any) -> Any:
        """Return a copy of the parameters of the text branch, or {} where DAR needs no teacher."""
        if self.objective.teacher is None:
            return {}
        return jax.tree.map(jnp.copy, {part: params[part] for part in TEXT_PARTS if part in params})

    def _next_teacher(self, teacher: Any, params: Any) -> Any:
        options = self.objective.teacher
        if options is None or options["teacher"] != "averaged":
            return teacher
        decay = options.get("decay", 0.999)
        own = {part: params[part] for part in teacher}
        return jax.tree.map(lambda old, new: decay * old + (1 - decay) * new, teacher, own)

    def _forward(
        self, variables: Variables, batch: Batch, key: jax.Array | None, *, watch: bool = False
    ) -> Forward:
        given = (batch, self.front_end, self.objective, key, self.words)
        return forward(self.model, variables, *given, watch=watch)

    def first_key(self, seed: jax.Array | int) -> jax.Array:
        """Return the random key that all others of a run follow from."""
        return jax.random.key(seed, impl={"rbg": "rbg", "threefry": "threefry2x32"}[self.random])


@dataclass(frozen=True, kw_only=True)
class Replicas:
    """The devices of a run, one replica of the model on each, and the way they are driven."""

    mesh: Mesh
    parallelism: Parallelism = "shard_map"

    @classmethod
    def on_all(cls, parallelism: Parallelism = "shard_map") -> "Replicas":
        """Return a replica on every device of every host, host by host as rows are."""
        devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
        return cls(mesh=Mesh(np.array(devices), (AXIS,)), parallelism=parallelism)

    def wrap(
        self, function: Callable[..., Any], arguments: int = 2, *, donate: int | None = None
    ) -> jax.stages.Wrapped:
        """Wrap `function(state, batch, *rest)` for every replica; only the batch is split.

        The first argument's buffers are given away with `donate=0`.
        """
        given, rest = () if donate is None else (donate,), arguments - 2
        if self.parallelism == "pmap":
            return jax.pmap(
                function,
                axis_name=AXIS,
                in_axes=(None, 0, *[None] * rest),
                out_axes=None,
                devices=self.mesh.devices.reshape(-1).tolist(),
                donate_argnums=given,
            )
        whole = PartitionSpec()
        specs = (whole, PartitionSpec(AXIS), *[whole] * rest)
        mapped = jax.shard_map(
            function, mesh=self.mesh, in_specs=specs, out_specs=whole, check_vma=False
        )
        return jax.jit(mapped, donate_argnums=given)

    def replicate(self, tree: Any) -> Any:
        """Put a tree, the same on every host, on every device that a wrapped call sees."""
        sharding = NamedSharding(self._seen, PartitionSpec())
        if sharding.is_fully_addressable:
            return jax.device_put(tree, sharding)

        def place(leaf: Any) -> jax.Array:
            whole = np.asarray(leaf)
            return jax.make_array_from_process_local_data(sharding, whole, whole.shape)

        return jax.tree.map(place, tree)

    def share(self, batch: Any) -> Any:
        """Divide this host's rows among its devices."""
        here = len(self.mesh.local_devices)
        sharding = NamedSharding(self._seen, PartitionSpec(AXIS))

        def place(rows: np.ndarray) -> Any:
            if len(rows) % here:
                raise ValueError(
                    f"a batch of {len(rows)} rows does not divide among {here} devices of this "
                    f"host: make batches of a multiple of {self.mesh.size} rows"
                )
            if self.parallelism == "pmap":
                return jax.device_put(
                    rows.reshape(here, len(rows) // here, *rows.shape[1:]), sharding
                )
            if isinstance(rows, jax.Array) and sharding.is_fully_addressable:
                return jax.device_put(rows, sharding)  # it need not pass through the host
            return jax.make_array_from_process_local_data(sharding, rows)

        return jax.tree.map(place, batch)

    @property
    def _seen(self) -> Mesh:
        """Return the devices that the arguments of a wrapped call are spread over."""
        return self.mesh.local_mesh if self.parallelism == "pmap" else self.mesh

    def over_all_hosts(self, tree: Any) -> Any:
        """View a replicated tree as arrays of all hosts, as checkpoints need them."""
        return self._viewed(tree, self.mesh)

    def over_own_host(self, tree: Any) -> Any:
        """View a tree as a wrapped call needs it: the reverse."""
        return self._viewed(tree, self._seen)

    def _viewed(self, tree: Any, mesh: Mesh) -> Any:
        sharding = NamedSharding(mesh, PartitionSpec())

        def view(leaf: Any) -> Any:
            if isinstance(leaf, jax.ShapeDtypeStruct):
                return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
            if leaf.sharding == sharding:
                return leaf
            parts = [shard.data for shard in leaf.addressable_shards]
            return jax.make_array_from_single_device_arrays(leaf.shape, sharding, parts)

        return jax.tree.map(view, tree)


Initialise = Callable[[Any], Any] | None  # changes the first parameters of a run
Shape = tuple[tuple[int, ...] | None, ...]


class CompiledUpdate:
    """`Update` on the devices of a run. Every function is compiled once per shape of a batch.

    Once a shape has been seen, its updates send nothing between host and devices but the batch: any
    other transfer would make one wait for the other, and is an error.
    """

    def __init__(self, update: Update, replicas: Replicas, *, seeds: Sequence[int] = (0,)):
        self.replicas, self.per_replica = replicas, update
        self.seeds, self.members = tuple(seeds), len(seeds)
        self.compile_s = 0.0  # spent so far in first calls
        self._seed = replicas.replicate(self._stack([np.int32(seed) for seed in seeds]))
        self._numbers: list[jax.Array] = []  # 0, 1, ... on the devices, for micro-batches
        self._flops: dict[Shape, float] = {}
        self._seen: set[tuple[Shape, bool]] = set()
        self._compiled: dict[Shape, Any] = {}  # ahead; the first call compiles other shapes
        self._compiled_validations: dict[Shape, Any] = {}
        self._whole = replicas.wrap(self._each(update.whole, (0, None, 0, 0)), 4, donate=0)
        self._totals = replicas.wrap(self._each(update.totals, (0, None)))
        self._gather = replicas.wrap(self._each(update.gather, (0, None, 0, 0, None, 0)), 6)
        self._validate = replicas.wrap(self._each(update.validate, (0, None)))
        self._apply = jax.jit(self._each(update.apply, (0, 0, 0)), donate_argnums=0)
        self._add = jax.jit(_add, donate_argnums=0)

    def of(self, tree: Any, member: int) -> Any:
        """Return the part of one of the runs."""
        return tree if self.members == 1 else jax.tree.map(lambda a: a[member], tree)

    def _stack(self, trees: Sequence[Any]) -> Any:
        if self.members == 1:
            return trees[0]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)

    def _each(self, function: Callable[..., Any], axes: tuple[int | None, ...]) -> Callable:
        """Return the function of all runs at once; `axes` tells which arguments differ."""
        return function if self.members == 1 else jax.vmap(function, in_axes=axes)

    def weights(self, weights: Sequence[Mapping[str, float]]) -> Weights:
        """Return the weights of the terms of each run, on the devices."""
        each = [{name: np.float32(weight) for name, weight in one.items()} for one in weights]
        return self.replicas.replicate(self._stack(each))

    def first(
        self, begin: Sequence[Initialise] = (), teach: Sequence[Initialise] = ()
    ) -> TrainState:
        """Return the state before any update.

        `begin` may change the first parameters of each run; `teach` makes those of DAR's teacher,
        if it has its own, from the result. Without it a teacher begins as the run does.
        """
        states = []
        for seed, change, taught in zip_longest(self.seeds, begin, teach):
            drawn, statistics = initialise(self.per_replica.model, self.per_replica.first_key(seed))
            begun = drawn if change is None else change(drawn)
            state = self._state_of(begun, statistics)
            if taught is not None:
                teacher = self.per_replica.first_teacher(taught(begun))
                state = dataclasses.replace(state, teacher=teacher)
            states.append(state)
        return self.replicas.replicate(self._stack(states))

    def _state_of(self, params: Any, statistics: Any) -> TrainState:
        return TrainState(
            step=jnp.int32(0),
            params=params,
            statistics=statistics,
            optimiser=self.per_replica.optimiser.build().init(params),
            teacher=self.per_replica.first_teacher(params),
        )

    def template(self) -> TrainState:
        """Return shape and place of every array of one run's state; nothing is computed."""
        state = jax.eval_shape(self._state_of, *shapes(self.per_replica.model.config))
        return self.replicas.over_all_hosts(state)

    def joined(self, states: Sequence[TrainState]) -> TrainState:
        """Join states like `template`, one of each run, as `update` takes them."""
        own = [self.replicas.over_own_host(state) for state in states]
        return own[0] if self.members == 1 else self.replicas.replicate(self._stack(own))

    def compile(
        self,
        batches: Iterable[Batch],
        weights: Weights,
        validated: Iterable[Batch] = (),
        *,
        threads: int | None = None,
    ) -> None:
        """Compile updates and validations for the shapes of these batches, in parallel."""
        start, state = time.perf_counter(), self._abstract()
        updates = (self._whole, (weights, self._seed), self._compiled, batches)
        validations = (self._validate, (), self._compiled_validations, validated)
        with ThreadPoolExecutor(threads or os.cpu_count(), initializer=yield_to_others) as pool:
            jobs = []
            for function, rest, known, some in (updates, validations):
                new = {shape_of(batch): batch for batch in some if shape_of(batch) not in known}
                for shape, batch in new.items():
                    lowered = function.lower(state, self.replicas.share(batch), *rest)
                    jobs.append((known, shape, pool.submit(lowered.compile)))
            for known, shape, job in jobs:
                known[shape] = job.result()
        self.compile_s += time.perf_counter() - start

    def _abstract(self) -> TrainState:
        """Return shape and place of every array of the state of all runs."""

        def of_all(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
            axis = () if self.members == 1 else (self.members,)
            return jax.ShapeDtypeStruct((*axis, *leaf.shape), leaf.dtype)

        return self.replicas.over_own_host(jax.tree.map(of_all, self.template()))

    def update(
        self, state: TrainState, batches: Sequence[Batch], weights: Weights
    ) -> tuple[TrainState, Report]:
        """Make one update from one or several batches of any shapes; the state is donated."""
        kinds = {(shape_of(batch), len(batches) > 1) for batch in batches}
        shared = [self.replicas.share(batch) for batch in batches]
        while len(self._numbers) < len(batches):
            self._numbers.append(self.replicas.replicate(np.int32(len(self._numbers))))
        known, start = kinds <= self._seen, time.perf_counter()
        with jax.transfer_guard("disallow") if known else nullcontext():
            if len(shared) > 1:
                result = self._accumulate(state, shared, weights)
            else:
                whole = self._compiled.get(shape_of(batches[0]), self._whole)
                result = whole(state, shared[0], weights, self._seed)
        if not known:
            self.compile_s += time.perf_counter() - start
            self._seen |= kinds
        return result

    def _accumulate(
        self, state: TrainState, shared: Sequence[Batch], weights: Weights
    ) -> tuple[TrainState, Report]:
        totals = functools.reduce(self._add, (self._totals(state, batch) for batch in shared))
        gathered, walking = None, state  # BatchNorm's statistics go from batch to batch
        for number, batch in zip(self._numbers, shared, strict=False):
            part: Gathered = self._gather(walking, batch, weights, self._seed, number, totals)
            walking = dataclasses.replace(walking, statistics=part.statistics)
            part = dataclasses.replace(part, statistics={})
            gathered = part if gathered is None else self._add(gathered, part)
        assert gathered is not None  # there is a batch
        gathered = dataclasses.replace(gathered, statistics=walking.statistics)
        return self._apply(state, gathered, weights)

    def validate(self, state: TrainState, batches: Iterable[Batch]) -> Forward:
        """Return the sums over all batches."""
        sums = (self._validated(state, batch) for batch in batches)
        first = next(sums, None)
        if first is None:
            raise ValueError("there is no batch to validate on: the split is empty")
        return functools.reduce(self._add, sums, first)

    def _validated(self, state: TrainState, batch: Batch) -> Forward:
        function = self._compiled_validations.get(shape_of(batch), self._validate)
        return function(state, self.replicas.share(batch))

    def flops(self, batches: Sequence[Batch]) -> float:
        """Return the FLOPs of an update on all devices; traced once per shape."""
        for batch in batches:
            if shape_of(batch) not in self._flops:
                self._flops[shape_of(batch)] = self._count(batch)
        return sum(self._flops[shape_of(batch)] for batch in batches)

    def _count(self, batch: Batch) -> float:
        """Count three forward passes, on every replica."""
        spread = Replicas(mesh=self.replicas.mesh, parallelism="shard_map")
        rows = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((len(x) * jax.process_count(), *x.shape[1:]), x.dtype),
            batch,
        )
        terms = functools.partial(self.per_replica.validate, watch=False)
        forward = forward_flops(spread.wrap(terms), self.template(), rows)
        return forward * (1 + BACKWARD) * self.replicas.mesh.size * self.members


def yield_to_others() -> None:
    """Let other threads and processes compute before this thread, where the system can."""
    if sys.platform == "linux":  # elsewhere priorities are those of processes
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def shape_of(batch: Batch) -> Shape:
    """Return the shapes of a batch, which decide the compiled program."""
    return tuple(None if array is None else array.shape for array in vars(batch).values())


def _add(one: Any, other: Any) -> Any:
    """Add trees leaf by leaf; an entry that only one dictionary has stays as it is."""
    if isinstance(one, dict):
        both = {name: _add(one[name], other[name]) for name in one if name in other}
        return {**one, **other, **both}
    if dataclasses.is_dataclass(one):
        return type(one)(**_add(vars(one), vars(other)))
    return jax.tree.map(jnp.add, one, other)
