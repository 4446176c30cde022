"""Floating-point operations of an update, and the peak of the devices.

XLA's own count (`cost_analysis`) takes the body of a loop once, and the layers of a model are such
a loop; so products are counted in the traced program instead, where loops say how often they run.
Only matrix products and convolutions count, forward once and backward twice, whatever is computed
anew: these are the model's FLOPs, and their share of the peak is its utilisation.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax

BACKWARD = 2  # as dear as this many forward passes

# Peak FLOP/s of dense products in bfloat16 (of V100, float16) with float32 sums, by device kind.
PEAKS: Mapping[str, float] = {
    "H200": 989e12,
    "H100": 989e12,
    "A100": 312e12,
    "V100": 125e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5e": 197e12,
    "TPU v5p": 459e12,
    "TPU v5": 459e12,  # how v5p calls itself
    "TPU v6 lite": 918e12,
    "TPU v6e": 918e12,
}


def peak_flops(device_kind: str) -> float | None:
    """Return FLOP/s of one device; None for a kind that is not in the table."""
    known = [name for name in PEAKS if name.lower() in device_kind.lower()]
    return PEAKS[max(known, key=len)] if known else None


def forward_flops(function: Callable[..., Any], *args: Any) -> float:
    """Return FLOPs of the products in one call on each replica; nothing is computed.

    Of a function that is spread over devices, the program of one device is what counts.
    """
    return count(jax.make_jaxpr(function)(*args).jaxpr)


def count(jaxpr: Any) -> float:
    """Return FLOPs of the products in a program; a while loop counts once."""
    total = 0.0
    for equation in jaxpr.eqns:
        name, inner = equation.primitive.name, inner_programs(equation.params)
        if name == "dot_general":
            total += product_flops(equation)
        elif name == "conv_general_dilated":
            total += convolution_flops(equation)
        elif name == "cond":
            total += max(count(branch) for branch in inner)
        else:
            times = equation.params["length"] if name == "scan" else 1
            total += times * sum(count(program) for program in inner)
    return total


def inner_programs(params: Mapping[str, Any]) -> list[Any]:
    """Yield the programs that an equation calls, wherever its parameters hold them."""
    leaves = jax.tree.leaves(dict(params), is_leaf=lambda leaf: hasattr(leaf, "eqns"))
    found = [getattr(leaf, "jaxpr", leaf) for leaf in leaves]
    return [program for program in found if hasattr(program, "eqns")]


def product_flops(equation: Any) -> float:
    """Return 2 per element of the result and of the axes summed over."""
    (contracted, _), _ = equation.params["dimension_numbers"]
    left, (out,) = equation.invars[0].aval, equation.outvars
    return 2.0 * math.prod(out.aval.shape) * math.prod(left.shape[axis] for axis in contracted)


def convolution_flops(equation: Any) -> float:
    """Return 2 per element of the result and of the kernel that reaches it."""
    kernel, (out,) = equation.invars[1].aval, equation.outvars
    channels = kernel.shape[equation.params["dimension_numbers"].rhs_spec[0]]
    return 2.0 * math.prod(out.aval.shape) * math.prod(kernel.shape) / channels
