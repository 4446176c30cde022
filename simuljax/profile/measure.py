"""Measure compiled functions; divide the time of a compiled step among the parts of a model.

XLA keeps the path of the source code of every instruction; a trace has the time of every
instruction. A part is a pattern of those paths.
"""

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
# Kernels in a CUDA graph have no names; a graph needs at least so many.
NO_CUDA_GRAPHS: dict[str, str | bool] = {"xla_gpu_graph_min_graph_size": "1000000"}
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.-]+) = .*?op_name=\"([^\"]*)\"", re.MULTILINE)
_COLLECTIVE = re.compile(
    r"^\s*(?:ROOT )?%?[\w.-]+ = (?P<shapes>.*?) (?P<kind>all-reduce|all-gather|reduce-scatter"
    r"|all-to-all|collective-permute|collective-broadcast)(?:-start)?\(",
    re.MULTILINE,
)
_SHAPE = re.compile(r"([a-z]+)(\d*)\[([\d,]*)\]")
_NO_KERNEL = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "copy-done"}


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


def percentiles(values: Sequence[float] | np.ndarray) -> dict[str, float]:
    """Return the percentiles p50, p90 and p99."""
    return {f"p{q}": float(np.percentile(values, q)) for q in (50, 90, 99)}


def table(report: Mapping[str, Any]) -> str:
    """Format a report as text: its numbers line by line, and lists of measurements as tables.

    Settings, and instructions with their origins, are for the JSON alone.
    """
    lines = [f"{report['device']}, jax {report['jax']}"]
    for name, value in report.items():
        if name in ("device", "jax", "config", "dearest"):
            continue
        if isinstance(value, list):
            lines += ["", *_aligned([_flat(row) for row in value])]
        elif name == "parts_ms":
            total = sum(value.values()) or 1.0
            shares = ((part, ms, ms / total) for part, ms in value.items())
            lines += [f"{part:<26} {ms:8.2f} ms {share:7.1%}" for part, ms, share in shares]
        elif isinstance(value, Mapping):
            lines += [f"{name} {key:<20} {shown}" for key, shown in _flat(value).items()]
        else:
            lines.append(f"{name:<26} {_shown(value)}")
    return "\n".join(lines)


def describe(row: Mapping[str, Any]) -> str:
    """Format one measurement as a line."""
    return ", ".join(f"{name} {shown}" for name, shown in _flat(row).items())


def _flat(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the values as text; those of a mapping inside have both names."""
    flat: dict[str, str] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat |= {f"{name} {key}": shown for key, shown in _flat(value).items()}
        else:
            flat[str(name)] = _shown(value)
    return flat


def _shown(value: Any) -> str:
    if isinstance(value, list):  # words of a minute
        return str(len(value))
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def _aligned(rows: Sequence[Mapping[str, str]]) -> list[str]:
    cells = [[*rows[0]], *([*row.values()] for row in rows)] if rows else []
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.rjust, line, widths)) for line in cells]


def check_positive(config: object) -> None:
    """Refuse numbers of a dataclass, alone or in a tuple, that are not above 0 and finite."""
    for name, value in vars(config).items():
        for number in value if isinstance(value, tuple) else (value,):
            counts = isinstance(number, int | float) and not isinstance(number, bool)
            if counts and not 0 < number < math.inf:
                raise ValueError(f"{name} is {number}; it must be above 0 and finite")
    size = getattr(config, "vocabulary", math.inf)
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


def compile_timed(lowered: jax.stages.Lowered, name: str = "") -> tuple[jax.stages.Compiled, float]:
    """Compile, and return the seconds too; tell of a program with a name, which takes long."""
    if name:
        say(f"compiling {name}")
    start = time.perf_counter()
    compiled = lowered.compile()
    took = time.perf_counter() - start
    if name:
        say(f"compiled in {took:.0f} s; timing it")
    return compiled, took


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The cost of a function on this device."""

    ms: float  # per call, the best of several rounds
    compile_s: float
    temp_mib: float  # without inputs and outputs
    gflop: float  # as XLA counts: the body of a loop once, and no custom kernels
    gbyte: float
    kernels: int  # launched by the entry of the compiled module


def measure(function: Callable, *args, rounds: int = 5, round_s: float = 0.1) -> Measurement:
    """Compile `function`, then time rounds of calls that are queued together."""
    compiled, compile_s = compile_timed(jax.jit(function).lower(*args))

    def seconds(calls: int) -> float:
        start = time.perf_counter()
        jax.block_until_ready([compiled(*args) for _ in range(calls)][-1])
        return (time.perf_counter() - start) / calls

    jax.block_until_ready(compiled(*args))
    calls = max(1, min(100, int(round_s / max(seconds(1), 1e-6))))
    return Measurement(
        ms=min(seconds(calls) for _ in range(rounds)) * 1e3,
        compile_s=compile_s,
        temp_mib=memory_of(compiled)["temp_mib"] or math.nan,
        **cost_of(compiled),
        kernels=count_kernels(compiled.as_text() or ""),
    )


def cost_of(compiled: jax.stages.Compiled) -> dict[str, float]:
    """Return operations and bytes of a call, as XLA counts them: the body of a loop once."""
    cost = compiled.cost_analysis() or {}
    names = {"gflop": "flops", "gbyte": "bytes accessed"}
    return {name: cost.get(theirs, math.nan) / 1e9 for name, theirs in names.items()}


def memory_of(compiled: jax.stages.Compiled) -> dict[str, float | None]:
    """Return MiB of the device that a call needs, without its results; None where unknown."""
    memory = compiled.memory_analysis()
    return {
        "temp_mib": memory.temp_size_in_bytes / 2**20 if memory else None,
        "arguments_mib": memory.argument_size_in_bytes / 2**20 if memory else None,
    }


def count_kernels(module: str) -> int:
    """Count the instructions of a module's entry that launch work; a loop counts once."""
    entry = module.partition("\nENTRY ")[2].split("\n}")[0]
    opcodes = re.findall(r"^\s+(?:ROOT )?%?\S+ = .*? ([a-z][a-z0-9-]*)\(", entry, re.MULTILINE)
    return sum(opcode not in _NO_KERNEL for opcode in opcodes)


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


def copy_gb_per_s() -> float:
    """Return the bandwidth of a large element-wise pass: bytes read plus bytes written."""
    device = jax.local_devices()[0]
    x = jax.device_put(jnp.ones(2**28 if device.platform == "gpu" else 2**25, jnp.float32), device)
    return 2 * x.nbytes / (measure(lambda x: x + 1, x).ms * 1e6)


@dataclass(frozen=True, kw_only=True)
class Traced:
    """The mean of some traced calls of a compiled program."""

    ms: Mapping[str, float]  # by instruction
    kernels: int
    origin: Mapping[str, str]  # path of the source of every instruction

    def by_part(self, parts: Mapping[str, str]) -> dict[str, float]:
        """Return milliseconds by part: the first pattern that matches the origin, or "other"."""
        spent = dict.fromkeys([*parts, "other"], 0.0)
        for instruction, ms in self.ms.items():
            path = self.origin.get(instruction, "")
            name = next((p for p, pattern in parts.items() if re.search(pattern, path)), "other")
            spent[name] += ms
        return spent

    def report(self, slowest: int = 20) -> dict[str, Any]:
        """Return the device's time, the number of kernels, and the slowest with their origins."""
        ranked = sorted(self.ms.items(), key=lambda item: -item[1])[:slowest]
        return {
            "device_ms": sum(self.ms.values()),
            "kernels": self.kernels,
            "dearest": [
                {"ms": ms, "op": name, "from": self.origin.get(name, "")} for name, ms in ranked
            ],
        }


def origins(module: str) -> dict[str, str]:
    """Return the path of origin of every instruction of a compiled module."""
    return dict(_INSTRUCTION.findall(module))


def compile_named(
    lowered: jax.stages.Lowered, compiled: jax.stages.Compiled | None = None
) -> jax.stages.Compiled:
    """Compile a program whose kernels have names in a trace, unless it is compiled and has them."""
    gpu = jax.default_backend() == "gpu"
    plain = None if gpu else compiled
    return plain or lowered.compile(compiler_options=NO_CUDA_GRAPHS if gpu else None)


def trace(
    call: Callable[[], Any], calls: int, compiled: jax.stages.Compiled, directory: Path | None
) -> Traced:
    """Trace some calls of a compiled program, and keep the trace in the directory if it is one."""
    with tempfile.TemporaryDirectory() as scratch:
        where = directory or Path(scratch)
        with jax.profiler.trace(str(where)):
            jax.block_until_ready([call() for _ in range(calls)][-1])
        files = sorted(where.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime)
        data = jax.profiler.ProfileData.from_file(str(files[-1]))
    total, kernels = Counter(), 0
    for plane in data.planes:
        for line in plane.lines:
            for event in line.events if _is_device(plane.name, line.name) else ():
                stats = dict(event.stats)
                if "hlo_op" in stats:
                    total[str(stats["hlo_op"])] += event.duration_ns / 1e6 / calls
                    kernels += 1
    origin = origins(compiled.as_text() or "")
    return Traced(ms=dict(total), kernels=round(kernels / calls), origin=origin)


def _is_device(plane: str, line: str) -> bool:
    """Return True for streams of a GPU, operations of a TPU and XLA's threads on a CPU."""
    if "/device:GPU" in plane:
        return line.startswith("Stream")
    if "/device:TPU" in plane:
        return line == "XLA Ops"
    return plane == "/host:CPU" and "XLA" in line
