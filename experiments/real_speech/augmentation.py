"""Draw what each effect on training audio does to the spectrogram of a sentence.

    python -m experiments.real_speech.augmentation

Hardware: CPU, 10 s; needs eSpeak NG (`pip install 'simuljax[speech]'`). Draws
docs/figures/rooms.png: the sentence before, after each effect of `WaveAugment`, and after three.
"""

from pathlib import Path

import jax
import numpy as np
from matplotlib import colormaps
from scipy import signal

from data_pipelines.synthesis.espeak import speak
from data_pipelines.utterance import Voice
from simuljax.audio import RATE, WaveAugment
from simuljax.audio.wave_augment import wave_augment
from simuljax.report.figures import new_figure

SENTENCES = {  # by voice; the first is drawn, the others are its babble
    "m3": "The train to the city leaves at six.",
    "f2": "We wanted to know whether the shop is open.",
    "m7": "She has never seen the sea before this summer.",
    "f4": "Please bring the green suitcase to our room.",
}
EFFECTS = {
    "before": WaveAugment(),
    "reverb: RT60 0.6 s, direct 0 dB": WaveAugment(reverb=1, rt60_s=(0.6, 0.6), direct_db=(0, 0)),
    "babble: three voices at 5 dB": WaveAugment(babble=1, babble_db=(5, 5)),
    "noise: pink at 5 dB": WaveAugment(noise=1, noise_db=(5, 5), colour=(1, 1)),
    "clipping: at 0.1 of the peak": WaveAugment(clipping=1, clip_at=(0.1, 0.1)),
    "telephone: 300-3400 Hz, mu-law": WaveAugment(telephone=1),
    "level: -15 dB": WaveAugment(level=1, level_db=(-15, -15)),
    "floor: -45 dB of full scale": WaveAugment(floor=1, floor_db=(-45, -45)),
    "room, noise at 15 dB, telephone": WaveAugment(
        reverb=1, rt60_s=(0.3, 0.3), noise=1, noise_db=(15, 15), telephone=1
    ),
}
COLOURS = colormaps["viridis"].resampled(14)  # steps of 5 dB: a small file
FIGURE = Path(__file__).parents[2] / "docs/figures/rooms.png"


def main() -> None:
    """Apply every effect to the first sentence; draw its power over time and frequency."""
    sounds = [
        speak(text, Voice(engine="espeak", variant=name)).samples
        for name, text in SENTENCES.items()
    ]
    lengths = np.array([len(sound) for sound in sounds])
    samples = np.stack([np.pad(s, (0, lengths.max() - len(s))) for s in sounds])
    figure = new_figure(11, 7)
    grid = figure.subplots(3, 3, sharex=True, sharey=True)
    for axes, (title, config) in zip(grid.flat, EFFECTS.items(), strict=True):
        augmented = wave_augment(jax.random.key(0), samples, lengths, config)
        hertz, seconds, power = signal.spectrogram(
            *(np.asarray(augmented[0, : lengths[0]]) / 32768, RATE, "hann"),
            nperseg=400,
            noverlap=240,
            scaling="spectrum",
        )
        decibel = 10 * np.log10(power + 1e-12)  # of full scale, the same for all panels
        axes.pcolormesh(seconds, hertz / 1000, decibel, vmin=-100, vmax=-30, cmap=COLOURS)
        axes.set_title(title, fontsize=9)
    for axes in grid[:, 0]:
        axes.set_ylabel("kHz")
    for axes in grid[-1]:
        axes.set_xlabel("s")
    figure.savefig(FIGURE, dpi=80)


if __name__ == "__main__":
    main()
