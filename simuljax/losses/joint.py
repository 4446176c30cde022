"""The joint objective of a speech and a text branch (Zaidi et al. 2022, eq. 13).

    L = (1-alpha) NLL_ST + alpha KD + beta CAR + gamma NLL_MT + delta DAR + lambda DAL

Three steps, so that the only reduction over sentences stands in one place and is right on ragged
batches and across devices:

    terms = joint_terms(...)             name -> (value [B], weight [B])
    sums  = sum_terms(terms)             name -> numerator and denominator; psum or add these
    loss  = combine(sums, weights)       divide, weight, add

Tokens divide the token losses and, as the papers' lambda presumes, the latency terms; sentences
divide CAR and, unless `decision_divisor` says otherwise, DAR. Denominators come from lengths alone,
so a device can take the gradient of its own numerators over the denominators of the whole batch and
add gradients across devices.
"""

import functools
from collections.abc import Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from simuljax.losses.attentive import (
    cross_attentive,
    decision_attentive,
    decision_perplexity,
)
from simuljax.losses.cross_entropy import (
    PerExample,
    label_smoothed_cross_entropy,
    online_distillation,
)
from simuljax.losses.ctc import ctc
from simuljax.losses.latency import head_variance, latency
from simuljax.losses.objective import Branch, JointObjective
from simuljax.losses.transducer import transducer
from simuljax.ops import arguments


@flax.struct.dataclass
class TermSum:
    """A term summed over examples; add these across micro-batches and devices."""

    numerator: Any  # []
    denominator: Any  # []


@flax.struct.dataclass
class Loss:
    """The loss and every term by name, as it is and as it counts."""

    total: Any  # []
    terms: dict[str, Any]
    weighted: dict[str, Any]


def joint_terms(
    speech: Branch | None,
    text: Branch | None,
    targets: Int[Array, "B T"],
    objective: JointObjective,
    *,
    teacher: Branch | None = None,
) -> dict[str, PerExample]:
    """Every term by name, unreduced; `teacher` is the text branch of an averaged or frozen model.

    Latency and variance are always there, so that they can be watched before they count; KD, CAR
    and DAR cost something and are left out at weight 0. Of a branch that is missing, there are no
    terms.
    """
    weights = objective.weights()
    terms = {}
    if speech is not None:
        terms |= _branch_terms("st", speech, targets, objective)
        terms |= _transcript_terms(speech, weights)
        terms |= _lattice_terms(speech)
    if text is not None:
        terms |= _branch_terms("mt", text, targets, objective)
    if speech is not None and text is not None:
        terms |= _paired_terms(speech, text, objective, weights, teacher)
    return terms


def decision_statistics(speech: Branch, text: Branch) -> dict[str, PerExample]:
    """Return what shows whether DAR runs away, for examples with both speech and text.

    st_energy, mt_energy   mean energy of a branch over layers, heads, targets and positions
    st_read, mt_read       expected share of the source that heads have read at a target
    """
    found = {}
    for prefix, branch in (("st", speech), ("mt", text)):
        targets, points = _paired(speech, text), branch.decision_length
        real = _within(targets, branch.delays.shape[-1])
        exists = ((targets > 0) & (points > 0)).astype(jnp.float32)
        places = real[:, :, None] & _within(points, branch.energies.shape[-1])[:, None]
        energy = jnp.where(places[None, :, None], branch.energies, 0).mean((0, 2)).sum((1, 2))
        length = jnp.maximum(branch.state_length, 1)[:, None, None]
        read = jnp.where(real[:, None], branch.delays / length, 0).mean(1).sum(-1)
        found[f"{prefix}_energy"] = energy / jnp.maximum(places.sum((1, 2)), 1), exists
        found[f"{prefix}_read"] = exists * read / jnp.maximum(real.sum(1), 1), exists
    return found


def paper_decision_attentive(speech: Branch, text: Branch) -> PerExample:
    """Return DAR as the paper has it, whichever form is trained: forms compare by it.

    One layer after the other: it need not be fast.
    """
    paired = _paired(speech, text)
    of_layer = _of_layer(decision_attentive, speech, text, paired, JointObjective())
    value, weight = jax.lax.map(lambda pair: of_layer(*pair), (speech.energies, text.energies))
    return value.mean(0), weight[0]


def matching_perplexity(speech: Branch, text: Branch, objective: JointObjective) -> PerExample:
    """How many columns of speech DAR takes for one of text: no loss, but nobody sees it otherwise.

    Mean over layers, one after the other: it need not be fast.
    """
    paired = _paired(speech, text)
    of_layer = _of_layer(decision_perplexity, speech, text, paired, objective)
    values = jax.lax.map(lambda pair: of_layer(*pair), (speech.energies, text.energies))
    lengths = paired, speech.decision_length, text.decision_length
    exists = jnp.stack(lengths).min(0) > 0
    return jnp.where(exists, values.mean(0), 0), exists.astype(values.dtype)


def sum_terms(terms: Mapping[str, PerExample]) -> dict[str, TermSum]:
    """The one reduction over examples."""
    sums = {}
    for name, (value, _) in terms.items():
        _, weight = terms[_denominator_of(name)]
        sums[name] = TermSum(value.sum(), weight.sum())
    return sums


def combine(sums: Mapping[str, TermSum], weights: Mapping[str, float | jax.Array]) -> Loss:
    """sum_term weight numerator / denominator; `objective.weights()` gives the weights.

    A weight may be traced, so that a schedule does not recompile. A term of weight 0 is reported
    but has no part in the loss, so it costs no backward pass. A term without examples is 0.
    """
    weights = dict(weights)
    if "kd" not in sums:  # a branch alone counts in full: no distillation to share with
        weights["st_nll"] = 1.0
    terms = {
        name: s.numerator / jnp.where(s.denominator > 0, s.denominator, 1)
        for name, s in sums.items()
    }
    weighted = {name: weights[name] * value for name, value in terms.items()}
    counted = [value for name, value in weighted.items() if not _is_off(weights[name])]
    total = sum(counted, jnp.zeros(()))
    return Loss(total=total, terms=terms, weighted=weighted)


def _is_off(weight) -> bool:
    """A weight of 0 that is known; a traced one may change from step to step."""
    return arguments.is_known(weight) and float(weight) == 0


def _denominator_of(name: str) -> str:
    """Latency, variance and KD are divided by the tokens of their branch, not by sentences."""
    if name == "kd":
        return "st_nll"
    if name == "transducer_delay":
        return "transducer"
    branch, _, term = name.partition("_")
    return f"{branch}_nll" if term in ("latency", "variance") else name


def _branch_terms(prefix, branch, targets, objective):
    return {
        f"{prefix}_nll": label_smoothed_cross_entropy(
            branch.logits, targets, branch.target_length, smoothing=objective.smoothing
        ),
        f"{prefix}_latency": latency(
            branch.delays,
            branch.state_length,
            branch.target_length,
            metric=objective.latency_metric,
            gather=objective.latency_gather,
            clip=objective.latency_clip,
        ),
        f"{prefix}_variance": head_variance(branch.delays, branch.target_length),
    }


def _transcript_terms(speech, weights):
    """Terms of the speech encoder alone, with the transcript as the teacher."""
    terms = {}
    if weights["ctc"]:
        if speech.ctc is None:
            raise ValueError("ctc counts in the objective, but the speech encoder has no CTC head.")
        terms["ctc"] = ctc(
            speech.ctc, speech.state_length, speech.transcript, speech.transcript_length
        )
    if speech.decided is not None:
        pieces = speech.transcript_length.astype(jnp.float32)
        off = jnp.abs(speech.decided - pieces) / jnp.maximum(pieces, 1)
        counts = (pieces > 0) & (speech.state_length > 0)
        terms["quantity"] = jnp.where(counts, off, 0), counts.astype(jnp.float32)
    return terms


@jax.named_scope("transducer")
def _lattice_terms(speech):
    """Of CAAT; both are divided by tokens, so that they add up as those of a sentence do."""
    if speech.lattice is None:
        return {}
    lattice, tokens = speech.lattice, speech.target_length
    nll, delay = transducer(lattice.blank, lattice.label, lattice.groups, tokens)
    counted = tokens > 0
    tokens = tokens.astype(jnp.float32)
    return {
        "transducer": (jnp.where(counted, nll, 0), tokens),
        "transducer_delay": (jnp.where(counted, delay, 0), tokens),
    }


def _paired_terms(speech, text, objective, weights, teacher):
    """Terms of examples that have both speech and text."""
    paired, terms = _paired(speech, text), {}
    if weights["kd"]:
        terms["kd"] = online_distillation(speech.logits, text.logits, paired)
    if weights["car"]:
        terms["car"] = cross_attentive(
            speech.states,
            text.states,
            speech.state_length,
            text.state_length,
            direction=objective.cross_attentive_direction,
        )
    if weights["dar"]:
        terms["dar"] = _decision_term(speech, text, teacher, paired, objective)
    return terms


def _paired(speech, text):
    """Lengths of targets, 0 for an example that lacks either."""
    return jnp.where(text.target_length > 0, speech.target_length, 0)


def _within(lengths, size):
    """bool [B, size]: the first of each."""
    return jnp.arange(size) < lengths[:, None]


@jax.named_scope("decision_attentive")
def _decision_term(speech, text, teacher, target_length, objective):
    """Mean over layers."""
    if objective.needs_teacher:
        if teacher is None:
            raise ValueError(
                f"decision_teacher is {objective.decision_teacher!r}: give the text branch of that "
                "model as `teacher`."
            )
        text = teacher
    function = functools.partial(
        decision_attentive,
        text_gradient="flow" if objective.decision_teacher == "flow" else "stop",
        columns=objective.decision_columns,
    )
    energies = [b.energies if objective.decision_bias else _unbiased(b) for b in (speech, text)]
    of_layer = _of_layer(function, speech, text, target_length, objective)
    value, weight = jax.vmap(of_layer)(*energies)
    tokens = target_length if objective.decision_divisor == "tokens" else 1
    return value.mean(0), weight[0] * tokens


def _unbiased(branch):
    return branch.energies - branch.energy_bias[:, None, None, None, None]


def _of_layer(function, speech, text, target_length, objective):
    """A function of decision energies, for those of one layer."""

    def of_layer(speech_energy, text_energy):
        return function(
            speech_energy,
            text_energy,
            speech.decision_length,
            text.decision_length,
            target_length,
            temperature=objective.decision_temperature,
            across_heads=objective.decision_across_heads,
        )

    return of_layer
