"""The compiled functions of a run: one update from one batch or several, one validation."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from simuljax.batch import Batch
from simuljax.train.parallel import Replicas
from simuljax.train.step import Report, TrainState, Update, Validation


class Driver:
    """`Update` on the devices of a run. Every function is compiled once per shape of a batch."""

    def __init__(self, update: Update, replicas: Replicas):
        self.replicas = replicas
        self._whole = replicas.wrap(update.whole, donate=0)
        self._totals = replicas.wrap(update.totals)
        self._gather = replicas.wrap(update.gather)
        self._validate = replicas.wrap(update.validate)
        self._apply = jax.jit(update.apply, donate_argnums=0)

    def update(
        self, state: TrainState, batches: Sequence[Batch], weights: Mapping[str, jax.Array]
    ) -> tuple[TrainState, Report]:
        """One update; several batches count as one, whatever their shapes."""
        shared = [self.replicas.share(batch) for batch in batches]
        if len(shared) == 1:
            return self._whole(state, shared[0], weights)
        totals = _sum([self._totals(state, batch) for batch in shared])
        parts = []
        for number, batch in enumerate(shared):
            micro = self.replicas.replicate(jnp.int32(number))
            parts.append(self._gather(state, batch, weights, micro, totals))
            state = dataclasses.replace(state, statistics=parts[-1].statistics)
        gathered = _sum([dataclasses.replace(part, statistics={}) for part in parts])
        gathered = dataclasses.replace(gathered, statistics=state.statistics)
        return self._apply(state, gathered, weights)

    def validate(self, state: TrainState, batches: Any) -> Validation:
        """The sums over all batches."""
        done = [self._validate(state, self.replicas.share(batch)) for batch in batches]
        if not done:
            raise ValueError("there is no batch to validate on: the split is empty")
        return _sum(done)


def _sum(trees: Sequence[Any]) -> Any:
    """Leaf by leaf; of dictionaries, an entry that only some have counts where it is."""
    first = trees[0]
    if isinstance(first, dict):
        names = {name: None for tree in trees for name in tree}
        return {name: _sum([tree[name] for tree in trees if name in tree]) for name in names}
    if dataclasses.is_dataclass(first):
        fields = [field.name for field in dataclasses.fields(first)]
        parts = {name: _sum([getattr(tree, name) for tree in trees]) for name in fields}
        return dataclasses.replace(first, **parts)  # pyright: ignore[reportArgumentType]
    return jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]), *trees)
