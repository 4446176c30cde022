"""Four CPU devices, checked annotations, and float64 on request.

The environment is set before anything imports JAX, which reads it once.
"""

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
DEVICES = "--xla_force_host_platform_device_count"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
if DEVICES not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {DEVICES}=4".strip()

# What takes long to compile is compiled once, in this run and the next.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".pytest_cache" / "xla"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "2")

from collections.abc import Iterator

import jax
import pytest
from jaxtyping import install_import_hook

# From here on every call into these packages has its shapes and dtypes checked.
install_import_hook(["simuljax.ops", "simuljax.losses", "simuljax.audio"], "beartype.beartype")


@pytest.fixture
def x64() -> Iterator[None]:
    """Computes in float64 for the length of one test."""
    with jax.enable_x64(True):
        yield
