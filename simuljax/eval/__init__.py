"""Score logs: quality, latency, curves, significance. Needs no JAX.

logs            reading and writing instances.log and archives of logs
latency         AL, LAAL, AP, DAL, YAAL of one utterance; token_delay has ATD
scores          a log as SimulEval scores it, in either of its versions
long_form       whole talks, cut at the reference's segments: StreamLAAL, LongYAAL
speech_out      latency of spoken output
word_errors     word error rate of transcripts
significance    tests between systems, over utterances and seeds; resampling is the bootstrap
curves          latency against quality: regimes, buckets, interpolation, hypervolume
"""

from simuljax.eval.latency import (
    average_lagging,
    average_proportion,
    average_token_delay,
    differentiable_average_lagging,
    hypothesis_average_lagging,
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
    "hypothesis_average_lagging",
    "length_adaptive_average_lagging",
    "read_records",
    "record_line",
    "score",
    "write_records",
    "yaal",
]
