"""What a run has drawn from the socket, as far as the machine says.

NVIDIA's counter (Volta and later) gives the joules of the whole board since the driver was loaded;
whatever else runs on it meanwhile is counted too. Of processors and memory nothing is known.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

import jax

SPENT = "spent.json"  # beside a run
GRAMS_PER_KWH = 400.0  # CO2 equivalent: about the world's mean; a grid of yours may have 20 or 900


@dataclass(kw_only=True)
class Spent:
    """Time and energy; joules are None where nothing counts them."""

    seconds: float = 0.0
    joules: float | None = None


@contextlib.contextmanager
def measured() -> Iterator[Spent]:
    """What is spent while the context is open; filled in when it closes."""
    spent, before, start = Spent(), joules(), time.perf_counter()
    try:
        yield spent
    finally:
        spent.seconds = time.perf_counter() - start
        after = joules()
        if before is not None and after is not None:
            spent.joules = after - before


def joules() -> float | None:
    """The counters of this host's GPUs, if JAX uses them and there is a way to read them."""
    if jax.default_backend() != "gpu":
        return None
    try:
        import pynvml  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(d.id) for d in jax.local_devices()]
        return sum(pynvml.nvmlDeviceGetTotalEnergyConsumption(h) for h in handles) / 1e3
    except pynvml.NVMLError:
        return None
