"""Attentive regularisation: speech is asked to say what text says, wherever it says it.

Both losses rebuild the text's vectors twice, once out of the speech's vectors and once out of the
text's own, each by a softmax over cosine similarities, and measure the distance. CAR does it with
encoder states (Tang et al. 2021), DAR with the monotonic energies of a decoder layer (Zaidi et
al. 2022, eq. 7-12). The text is the teacher. In CAR it carries no gradient; in DAR it may: where
one decoder makes the energies of both, a step towards a text that is held fixed moves the text too.

Matching m vectors with n takes m n floats per example, which are kept for the backward pass: those
of speech alone, where the text carries no gradient.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

from simuljax.losses.decoder_losses import PerExample
from simuljax.ops import arguments

DIRECTIONS = ("paper", "fairseq")
TEXT_GRADIENTS = ("stop", "flow")
COLUMNS = ("raw", "unit")
_dot = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)


def decision_attentive(
    speech_energy: Float[ArrayLike, "B H T K"],
    text_energy: Float[ArrayLike, "B H T L"],
    speech_length: Int[ArrayLike, " B"],
    text_length: Int[ArrayLike, " B"],
    target_length: Int[ArrayLike, " B"],
    *,
    temperature: float = 1.0,
    across_heads: bool = True,
    text_gradient: str = "stop",
    columns: str = "raw",
) -> PerExample:
    """Return DAR of one decoder layer: mean over real (h,l) of || A^{s->t} - sg[A^{t->t}] ||_2.

        A^s: the T x (K H) matrix whose column (h,k) is the energies of all target steps at speech
        position k of head h; A^t likewise, T x (L H). C = cosine(A^s columns, A^t columns).
        A^{s->t} = A^s softmax(C / temperature, over the speech index);  A^{t->t} the same of text.

    Give noise-free energies, bias included, before padding is masked, at decision points.
    `across_heads=False` matches each head with itself only. `text_gradient="flow"` leaves sg[] out:
    the value is the same, and the gradient reaches text energies too. `columns="unit"` rebuilds
    columns of unit length, so that the size of energies does not count. Returns the value and
    weight 1 (0 for an example with nothing in it).
    """
    arguments.one_of("text_gradient", text_gradient, TEXT_GRADIENTS)
    arguments.one_of("columns", columns, COLUMNS)
    given = (speech_energy, text_energy, speech_length, text_length, target_length)
    found = _decision_columns(*given, temperature, across_heads)
    speech, text, real_speech, real_text, exists = found
    if columns == "unit":
        speech, text = _unit(speech), _unit(text)
    if text_gradient == "stop":
        text = jax.lax.stop_gradient(text)
    distance = _distance(speech, text, real_speech, real_text, temperature)
    return _mean_over(distance, real_text, exists)


def decision_perplexity(
    speech_energy: Float[ArrayLike, "B H T K"],
    text_energy: Float[ArrayLike, "B H T L"],
    speech_length: Int[ArrayLike, " B"],
    text_length: Int[ArrayLike, " B"],
    target_length: Int[ArrayLike, " B"],
    *,
    temperature: float = 1.0,
    across_heads: bool = True,
) -> Float[Array, " B"]:
    """Return the perplexity of DAR's matching softmax, mean over real text columns.

    Near the number of speech columns, the softmax is uniform and DAR matches nothing.
    """
    given = (speech_energy, text_energy, speech_length, text_length, target_length)
    found = _decision_columns(*given, temperature, across_heads)
    speech, text, real_speech, real_text, exists = found
    match = _match(_unit(speech), _unit(text), real_speech, temperature)
    entropy = -jax.scipy.special.xlogy(match, match).sum(-1)
    return _mean_over(jnp.exp(entropy), real_text, exists)[0]


def cross_attentive(
    speech_states: Float[ArrayLike, "B K D"],
    text_states: Float[ArrayLike, "B L D"],
    speech_length: Int[ArrayLike, " B"],
    text_length: Int[ArrayLike, " B"],
    *,
    direction: str = "paper",
) -> PerExample:
    """Return CAR: mean over real text positions of || H^{s->t} - sg[H^{t->t}] ||_2.

    States are L2-normalised before the similarity and the reconstruction. Direction `fairseq` has
    the roles swapped, as public code does: speech teaches and text learns. Returns the value and
    weight 1 (0 for an example with nothing in it).
    """
    arguments.one_of("direction", direction, DIRECTIONS)
    speech = arguments.floats("speech_states", speech_states, "BKD", leading=False)
    text = arguments.floats("text_states", text_states, "BLD", leading=False)
    if speech.shape[::2] != text.shape[::2]:
        raise ValueError(
            f"text_states {text.shape} and speech_states {speech.shape} must share [B, D]."
        )
    real_speech = _real("speech_length", speech_length, speech, 1)
    real_text = _real("text_length", text_length, text, 1)
    # Padding is 0 before anything is computed of it, or its gradient would be 0 times whatever.
    speech = _unit(jnp.where(real_speech[..., None], speech, 0))
    text = _unit(jnp.where(real_text[..., None], text, 0))
    student, teacher = (speech, real_speech), (text, real_text)
    if direction == "fairseq":
        student, teacher = teacher, student
    taught = jax.lax.stop_gradient(teacher[0])
    distance = _distance(student[0], taught, student[1], teacher[1], 1.0)
    return _mean_over(distance, teacher[1], real_speech.any(-1) & real_text.any(-1))


def _distance(student, teacher, real_student, real_teacher, temperature):
    """Return the distance of each teacher vector's two reconstructions; vectors are [..., n, D]."""
    of_student = _rebuild(student, teacher, real_student, temperature)
    of_teacher = _rebuild(teacher, teacher, real_teacher, temperature)
    return _norm(of_student - of_teacher)


def _rebuild(vectors, queries, real, temperature):
    vectors = jnp.where(real[..., None], vectors, 0)
    match = _match(_unit(vectors), _unit(queries), real, temperature)
    return _dot("...mn,...nd->...md", match, vectors)


def _match(vectors, queries, real, temperature):
    """softmax over n of the cosine of query m and vector n -> [..., m, n]; padded n get 0."""
    similarity = _dot("...md,...nd->...mn", queries, vectors) / temperature
    return jax.nn.softmax(jnp.where(real[..., None, :], similarity, -1e30), axis=-1)


def _decision_columns(
    speech, text, speech_length, text_length, target_length, temperature, across_heads
):
    """Return energies as columns [B, H n, T] (or [B, H, n, T] per head), masks, existence."""
    if arguments.is_known(temperature) and not temperature > 0:
        raise ValueError(f"temperature is {temperature}; it must be above 0.")
    speech = arguments.floats("speech_energy", speech, "BHTK", leading=False)
    text = arguments.floats("text_energy", text, "BHTL", leading=False)
    if speech.shape[:3] != text.shape[:3]:
        raise ValueError(
            f"speech_energy {speech.shape} and text_energy {text.shape} must share [B, H, T]."
        )
    targets = _real("target_length", target_length, speech, 2)[:, None, :, None]
    masks = [
        _real("speech_length", speech_length, speech, 3),
        _real("text_length", text_length, text, 3),
    ]
    exists = masks[0].any(-1) & masks[1].any(-1) & targets.any((1, 2, 3))
    given = zip((speech, text), masks, strict=True)
    columns = [jnp.where(targets & m[:, None, None], x, 0).swapaxes(-1, -2) for x, m in given]
    masks = [jnp.broadcast_to(m[:, None], x.shape[:3]) for m, x in zip(masks, columns, strict=True)]
    if across_heads:
        columns = [jax.lax.collapse(x, 1, 3) for x in columns]
        masks = [jax.lax.collapse(m, 1, 3) for m in masks]
    return *columns, *masks, exists


def _real(name, lengths, x, axis):
    return arguments.real_positions(name, lengths, x.shape[:1], x.shape[axis])


def _mean_over(values, real, exists):
    """Return the mean over real values and weight 1; 0 and weight 0 for an empty example."""
    axes = tuple(range(1, values.ndim))
    total = jnp.where(real & exists.reshape(-1, *(1,) * len(axes)), values, 0).sum(axes)
    return total / jnp.maximum(real.sum(axes), 1), exists.astype(values.dtype)


def _unit(x):
    """x / |x|, and 0 with gradient 0 at 0; scaled first, so that tiny vectors have a direction."""
    largest = jax.lax.stop_gradient(jnp.abs(x).max(-1, keepdims=True, initial=0))
    x = x / jnp.where(largest == 0, 1, largest)
    square = (x * x).sum(-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.where(square == 0, 1, square))


def _norm(x):
    """|x| with gradient 0 at 0."""
    square = (x * x).sum(-1)
    zero = square == 0  # not `square > 0`, which would turn NaN into 0
    return jnp.where(zero, 0, jnp.sqrt(jnp.where(zero, 1, square)))
