"""Measuring one compiled function."""

import dataclasses
import functools
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jax
import jax.monitoring
import jax.numpy as jnp

COMPILED = "/jax/core/compile/backend_compile_duration"  # what JAX calls it
_NO_KERNEL = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "copy-done"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurement:
    """What a function costs on this device."""

    ms: float  # per call, the best of several rounds
    compile_s: float
    temp_mib: float  # what it needs beside its inputs and outputs
    gflop: float  # as XLA counts: a loop's body once, and nothing of kernels that are not its own
    gbyte: float
    kernels: int  # instructions of the compiled module's entry that launch something


def say(what: str) -> None:
    """Compiling takes minutes, and nobody should wonder."""
    print(what, file=sys.stderr, flush=True)


@contextmanager
def counted_programs() -> Iterator[list[float]]:
    """The seconds that each program took which JAX compiles meanwhile, or reads from its cache."""
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
    """Operations and bytes of a call, as XLA counts them: a loop's body once."""
    cost = compiled.cost_analysis() or {}
    names = {"gflop": "flops", "gbyte": "bytes accessed"}
    return {name: cost.get(theirs, float("nan")) / 1e9 for name, theirs in names.items()}


def count_kernels(module: str) -> int:
    """Instructions of a compiled module's entry that launch work (a loop counts once)."""
    entry = module.partition("\nENTRY ")[2].split("\n}")[0]
    opcodes = re.findall(r"^\s+(?:ROOT )?%?\S+ = .*? ([a-z][a-z0-9-]*)\(", entry, re.MULTILINE)
    return sum(opcode not in _NO_KERNEL for opcode in opcodes)


@functools.cache
def copy_gb_per_s(device) -> float:
    """Memory bandwidth that a large element-wise pass reaches, bytes read plus bytes written."""
    size = 2**28 if device.platform == "gpu" else 2**25
    x = jax.device_put(jnp.ones(size, jnp.float32), device)
    return 2 * x.nbytes / (measure(lambda x: x + 1, x).ms * 1e6)


def _seconds(compiled, args, calls):
    start = time.perf_counter()
    jax.block_until_ready([compiled(*args) for _ in range(calls)][-1])
    return (time.perf_counter() - start) / calls
