"""From logs to numbers and pictures: quality, latency, curves, significance. Needs no JAX.

records         reading and writing instances.log
latency         AL, LAAL, AP, DAL, YAAL of one utterance; token_delay has ATD
scores          a log as SimulEval scores it, in either of its generations
longform        whole talks, cut at the reference's segments: StreamLAAL, LongYAAL
significance    whether two systems differ
curves          latency against quality: regimes, buckets, interpolation, hypervolume
pictures        the same for the eye, with matplotlib
report          evaluations of runs and logs of other systems, gathered; reporting is the command
highlights      which utterances to show, and whether two systems differ
ablation        rows of a grid over seeds, against a baseline; ablation_page shows them
timeline, page  words over the speech, as SVG; the whole as one HTML page
"""

from simuljax.eval.latency import (
    average_lagging,
    average_proportion,
    differentiable_average_lagging,
    hypothesis_average_lagging,
    length_adaptive_average_lagging,
    yaal,
)
from simuljax.eval.logs import Record, RecordError, read_records, record_line, write_records
from simuljax.eval.scores import average_runs, score
from simuljax.eval.token_delay import average_token_delay

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
