"""Measure compiled functions; divide the time of a compiled step among the parts of a model.

XLA keeps the path of the source code of every instruction; a trace has the time of every
instruction. A part is a pattern of those paths.
"""

import functools
import math
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np

from simuljax.config.fields import to_json
from simuljax.text import SPECIALS

COMPILED = "/jax/core/compile/backend_compile_duration"  # the name of JAX's event
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.-]+) = .*?op_name=\"([^\"]*)\"", re.MULTILINE)
_COLLECTIVE = re.compile(
    r"^\s*(?:ROOT )?%?[\w.-]+ = (?P<shapes>.*?) (?P<kind>all-reduce|all-gather|reduce-scatter"
    r"|all-to-all|collective-permute|collective-broadcast)(?:-start)?\(",
    re.MULTILINE,
)
_SHAPE = re.compile(r"([a-z]+)(\d*)\[([\d,]*)\]")
_NO_KERNEL = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "copy-done"}


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The cost of a function on this device."""

    ms: float  # per call, the best of several rounds
    compile_s: float
    temp_mib: float  # without inputs and outputs
    gflop: float  # as XLA counts: the body of a loop once, and no custom kernels
    gbyte: float
    kernels: int  # launched by the entry of the compiled module


def say(message: str) -> None:
    """Print a line of progress to standard error."""
    print(message, file=sys.stderr, flush=True)


def environment(config: Any) -> dict[str, Any]:
    """Return the first entries of every report: device, version of JAX, settings."""
    return {
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "config": to_json(config),
    }


def percentiles(
    values: Sequence[float] | np.ndarray, at: tuple[int, ...] = (50, 90, 99)
) -> dict[str, float]:
    """Return percentiles by name: p50, p90, p99."""
    return {f"p{q}": float(np.percentile(values, q)) for q in at}


def check_positive(config: object) -> None:
    """Refuse numbers of a dataclass, alone or in a tuple, that are not above 0 and finite."""
    for name, value in vars(config).items():
        for number in value if isinstance(value, tuple) else (value,):
            counts = isinstance(number, int | float) and not isinstance(number, bool)
            if counts and not 0 < number < math.inf:
                raise ValueError(f"{name} is {number}; it must be above 0 and finite")


def check_vocabulary(size: int) -> None:
    """Refuse a vocabulary without room for a word."""
    if size <= len(SPECIALS):
        raise ValueError(f"vocabulary is {size}; the special pieces alone are {len(SPECIALS)}")


@contextmanager
def counted_programs() -> Iterator[list[float]]:
    """Yield a list that gets the seconds of every program JAX compiles or reads from its cache."""
    programs: list[float] = []

    def note(event: str, duration_secs: float, **_: object) -> None:
        if event == COMPILED:
            programs.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        yield programs
    finally:
        jax.monitoring.unregister_event_duration_listener(note)


def measure(function: Callable, *args, rounds: int = 5, round_s: float = 0.1) -> Measurement:
    """Compile `function`, then time rounds of calls that are queued together."""
    lowered = jax.jit(function).lower(*args)
    start = time.perf_counter()
    compiled = lowered.compile()
    compile_s = time.perf_counter() - start
    jax.block_until_ready(compiled(*args))
    calls = max(1, min(100, int(round_s / max(_seconds(compiled, args, 1), 1e-6))))
    best = min(_seconds(compiled, args, calls) for _ in range(rounds))
    memory, cost = compiled.memory_analysis(), cost_of(compiled)
    return Measurement(
        ms=best * 1e3,
        compile_s=compile_s,
        temp_mib=memory.temp_size_in_bytes / 2**20 if memory else float("nan"),
        **cost,
        kernels=count_kernels(compiled.as_text() or ""),
    )


def cost_of(compiled: jax.stages.Compiled) -> dict[str, float]:
    """Return operations and bytes of a call, as XLA counts them: the body of a loop once."""
    cost = compiled.cost_analysis() or {}
    names = {"gflop": "flops", "gbyte": "bytes accessed"}
    return {name: cost.get(theirs, float("nan")) / 1e9 for name, theirs in names.items()}


def count_kernels(module: str) -> int:
    """Count the instructions of a module's entry that launch work; a loop counts once."""
    entry = module.partition("\nENTRY ")[2].split("\n}")[0]
    opcodes = re.findall(r"^\s+(?:ROOT )?%?\S+ = .*? ([a-z][a-z0-9-]*)\(", entry, re.MULTILINE)
    return sum(opcode not in _NO_KERNEL for opcode in opcodes)


@functools.cache
def collectives(module: str) -> dict[str, dict[str, float]]:
    """Return how many exchanges between devices a compiled module has, and their MB, by kind.

    The bytes are those of one device's result. The body of a loop counts once.
    """
    found: dict[str, dict[str, float]] = {}
    for match in _COLLECTIVE.finditer(module):
        held = found.setdefault(match["kind"], {"count": 0, "mbyte": 0.0})
        held["count"] += 1
        for kind, bits, dimensions in _SHAPE.findall(match["shapes"]):
            size = math.prod(map(int, filter(None, dimensions.split(","))))
            held["mbyte"] += size * (1 if kind == "pred" else int(bits or 8) / 8) / 1e6
    return found


def copy_gb_per_s(device) -> float:
    """Return the bandwidth of a large element-wise pass: bytes read plus bytes written."""
    size = 2**28 if device.platform == "gpu" else 2**25
    x = jax.device_put(jnp.ones(size, jnp.float32), device)
    return 2 * x.nbytes / (measure(lambda x: x + 1, x).ms * 1e6)


def _seconds(compiled, args, calls):
    start = time.perf_counter()
    jax.block_until_ready([compiled(*args) for _ in range(calls)][-1])
    return (time.perf_counter() - start) / calls


@dataclass(frozen=True, kw_only=True)
class Traced:
    """The mean of some traced calls."""

    ms: Mapping[str, float]  # by instruction
    kernels: int


def origins(module: str) -> dict[str, str]:
    """Return the path of origin of every instruction of a compiled module."""
    return dict(_INSTRUCTION.findall(module))


def trace(call: Callable[[], Any], calls: int, directory: Path | None = None) -> Traced:
    """Trace some calls; return the device time of each instruction per call."""
    with tempfile.TemporaryDirectory() as scratch:
        where = directory or Path(scratch)
        with jax.profiler.trace(str(where)):
            jax.block_until_ready([call() for _ in range(calls)][-1])
        files = sorted(where.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime)
        data = jax.profiler.ProfileData.from_file(str(files[-1]))
    total, kernels = Counter(), 0
    for plane in data.planes:
        for line in plane.lines:
            for event in line.events:
                stats = dict(event.stats)
                if "hlo_op" not in stats or not _on_device(plane.name, line.name):
                    continue
                total[str(stats["hlo_op"])] += event.duration_ns / 1e6 / calls
                kernels += 1
    return Traced(ms=dict(total), kernels=round(kernels / calls))


def _on_device(plane: str, line: str) -> bool:
    """Return True for streams of a GPU, operations of a TPU and XLA's threads on a CPU."""
    if "/device:GPU" in plane:
        return line.startswith("Stream")
    if "/device:TPU" in plane:
        return line == "XLA Ops"
    return plane == "/host:CPU" and "XLA" in line


def by_part(
    traced: Traced, origin: Mapping[str, str], parts: Mapping[str, str]
) -> dict[str, float]:
    """Return milliseconds by part: the first pattern that matches the origin, or "other"."""
    spent = dict.fromkeys([*parts, "other"], 0.0)
    for instruction, ms in traced.ms.items():
        path = origin.get(instruction, "")
        name = next((p for p, pattern in parts.items() if re.search(pattern, path)), "other")
        spent[name] += ms
    return spent


def dearest(traced: Traced, origin: Mapping[str, str], count: int = 20) -> list[dict[str, Any]]:
    """Return the slowest instructions with their origins."""
    ranked = sorted(traced.ms.items(), key=lambda item: -item[1])[:count]
    return [{"ms": ms, "op": name, "from": origin.get(name, "")} for name, ms in ranked]
