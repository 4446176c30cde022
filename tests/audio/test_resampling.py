"""A stream at another rate is the whole recording at another rate."""

import numpy as np
import pytest

from simuljax.audio import AudioError, Incoming, as_int16


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 22_050, 44_100, 48_000, 96_000])
def test_pieces_give_what_the_whole_gives(rate):
    random = np.random.default_rng(rate)
    sound = random.uniform(-1, 1, rate // 2 + 37).astype(np.float32)
    incoming, cuts = Incoming(rate), np.unique(random.integers(1, len(sound), 40))
    pieces = [incoming.push(piece) for piece in np.split(sound, cuts)]
    np.testing.assert_array_equal(
        np.concatenate([*pieces, incoming.finish()]), as_int16(sound, rate)
    )


@pytest.mark.parametrize("rate", [8_000, 44_100])
def test_little_waits_and_little_is_held(rate):
    incoming, pushed, given = Incoming(rate), 0, 0
    for _ in range(300):
        pushed += 441
        given += len(incoming.push(np.zeros(441, np.float32)))
        assert 0 <= pushed / rate - given / 16_000 < 0.005
        assert len(incoming.resampler.held) < 2_000


def test_a_sample_at_a_time():
    incoming = Incoming(48_000)
    sound = np.random.default_rng(0).uniform(-1, 1, 700)
    pieces = [incoming.push(sound[i : i + 1]) for i in range(len(sound))]
    np.testing.assert_array_equal(
        np.concatenate([*pieces, incoming.finish()]), as_int16(sound, 48_000)
    )


def test_a_rate_must_be_one():
    with pytest.raises(AudioError, match="a rate of 16"):
        Incoming(16)
