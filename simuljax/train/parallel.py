"""The same per-replica function on many devices, by `pmap` or by `jit(shard_map)`.

State goes in and comes out whole: it has no device axis, its sharding replicates it. A batch is
[rows, ...] on the host and divides among the devices of all hosts.

`pmap` speaks of the devices of its own host: on several hosts, its state is replicated over those
alone, and `over_all_hosts` and `over_own_host` lead from one view to the other without copying.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from simuljax.train.step import AXIS

Parallelism = Literal["pmap", "shard_map"]


class Wrapped(Protocol):
    """A function that runs on every replica."""

    def __call__(self, *args: Any) -> Any: ...

    def lower(self, *args: Any) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class Replicas:
    """The devices of a run, one replica of the model on each, and the way they are driven."""

    mesh: Mesh
    parallelism: Parallelism = "pmap"

    @classmethod
    def on_all(cls, parallelism: Parallelism = "pmap") -> "Replicas":
        """Return a replica on every device of every host, host by host as rows are."""
        devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
        return cls(mesh=Mesh(np.array(devices), (AXIS,)), parallelism=parallelism)

    @property
    def count(self) -> int:
        return self.mesh.size

    def wrap(self, function: Callable[..., Any], *, donate: int | None = None) -> Wrapped:
        """Wrap `function(state, batch, *rest)` for every replica; only the batch is split.

        The first argument's buffers are given away with `donate=0`.
        """
        given = () if donate is None else (donate,)
        if self.parallelism == "pmap":
            return Pmapped(replicas=self, function=function, given=given)
        batch = PartitionSpec(AXIS)

        def spread(state: Any, batch_: Any, *rest: Any) -> Any:
            specs = (PartitionSpec(), batch, *(PartitionSpec() for _ in rest))
            mapped = jax.shard_map(
                function, mesh=self.mesh, in_specs=specs, out_specs=PartitionSpec(), check_vma=False
            )
            return mapped(state, batch_, *rest)

        return cast(Wrapped, jax.jit(spread, donate_argnums=given))

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
                    f"host: make batches of a multiple of {self.count} rows"
                )
            if self.parallelism == "pmap":
                return jax.device_put(
                    rows.reshape(here, len(rows) // here, *rows.shape[1:]), sharding
                )
            if isinstance(rows, jax.Array) and sharding.is_fully_addressable:
                return jax.device_put(rows, sharding)  # it need not pass through the host
            return jax.make_array_from_process_local_data(sharding, rows)

        return jax.tree.map(place, batch)

    def over_all_hosts(self, tree: Any) -> Any:
        """View a replicated tree as arrays of all hosts, as checkpoints need them."""
        return self._viewed(tree, self.mesh)

    def over_own_host(self, tree: Any) -> Any:
        """View a tree as a wrapped call needs it: the reverse."""
        return self._viewed(tree, self._seen)

    @property
    def _seen(self) -> Mesh:
        """Return the devices that the arguments of a wrapped call are spread over."""
        return self.mesh.local_mesh if self.parallelism == "pmap" else self.mesh

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


@dataclass(frozen=True, kw_only=True, eq=False)
class Pmapped:
    """A function under `pmap`, which needs to know how many arguments there are."""

    replicas: Replicas
    function: Callable[..., Any]
    given: tuple[int, ...]
    made: dict[int, Any] = field(default_factory=dict)  # by how many

    def __call__(self, *args: Any) -> Any:
        return self._of(len(args))(*args)

    def lower(self, *args: Any) -> Any:
        """Lower the function for these arguments."""
        return self._of(len(args)).lower(*args)

    def _of(self, count: int) -> Any:
        if count not in self.made:
            self.made[count] = jax.pmap(
                self.function,
                axis_name=AXIS,
                in_axes=(None, 0, *(None,) * (count - 2)),
                out_axes=None,
                devices=self.replicas.mesh.devices.reshape(-1).tolist(),
                donate_argnums=self.given,
            )
        return self.made[count]
