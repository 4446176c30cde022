"""The spectrogram of a recording of any length, cut into windows."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.audio.filterbank import Framing
from simuljax.audio.filterbank import split as split_frames
from simuljax.audio.log_mel import FFT, log_energies
from simuljax.models.whisper.config import HOP, RATE, WINDOW_S

FRAMES = WINDOW_S * RATE // HOP  # of a window


@dataclass(frozen=True, kw_only=True, eq=False)
class Spectrogram:
    """Log-mel of a whole recording, as the original computes it."""

    mel: np.ndarray  # float32 [F, mels], with the frames that reach beyond the end
    frames: int  # that the recording has
    silence: float

    def window(self, seek: int) -> np.ndarray:
        """Return the frames [3000, mels] from `seek` samples on; 0 after the end."""
        return self._padded(self.mel[: self.frames][seek // HOP :], 0.0)

    def beginning(self) -> np.ndarray:
        """Return the first frames [3000, mels], with silence after the end."""
        return self._padded(self.mel, self.silence)

    def _padded(self, frames: np.ndarray, value: float) -> np.ndarray:
        frames = frames[:FRAMES]
        added = [(0, FRAMES - len(frames)), (0, 0)]
        return np.pad(frames, added, constant_values=np.float32(value))


def spectrogram(samples: np.ndarray, mels: int) -> Spectrogram:
    """Return the spectrogram of a recording, int16 at 16 kHz; 30 s at a time."""
    frames = len(samples) // HOP
    silent = np.zeros(FFT, np.int16)
    mirrored = np.pad(np.concatenate([samples, silent]), (FFT // 2, 0), mode="reflect")
    blocks, block = -(-(frames + FFT // HOP) // FRAMES), FRAMES * HOP
    mirrored = np.pad(mirrored, (0, max(0, blocks * block + FFT - len(mirrored))))
    parts = (mirrored[k * block : (k + 1) * block + FFT - HOP] for k in range(blocks))
    found = np.concatenate([np.asarray(_decades(part, mels)) for part in parts])
    found = found[: frames + FFT // HOP]
    floor = max(found.max() - 8, -10.0)
    mel = (np.maximum(found, floor) + 4) / 4
    return Spectrogram(mel=mel.astype(np.float32), frames=frames, silence=(floor + 4) / 4)


@partial(jax.jit, static_argnums=1)
def _decades(samples: jax.Array, mels: int) -> jax.Array:
    framing = Framing(length=FFT, shift=HOP)
    return log_energies(split_frames(samples.astype(jnp.float32) / 32768, framing), mels)
