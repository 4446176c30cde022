"""Bad input of ops and losses is refused with a message that names the argument."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import config

from simuljax import losses, ops

P, DELAYS, TWO, FIVE = jnp.full((2, 3, 4), 0.5), jnp.ones((2, 3)), jnp.array([2, 2]), jnp.array([5])
LOGITS, TOKENS = jnp.zeros((2, 3, 5)), jnp.zeros((2, 3), int)
SPEECH, TEXT = jnp.ones((2, 2, 3, 7)), jnp.ones((2, 2, 3, 6))
HEARD, READ, HEADS = jnp.ones((2, 7, 8)), jnp.ones((2, 6, 8)), jnp.ones((2, 4, 3))
OK, ONE, MANY = jnp.array([3, 3]), jnp.array([3]), jnp.array([3, 50])

entropy, distil = losses.label_smoothed_cross_entropy, losses.online_distillation
decide, cross = losses.decision_attentive, losses.cross_attentive
WRONG = [
    ("p", lambda: ops.expected_alignment(jnp.ones(4))),
    ("alpha", lambda: ops.expected_soft_attention(jnp.ones(4), jnp.ones(4))),
    ("energy", lambda: ops.expected_soft_attention(P, jnp.ones((2, 3, 5)))),
    ("alpha", lambda: ops.expected_delays(jnp.ones(4))),
    ("positions", lambda: ops.expected_delays(P, jnp.arange(5))),
    ("key", lambda: ops.monotonic_energy(jnp.ones((3, 8)), jnp.ones((4, 6)), 0.0)),
    ("delays", lambda: ops.average_lagging(jnp.array(1.0), jnp.array(1), jnp.array(1))),
    ("labels", lambda: ops.label_triggers(jnp.array([1, 2, 3]), jnp.array([3]))),
    ("states", lambda: ops.pool_windows(jnp.ones((4, 8)), jnp.array([4]), 2)),
    ("value", lambda: ops.linear_recurrence(jnp.ones(4), jnp.ones(5))),
    ("lengths", lambda: ops.fixed_triggers(FIVE, 4, 2)),
    ("lengths", lambda: ops.label_triggers(jnp.ones((1, 4), int), TWO)),
    ("chunk", lambda: ops.expected_soft_attention(P, P, chunk=0)),
    ("chunk", lambda: ops.expected_soft_attention(P, P, chunk=2.5)),  # pyright: ignore
    ("step", lambda: ops.fixed_triggers(TWO, 4, 0)),
    ("logits", lambda: entropy(jnp.zeros((3, 5)), TOKENS, OK)),
    ("targets", lambda: entropy(LOGITS, jnp.zeros((2, 4), int), OK)),
    ("targets", lambda: entropy(LOGITS, jnp.zeros((2, 3)), OK)),
    ("target_length", lambda: entropy(LOGITS, TOKENS, MANY)),
    ("student_logits", lambda: distil(jnp.zeros((3, 5)), LOGITS, OK)),
    ("teacher_logits", lambda: distil(LOGITS, jnp.zeros((2, 4, 5)), OK)),
    ("target_length", lambda: distil(LOGITS, LOGITS, MANY)),
    ("speech_energy", lambda: decide(SPEECH[0], TEXT, OK, OK, OK)),
    ("text_energy", lambda: decide(SPEECH, TEXT[:, :, :2], OK, OK, OK)),
    ("speech_length", lambda: decide(SPEECH, TEXT, MANY, OK, OK)),
    ("text_length", lambda: decide(SPEECH, TEXT, OK, MANY, OK)),
    ("target_length", lambda: decide(SPEECH, TEXT, OK, OK, MANY)),
    ("speech_states", lambda: cross(HEARD[0], READ, OK, OK)),
    ("text_states", lambda: cross(HEARD, READ[..., :5], OK, OK)),
    ("speech_length", lambda: cross(HEARD, READ, MANY, OK)),
    ("text_length", lambda: cross(HEARD, READ, OK, MANY)),
    ("delays", lambda: losses.latency(HEADS[0], OK, OK)),
    ("source_length", lambda: losses.latency(HEADS, ONE, OK)),
    ("target_length", lambda: losses.latency(HEADS, OK, MANY)),
    ("delays", lambda: losses.head_variance(HEADS[0], OK)),
    ("target_length", lambda: losses.head_variance(HEADS, MANY)),
]
CHOICES = [  # a closed list is named whole
    ("exact closed_form fused auto", lambda: ops.expected_alignment(P, method="fast")),
    ("stacl papi", lambda: ops.wait_k_probability(1, 2, 3, convention="mine")),
    ("average last", lambda: ops.pool_windows(jnp.ones((1, 4, 2)), jnp.array([4]), 2, kind="max")),
    ("DAL AL AP", lambda: losses.latency(HEADS, OK, OK, metric="LAAL")),
    (
        "metric_then_heads heads_then_metric max mean",
        lambda: losses.latency(HEADS, OK, OK, gather="median"),
    ),
    ("paper fairseq", lambda: cross(HEARD, READ, OK, OK, direction="both")),
]
WITH_LENGTHS = [  # of a [2,3,4] array
    lambda lengths: ops.expected_alignment(P, lengths),
    lambda lengths: ops.expected_alignment(P, lengths, method="fused"),
    lambda lengths: ops.preserve_mass(P, lengths),
    lambda lengths: ops.expected_soft_attention(P, P, lengths),
    lambda lengths: ops.expected_soft_attention(P, P, lengths, chunk=2),
    lambda lengths: ops.selection_probability(P, lengths),
]
METRICS = (ops.average_lagging, ops.differentiable_average_lagging, ops.average_proportion)


@pytest.fixture(autouse=True)
def annotations_unchecked():
    """Annotations are checked in tests only; users meet the functions' own messages."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


def refused(call, *names):
    with pytest.raises(ValueError) as error:
        call()
    assert all(name in str(error.value) for name in names), str(error.value)


@pytest.mark.parametrize(("names", "call"), WRONG + CHOICES)
def test_shapes_lengths_sizes_and_choices(names, call):
    refused(call, *names.split())


@pytest.mark.parametrize("op", WITH_LENGTHS)
def test_lengths_that_are_no_prefix_or_beyond_the_source(op):
    for shape in ((3,), (2, 3), (2, 1), (1, 2)):
        refused(lambda: op(jnp.ones(shape, int)), "lengths")  # noqa: B023
    refused(lambda: op(jnp.array([4, 5])), "lengths")
    op(jnp.array([4, 1]))


def test_integers_of_any_type_and_lengths_of_no_row():
    for tokens in (np.uint8([[255]]), np.int8([[127]])):
        assert np.isfinite(entropy(jnp.zeros((1, 1, 256)), tokens, [1])[0])
    none = np.uint8([0])
    assert not np.any(ops.preserve_mass(np.zeros((1, 1, 300)), none))
    assert not np.any(ops.window_ends(none, 300, 8))
    assert ops.fixed_triggers([], 4, 2).shape == (0, 4)


@pytest.mark.parametrize("metric", METRICS)
def test_lengths_of_delays(metric):
    refused(lambda: metric(DELAYS, jnp.ones(3, int), TWO), "source_length")
    refused(lambda: metric(DELAYS, TWO, jnp.ones(3, int)), "target_length")
    refused(lambda: metric(DELAYS, TWO, jnp.array([3, 4])), "target_length")


@pytest.mark.parametrize(
    ("method", "jitted"),
    [("exact", False), ("exact", True), ("fused", True), ("closed_form", True)],
)
def test_nan_probabilities_in_debug_mode(method, jitted):
    p = np.full((2, 3), 0.5, np.float32)
    p[1, 1] = np.nan

    def align(x):
        return ops.expected_alignment(x, method=method)

    with jax.debug_nans(True):
        align = jax.jit(align) if jitted else align
        jax.block_until_ready(align(np.full_like(p, 0.5)))
        with pytest.raises(Exception, match=r"(?is)(\bp\b.*\bnan\b|\bnan\b.*\bp\b)"):
            jax.block_until_ready(align(p))
