"""Bad arguments of the losses are refused by name."""

import jax.numpy as jnp
import pytest
from jaxtyping import config

from simuljax import losses

LOGITS = jnp.zeros((2, 3, 5))
TOKENS = jnp.zeros((2, 3), int)
SPEECH, TEXT = jnp.ones((2, 2, 3, 7)), jnp.ones((2, 2, 3, 6))
HEARD, READ = jnp.ones((2, 7, 8)), jnp.ones((2, 6, 8))
DELAYS = jnp.ones((2, 4, 3))
OK, ONE, MANY = jnp.array([3, 3]), jnp.array([3]), jnp.array([3, 50])

entropy, distil = losses.label_smoothed_cross_entropy, losses.online_distillation
decide, cross = losses.decision_attentive, losses.cross_attentive

CALLS = [
    ("logits", lambda: entropy(jnp.zeros((3, 5)), TOKENS, OK)),
    ("targets", lambda: entropy(LOGITS, jnp.zeros((2, 4), int), OK)),
    ("target_length", lambda: entropy(LOGITS, TOKENS, ONE)),
    ("target_length", lambda: entropy(LOGITS, TOKENS, MANY)),
    ("student_logits", lambda: distil(jnp.zeros((3, 5)), LOGITS, OK)),
    ("teacher_logits", lambda: distil(LOGITS, jnp.zeros((2, 4, 5)), OK)),
    ("target_length", lambda: distil(LOGITS, LOGITS, MANY)),
    ("speech_energy", lambda: decide(SPEECH[0], TEXT, OK, OK, OK)),
    ("text_energy", lambda: decide(SPEECH, TEXT[0], OK, OK, OK)),
    ("text_energy", lambda: decide(SPEECH, TEXT[:, :, :2], OK, OK, OK)),
    ("speech_length", lambda: decide(SPEECH, TEXT, ONE, OK, OK)),
    ("speech_length", lambda: decide(SPEECH, TEXT, MANY, OK, OK)),
    ("text_length", lambda: decide(SPEECH, TEXT, OK, MANY, OK)),
    ("target_length", lambda: decide(SPEECH, TEXT, OK, OK, MANY)),
    ("speech_states", lambda: cross(HEARD[0], READ, OK, OK)),
    ("text_states", lambda: cross(HEARD, READ[..., :5], OK, OK)),
    ("speech_length", lambda: cross(HEARD, READ, MANY, OK)),
    ("text_length", lambda: cross(HEARD, READ, OK, MANY)),
    ("delays", lambda: losses.latency(DELAYS[0], OK, OK)),
    ("source_length", lambda: losses.latency(DELAYS, ONE, OK)),
    ("target_length", lambda: losses.latency(DELAYS, OK, MANY)),
    ("delays", lambda: losses.head_variance(DELAYS[0], OK)),
    ("target_length", lambda: losses.head_variance(DELAYS, MANY)),
]


@pytest.fixture(autouse=True)
def annotations_unchecked():
    """Annotations are checked in tests only; users meet the functions' own messages."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


@pytest.mark.parametrize(("name", "call"), CALLS)
def test_shapes_and_lengths(name, call):
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        call()


@pytest.mark.parametrize(
    ("call", "choices"),
    [
        (lambda: losses.latency(DELAYS, OK, OK, metric="LAAL"), ["DAL", "AL", "AP"]),
        (
            lambda: losses.latency(DELAYS, OK, OK, gather="median"),
            ["metric_then_heads", "heads_then_metric", "max", "mean"],
        ),
        (lambda: cross(HEARD, READ, OK, OK, direction="both"), ["paper", "fairseq"]),
    ],
)
def test_unknown_choices_are_listed(call, choices):
    with pytest.raises(ValueError) as error:
        call()
    assert all(choice in str(error.value) for choice in choices)
