"""A synthesised sentence with the times that came with it: waveform, filterbanks, words, phonemes.

    python -m experiments.utterance_figure --to docs/figures/utterance.png

A few seconds on a laptop. The times are the synthesiser's own events, carried through resampling;
they are what the oracle pre-decision of Ma et al. 2020 stands on.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tyro
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from data_pipelines.corpora import Phrasebook
from data_pipelines.synthesis import Speech, Synthesiser
from data_pipelines.utterance import Skip, Span, Voice
from simuljax.audio import RATE, Features, extract


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Which sentence, in which voice, to which file."""

    to: Path = Path("utterance.png")
    sentence: int = 2
    """Its number in the phrasebook's test split."""
    voice: Literal["espeak", "hibari"] = "espeak"


def run(config: Picture) -> None:
    """Synthesises the sentence and draws it."""
    corpus = Phrasebook(train=0, valid=0, test=config.sentence + 1, voice=config.voice)
    utterance = corpus.read().splits["test"][config.sentence]
    assert isinstance(utterance.audio, Voice)
    speech = Synthesiser().speak(utterance, utterance.audio)
    if isinstance(speech, Skip):
        raise SystemExit(f"{speech.reason}: {speech.detail}")
    figure = draw(speech, f"{utterance.translation}    ({utterance.speaker})")
    config.to.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(config.to, dpi=110)
    print(f"wrote {config.to}")


def draw(speech: Speech, title: str) -> Figure:
    """Waveform above filterbanks, both on one axis of seconds."""
    figure = Figure(figsize=(11, 5), layout="constrained")
    wave, bank = figure.subplots(2, 1, sharex=True)
    seconds = np.arange(len(speech.samples)) / RATE
    wave.plot(seconds, speech.samples / 32768, color="0.35", linewidth=0.4)
    wave.set(ylabel="waveform", title=title, ylim=(-1.1, 1.5))
    wave.margins(x=0)
    features = np.asarray(extract(speech.samples, Features()))
    # Frame j is centred on 10 j + 12.5 ms.
    extent = (0.0075, 0.0075 + len(features) / 100, 0, features.shape[1])
    bank.imshow(features.T, origin="lower", aspect="auto", extent=extent, cmap="magma")
    bank.set(ylabel="mel bin", xlabel="seconds", ylim=(0, 92), facecolor="black")
    _words(wave, speech.words)
    _phonemes(bank, speech.phonemes)
    return figure


def _words(axes: Axes, words: tuple[Span, ...]) -> None:
    for number, word in enumerate(words):
        start, end = word.start_ms / 1000, word.end_ms / 1000
        axes.axvspan(start, end, color=f"C{number % 2}", alpha=0.18, linewidth=0)
        axes.text((start + end) / 2, 1.2, word.text, ha="center", fontsize=9)


def _phonemes(axes: Axes, phonemes: tuple[Span, ...]) -> None:
    for phoneme in phonemes:
        start, end = phoneme.start_ms / 1000, phoneme.end_ms / 1000
        axes.axvline(start, color="white", linewidth=0.5, alpha=0.7)
        axes.text((start + end) / 2, 84, phoneme.text, ha="center", color="white", fontsize=8)


if __name__ == "__main__":
    run(tyro.cli(Picture))
