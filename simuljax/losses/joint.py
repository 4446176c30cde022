"""The joint objective of a speech and a text branch (Zaidi et al. 2022, eq. 13), as terms.

L = (1-alpha) NLL_ST + alpha KD + beta CAR + gamma NLL_MT + delta DAR + lambda DAL
"""

import dataclasses
from typing import Literal

from simuljax.config.fields import check, setting
from simuljax.losses.attentive import COLUMNS, DIRECTIONS
from simuljax.losses.latency import GATHERS, METRICS
from simuljax.losses.objective import Option, Start, Term
from simuljax.losses.terms import TEACHERS


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointObjective:
    """A shorthand for the terms of the papers; the Greek letters are those of eq. 13.

    `JointObjective(latency=0.1).terms()` is a tuple of `Term`.
    """

    distillation: float = setting(0.2, help="Weight of KD, alpha.", low=0, high=1)
    cross_attentive: float = setting(0.02, help="Weight of CAR, beta.")
    translation: float = setting(0.5, help="Weight of text translation, gamma.")
    decision_attentive: float = setting(0.01, help="Weight of DAR, delta.")
    latency: float = setting(0.0, help="Weight of latency, lambda.")
    variance: float = setting(0.0, help="Weight of the variance of delays over heads.")
    ctc: float = setting(0.0, help="Weight of CTC of the transcript on the speech encoder.")
    quantity: float = setting(0.0, help="Weight of the number of learned decision points.")
    transducer: float = setting(0.0, help="Weight of CAAT's transducer loss.")
    transducer_delay: float = setting(0.0, help="Weight of CAAT's expected delay.")
    smoothing: float = setting(0.1, help="Label smoothing.")
    latency_metric: str = setting("DAL", help="Latency metric.", choices=METRICS)
    latency_gather: str = setting(
        "metric_then_heads", help="Reduction over heads.", choices=GATHERS
    )
    latency_clip: bool = setting(True, help="Clip the metric at 0.")
    latency_on_text: bool = setting(True, help="Count the latency of the text branch too.")
    cross_attentive_direction: str = setting("paper", help="Who teaches.", choices=DIRECTIONS)
    decision_temperature: float = setting(1.0, help="Temperature of DAR's matching.", above=0)
    decision_across_heads: bool = setting(True, help="Match columns of all heads in DAR.")
    decision_teacher: str = setting("flow", help="Text energies of DAR.", choices=TEACHERS)
    decision_decay: float = setting(
        0.999, help="Decay of the averaged teacher, per update.", low=0, below=1
    )
    decision_columns: str = setting("raw", help="Columns of DAR.", choices=COLUMNS)
    decision_bias: bool = setting(True, help="Leave the decoder's bias in DAR's energies.")
    decision_divisor: Literal["sentences", "tokens"] = setting("sentences", help="Divisor of DAR.")

    def __post_init__(self) -> None:
        check(self)

    def terms(self, *, distil_after: int = 0, latency_after: Start = 0) -> tuple[Term, ...]:
        """Return the terms; distillation and latency count from these updates on."""
        smoothing = {"smoothing": self.smoothing}
        metric = {
            "metric": self.latency_metric,
            "gather": self.latency_gather,
            "clip": self.latency_clip,
        }
        names = ("teacher", "decay", "columns", "bias", "divisor", "temperature", "across_heads")
        dar = {name: getattr(self, f"decision_{name}") for name in names}
        car = {"direction": self.cross_attentive_direction}
        text = float(self.latency_on_text)

        def late(name: str, weight: float, **options: Option) -> Term:
            return Term(name=name, weight=weight, start=latency_after, watch=True, options=options)

        return (
            Term(name="st_nll", watch=True, options=smoothing),
            late("st_latency", self.latency, **metric),
            late("st_variance", self.variance),
            Term(name="ctc", weight=self.ctc),
            Term(name="quantity", weight=self.quantity, watch=True),
            Term(name="transducer", weight=self.transducer, watch=True),
            Term(name="transducer_delay", weight=self.transducer_delay, watch=True),
            Term(name="mt_nll", weight=self.translation, watch=True, options=smoothing),
            late("mt_latency", text * self.latency, **metric),
            late("mt_variance", text * self.variance),
            Term(name="kd", weight=self.distillation, start=distil_after),
            Term(name="car", weight=self.cross_attentive, options=car),
            Term(name="dar", weight=self.decision_attentive, options=dar),
        )
