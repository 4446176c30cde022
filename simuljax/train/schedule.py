"""The update that ends a run."""

import math


def last_update(updates: int, epochs: float | None, batches: int, accumulate: int) -> int:
    """Return the last update: `updates`, or the one that completes the last epoch."""
    if epochs is None:
        return updates
    return min(updates, math.ceil(epochs * batches / accumulate))
