"""The equations: pure functions on arrays that import jax and nothing else of ours.

Shapes are written with `...` for any number of leading batch and head axes; `lengths` is None or
an integer array whose shape is a prefix of them ([B] serves [B, H, T, S]). Padding is on the
right. Results are float32 (float64 for float64 inputs), whatever the compute dtype.
"""

from simuljax.ops.alignment import (
    MethodChoice,
    expected_alignment,
    expected_delays,
    explain_method,
    linear_recurrence,
    preserve_mass,
    preserved_alignment,
)
from simuljax.ops.attention import expected_soft_attention, windowed_soft_attention
from simuljax.ops.decisions import (
    fixed_triggers,
    label_triggers,
    monotonic_energy,
    pool_windows,
    selection_probability,
    wait_k_probability,
    window_ends,
)
from simuljax.ops.lagging import average_lagging, average_proportion, differentiable_average_lagging
