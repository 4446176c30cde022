"""Losses: per-example values and weights, no reduction over the batch inside.

Each loss returns (value [B], weight [B]). `objective` holds the one place where they are reduced.
"""

from simuljax.losses.attentive import cross_attentive, decision_attentive, decision_perplexity
from simuljax.losses.ctc import ctc
from simuljax.losses.decoder_losses import (
    head_variance,
    label_smoothed_cross_entropy,
    latency,
    online_distillation,
)
from simuljax.losses.objective import (
    JointObjective,
    Loss,
    Term,
    TermSum,
    combine,
    sum_terms,
    term_values,
)
from simuljax.losses.terms import (
    Branch,
    Outputs,
    decision_statistics,
    matching_perplexity,
)
from simuljax.losses.transducer import transducer
