"""The objective: named terms, one reduction over sentences, one weighted sum.

    values = term_values(terms, outputs)     name -> (value [B], weight [B])
    sums   = sum_terms(values)               name -> numerator and denominator; psum or add these
    loss   = combine(sums, weights)          divide, weight, add

The only reduction over sentences stands in `sum_terms`, so it is right on ragged batches and across
devices. Denominators come from lengths alone, so a device can take the gradient of its own
numerators over the denominators of the whole batch and add gradients across devices.
A training declares its terms in `simuljax.config.training.Objective`; their functions are in
`simuljax.losses.terms`. `JointObjective` has those of the papers (Zaidi et al. 2022, eq. 13):

    L = (1-alpha) NLL_ST + alpha KD + beta CAR + gamma NLL_MT + delta DAR + lambda DAL
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import flax.struct
import jax
import jax.numpy as jnp
from flax.core import FrozenDict

from simuljax.config.fields import Checked, ConfigError, check, setting
from simuljax.config.loading import is_reference, load_object, reference_to
from simuljax.errors import unknown
from simuljax.losses.attentive import COLUMNS, DIRECTIONS
from simuljax.losses.decoder_losses import GATHERS, METRICS, PerExample
from simuljax.losses.terms import BUILT_IN, NEEDS, OWN_TEACHERS, TEACHERS, Outputs, TermFunction
from simuljax.ops import arguments

Start = int | Literal["convergence"]
Option = bool | int | float | str
_LOADED: dict[str, TermFunction] = {}  # functions of experiment files, by reference


@dataclasses.dataclass(frozen=True, kw_only=True)
class Term:
    """A named part of the loss: a function, how much it counts, and from when on.

    `function` is a built-in term (by default the one called `name`), a function of an experiment
    file, or "path/to/file.py:function"; see `simuljax.losses.terms` for what it takes and returns.
    """

    name: str = setting(help="Name in logs and metrics.")
    function: str | Callable[..., Any] = setting("", help="Built-in term or file.py:function.")
    weight: float = setting(1.0, help="Factor of the term; 0: not computed, or only watched.")
    start: Start = setting(
        0, help="First update that it counts in; convergence: once dev stops improving.", low=0
    )
    ramp: int = setting(0, help="Updates in which the weight grows linearly from 0.", low=0)
    watch: bool = setting(False, help="Compute and log it even where its weight is 0.")
    options: Mapping[str, Option] = setting(FrozenDict(), help="Keyword arguments of the function.")

    def __post_init__(self) -> None:
        if callable(self.function):
            reference = reference_to(self.function)
            _LOADED[reference] = self.function
            object.__setattr__(self, "function", reference)
        object.__setattr__(self, "options", FrozenDict(self.options))
        check(self)
        if is_reference(self.kind):
            return
        if self.kind not in BUILT_IN:
            raise ConfigError(
                f"term {self.name!r}: {unknown(self.kind, BUILT_IN)}; a function of your own is "
                "given as file.py:function"
            )
        known = [p for p in inspect.signature(BUILT_IN[self.kind]).parameters if p != "outputs"]
        for option in self.options:
            if option not in known:
                raise ConfigError(f"options of term {self.name!r}: {unknown(option, known)}")

    def __call__(self, outputs: Outputs) -> PerExample | None:
        """Return value and weight of every sentence; None where the term does not apply."""
        if self.kind in BUILT_IN:
            return BUILT_IN[self.kind](outputs, **self.options)
        if self.kind not in _LOADED:
            _LOADED[self.kind] = load_object(self.kind)
        found = _LOADED[self.kind](outputs, **self.options)
        return None if found is None else self._checked(found, outputs)

    def _checked(self, found: Any, outputs: Outputs) -> PerExample:
        """Refuse a function that reduces over sentences, or returns no weight."""
        shape = (outputs.targets.shape[0],)
        if not isinstance(found, tuple) or [jnp.shape(part) for part in found] != [shape] * 2:
            raise ConfigError(
                f"term {self.name!r} must return value and weight, both of shape {shape}; it "
                f"returned {jax.tree.map(jnp.shape, found)}"
            )
        return found

    @property
    def kind(self) -> str:
        """Return the name of its built-in function, or the reference of one of your own."""
        return str(self.function) or self.name

    @property
    def has_teacher(self) -> bool:
        """Return True if the term counts and has a teacher with parameters of its own."""
        return bool(self.weight) and self.options.get("teacher") in OWN_TEACHERS

    def needs(self, part: str) -> bool:
        """Return True if the term counts and may use "text" or "lattice"."""
        return bool(self.weight) and (self.kind not in BUILT_IN or NEEDS.get(self.kind) == part)

    def start_at(self, converged: int | None) -> int | float:
        """Return its first update; infinity while it waits for convergence."""
        if self.start != "convergence":
            return self.start
        return float("inf") if converged is None else converged

    def weight_at(self, step: int, converged: int | None) -> int | float:
        """Return the weight in an update that comes after `step` others."""
        since = step - self.start_at(converged)
        if since < 0:
            return 0.0
        return self.weight * min(1.0, (since + 1) / self.ramp) if self.ramp else self.weight

    def corners(self, converged: int | None) -> tuple[int, ...]:
        """Return the steps between which the weight changes linearly."""
        start = self.start_at(converged)
        if start == float("inf"):
            return ()
        return max(0, int(start) - 1), int(start), int(start) + max(0, self.ramp - 1)


@flax.struct.dataclass
class TermSum:
    """A term summed over examples; add these across micro-batches and devices."""

    numerator: Any  # []
    denominator: Any  # []


@flax.struct.dataclass
class Loss:
    """The loss, and every term by name, before and after weighting."""

    total: Any  # []
    terms: dict[str, Any]
    weighted: dict[str, Any]


def term_values(terms: Iterable[Term], outputs: Outputs) -> dict[str, PerExample]:
    """Return value and weight of every term that counts or is watched, and applies.

    Nothing is differentiated for a term that does not count.
    """
    found = [(term, term(outputs)) for term in terms if term.weight or term.watch]
    return {
        term.name: pair if term.weight else jax.lax.stop_gradient(pair)
        for term, pair in found
        if pair is not None
    }


def sum_terms(terms: Mapping[str, PerExample]) -> dict[str, TermSum]:
    """Sum values and weights over examples: the one reduction."""
    return {name: TermSum(value.sum(), weight.sum()) for name, (value, weight) in terms.items()}


def combine(sums: Mapping[str, TermSum], weights: Mapping[str, float | jax.Array]) -> Loss:
    """Return the sum over terms of weight * numerator / denominator.

    The weight of `kd` is taken from that of `st_nll`, where both are computed. A weight may be
    traced, so that a schedule does not recompile. A term of weight 0 is reported but has no part in
    the loss. A term without examples is 0.
    """
    weights = dict(weights)
    if "kd" in sums and "st_nll" in sums:  # (1 - alpha) NLL + alpha KD
        weights["st_nll"] = weights["st_nll"] - weights["kd"]
    terms = {
        name: s.numerator / jnp.where(s.denominator > 0, s.denominator, 1)
        for name, s in sums.items()
    }
    weighted = {name: weights[name] * value for name, value in terms.items()}
    off = [n for n, w in weights.items() if arguments.is_known(w) and float(w) == 0]
    counted = [value for name, value in weighted.items() if name not in off]
    return Loss(total=sum(counted, jnp.zeros(())), terms=terms, weighted=weighted)


def check_distillation(terms: Iterable[Term], soonest: int = 0) -> None:
    """Reject weights with which `combine` would maximise `st_nll` in any update.

    A training converges after `soonest` updates at the earliest.
    """
    counted = {term.name: term for term in terms if term.weight or term.watch}
    if not {"st_nll", "kd"} <= counted.keys():
        return
    nll, kd = counted["st_nll"], counted["kd"]
    for converged in (None, soonest):  # never, and as early as can be
        for step in sorted({*nll.corners(converged), *kd.corners(converged)}):
            weight, taken = (term.weight_at(step, converged) for term in (nll, kd))
            if taken > 0 and weight < taken - 1e-9:
                raise ConfigError(
                    f"the weight of kd is taken from that of st_nll, but in update {step + 1} "
                    f"kd can have {taken:g} and st_nll only {weight:g}: lower the weight of kd, "
                    "raise that of st_nll, or let kd start later or with a longer ramp"
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointObjective(Checked):
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
    latency_on_text: bool = setting(
        True, help="Count the latency of the text branch too, if another loss uses it."
    )
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
        using = (
            self.translation,
            self.distillation,
            self.cross_attentive,
            self.decision_attentive,
        )
        text = float(self.latency_on_text and any(using))  # alone it would only disturb the decoder

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
