"""Rooms, noise and channels for training audio, drawn anew in every update.

Effects follow each other as sound passes them, each with its own probability per example:

    reverb      y = x * h,  h[0] = 1,  h[t] = g n[t] 10^(-3 t / RT60),  n white;
                g from the direct-to-reverberant ratio 1 / sum_(t>0) h[t]^2; the power stays
    babble      other utterances of the batch, repeated to length, at a signal-to-noise ratio
    noise       power spectrum f^-colour between 20 Hz and 8 kHz (flat below 100 Hz), at a ratio
    clipping    values beyond a fraction of the example's peak are cut
    telephone   band-pass, 8 kHz, 8-bit mu-law, band-pass (G.711's companding curve)
    level       a gain in dB
    floor       the recorder's own noise, of that spectrum, at a power relative to full scale

Ratios and peaks count real samples only. An example that would exceed full scale is scaled down to
it, so that only `clipping` clips. Lengths and the times of words stay; padding is zero afterwards.
Draws do not depend on how far a batch is padded.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray, Real

from simuljax.audio.waveform import RATE
from simuljax.config.fields import ConfigError, check, setting

TAPS = 511  # of the telephone's band-pass: its edges are 100 Hz wide
NOISE_PERIOD = 1 << 15  # samples: noise repeats after 2 s
TINY = 1e-12  # a power that stands for silence


@dataclass(frozen=True, kw_only=True)
class WaveAugment:
    """Probabilities of effects on the waveform, and their ranges; by default all are off."""

    reverb: float = setting(0.0, help="Probability of a room.", low=0, high=1)
    rt60_s: tuple[float, float] = setting(
        (0.1, 0.8), help="Time in which its sound decays by 60 dB.", low=0.02, high=4, unit="s"
    )
    direct_db: tuple[float, float] = setting(
        (0.0, 15.0), help="Direct-to-reverberant ratio.", low=-20, high=60, unit="dB"
    )
    babble: float = setting(0.0, help="Probability of other voices of the batch.", low=0, high=1)
    babble_db: tuple[float, float] = setting(
        (0.0, 30.0), help="Signal-to-noise ratio of babble.", low=-20, high=60, unit="dB"
    )
    talkers: int = setting(3, help="Voices of babble.", low=1, high=16)
    noise: float = setting(0.0, help="Probability of stationary noise.", low=0, high=1)
    noise_db: tuple[float, float] = setting(
        (0.0, 30.0), help="Signal-to-noise ratio of noise.", low=-20, high=60, unit="dB"
    )
    colour: tuple[float, float] = setting(
        (0.0, 2.0), help="Fall of the noise's power over frequency: 0 white, 1 pink.", low=0, high=4
    )
    clipping: float = setting(0.0, help="Probability of clipping.", low=0, high=1)
    clip_at: tuple[float, float] = setting(
        (0.1, 0.7), help="Where it clips, as a fraction of the peak.", above=0, high=1
    )
    telephone: float = setting(0.0, help="Probability of a telephone line.", low=0, high=1)
    band_hz: tuple[float, float] = setting(
        (300.0, 3400.0), help="Band of the telephone.", low=50, high=3900, unit="Hz"
    )
    level: float = setting(0.0, help="Probability of another level.", low=0, high=1)
    level_db: tuple[float, float] = setting(
        (-20.0, 10.0), help="Change of level.", low=-60, high=40, unit="dB"
    )
    floor: float = setting(0.0, help="Probability of a noise floor.", low=0, high=1)
    floor_db: tuple[float, float] = setting(
        (-70.0, -35.0), help="Noise floor, relative to full scale.", low=-100, high=0, unit="dB"
    )

    def __post_init__(self) -> None:
        check(self)
        for name, value in vars(self).items():
            if isinstance(value, tuple) and value != tuple(sorted(value)):
                raise ConfigError(f"WaveAugment.{name} is {value}; the lower number comes first")
        if self.band_hz[0] == self.band_hz[1]:
            raise ConfigError(f"WaveAugment.band_hz is {self.band_hz}; nothing passes such a band")

    @classmethod
    def typical(cls) -> "WaveAugment":
        """Return all effects with moderate probabilities; half of the silences stay digital."""
        room = cls(reverb=0.3, babble=0.15, noise=0.3)
        return replace(room, clipping=0.05, telephone=0.1, level=0.2, floor=0.5)

    @property
    def active(self) -> tuple[str, ...]:
        """Return the effects that can occur, in their order."""
        return tuple(name for name in EFFECTS if getattr(self, name) > 0)


def wave_augment(
    key: PRNGKeyArray,
    samples: Real[ArrayLike, "B N"],
    lengths: Int[ArrayLike, " B"],
    config: WaveAugment,
) -> Real[Array, "B N"]:
    """Apply effects to int16 samples, or to float in [-1, 1]; the result is of the same type.

    The effects of an example depend on the key and on its place in the batch. What no effect was
    drawn for stays as it is, to the bit.
    """
    samples, lengths = jnp.asarray(samples), jnp.asarray(lengths)
    if not config.active or not samples.size:
        return samples
    scale = 1 if jnp.issubdtype(samples.dtype, jnp.floating) else 1 << 15
    real = _real(samples, lengths)
    given = jnp.where(real, samples.astype(jnp.float32) / scale, 0)
    changed, keys = given, jax.random.split(key, len(EFFECTS))
    for name, effect_key in zip(EFFECTS, keys, strict=True):
        if name in config.active:
            choose, draw = jax.random.split(effect_key)
            rows, drawn = _drawn_rows(choose, len(lengths), getattr(config, name))
            sound = Sound(batch=changed, batch_lengths=lengths, rows=rows)
            after = jnp.where(drawn & real[rows], EFFECTS[name](draw, sound, config), sound.samples)
            changed = changed.at[rows].set(after, unique_indices=True)
    full = jnp.maximum(1, _peak(given))
    changed = changed * jnp.minimum(1, full / jnp.maximum(_peak(changed), TINY))
    if scale == 1:
        return changed.astype(samples.dtype)
    return jnp.clip(jnp.round(changed * scale), -scale, scale - 1).astype(samples.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class Sound:
    """The rows of a batch that an effect is computed for."""

    batch: Float[Array, "B N"]
    batch_lengths: Int[Array, " B"]
    rows: Int[Array, " R"]

    @property
    def samples(self) -> Float[Array, "R N"]:
        return self.batch[self.rows]

    @property
    def lengths(self) -> Int[Array, " R"]:
        return self.batch_lengths[self.rows]


def _drawn_rows(
    key: PRNGKeyArray, count: int, probability: float
) -> tuple[Int[Array, " R"], Bool[Array, "R 1"]]:
    """Return the rows to compute an effect for, and True for those that keep it.

    R = ceil(p B) different rows, each kept with probability p B / R: any row has the effect with
    probability p, and the others cost nothing.
    """
    of_row, of_keep = jax.random.split(key)
    expected = round(probability * count, 6)
    most = max(1, math.ceil(expected))
    rows = jax.random.permutation(of_row, count)[:most]
    return rows, jax.random.uniform(of_keep, (most, 1)) < expected / most


def room_responses(key: PRNGKeyArray, count: int, config: WaveAugment) -> Float[Array, "count L"]:
    """Draw impulse responses: a direct path without delay, and noise that decays."""
    of_time, of_ratio, of_tail = jax.random.split(key, 3)
    rt60 = _between(of_time, config.rt60_s, count)
    ratio = _between(of_ratio, config.direct_db, count)
    time = jnp.arange(math.ceil(config.rt60_s[1] * RATE)) / RATE
    white = jax.random.uniform(of_tail, (count, len(time)), minval=-1, maxval=1)
    tail = white * jnp.exp(-3 * math.log(10) / rt60 * time)
    tail = tail.at[:, 0].set(0)
    gain = jnp.sqrt(10 ** (-ratio / 10) / jnp.square(tail).sum(-1, keepdims=True))
    return (gain * tail).at[:, 0].set(1)


def coloured_noise(key: PRNGKeyArray, count: int, config: WaveAugment) -> Float[Array, "count P"]:
    """Draw one period of noise with random phases and a random slope of its spectrum."""
    of_colour, of_phase = jax.random.split(key)
    frequency = np.fft.rfftfreq(NOISE_PERIOD, 1 / RATE)
    log_ratio = np.log(np.maximum(frequency, 100) / 100).astype(np.float32)
    slope = jnp.exp(-_between(of_colour, config.colour, count) / 2 * log_ratio)
    slope = jnp.where(frequency >= 20, slope, 0)
    phase = jax.random.uniform(of_phase, slope.shape, maxval=2 * math.pi)
    spectrum = jax.lax.complex(slope * jnp.cos(phase), slope * jnp.sin(phase))
    return jnp.fft.irfft(spectrum, NOISE_PERIOD)


def convolve(x: Float[Array, "B N"], h: Float[ArrayLike, "R L"]) -> Float[Array, "B N"]:
    """Return the first N samples of x * h, by blocks in the frequency domain (overlap-add).

    Blocks are as long as h needs, whatever N: one block's tail reaches the next block only.
    """
    h, size = jnp.asarray(h), x.shape[1]
    hop = 1 << (h.shape[1] - 1).bit_length()
    blocks = jnp.pad(x, [(0, 0), (0, -size % hop)]).reshape(len(x), -1, hop)
    response = jnp.fft.rfft(h, 2 * hop)[:, None]
    out = jnp.fft.irfft(jnp.fft.rfft(blocks, 2 * hop) * response, 2 * hop)
    before = jnp.pad(out[:, :-1, hop:], [(0, 0), (1, 0), (0, 0)])
    return (out[..., :hop] + before).reshape(len(x), -1)[:, :size]


def mu_law(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Compress with mu = 255, round to 8 bits (255 levels, with 0), and expand."""
    small = jnp.sign(x) * jnp.log1p(255 * jnp.minimum(jnp.abs(x), 1)) / math.log(256)
    small = jnp.round(127 * small) / 127
    return jnp.sign(small) * jnp.expm1(jnp.abs(small) * math.log(256)) / 255


@cache
def band_pass(low_hz: float, high_hz: float) -> Float[np.ndarray, " taps"]:
    """Return a symmetric windowed sinc: half amplitude at the edges of the band."""
    at = np.arange(TAPS) - TAPS // 2
    edges = [2 * hz / RATE * np.sinc(2 * hz / RATE * at) for hz in (low_hz, high_hz)]
    return ((edges[1] - edges[0]) * np.hamming(TAPS)).astype(np.float32)


def _reverb(key: PRNGKeyArray, sound: Sound, config: WaveAugment) -> jax.Array:
    x, lengths = sound.samples, sound.lengths
    wet = convolve(x, room_responses(key, len(x), config))
    return _with_power(wet, _power(x, lengths), lengths)


def _babble(key: PRNGKeyArray, sound: Sound, config: WaveAugment) -> jax.Array:
    """Add voices of other rows, of equal power, each from a random place on and around."""
    count, size = sound.batch.shape
    if count == 1:
        return sound.samples
    of_ratio, of_row, of_start = jax.random.split(key, 3)
    shape = (config.talkers, len(sound.rows))
    others = (sound.rows + jax.random.randint(of_row, shape, 1, count)) % count
    babble = jnp.zeros_like(sound.samples)
    for row, place in zip(others, jax.random.uniform(of_start, shape), strict=True):
        length = jnp.maximum(sound.batch_lengths[row], 1)[:, None]
        at = ((place[:, None] * length).astype(jnp.int32) + jnp.arange(size)) % length
        voice = jnp.take_along_axis(sound.batch[row], at, axis=1)
        babble += _with_power(voice, jnp.float32(1), sound.lengths)
    ratio = _between(of_ratio, config.babble_db, len(sound.rows))
    return _mix(sound, babble, ratio)


def _noise(key: PRNGKeyArray, sound: Sound, config: WaveAugment) -> jax.Array:
    of_ratio, of_noise = jax.random.split(key)
    ratio = _between(of_ratio, config.noise_db, len(sound.rows))
    return _mix(sound, _stationary(of_noise, sound, config), ratio)


def _stationary(key: PRNGKeyArray, sound: Sound, config: WaveAugment) -> jax.Array:
    """Draw noise as long as the batch."""
    (count, size), periods = sound.samples.shape, -(-sound.batch.shape[1] // NOISE_PERIOD)
    return jnp.tile(coloured_noise(key, count, config), (1, periods))[:, :size]


def _clipping(key: PRNGKeyArray, sound: Sound, config: WaveAugment) -> jax.Array:
    most = _between(key, config.clip_at, len(sound.rows)) * _peak(sound.samples)
    return jnp.clip(sound.samples, -most, most)


def _telephone(key: PRNGKeyArray, sound: Sound, config: WaveAugment) -> jax.Array:
    """Keep every other sample of the band; the second filter restores those between."""
    taps, ahead = band_pass(*config.band_hz), TAPS // 2

    def in_band(x: jax.Array) -> jax.Array:
        """Filter, looking as far ahead as back, so that nothing is delayed."""
        return convolve(jnp.pad(x, [(0, 0), (0, ahead)]), taps[None])[:, ahead:]

    band = jnp.where(_real(sound.samples, sound.lengths), in_band(sound.samples), 0)
    coded = 2 * mu_law(band[:, ::2])
    last = band.shape[1] % 2 == 0  # the last sample is one of those between
    return in_band(jax.lax.pad(coded, jnp.float32(0), [(0, 0, 0), (0, int(last), 1)]))


def _level(key: PRNGKeyArray, sound: Sound, config: WaveAugment) -> jax.Array:
    return sound.samples * 10 ** (_between(key, config.level_db, len(sound.rows)) / 20)


def _floor(key: PRNGKeyArray, sound: Sound, config: WaveAugment) -> jax.Array:
    of_level, of_noise = jax.random.split(key)
    power = 10 ** (_between(of_level, config.floor_db, len(sound.rows)) / 10)
    noise = _stationary(of_noise, sound, config)
    return sound.samples + _with_power(noise, power, sound.lengths)


Effect = Callable[[PRNGKeyArray, Sound, WaveAugment], jax.Array]
EFFECTS: dict[str, Effect] = {  # in the order of sound's way; a new one last keeps earlier draws
    "reverb": _reverb,
    "babble": _babble,
    "noise": _noise,
    "clipping": _clipping,
    "telephone": _telephone,
    "level": _level,
    "floor": _floor,
}


def _between(key: PRNGKeyArray, ends: tuple[float, float], count: int) -> Float[Array, "count 1"]:
    return jax.random.uniform(key, (count, 1), minval=ends[0], maxval=ends[1])


def _real(x: jax.Array, lengths: jax.Array) -> Bool[Array, "B N"]:
    return jnp.arange(x.shape[1]) < lengths[:, None]


def _power(x: jax.Array, lengths: jax.Array) -> Float[Array, "B 1"]:
    """Return the mean square of the real samples."""
    total = jnp.where(_real(x, lengths), jnp.square(x), 0).sum(-1)
    return (total / jnp.maximum(lengths, 1))[:, None]


def _with_power(x: jax.Array, power: jax.Array, lengths: jax.Array) -> jax.Array:
    return x * jnp.sqrt(power / jnp.maximum(_power(x, lengths), TINY))


def _mix(sound: Sound, noise: jax.Array, ratio_db: jax.Array) -> jax.Array:
    power = _power(sound.samples, sound.lengths) * 10 ** (-ratio_db / 10)
    return sound.samples + _with_power(noise, power, sound.lengths)


def _peak(x: jax.Array) -> Float[Array, "B 1"]:
    return jnp.abs(x).max(-1, keepdims=True)
