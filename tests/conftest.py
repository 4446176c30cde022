"""Four CPU devices, checked annotations, and float64 on request.

The environment is set before anything imports JAX, which reads it once.
"""

import gc
import importlib.metadata
import os
import signal
from pathlib import Path

FLAGS = os.environ.get("XLA_FLAGS", "").split()
if not any(flag.startswith("--xla_force_host_platform_device_count") for flag in FLAGS):
    FLAGS.append("--xla_force_host_platform_device_count=4")

# With little effort for compiling (`make test`), jaxlib 0.10 compiles in less than half the time if
# fusions go to LLVM without MLIR. Later versions end the process at this flag.
LITTLE_EFFORT, NO_MLIR = "--xla_backend_optimization_level=0", "--xla_cpu_use_fusion_emitters=false"
OLD = importlib.metadata.version("jaxlib").startswith("0.10.")
if OLD and LITTLE_EFFORT in FLAGS and NO_MLIR not in FLAGS:
    FLAGS.append(NO_MLIR)

os.environ["XLA_FLAGS"] = " ".join(FLAGS)
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# Every program is compiled once for all processes of this run and for later runs; JAX's keys hold
# the program, the flags and the versions. `make clean` removes the directory.
COMPILED = Path(__file__).parents[1] / ".pytest_cache" / "compiled"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(COMPILED))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# Nobody reads source lines in compiled programs, and the stack below a test is deep.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

# Tracing makes many objects and few cycles: looking for them at every 700th costs a sixth.
gc.set_threshold(50_000)

# A background process (nohup, a CI) may ignore interrupts, and its children would, too.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

from collections.abc import Iterator

import jax
import pytest
from jaxtyping import install_import_hook

# From here on every call into these packages has its shapes and dtypes checked. It takes a fifth of
# the time, so the quick tests leave it to `make test-all` and to pytest called by hand.
if LITTLE_EFFORT not in FLAGS:
    install_import_hook(["simuljax.ops", "simuljax.losses", "simuljax.audio"], "beartype.beartype")


def pytest_collection_finish() -> None:
    """Leave modules and collected tests out of every later search for garbage."""
    gc.freeze()


@pytest.fixture
def x64() -> Iterator[None]:
    """Compute in float64 for the length of one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepare a few spoken sentences, once for all workers: tests read them and write nothing."""
    from simuljax.lock import locked
    from tests.helpers.grids import spoken_corpus

    directory = tmp_path_factory.getbasetemp()
    directory = directory.parent if "PYTEST_XDIST_WORKER" in os.environ else directory
    with locked(directory, patience_s=300.0, name="corpus.lock"):
        return spoken_corpus(directory / "phrasebook")


@pytest.fixture(autouse=True, scope="module")
def room_for_programs() -> Iterator[None]:
    """Drop compiled programs before the process runs out of memory maps.

    Every program takes some of the 65,530 that Linux grants; beyond it is a segmentation fault.
    """
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 30_000:
        jax.clear_caches()
