"""Divide the time of a compiled step among the parts of a model.

XLA keeps the path of the source code of every instruction; a trace has the time of every
instruction. A part is a pattern of those paths.
"""

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.-]+) = .*?op_name=\"([^\"]*)\"", re.MULTILINE)


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
