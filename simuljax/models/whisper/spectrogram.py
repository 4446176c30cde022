"""Log-mel spectrograms: of windows in one program, and of a recording of any length.

    X[f]    = rfft(w x[160 f - 200 : 160 f + 200])   w a periodic Hann window, x mirrored at ends
    m[f, b] = log10 max(sum_k mel[b, k] |X[f, k]|^2, 1e-10)
    out     = (max(m, max_fb m - 8) + 4) / 4

with triangles `mel` on Slaney's scale (linear below 1 kHz, logarithmic above), each of area 1. The
frame at the very end, centred on the sample after the last, is left out: 100 frames a second. The
floor at 8 below the loudest makes a frame depend on the whole window. Silence that is added changes
no other frame unless all of the window is silent.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Real

from simuljax.audio.filterbank import FRAME as FFT
from simuljax.audio.filterbank import RATE, SHIFT, Framing, log_energies, split
from simuljax.models.whisper.config import WINDOW_S

FRAMES = WINDOW_S * RATE // SHIFT  # of a window
_FRAMING = Framing(length=FFT, shift=SHIFT)


def log_mel(samples: Real[Array, "B N"], mels: int) -> Float[Array, "B F mels"]:
    """Return log-mel of windows of N samples, N a multiple of 160: int16, or float in [-1, 1]."""
    if samples.shape[-1] % SHIFT or samples.shape[-1] < FFT:
        raise ValueError(f"{samples.shape[-1]} samples; give a multiple of {SHIFT}, from {FFT}.")
    scale = 1 if jnp.issubdtype(samples.dtype, jnp.floating) else 32768
    samples = samples.astype(jnp.float32) / scale
    mirrored = jnp.pad(samples, [(0, 0), (FFT // 2, FFT // 2)], mode="reflect")
    frames = split(mirrored, _FRAMING)[:, :-1]
    decades = log_energies(frames, mels)
    loudest = decades.max((-2, -1), keepdims=True)
    return (jnp.maximum(decades, loudest - 8) + 4) / 4


@dataclass(frozen=True, kw_only=True, eq=False)
class Spectrogram:
    """Log-mel of a whole recording, as the original computes it."""

    mel: np.ndarray  # float32 [F, mels], with the frames that reach beyond the end
    frames: int  # that the recording has
    silence: float

    def window(self, seek: int) -> np.ndarray:
        """Return the frames [3000, mels] from `seek` samples on; 0 after the end."""
        return self._padded(self.mel[: self.frames][seek // SHIFT :], 0.0)

    def beginning(self) -> np.ndarray:
        """Return the first frames [3000, mels], with silence after the end."""
        return self._padded(self.mel, self.silence)

    def _padded(self, frames: np.ndarray, value: float) -> np.ndarray:
        frames = frames[:FRAMES]
        added = [(0, FRAMES - len(frames)), (0, 0)]
        return np.pad(frames, added, constant_values=np.float32(value))


def spectrogram(samples: np.ndarray, mels: int) -> Spectrogram:
    """Return the spectrogram of a recording, int16 at 16 kHz; 30 s at a time."""
    frames = len(samples) // SHIFT
    silent = np.zeros(FFT, np.int16)
    mirrored = np.pad(np.concatenate([samples, silent]), (FFT // 2, 0), mode="reflect")
    blocks, block = -(-(frames + FFT // SHIFT) // FRAMES), FRAMES * SHIFT
    mirrored = np.pad(mirrored, (0, max(0, blocks * block + FFT - len(mirrored))))
    parts = (mirrored[k * block : (k + 1) * block + FFT - SHIFT] for k in range(blocks))
    found = np.concatenate([np.asarray(_decades(part, mels)) for part in parts])
    found = found[: frames + FFT // SHIFT]
    floor = max(found.max() - 8, -10.0)
    mel = (np.maximum(found, floor) + 4) / 4
    return Spectrogram(mel=mel.astype(np.float32), frames=frames, silence=(floor + 4) / 4)


@partial(jax.jit, static_argnums=1)
def _decades(samples: jax.Array, mels: int) -> jax.Array:
    return log_energies(split(samples.astype(jnp.float32) / 32768, _FRAMING), mels)
