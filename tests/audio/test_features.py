"""Filterbanks and pitch together."""

import jax
import numpy as np
import pytest

from simuljax.audio import Features, extract, features, init_stream, pitch, stream_step
from tests.audio.signals import babble, cut
from tests.audio.streams import Stream

PLAIN, FULL = Features(), Features(pitch=True)
SAMPLES = babble(8_000)
whole = jax.jit(extract, static_argnames="config")


def test_filterbanks_first_then_pitch():
    both = np.asarray(whole(SAMPLES, FULL))
    assert both.shape == (48, FULL.dims) == (48, 83)
    tones = jax.jit(lambda x: pitch.pitch(x, FULL.pitch_config))(SAMPLES)
    np.testing.assert_allclose(both[:, 80:], tones, atol=1e-3)
    np.testing.assert_allclose(both[:, :80], whole(SAMPLES, PLAIN), atol=1e-5)
    assert PLAIN.dims == 80


@pytest.mark.parametrize(
    "config",
    [pytest.param(PLAIN, id="80"), pytest.param(FULL, id="83", marks=pytest.mark.slow)],
)
def test_a_stream_equals_the_whole(config):
    stream = Stream(features, config, 1_500)
    streamed = stream.run(cut(SAMPLES, 1, 1_500))
    np.testing.assert_allclose(streamed, whole(SAMPLES, config), atol=1e-3)
    assert stream.compilations == 1


@pytest.mark.slow
def test_a_batch_of_streams():
    lengths = np.array([[1_500, 700, 0], [20, 1_500, 1_500]])
    voices = np.stack([babble(8_000, seed=seed) for seed in range(3)])
    step = jax.jit(lambda state, x, n: stream_step(state, x, n, config=FULL))
    state, fed, out = init_stream(FULL, (3,)), np.zeros(3, int), [[], [], []]
    for row in lengths:
        chunk = np.stack([v[h : h + 1_500] for v, h in zip(voices, fed, strict=True)])
        state, values, count = step(state, chunk, row)
        values, count = np.asarray(values), np.asarray(count)
        fed += row
        for b in range(3):
            out[b].append(values[b, : count[b]])
    for b in range(3):
        got = np.concatenate(out[b])
        assert len(got) == 1 + (fed[b] - 400) // 160
        np.testing.assert_allclose(got, whole(voices[b], FULL)[: len(got)], atol=1e-3)


def test_a_state_of_other_features_is_refused():
    with pytest.raises(ValueError, match="disagree about pitch"):
        stream_step(init_stream(PLAIN), SAMPLES, config=FULL)
