"""wait-k as a training mask, in words heard and words written (Papi et al. 2022, k_train)."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.model import Monotonic, PreDecision, SpeechConfig
from simuljax.config.training import Objective
from simuljax.models.encoders import Encoded
from simuljax.models.joint import JointModel, source_of
from simuljax.models.parameters import initialise
from simuljax.text import EOS, WordBoundaries, Words
from simuljax.train.forward import Forward, Variables, forward, shift, words_before
from tests.helpers.models import compiled, random_parameters
from tests.oracles.checks import everything_finite
from tests.train import small

pytestmark = pytest.mark.slow  # compiles much

STATES, FIXED = 14, PreDecision(step_ms=80)
ALONE = dataclasses.replace(small.ALONE, ctc=0.3)


def boundaries(size: int) -> WordBoundaries:
    """Even pieces begin a word, odd ones go on; the first four are the special ones."""
    ordinary = np.arange(size) >= 3
    even = ordinary & (np.arange(size) % 2 == 0)
    no = np.zeros(size, bool)
    return WordBoundaries(starts_word=even, ends_word=no, has_text=ordinary, joins_next=no)


WORDS = Words(source=boundaries(small.SOURCE), target=boundaries(small.TARGET))
TARGET = np.array([[4, 5, 6, 8, 9, 9, EOS, 0], [6, 6, 6, EOS, 0, 0, 0, 0]])
BEFORE = [[0, 0, 1, 2, 2, 2, 3], [0, 1, 2, 3]]  # words before each target's own


def waiting(k: int, convention: Any = "stacl", **changes) -> JointModel:
    monotonic = Monotonic(policy="wait_k", wait_k=(k, k), counts="words", convention=convention)
    given = {
        "speech": SpeechConfig(layers=2, shared=1, channels=16, ctc_after=1),
        "predecision": PreDecision(kind="ctc_words"),
        "monotonic": monotonic,
    }
    return JointModel(small.translator(**given | changes))


def test_words_before_a_target():
    found = words_before(jnp.asarray(TARGET), WORDS)
    for row, expected in enumerate(BEFORE):
        assert found[row, : len(expected)].tolist() == expected


WORD_ENDS = [[1, 4, 5, 9], [0, 3]]  # states at which a word is heard
LENGTHS = [13, 6]


def encoded() -> Encoded:
    """States by random numbers, and the words that a perfect head hears in them."""
    states = np.random.default_rng(0).normal(size=(2, STATES, 16)).astype(np.float32)
    words = np.array([[sum(e <= s for e in ends) for s in range(STATES)] for ends in WORD_ENDS])
    return Encoded(states=jnp.asarray(states), lengths=jnp.array(LENGTHS), words=jnp.asarray(words))


def reach_by_rule(row: int, before: int, k: int) -> int:
    """States that text wait-k lets be seen: those of so many words, or all if there are fewer."""
    ends = WORD_ENDS[row]
    return ends[before + k - 1] + 1 if before + k <= len(ends) else LENGTHS[row]


@pytest.fixture(scope="module", params=["stacl", "papi"])
def seen(request):
    """int32 [B, T] for a k: the last state that a target's logits depend on, from 1."""
    model, prefix = waiting(3, request.param), shift(jnp.asarray(TARGET))
    heard, before = encoded(), words_before(jnp.asarray(TARGET), WORDS)

    def run(model: JointModel, states: jax.Array, k: jax.Array) -> Any:
        given = dataclasses.replace(heard, states=states)
        source = source_of(given, model.speech_decisions(given), k)
        source = dataclasses.replace(source, written=before)
        return model.decoder(prefix, [source], train=False)[0]

    params = random_parameters(model, heard.states, jnp.int32(1), method=run)

    def last(k):
        def logits(states):
            decoded: Any = model.apply(params, states, k, method=run)
            return decoded.logits.sum(-1)

        influence = jnp.einsum("btbkd->btkd", jax.jacrev(logits)(heard.states))
        touched = jnp.abs(influence).sum(-1) > 1e-9
        return jnp.max(jnp.where(touched, jnp.arange(1, STATES + 1), 0), -1)

    asked = compiled(last, jnp.int32(1))
    return request.param, lambda k: np.asarray(asked(jnp.int32(k)))


@pytest.mark.parametrize("k", [1, 2, 9])
def test_a_target_sees_the_words_that_wait_k_allows_and_no_state_more(k, seen):
    convention, of = seen
    found, more = of(k), k + (convention == "papi")
    for row, words in enumerate(BEFORE):
        expected = [reach_by_rule(row, n, more) for n in words]
        assert found[row, : len(words)].tolist() == expected


def passed(model: JointModel, words: Words | None) -> tuple[Forward, Any]:
    """A pass as in training, and BatchNorm's statistics before it."""
    objective = Objective(terms=ALONE.terms())
    batch = jax.tree.map(jnp.asarray, small.batch())
    params, statistics = initialise(model, jax.random.key(0, impl="rbg"))
    variables = Variables(params=params, statistics=statistics)
    key = jax.random.key(1, impl="rbg")
    args = (batch, small.HEARD, objective, key, words)
    return forward(model, variables, *args), statistics


def test_the_objective_counts_words_where_the_model_does():
    encoder = SpeechConfig(kind="conformer", layers=2, shared=1, channels=16, ctc_after=1, kernel=3)
    model = waiting(2, speech=encoder)
    after, before = compiled(lambda: passed(model, WORDS))()
    assert {"st_nll", "ctc"} < set(after.sums)
    assert everything_finite((after.sums, after.statistics))
    moved = jax.tree.map(lambda old, new: np.abs(old - new).max() > 1e-4, before, after.statistics)
    assert jax.tree.leaves(moved) == [True, True]  # mean and variance of the Conformer layer


def test_what_is_missing_is_named():
    for changes, message in (({}, "decides at words"), ({"predecision": FIXED}, "counts words")):
        with pytest.raises(ValueError, match=message):
            jax.eval_shape(lambda: passed(waiting(2, **changes), None))  # noqa: B023
    blind = dataclasses.replace(encoded(), words=None)
    with pytest.raises(ValueError, match="ctc_word_counts"):
        waiting(2).bind({"params": {}}).speech_decisions(blind)
    with pytest.raises(ValueError, match="there is no CTC head"):
        small.translator(predecision=PreDecision(kind="ctc_words"))
