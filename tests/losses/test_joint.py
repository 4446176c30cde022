"""The joint objective: every term by name, one reduction, right on ragged batches and devices."""

import functools
import itertools
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax import losses
from simuljax.config.fields import ConfigError, differences, from_json, to_json
from simuljax.config.training import Objective
from simuljax.losses import Branch, JointObjective, Outputs, Term, TermSum
from simuljax.losses.objective import check_distillation

TARGETS = 5
VOCABULARY = 7
ALL_ON = JointObjective(latency=0.05, variance=0.03)
WEIGHTS = {term.name: term.weight for term in ALL_ON.terms()}


def branch(key, batch, sources, target_length, state_length) -> Branch:
    keys = jax.random.split(key, 4)
    length = jnp.asarray(state_length)
    bias = jnp.array([0.5, -1.0])
    return Branch(
        energy_bias=bias,
        logits=jax.random.normal(keys[0], (batch, TARGETS, VOCABULARY)),
        target_length=jnp.asarray(target_length),
        states=jax.random.normal(keys[1], (batch, sources, 8)),
        state_length=length,
        energies=jax.random.normal(keys[2], (2, batch, 3, TARGETS, sources)),
        decision_length=length,
        delays=jnp.cumsum(jax.random.uniform(keys[3], (batch, 6, TARGETS)), -1),
    )


def ragged_batch():
    speech = branch(jax.random.key(0), 4, 9, [5, 3, 1, 2], [9, 6, 2, 5])
    text = branch(jax.random.key(1), 4, 6, [5, 3, 1, 2], [6, 4, 1, 3])
    targets = jax.random.randint(jax.random.key(2), (4, TARGETS), 0, VOCABULARY)
    return speech, text, targets


@functools.partial(jax.jit, static_argnums=3)
def sums_of(speech, text, targets, objective=ALL_ON):
    return losses.sum_terms(values_of(speech, text, targets, objective))


def values_of(speech, text, targets, objective, teacher=None):
    outputs = Outputs(targets=targets, speech=speech, text=text, teacher=teacher)
    return losses.term_values(objective.terms(), outputs)


def rows(tree: Branch, which) -> Branch:
    """Some examples of a branch; its energies [M, B, H, T, P] have the layers first."""
    per_example = replace(tree, energies=None, energy_bias=None)
    chosen = jax.tree.map(lambda leaf: leaf[which], per_example)
    return replace(chosen, energies=tree.energies[:, which], energy_bias=tree.energy_bias)


@jax.jit
def by_hand(speech, text, targets):
    """Some of the terms and their weights, each by itself; DAR by layers."""
    lengths = speech.state_length, text.state_length
    points = speech.decision_length, text.decision_length, speech.target_length
    layers = zip(speech.energies, text.energies, strict=True)
    return (
        losses.label_smoothed_cross_entropy(speech.logits, targets, speech.target_length),
        losses.online_distillation(speech.logits, text.logits, speech.target_length),
        losses.latency(speech.delays, speech.state_length, speech.target_length),
        losses.cross_attentive(speech.states, text.states, *lengths),
        *(losses.decision_attentive(*layer, *points) for layer in layers),
    )


def test_terms_and_total_are_those_of_the_equation():
    speech, text, targets = ragged_batch()
    loss = losses.combine(sums_of(speech, text, targets), WEIGHTS)
    (nll, tokens), (kd, _), (lag, _), (car, _), *layers = by_hand(speech, text, targets)
    assert tokens.sum() == 11
    t = {name: float(value) for name, value in loss.terms.items()}
    assert t["st_nll"] == pytest.approx(float(nll.sum()) / 11, rel=1e-6)
    assert t["kd"] == pytest.approx(float(kd.sum()) / 11, rel=1e-6)
    assert t["st_latency"] == pytest.approx(float(lag.sum()) / 11, rel=1e-6)
    assert t["car"] == pytest.approx(float(car.sum()) / 4, rel=1e-6)
    of_layers = [float(value.sum()) / 4 for value, _ in layers]
    assert t["dar"] == pytest.approx(np.mean(of_layers), rel=1e-6)
    total = 0.8 * t["st_nll"] + 0.2 * t["kd"] + 0.02 * t["car"] + 0.5 * t["mt_nll"]
    total += 0.01 * t["dar"] + 0.05 * (t["st_latency"] + t["mt_latency"])
    total += 0.03 * (t["st_variance"] + t["mt_variance"])
    assert float(loss.total) == pytest.approx(total, rel=1e-6)
    assert float(sum(loss.weighted.values())) == pytest.approx(float(loss.total), rel=1e-6)


@functools.partial(jax.jit, static_argnames=("teacher", "bias", "divisor"))
def dar_of(speech, text, targets, other=None, **options) -> TermSum:
    objective = replace(ALL_ON, **{f"decision_{name}": value for name, value in options.items()})
    return losses.sum_terms(values_of(speech, text, targets, objective, other))["dar"]


def test_the_joint_objective_lets_the_gradient_flow_to_text_by_default():
    speech, text, targets = ragged_batch()

    def slope(**options):
        def total(energies):
            found = dar_of(speech, replace(text, energies=energies), targets, **options)
            return found.numerator, found.denominator

        return jax.jit(jax.value_and_grad(total, has_aux=True))(text.energies)

    (values, flowing), (same, stopped) = slope(), slope(teacher="stop")
    assert flowing.any() and not stopped.any()
    np.testing.assert_allclose(same, values, rtol=1e-6)


def test_dar_against_a_teacher_of_its_own():
    speech, text, targets = ragged_batch()
    other = branch(jax.random.key(7), 4, 6, [5, 3, 1, 2], [6, 4, 1, 3])
    assert dar_of(speech, text, targets, other, teacher="frozen") == dar_of(speech, other, targets)
    with pytest.raises(ValueError, match="teacher 'averaged'"):
        dar_of(speech, text, targets, teacher="averaged")


def test_dar_without_bias_and_divided_by_tokens():
    speech, text, targets = ragged_batch()
    without = dar_of(speech, text, targets, bias=False)
    less = [replace(b, energies=b.energies - b.energy_bias[:, None, None, None, None])
            for b in (speech, text)]  # fmt: skip
    np.testing.assert_allclose(without.numerator, dar_of(*less, targets).numerator, rtol=1e-6)
    by_sentence, by_token = (
        dar_of(speech, text, targets, divisor=by) for by in ("sentences", "tokens")
    )
    assert by_sentence.numerator == by_token.numerator
    assert (by_sentence.denominator, by_token.denominator) == (4, 11)


def test_decision_statistics():
    speech, text, _ = ragged_batch()
    text = replace(text, target_length=text.target_length.at[1].set(0))  # it has no transcript
    found = jax.jit(losses.decision_statistics)(speech, text)
    perplexity, weight = jax.jit(losses.matching_perplexity)(speech, text)
    assert perplexity[0] > 1 and perplexity[1] == 0 and weight.tolist() == [1, 0, 1, 1]
    real = (
        np.asarray(speech.energies)[:, 0, :, :5, :9],
        np.asarray(speech.energies)[:, 2, :, :1, :2],
    )
    value, weight = found["st_energy"]
    np.testing.assert_allclose([value[0], value[2]], [part.mean() for part in real], rtol=1e-5)
    assert weight.tolist() == [1, 0, 1, 1] and value[1] == 0
    read, _ = found["mt_read"]
    np.testing.assert_allclose(read[0], np.asarray(text.delays)[0].mean() / 6, rtol=1e-5)


def test_rows_without_speech_or_text_count_only_where_they_are():
    speech, text, targets = ragged_batch()
    text_only = jnp.array([True, True, False, False])
    no_speech = replace(
        speech,
        target_length=jnp.where(text_only, 0, speech.target_length),
        state_length=jnp.where(text_only, 0, speech.state_length),
        decision_length=jnp.where(text_only, 0, speech.decision_length),
    )
    mixed = sums_of(no_speech, text, targets)
    last = slice(2, 4)
    paired = sums_of(rows(speech, last), rows(text, last), targets[last])
    both = sums_of(speech, text, targets)
    for name in ("st_nll", "kd", "car", "dar", "st_latency", "st_variance"):
        np.testing.assert_allclose(mixed[name].numerator, paired[name].numerator, rtol=1e-5)
        np.testing.assert_allclose(mixed[name].denominator, paired[name].denominator)
    assert mixed["mt_nll"] == both["mt_nll"]


def test_terms_that_are_off_are_not_computed_and_text_may_be_missing():
    speech, text, targets = ragged_batch()
    off = JointObjective(distillation=0.0, cross_attentive=0.0, decision_attentive=0.0)
    terms, alone = (
        jax.eval_shape(lambda other=other: values_of(speech, other, targets, off))
        for other in (text, None)
    )
    assert {"kd", "car", "dar"}.isdisjoint(terms)
    assert set(alone) == {"st_nll", "st_latency", "st_variance"}
    speech, text = (replace(each, energies=None) for each in (speech, text))  # none are monotonic
    offline = jax.eval_shape(lambda: values_of(speech, text, targets, ALL_ON))
    assert "dar" not in offline and "kd" in offline


def test_a_batch_in_which_nothing_counts_is_0_and_has_a_finite_gradient():
    def total(numerator):
        return losses.combine({"kd": TermSum(numerator, jnp.zeros(()))}, WEIGHTS).total

    value, gradient = jax.value_and_grad(total)(jnp.zeros(()))
    assert value == 0 and np.isfinite(gradient)


def rooted(outputs: Outputs):
    """Return 0, with a gradient that is not a number."""
    value = jnp.sqrt(0.0 * outputs.targets.sum(-1))
    return value, jnp.ones_like(value)


def test_a_term_that_is_only_watched_is_not_differentiated():
    def total(targets, now, configured):
        terms = [Term(name="watched", function=rooted, weight=configured, watch=True)]
        sums = losses.sum_terms(losses.term_values(terms, Outputs(targets=targets)))
        return losses.combine(sums, {"watched": now}).total

    slope = jax.jit(jax.grad(total), static_argnums=2)
    gradients = [slope(jnp.ones((2, 3)), 0.0, weight) for weight in (0.0, 1.0)]
    assert [bool(np.isfinite(each).all()) for each in gradients] == [True, False]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "dra"}, "dar"),
        ({"name": "dar", "options": {"temprature": 2.0}}, "temperature"),
    ],
)
def test_a_term_that_cannot_be_is_refused(given: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=said):
        Term(**given)


def test_names_differ_and_options_exist():
    wrongs: tuple[dict[str, Any], ...] = ({"latency_metric": "LAG"}, {"distillation": 2.0})
    for wrong in wrongs:
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            JointObjective(**wrong)
    with pytest.raises(ConfigError, match="'kd'"):
        Objective(terms=(Term(name="kd"), Term(name="kd")))
    for name, kind in (("nll", "st_nll"), ("kd", "car")):  # others look them up by name
        with pytest.raises(ConfigError, match=f"'{name}'.*'{kind}'"):
            Objective(terms=(Term(name=name, function=kind), Term(name="car")))
    with pytest.raises(ConfigError, match="latency"):
        Objective().with_weights(latency=0.1)


def test_the_weight_of_nll_must_cover_that_of_distillation_in_every_update():
    """A schedule is refused if, wherever training converges, some update would maximise NLL."""
    schedules: list[tuple[Any, int]] = [
        (s, r) for s in (0, 1, 3, "convergence") for r in (0, 1, 2, 5)
    ]
    for (one, short), (other, long) in itertools.product(schedules, repeat=2):
        for weight in (0.0, 0.2, 1.0):
            nll = Term(name="st_nll", weight=weight, start=one, ramp=short, watch=True)
            kd = Term(name="kd", weight=0.2, start=other, ramp=long)
            negative = any(
                nll.weight_at(step, converged) < kd.weight_at(step, converged) - 1e-9
                for converged in (None, *range(6))
                for step in range(16)
            )
            with pytest.raises(ConfigError, match="st_nll") if negative else nullcontext():
                check_distillation((nll, kd))
    later = Term(name="st_nll", start=6), Term(name="kd", weight=0.2, start=5)
    with pytest.raises(ConfigError, match=r"in update 6 kd can have 0\.2 and st_nll only 0"):
        check_distillation(later)
    slow = Term(name="st_nll", ramp=100), Term(name="kd", weight=0.2, start="convergence")
    check_distillation(slow, 19)
    with pytest.raises(ConfigError, match=r"in update 19 kd can have 0\.2 and st_nll only 0\.19"):
        check_distillation(slow, 18)
    unwatched = Term(name="st_nll", weight=0.0), Term(name="kd", weight=0.2)
    loss = losses.combine({"kd": TermSum(3.0, 1.0)}, Objective(terms=unwatched).weights())
    assert loss.weighted == {"kd": pytest.approx(0.6)}  # nothing is taken from what is not computed


def test_latency_alone_does_not_ask_for_the_text_branch():
    speech_only = JointObjective(
        translation=0.0, distillation=0.0, cross_attentive=0.0, latency=0.1, variance=0.1
    )
    for dar, needed in ((0.0, False), (0.01, True)):
        joint = replace(speech_only, decision_attentive=dar)
        assert Objective(terms=joint.terms()).needs("text") is needed


def test_json_and_differences():
    one = Objective(terms=JointObjective().terms(latency_after="convergence"))
    assert from_json(Objective, to_json(one)) == one
    other = one.with_weights(kd=0.5)
    assert differences(to_json(one), to_json(other)) == ["terms.kd.weight was 0.2 and is 0.5"]
