"""The joint objective's weights and choices, and what a branch hands to it."""

import dataclasses
from collections.abc import Iterable
from typing import Any, Literal, get_args

import flax.struct
import jax

from simuljax.losses.attentive import COLUMNS, DIRECTIONS
from simuljax.losses.latency import GATHERS, METRICS
from simuljax.ops import arguments

# The text energies that DAR compares speech with. "flow": those of the text branch, which learns
# from DAR too; "stop": the same held fixed, as in the paper; "averaged": those of an exponential
# average of the parameters; "frozen": those of parameters that training never changes.
DecisionTeacher = Literal["flow", "stop", "averaged", "frozen"]
DIVISORS = ("sentences", "tokens")

WEIGHTS = (
    "distillation",
    "cross_attentive",
    "translation",
    "decision_attentive",
    "latency",
    "variance",
    "ctc",
    "quantity",
    "transducer",
    "transducer_delay",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointObjective:
    """Weights and choices of the objective; the Greek letters are those of eq. 13."""

    distillation: float = 0.2  # alpha
    cross_attentive: float = 0.02  # beta
    translation: float = 0.5  # gamma
    decision_attentive: float = 0.01  # delta
    latency: float = 0.0  # lambda
    variance: float = 0.0
    ctc: float = 0.0  # of the transcript, on the speech encoder
    quantity: float = 0.0  # of learnt decision points, against the pieces of the transcript
    transducer: float = 0.0  # of CAAT, beside cross-entropy with all of the source in sight
    transducer_delay: float = 0.0  # of CAAT: its delay_scale
    smoothing: float = 0.1
    latency_metric: str = "DAL"
    latency_gather: str = "metric_then_heads"
    latency_clip: bool = True
    latency_on_text: bool = True
    cross_attentive_direction: str = "paper"
    decision_temperature: float = 1.0
    decision_across_heads: bool = True
    # Runs recorded before this option existed were trained with "stop".
    decision_teacher: DecisionTeacher = dataclasses.field(
        default="flow", metadata={"before": "stop"}
    )
    decision_decay: float = 0.999  # of the averaged teacher, per update
    decision_columns: Literal["raw", "unit"] = "raw"
    decision_bias: bool = True  # whether energies include the decoder's bias
    decision_divisor: Literal["sentences", "tokens"] = "sentences"

    def __post_init__(self):
        """Refuse a choice that does not exist before anything is compiled."""
        arguments.one_of("latency_metric", self.latency_metric, METRICS)
        arguments.one_of("latency_gather", self.latency_gather, GATHERS)
        arguments.one_of("cross_attentive_direction", self.cross_attentive_direction, DIRECTIONS)
        arguments.one_of("decision_teacher", self.decision_teacher, get_args(DecisionTeacher))
        arguments.one_of("decision_columns", self.decision_columns, COLUMNS)
        arguments.one_of("decision_divisor", self.decision_divisor, DIVISORS)
        if not 0 <= self.decision_decay < 1:
            raise ValueError(f"decision_decay is {self.decision_decay}; it must lie in [0, 1).")
        if not 0 <= self.distillation <= 1:
            raise ValueError(f"distillation is {self.distillation}; it must lie in [0, 1].")

    @property
    def needs_text(self) -> bool:
        """Whether any term looks at the text branch."""
        paired = (self.distillation, self.cross_attentive, self.decision_attentive)
        return any(paired) or self.translation > 0

    @property
    def needs_teacher(self) -> bool:
        """Return True if DAR's text energies come from parameters of their own."""
        return bool(self.decision_attentive) and self.decision_teacher in ("averaged", "frozen")

    def without_weights(self) -> "JointObjective":
        """The same for all objectives that differ in how much their terms count, or if at all."""
        return dataclasses.replace(self, **dict.fromkeys(WEIGHTS, 0.0))

    def computing(self, others: Iterable["JointObjective"]) -> "JointObjective":
        """Computes every term that counts here or in any of the others."""
        every = (self, *others)
        most = {name: max(getattr(one, name) for one in every) for name in WEIGHTS}
        return dataclasses.replace(self, **most)

    @property
    def needs_lattice(self) -> bool:
        """Whether any term looks at CAAT's lattice."""
        return bool(self.transducer or self.transducer_delay)

    def weights(self) -> dict[str, float]:
        text = self.latency if self.latency_on_text else 0.0
        return {
            "st_nll": 1 - self.distillation,
            "kd": self.distillation,
            "car": self.cross_attentive,
            "mt_nll": self.translation,
            "dar": self.decision_attentive,
            "st_latency": self.latency,
            "mt_latency": text,
            "st_variance": self.variance,
            "mt_variance": self.variance if self.latency_on_text else 0.0,
            "ctc": self.ctc,
            "quantity": self.quantity,
            "transducer": self.transducer,
            "transducer_delay": self.transducer_delay,
        }


@flax.struct.dataclass
class Branch:
    """What one branch hands to the objective. An example it lacks has length 0 throughout."""

    logits: jax.Array  # [B, T, V]
    target_length: jax.Array  # [B]
    state_length: jax.Array  # [B]
    delays: jax.Array  # [B, heads, T]: of all layers and heads, in encoder states
    states: Any = None  # [B, S, D], for CAR
    energies: Any = None  # [M, B, H, T, P], for DAR: noise-free, at decision points
    energy_bias: Any = None  # [M]: included in the energies
    decision_length: Any = None  # [B]
    ctc: Any = None  # [B, S, C]: logits, the blank last
    decided: Any = None  # [B]: the expected number of learnt decision points
    transcript: Any = None  # int32 [B, L], for CTC
    transcript_length: Any = None  # [B]: pieces, without end-of-sentence
    lattice: Any = None  # of CAAT: blank [B, G, T + 1], label [B, G, T] and groups [B]
