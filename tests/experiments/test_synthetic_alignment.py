"""Train the synthetic alignment experiment in small; hard decisions see no future frame."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.ma2020 import synthetic_alignment as experiment
from experiments.ma2020.synthetic_alignment import Config, Decision, Translator
from simuljax import losses, ops

pytestmark = pytest.mark.slow
SMALL = Config(
    steps=120, latency_weight=0.5, batch=16, words=4, shortest=1, longest=2, features=8, noise=1.0,
    width=16, report_every=50,
)  # fmt: skip


@pytest.fixture(scope="module")
def numbers() -> dict[str, float]:
    return experiment.run(SMALL)


@pytest.fixture(scope="module")
def batch() -> experiment.Batch:
    return jax.jit(lambda key: experiment.draw_batch(key, 8, SMALL))(
        experiment.random_key("train", SMALL)
    )


def test_every_number_is_finite(numbers):
    assert np.isfinite(list(numbers.values())).all()


def test_the_loss_falls(numbers):
    assert numbers["last_nll"] < 0.8 * numbers["first_nll"]


def test_it_beats_guessing(numbers):
    assert min(numbers["accuracy_1"], numbers["accuracy_2"]) > 2 / (SMALL.words + 1)


def test_the_latency_phase_lowers_the_delay(numbers):
    assert numbers["delay_2"] < numbers["delay_1"] - 0.5
    assert numbers["hard_delay_2"] < numbers["hard_delay_1"]


def test_a_word_is_settled_by_its_last_frame(batch):
    ends = zip(batch.frames, batch.ideal_delay, batch.target_length, strict=True)
    for frames, end, length in ends:
        *words, padding = np.split(np.asarray(frames), end[: length - 1])
        for word in words:
            assert 2 <= len(word) <= 5
            np.testing.assert_allclose(np.abs(word[:, :-1].mean(0)), 1, atol=1e-5)
            np.testing.assert_array_equal(word[:, -1] > 0, np.arange(len(word)) == 0)
        assert not padding.any()


def test_latency_moves_the_monotonic_energies_and_nothing_behind_them():
    query, states = np.random.default_rng(0).normal(size=(2, 4, 9, SMALL.width))
    attention, lengths = experiment.MonotonicAttention(SMALL.heads), jnp.array([9, 7, 5, 2])
    arguments = query[:, :3], states, lengths, Decision.EXPECTED
    params = random_params(attention, *arguments)

    @jax.jit
    @jax.grad
    def gradient(params, query, states, lengths):
        *_, alpha = attention.bind(params)(query, states, lengths, Decision.EXPECTED)
        return losses.latency(ops.expected_delays(alpha), lengths, jnp.full(4, 3))[0].sum()

    g = gradient(params, *arguments[:3])["params"]
    monotonic_query, soft_query = np.moveaxis(g["DenseGeneral_0"]["kernel"], 1, 0)
    monotonic_key, *soft_key_and_value = np.moveaxis(g["DenseGeneral_1"]["kernel"], 1, 0)
    for part in (g["bias"], monotonic_query, monotonic_key):
        assert np.isfinite(part).all() and np.abs(part).max() > 1e-3
    assert not np.any([soft_query, *soft_key_and_value])


def test_hard_decisions_see_nothing_after_the_slowest_head(batch):
    params = random_params(Translator(SMALL), batch, batch.targets, Decision.HARD)
    params["params"]["attention"]["bias"] = 0.5  # heads stop here and there

    @jax.jit
    def forward(params, batch):
        return Translator(SMALL).bind(params)(batch, batch.targets, Decision.HARD)

    (logits, delays), frame = forward(params, batch), np.arange(batch.frames.shape[1])
    read = np.asarray(delays).max(1)
    assert (read < batch.frame_length[:, None]).any(0).all(), "the test needs heads that stop early"
    for step in range(read.shape[1]):
        unread = (frame >= read[:, step : step + 1])[..., None]
        now, late = forward(params, batch.replace(frames=jnp.where(unread, 9.0, batch.frames)))
        np.testing.assert_array_equal(late[..., : step + 1], delays[..., : step + 1])
        np.testing.assert_allclose(now[:, : step + 1], logits[:, : step + 1], atol=1e-5)
    changed, _ = forward(params, batch.replace(frames=batch.frames + 9.0))
    assert np.abs(changed - logits).max() > 0.1


def random_params(module, *arguments):
    """Weights to try a module with; nothing to compile."""
    shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), *arguments))
    generator = np.random.default_rng(0)
    return jax.tree.map(lambda x: generator.normal(0, 0.3, x.shape).astype(x.dtype), shapes)
