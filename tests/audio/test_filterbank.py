"""Filterbanks against Kaldi's own, against the equations, and against themselves in pieces."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import kaldi_native_fbank
import numpy as np
import pytest

from simuljax.audio import filterbank as module
from simuljax.audio.filterbank import Filterbank, frame_count, init_stream, stream_step
from tests.audio.signals import Stream, babble, cut, hiss, tone
from tests.oracles import filterbank as oracle
from tests.oracles.checks import assert_close

DEFAULT = Filterbank()
compute = jax.jit(module.filterbank, static_argnames="config")


def kaldi(samples, bins=80, low=20.0, high=0.0, preemphasis=0.97):
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.dither = 0
    options.frame_opts.snip_edges = True
    options.frame_opts.preemph_coeff = preemphasis
    options.mel_opts.num_bins = bins
    options.mel_opts.low_freq, options.mel_opts.high_freq = low, high
    bank = kaldi_native_fbank.OnlineFbank(options)
    bank.accept_waveform(16_000, samples.astype(np.float32).tolist())
    bank.input_finished()
    return np.array([bank.get_frame(f) for f in range(bank.num_frames_ready)])


def streaming(config, size):
    return Stream(init_stream(config), partial(stream_step, config=config), size)


SOUNDS = {
    "babble": babble(8_000),
    "hiss": hiss(8_000),
    "clipped": hiss(8_000, loud=30_000).clip(-32768, 32767),
    "faint": hiss(8_000, loud=2),
    "tone": tone(np.full(8_000, 220.0), noise=5),
    "silence": np.zeros(8_000, np.int16),
    "offset": (hiss(8_000, loud=100) + 20_000).astype(np.int16),
    "one frame": babble(400),
}


@pytest.mark.parametrize(("name", "bins"), [*((name, 80) for name in SOUNDS), ("hiss", 40)])
def test_agrees_with_kaldi(name, bins):
    """From int16 and from floats in [-1, 1]; less than a frame has no features."""
    samples, expected = SOUNDS[name], kaldi(SOUNDS[name], bins=bins)
    for given in (samples, samples.astype(np.float32) / 32768):
        features = compute(given, Filterbank(bins=bins))
        assert features.shape == expected.shape
        assert_close(features, expected, 1e-3)
    assert compute(samples[:399], DEFAULT).shape == (0, 80)


@pytest.mark.parametrize(
    "change",
    [{"preemphasis": 0.9}, {"low": 0.0}, {"high": 7900.0}],
    ids=lambda change: next(iter(change)),
)
def test_the_comparison_notices_another_setting(change):
    wrong = kaldi(SOUNDS["hiss"], **change)
    assert np.abs(wrong - compute(SOUNDS["hiss"], DEFAULT)).max() > 1e-2


def test_agrees_with_the_equations():
    samples = SOUNDS["offset"]
    expected = oracle.filterbank(samples[:1_200])
    assert_close(compute(samples, DEFAULT)[: len(expected)], expected, 1e-3)


@pytest.mark.parametrize("samples", [0, 1, 399, 400, 559, 560, 1_000, 16_000])
def test_frame_count(samples):
    expected = oracle.frame_count(samples)
    assert frame_count(samples, DEFAULT) == expected
    counted = jax.jit(lambda n: frame_count(n, DEFAULT))(jnp.asarray([samples]))
    assert counted.tolist() == [expected]
    features = jax.eval_shape(lambda x: module.filterbank(x, DEFAULT), jnp.zeros(samples))
    assert features.shape == (expected, 80)


def test_padding_and_batch_change_nothing():
    samples, config = SOUNDS["babble"][:5_000], DEFAULT
    batch = np.full((2, 3, 8_000), 30_000, np.int16)
    batch[1, 2, :5_000] = samples
    frames = frame_count(5_000, config)
    alone = np.asarray(compute(SOUNDS["babble"], config))[:frames]
    assert_close(compute(batch, config)[1, 2, :frames], alone, 1e-5)


@pytest.fixture(scope="module")
def stream():
    return streaming(DEFAULT, 2_000)


@pytest.mark.parametrize("size", [1, 90, 2_000])
def test_a_stream_of_whispers_log_mel_mirrors_its_beginning(size):
    """Frame 0 needs 200 samples, whose mirror image is a part of frame 1 too."""
    config = Filterbank(kind="whisper")
    samples = babble(8_000, seed=size)[: 8_000 if size > 1 else 600]
    stream = streaming(config, size)
    pieces = [samples[k : k + size] for k in range(0, len(samples), size)]
    features = stream.run(pieces)
    assert len(features) == frame_count(len(samples), config) > 2
    assert_close(features, np.asarray(compute(samples, config)), 1e-5)
    too_few = [samples[k : min(k + size, 199)] for k in range(0, 199, size)]
    assert len(stream.run(too_few)) == 0 and stream.compilations == 1


@pytest.mark.parametrize("seed", range(3))
def test_a_stream_equals_the_whole_however_it_is_cut(stream, seed):
    samples = babble(8_000, seed=seed)
    features = stream.run(cut(samples, seed))
    assert_close(features, np.asarray(compute(samples, DEFAULT)), 1e-5)
    assert stream.compilations == 1


def test_a_stream_that_forgets_is_noticed(stream):
    samples = babble(8_000)
    first = stream.run([samples[:1_500]])
    lost = jnp.zeros_like(stream.state.pending)
    stream.state = dataclasses.replace(stream.state, pending=lost)
    rest = [stream.feed(piece) for piece in cut(samples[1_500:])]
    features, whole = np.concatenate([first, *rest]), np.asarray(compute(samples, DEFAULT))
    assert features.shape == whole.shape
    assert np.abs(features - whole).max() > 0.1


@pytest.mark.parametrize("config", [DEFAULT, Filterbank(kind="whisper")], ids=["kaldi", "whisper"])
def test_streams_of_different_lengths_side_by_side(config):
    lengths = np.array([[800, 0, 37], [160, 799, 800], [1, 800, 5]])  # [chunk, stream]
    samples = np.stack([babble(8_000, seed=seed) for seed in range(3)])
    state, fed, out = init_stream(config, (3,)), np.zeros(3, int), [[], [], []]

    def step(state, chunk, lengths):
        return stream_step(state, chunk, lengths, config=config)

    batched, vmapped = jax.jit(step), jax.jit(jax.vmap(step))
    for row in lengths:
        chunk = np.stack([s[h : h + 800] for s, h in zip(samples, fed, strict=True)])
        _, same, _ = vmapped(state, chunk, row)
        state, features, count = batched(state, chunk, row)
        features, count = np.asarray(features), np.asarray(count)
        np.testing.assert_allclose(same, features, atol=1e-5)
        fed += row
        for b in range(3):
            out[b].append(features[b, : count[b]])
    for b in range(3):
        expected = compute(samples[b], config)[: frame_count(int(fed[b]), config)]
        assert_close(np.concatenate(out[b]), np.asarray(expected), 1e-5)


def test_no_frame_sees_another_frames_samples():
    gradient = jax.grad(lambda x: compute(x, DEFAULT)[2].sum())(SOUNDS["hiss"] / 32768.0)
    touched = np.flatnonzero(gradient)
    assert touched.min() >= 320
    assert touched.max() < 720
    assert len(touched) > 390


def test_senseless_chunks_are_refused():
    state = init_stream(DEFAULT, (2,))
    with pytest.raises(ValueError, match=r"\(2,\) streams"):
        stream_step(state, hiss(160), config=DEFAULT)
    with pytest.raises(ValueError, match="chunks of 160"):
        stream_step(state, np.zeros((2, 160), np.int16), np.array([3, 161]), config=DEFAULT)
    with pytest.raises(ValueError, match="1 or more"):
        stream_step(state, np.zeros((2, 0), np.int16), config=DEFAULT)
