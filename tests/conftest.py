"""Four CPU devices, checked annotations, and float64 on request.

The environment is set before anything imports JAX, which reads it once.
"""

import atexit
import importlib.metadata
import os
import shutil
import signal
import tempfile

FLAGS = os.environ.get("XLA_FLAGS", "").split()
if not any(flag.startswith("--xla_force_host_platform_device_count") for flag in FLAGS):
    FLAGS.append("--xla_force_host_platform_device_count=4")

# Where little effort is to go into compiling (`make test`), jaxlib 0.10 can do with less than half:
# fusions go to LLVM without MLIR. Its successors can not, and end the process at this flag.
LITTLE_EFFORT, NO_MLIR = "--xla_backend_optimization_level=0", "--xla_cpu_use_fusion_emitters=false"
OLD = importlib.metadata.version("jaxlib").startswith("0.10.")
if OLD and LITTLE_EFFORT in FLAGS and NO_MLIR not in FLAGS:
    FLAGS.append(NO_MLIR)

os.environ["XLA_FLAGS"] = " ".join(FLAGS)
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# What takes long to compile is compiled once for all processes of this run, and is gone with it.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    COMPILED = tempfile.mkdtemp(prefix="simuljax-compiled-")
    atexit.register(shutil.rmtree, COMPILED, ignore_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = COMPILED
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")

# Who starts us in the background (nohup, a CI) may have interrupts ignored, and what we start, too.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

from collections.abc import Iterator
from pathlib import Path

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


@pytest.fixture(autouse=True, scope="module")
def room_for_programs() -> Iterator[None]:
    """Every compiled program takes pieces of the address space, of which Linux grants 65,530.

    A process that has compiled for hours would end with a segmentation fault.
    """
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 30_000:
        jax.clear_caches()
