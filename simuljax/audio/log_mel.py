"""Log-mel energies as Whisper computes them, of frames of 25 ms.

    m[f, b] = log10 max(sum_k mel[b, k] |rfft(w x[f])[k]|^2, 1e-10)

w is a periodic Hann window; `mel` has triangles on Slaney's scale (linear below 1 kHz, logarithmic
above), each of area 1.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

RATE = 16_000
FFT = 400  # samples of a frame


def log_energies(frames: Float[Array, "*batch F fft"], mels: int) -> Float[Array, "*batch F mels"]:
    """Return the logarithms to the base of 10, from -10."""
    if not frames.size:  # no frame at all: an FFT of nothing is refused by some backends
        return jnp.zeros((*frames.shape[:-1], mels))
    spectrum = jnp.fft.rfft(frames * hann_window())
    power = jnp.square(spectrum.real) + jnp.square(spectrum.imag)
    energy = jnp.matmul(power, mel_filters(mels).T, precision=jax.lax.Precision.HIGHEST)
    return jnp.log10(jnp.maximum(energy, 1e-10))


def hann_window() -> Float[np.ndarray, " fft"]:
    """Return one period of 1/2 - cos/2: the next sample would be 0 again."""
    return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FFT) / FFT)).astype(np.float32)


def mel_filters(mels: int) -> Float[np.ndarray, "mels K"]:
    """Return triangles between mels + 2 corners, equally spaced from 0 to 8 kHz in mel."""
    corners = _hertz(np.linspace(0.0, _mel(RATE / 2), mels + 2))[:, None]
    left, centre, right = corners[:-2], corners[1:-1], corners[2:]
    points = np.arange(FFT // 2 + 1) * (RATE / FFT)
    up, down = (points - left) / (centre - left), (right - points) / (right - centre)
    return (np.maximum(np.minimum(up, down), 0) * 2 / (right - left)).astype(np.float32)


_BREAK_HZ, _BREAK_MEL = 1000.0, 15.0  # below, 3 mel are 200 Hz
_STEP = np.log(6.4) / 27  # above, 27 mel are a factor of 6.4


def _mel(hertz: float) -> float:
    if hertz < _BREAK_HZ:
        return hertz * 3 / 200
    return _BREAK_MEL + float(np.log(hertz / _BREAK_HZ)) / _STEP


def _hertz(mel: np.ndarray) -> np.ndarray:
    above = _BREAK_HZ * np.exp(_STEP * (mel - _BREAK_MEL))
    return np.where(mel < _BREAK_MEL, mel * 200 / 3, above)
