"""The same per-replica function on many devices, by `pmap` or by `jit(shard_map)`.

State goes in and comes out whole: it has no device axis, its sharding replicates it. A batch is
[rows, ...] on the host and divides among the devices of all hosts.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from simuljax.train.step import AXIS

Way = Literal["pmap", "shard_map"]


@dataclass(frozen=True, kw_only=True)
class Replicas:
    """The devices of a run, one replica of the model on each, and the way they are driven."""

    mesh: Mesh
    way: Way = "pmap"

    @classmethod
    def on_all(cls, way: Way = "pmap") -> "Replicas":
        """One on every device of every host."""
        return cls(mesh=Mesh(np.array(jax.devices()), (AXIS,)), way=way)

    @property
    def count(self) -> int:
        return self.mesh.size

    def wrap(self, function: Callable[..., Any], *, donate: int | None = None) -> Callable:
        """`function(state, batch, *rest)` on every replica; all but the batch is the same on each.

        The first argument's buffers are given away with `donate=0`.
        """
        given = () if donate is None else (donate,)
        if self.way == "pmap":
            return functools.partial(_call_pmap, self, function, given, {})
        batch = PartitionSpec(AXIS)

        def spread(state: Any, batch_: Any, *rest: Any) -> Any:
            specs = (PartitionSpec(), batch, *(PartitionSpec() for _ in rest))
            mapped = jax.shard_map(
                function, mesh=self.mesh, in_specs=specs, out_specs=PartitionSpec(), check_vma=False
            )
            return mapped(state, batch_, *rest)

        return jax.jit(spread, donate_argnums=given)

    def replicate(self, tree: Any) -> Any:
        """The tree on every device."""
        return jax.device_put(tree, NamedSharding(self.mesh, PartitionSpec()))

    def share(self, batch: Any) -> Any:
        """This host's rows, divided among its devices."""
        here = len(self.mesh.local_devices)

        def place(rows: np.ndarray) -> Any:
            if self.way == "pmap":
                return rows.reshape(here, -1, *rows.shape[1:])
            sharding = NamedSharding(self.mesh, PartitionSpec(AXIS))
            return jax.make_array_from_process_local_data(sharding, rows)

        return jax.tree.map(place, batch)


def _call_pmap(
    replicas: Replicas, function: Callable[..., Any], given: tuple[int, ...], made: dict, *args: Any
) -> Any:
    """pmap needs to know how many arguments there are."""
    if len(args) not in made:
        alone = jax.process_count() == 1
        axes = (None, 0, *(None,) * (len(args) - 2))
        made[len(args)] = jax.pmap(
            function,
            axis_name=AXIS,
            in_axes=axes,
            out_axes=None,
            devices=replicas.mesh.devices.reshape(-1).tolist() if alone else None,
            donate_argnums=given,
        )
    return made[len(args)](*args)
