"""Draw what each effect on training audio does to the spectrogram of a sentence.

    python -m experiments.real_speech.augmentation

Hardware: CPU, 10 s; needs eSpeak NG (`pip install 'simuljax[speech]'`). Draws
docs/figures/rooms.png: the sentence before, after each effect of `WaveAugment`, and after three.
"""

from pathlib import Path

import jax
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import signal

from data_pipelines.synthesis.espeak import speak
from data_pipelines.utterance import Voice
from simuljax.audio import RATE, WaveAugment
from simuljax.audio.wave_augment import wave_augment

SENTENCES = {  # by voice; the first is drawn, the others are its babble
    "m3": "The train to the city leaves at six.",
    "f2": "We wanted to know whether the shop is open.",
    "m7": "She has never seen the sea before this summer.",
    "f4": "Please bring the green suitcase to our room.",
}
EFFECTS = {
    "before": {},
    "reverb: RT60 0.6 s, direct 0 dB": {"reverb": 1, "rt60_s": (0.6, 0.6), "direct_db": (0, 0)},
    "babble: three voices at 5 dB": {"babble": 1, "babble_db": (5, 5)},
    "noise: pink at 5 dB": {"noise": 1, "noise_db": (5, 5), "colour": (1, 1)},
    "clipping: at 0.1 of the peak": {"clipping": 1, "clip_at": (0.1, 0.1)},
    "telephone: 300-3400 Hz, mu-law": {"telephone": 1},
    "level: -15 dB": {"level": 1, "level_db": (-15, -15)},
    "floor: -45 dB of full scale": {"floor": 1, "floor_db": (-45, -45)},
    "room, noise at 15 dB, telephone": {
        "reverb": 1,
        "rt60_s": (0.3, 0.3),
        "noise": 1,
        "noise_db": (15, 15),
        "telephone": 1,
    },
}
COLOURS = colormaps["viridis"].resampled(14)  # steps of 5 dB: a small file
FIGURE = Path(__file__).parents[2] / "docs/figures/rooms.png"


def spoken() -> tuple[np.ndarray, np.ndarray]:
    """Return a batch of the sentences, and their lengths."""
    voices = [Voice(engine="espeak", variant=name) for name in SENTENCES]
    sounds = [speak(t, v).samples for t, v in zip(SENTENCES.values(), voices, strict=True)]
    lengths = np.array([len(sound) for sound in sounds])
    return np.stack([np.pad(s, (0, lengths.max() - len(s))) for s in sounds]), lengths


def draw_spectrogram(axes: Axes, samples: np.ndarray, title: str) -> None:
    """Draw the power over time and frequency, in dB of full scale, the same for all panels."""
    hertz, seconds, power = signal.spectrogram(
        samples / 32768, RATE, "hann", nperseg=400, noverlap=240, scaling="spectrum"
    )
    decibel = 10 * np.log10(power + 1e-12)
    axes.pcolormesh(seconds, hertz / 1000, decibel, vmin=-100, vmax=-30, cmap=COLOURS)
    axes.set_title(title, fontsize=9)


def main() -> None:
    """Apply every effect to the first sentence, and draw it."""
    samples, lengths = spoken()
    figure = Figure(figsize=(11, 7), layout="constrained")
    grid = figure.subplots(3, 3, sharex=True, sharey=True)
    for axes, (title, given) in zip(grid.flat, EFFECTS.items(), strict=True):
        augmented = wave_augment(jax.random.key(0), samples, lengths, WaveAugment(**given))
        draw_spectrogram(axes, np.asarray(augmented[0, : lengths[0]]), title)
    for axes in grid[:, 0]:
        axes.set_ylabel("kHz")
    for axes in grid[-1]:
        axes.set_xlabel("s")
    figure.savefig(FIGURE, dpi=80)


if __name__ == "__main__":
    main()
