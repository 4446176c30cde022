"""Score logs: quality, latency, curves, significance. Needs no JAX."""

from simuljax.eval.latency import (
    average_lagging,
    average_proportion,
    average_token_delay,
    differentiable_average_lagging,
    length_adaptive_average_lagging,
    yaal,
)
from simuljax.eval.logs import Record, RecordError, read_records, record_line, write_records
from simuljax.eval.scores import average_runs, score

__all__ = [
    "Record",
    "RecordError",
    "average_lagging",
    "average_proportion",
    "average_runs",
    "average_token_delay",
    "differentiable_average_lagging",
    "length_adaptive_average_lagging",
    "read_records",
    "record_line",
    "score",
    "write_records",
    "yaal",
]
