"""`simuljax profile alignment`: compare the methods of the expected alignment."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simuljax import ops
from simuljax.profile.measure import copy_gb_per_s, measure, say

PASSES = 5  # over memory: read p, write alpha; read p and the cotangent, write the gradient
CHECKED = 4  # problems that are compared with float64


@dataclass(frozen=True, kw_only=True)
class AlignmentProfile:
    """Time the expected alignment: forward, forward+backward, error, compile time, memory floor."""

    sizes: tuple[str, ...] = ()
    """Target steps x source positions; default 64x64 100x512 128x1500 (smaller without a GPU)."""
    problems: int = 0
    """Batch x heads; default 320, or 8 without a GPU."""
    methods: tuple[str, ...] = ()
    """Default exact closed_form, and fused on a CUDA device (elsewhere it is interpreted: slow)."""

    def __post_init__(self):
        for name in self.sizes:
            _size(name)
        for method in self.methods:
            ops.explain_method(method, (1, 1))
        if self.problems < 0:
            raise ValueError(f"problems is {self.problems}; it must be at least 0")


def run(config: AlignmentProfile) -> dict:
    """Measure all methods at all sizes; print a line to standard error after each."""
    device = jax.devices()[0]
    on_gpu = device.platform == "gpu"
    names = config.sizes or (("64x64", "100x512", "128x1500") if on_gpu else ("64x64", "100x512"))
    methods = config.methods or ("exact", "closed_form", *(["fused"] if on_gpu else []))
    sizes, problems = [_size(name) for name in names], config.problems or (320 if on_gpu else 8)
    gb_per_s, rows = copy_gb_per_s(), []
    for row in _rows(sizes, problems, methods, gb_per_s):
        rows.append(row)
        at = f"{row['method']} {row['targets']}x{row['sources']}"
        say(f"{len(rows)}/{len(sizes) * len(methods)} {at}: fwd+bwd {row['both_ms']:.3f} ms")
    return {
        "device": device.device_kind,
        "jax": jax.__version__,
        "problems": problems,
        "copy_gb_per_s": gb_per_s,
        "auto": {f"{t}x{s}": ops.explain_method("auto", (t, s))._asdict() for t, s in sizes},
        "rows": rows,
    }


def _size(name: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", name)
    if not match:
        raise ValueError(
            f"sizes holds {name!r}; write target steps x source positions, such as 64x512"
        )
    return int(match[1]), int(match[2])


def _rows(sizes, problems, methods, gb_per_s) -> Iterator[dict[str, Any]]:
    energy_key, cotangent_key = jax.random.split(jax.random.key(0))
    for targets, sources in sizes:
        shape = (problems, targets, sources)
        p = jax.nn.sigmoid(2 * jax.random.normal(energy_key, shape) - 1)
        cotangent = jax.random.normal(cotangent_key, shape)
        reference = _float64(p[:CHECKED], cotangent[:CHECKED])
        floor_ms = PASSES * p.nbytes / (gb_per_s * 1e6)
        for method in methods:
            yield _row(method, p, cotangent, reference, floor_ms)


def _row(method, p, cotangent, reference, floor_ms) -> dict[str, Any]:
    """Return one method at one size.

    `floor_ms` is the time of forward and backward at the device's copy bandwidth. Errors are maxima
    against float64; the gradient's is relative. Operations and bytes are as XLA counts them.
    """

    def forward(p):
        return ops.expected_alignment(p, method=method)

    def both(p, cotangent):
        alpha, pull_back = jax.vjp(forward, p)
        return alpha, *pull_back(cotangent)

    one, two = measure(forward, p), measure(both, p, cotangent)
    alpha, gradient = (
        np.asarray(x, np.float64) for x in jax.jit(both)(p[:CHECKED], cotangent[:CHECKED])
    )
    return {
        "targets": p.shape[1],
        "sources": p.shape[2],
        "method": method,
        "forward_ms": one.ms,
        "both_ms": two.ms,
        "floor_ms": floor_ms,
        "times_floor": two.ms / floor_ms,
        "error": float(np.abs(alpha - reference[0]).max()),
        "gradient_error": float(np.abs(gradient - reference[1]).max() / np.abs(reference[1]).max()),
        "compile_s": two.compile_s,
        "temp_mib": two.temp_mib,
        "gflop": two.gflop,
        "gbyte": two.gbyte,
        "kernels_forward": one.kernels,
        "kernels_both": two.kernels,
    }


def _float64(p, cotangent):
    """Return alignment and gradient of the exact method in float64, on the host."""
    host = jax.devices("cpu")[0]
    with jax.enable_x64(True), jax.default_device(host):
        p, cotangent = (jnp.asarray(np.asarray(x, np.float64), device=host) for x in (p, cotangent))
        alpha, pull_back = jax.vjp(ops.expected_alignment, p)
        return np.asarray(alpha), np.asarray(pull_back(cotangent)[0])
