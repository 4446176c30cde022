"""Terms of the objective: functions of what the forward pass exposes.

A term is a function `term(outputs, **options)` that returns value [B] and weight [B], or None where
the batch or the model lacks what it needs. The loss has sum(value) / sum(weight), times the weight
of the term. Return token counts to divide by tokens, and ones (0 for an example that does not
count) to divide by sentences; they depend on lengths alone, never on parameters. Built-in terms
are the functions of this file; `BUILT_IN` has them by name.

    st_nll mt_nll            cross-entropy of a branch                          per token
    kd                       online distillation, text teaches speech           per token
    car dar                  cross-attentive, decision-attentive regularisation per sentence
    st_latency mt_latency    differentiable latency of a branch                 per token
    st_variance mt_variance  variance of delays over heads                      per token
    ctc                      transcript on the speech encoder                   per piece
    quantity                 number of learned decision points                  per sentence
    transducer transducer_delay    of CAAT                                      per token
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from simuljax.losses.attentive import cross_attentive, decision_attentive, decision_perplexity
from simuljax.losses.ctc import ctc as ctc_loss
from simuljax.losses.decoder_losses import (
    PerExample,
    head_variance,
    label_smoothed_cross_entropy,
    online_distillation,
)
from simuljax.losses.decoder_losses import latency as latency_loss

# The text energies that DAR compares speech with. "flow": those of the text branch, which learns
# from DAR too; "stop": the same held fixed, as in the paper; "averaged": those of an exponential
# average of the parameters; "frozen": those of parameters that training never changes.
TEACHERS = ("flow", "stop", "averaged", "frozen")
OWN_TEACHERS = ("averaged", "frozen")  # these have parameters of their own


@flax.struct.dataclass
class Branch:
    """Outputs of the speech or the text branch. An example it lacks has length 0 throughout."""

    logits: jax.Array  # [B, T, V]
    target_length: jax.Array  # [B]
    state_length: jax.Array  # [B]
    delays: jax.Array  # [B, heads, T]: of all layers and heads, in encoder states
    states: Any = None  # [B, S, D]
    energies: Any = None  # [M, B, H, T, P]: noise-free, at decision points
    energy_bias: Any = None  # [M]: included in the energies
    decision_length: Any = None  # [B]
    alignment: Any = None  # [M, B, H, T, P]: expected, at decision points
    ctc: Any = None  # [B, S, C]: logits, the blank last
    decided: Any = None  # [B]: the expected number of learned decision points
    transcript: Any = None  # int32 [B, L], for CTC
    transcript_length: Any = None  # [B]: pieces, without end-of-sentence
    lattice: Any = None  # of CAAT: blank [B, G, T + 1], label [B, G, T] and groups [B]
    transducer: Any = None  # of CAAT's lattice: NLL [B] and expected delay [B]


@flax.struct.dataclass
class Outputs:
    """All that a term may use. A branch that the model or the batch lacks is None."""

    targets: jax.Array  # int32 [B, T]
    speech: Branch | None = None
    text: Branch | None = None
    teacher: Branch | None = None  # the text branch of an averaged or frozen model


TermFunction = Callable[..., PerExample | None]


def nll(outputs: Outputs, *, branch: str, smoothing: float = 0.1) -> PerExample | None:
    """Return the label-smoothed cross-entropy of a branch, per token."""
    of: Branch | None = getattr(outputs, branch)
    if of is None:
        return None
    return label_smoothed_cross_entropy(
        of.logits, outputs.targets, of.target_length, smoothing=smoothing
    )


def latency(
    outputs: Outputs,
    *,
    branch: str,
    metric: str = "DAL",
    gather: str = "metric_then_heads",
    clip: bool = True,
) -> PerExample | None:
    """Return the differentiable latency of a branch in encoder states, per token."""
    of: Branch | None = getattr(outputs, branch)
    if of is None:
        return None
    value, _ = latency_loss(
        of.delays, of.state_length, of.target_length, metric=metric, gather=gather, clip=clip
    )
    return value, _tokens(of.target_length)


def variance(outputs: Outputs, *, branch: str) -> PerExample | None:
    """Return the variance of delays over the heads of a branch, per token."""
    of: Branch | None = getattr(outputs, branch)
    if of is None:
        return None
    value, _ = head_variance(of.delays, of.target_length)
    return value, _tokens(of.target_length)


def kd(outputs: Outputs) -> PerExample | None:
    """Return online distillation of text into speech; divided by all tokens of speech."""
    if outputs.speech is None or outputs.text is None:
        return None
    paired = _paired(outputs.speech, outputs.text)
    value, _ = online_distillation(outputs.speech.logits, outputs.text.logits, paired)
    return value, _tokens(outputs.speech.target_length)


def car(outputs: Outputs, *, direction: str = "paper") -> PerExample | None:
    """Return cross-attentive regularisation, per sentence."""
    speech, text = outputs.speech, outputs.text
    if speech is None or text is None:
        return None
    lengths = speech.state_length, text.state_length
    return cross_attentive(speech.states, text.states, *lengths, direction=direction)


@jax.named_scope("decision_attentive")
def dar(
    outputs: Outputs,
    *,
    teacher: str = "flow",
    decay: float = 0.999,
    columns: str = "raw",
    bias: bool = True,
    divisor: str = "sentences",
    temperature: float = 1.0,
    across_heads: bool = True,
) -> PerExample | None:
    """Return decision-attentive regularisation, mean over layers.

    `decay` is that of the averaged teacher, per update; `bias=False` leaves the decoder's bias out
    of the energies.
    """
    del decay  # used where the average is made
    speech, text = outputs.speech, outputs.text
    if speech is None or text is None or speech.energies is None:  # offline models have none
        return None
    paired = _paired(speech, text)
    if teacher in OWN_TEACHERS:
        if outputs.teacher is None:
            raise ValueError(f"dar has teacher {teacher!r}: give the outputs of that text branch")
        text = outputs.teacher
    energies = [
        b.energies if bias else b.energies - b.energy_bias[:, None, None, None, None]
        for b in (speech, text)
    ]
    lengths = speech.decision_length, text.decision_length, paired
    of_layer = functools.partial(
        decision_attentive,
        text_gradient="flow" if teacher == "flow" else "stop",
        columns=columns,
        temperature=temperature,
        across_heads=across_heads,
    )
    value, weight = jax.vmap(lambda one, other: of_layer(one, other, *lengths))(*energies)
    return value.mean(0), weight[0] * (paired if divisor == "tokens" else 1)


def ctc(outputs: Outputs) -> PerExample | None:
    """Return the CTC loss of the transcript on the speech encoder."""
    speech = outputs.speech
    if speech is None:
        return None
    if speech.ctc is None:
        raise ValueError("ctc counts in the objective, but the speech encoder has no CTC head.")
    return ctc_loss(speech.ctc, speech.state_length, speech.transcript, speech.transcript_length)


def quantity(outputs: Outputs) -> PerExample | None:
    """Return how far the number of learned decision points is from the transcript's pieces."""
    speech = outputs.speech
    if speech is None or speech.decided is None:
        return None
    pieces = speech.transcript_length.astype(jnp.float32)
    off = jnp.abs(speech.decided - pieces) / jnp.maximum(pieces, 1)
    counts = (pieces > 0) & (speech.state_length > 0)
    return jnp.where(counts, off, 0), counts.astype(jnp.float32)


def transducer(outputs: Outputs, *, delay: bool = False) -> PerExample | None:
    """Return CAAT's transducer loss, or its expected delay, per token."""
    speech = outputs.speech
    if speech is None or speech.transducer is None:
        return None
    value = speech.transducer[int(delay)]
    return jnp.where(speech.target_length > 0, value, 0), _tokens(speech.target_length)


BUILT_IN: Mapping[str, TermFunction] = {
    "st_nll": functools.partial(nll, branch="speech"),
    "mt_nll": functools.partial(nll, branch="text"),
    "kd": kd,
    "car": car,
    "dar": dar,
    "st_latency": functools.partial(latency, branch="speech"),
    "mt_latency": functools.partial(latency, branch="text"),
    "st_variance": functools.partial(variance, branch="speech"),
    "mt_variance": functools.partial(variance, branch="text"),
    "ctc": ctc,
    "quantity": quantity,
    "transducer": transducer,
    "transducer_delay": functools.partial(transducer, delay=True),
}
# Parts of the forward pass that are computed for a built-in term that counts. A function of a
# user's own may use all of them.
NEEDS: Mapping[str, str] = {
    "mt_nll": "text", "kd": "text", "car": "text", "dar": "text",
    "transducer": "lattice", "transducer_delay": "lattice",
}  # fmt: skip


def logged_values(
    outputs: Outputs, matching: Mapping[str, Any], *, dar: bool, watch: bool
) -> dict[str, PerExample]:
    """Return what is logged and no loss: accuracies, and how the decisions of branches compare.

    The latter where both branches have energies and DAR counts. With `watch`, whether it counts or
    not, and DAR as the paper has it, whichever form is trained, and how its columns match.
    """
    speech, text = outputs.speech, outputs.text
    branches = {"st_accuracy": speech, "mt_accuracy": text}
    found = {name: _accuracy(b, outputs.targets) for name, b in branches.items() if b is not None}
    if speech is None or text is None or speech.energies is None:
        return found
    if dar or watch:
        found |= decision_statistics(speech, text)
    if watch:
        value, weight = _layer_by_layer(decision_attentive, speech, text)
        found["dar_paper"] = value.mean(0), weight[0]
        found["dar_perplexity"] = matching_perplexity(speech, text, **matching)
    return found


def _accuracy(branch: Branch, targets: jax.Array) -> PerExample:
    """Return the number of tokens predicted right, given those before, and of all tokens."""
    counted = _within(branch.target_length, targets.shape[1])
    right = (branch.logits.argmax(-1) == targets) & counted
    return _tokens(right.sum(-1)), _tokens(counted.sum(-1))


def decision_statistics(speech: Branch, text: Branch) -> dict[str, PerExample]:
    """Return what shows whether DAR runs away, for examples with both speech and text.

    st_energy, mt_energy   mean energy of a branch over layers, heads, targets and positions
    st_read, mt_read       expected share of the source that heads have read at a target
    """
    found, targets = {}, _paired(speech, text)
    for prefix, branch in (("st", speech), ("mt", text)):
        points = branch.decision_length
        real = _within(targets, branch.delays.shape[-1])
        exists = ((targets > 0) & (points > 0)).astype(jnp.float32)
        places = real[:, :, None] & _within(points, branch.energies.shape[-1])[:, None]
        energy = jnp.where(places[None, :, None], branch.energies, 0).mean((0, 2)).sum((1, 2))
        length = jnp.maximum(branch.state_length, 1)[:, None, None]
        read = jnp.where(real[:, None], branch.delays / length, 0).mean(1).sum(-1)
        found[f"{prefix}_energy"] = energy / jnp.maximum(places.sum((1, 2)), 1), exists
        found[f"{prefix}_read"] = exists * read / jnp.maximum(real.sum(1), 1), exists
    return found


def matching_perplexity(
    speech: Branch, text: Branch, *, temperature: float = 1.0, across_heads: bool = True
) -> PerExample:
    """Return how many columns of speech DAR takes for one of text, mean over layers."""
    match = {"temperature": temperature, "across_heads": across_heads}
    values = _layer_by_layer(decision_perplexity, speech, text, **match)
    lengths = _paired(speech, text), speech.decision_length, text.decision_length
    exists = jnp.stack(lengths).min(0) > 0
    return jnp.where(exists, values.mean(0), 0), exists.astype(values.dtype)


def _tokens(lengths: jax.Array) -> jax.Array:
    return jnp.asarray(lengths).astype(jnp.float32)


def _within(lengths: jax.Array, size: int) -> jax.Array:
    """Return bool [B, size], True for the first `lengths` of each."""
    return jnp.arange(size) < lengths[:, None]


def _paired(speech: Branch, text: Branch) -> jax.Array:
    return jnp.where(text.target_length > 0, speech.target_length, 0)


def _layer_by_layer(function, speech, text, **options):
    """Return the function of the energies of every layer; in turn, as it need not be fast."""
    lengths = speech.decision_length, text.decision_length, _paired(speech, text)
    energies = speech.energies, text.energies
    return jax.lax.map(lambda pair: function(*pair, *lengths, **options), energies)
