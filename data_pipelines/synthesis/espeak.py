"""Speech by eSpeak NG: 16 kHz, with the times of words and phonemes."""

from itertools import pairwise

from data_pipelines.synthesis.boundaries import Mark, spread_ties, word_spans
from data_pipelines.synthesis.speech import Speech, to_16_khz
from data_pipelines.utterance import Span, Voice
from simuljax.text.phonemes import RATE as ENGINE_RATE
from simuljax.voice.base import VoiceError, shown
from simuljax.voice.espeak import WORD, Synthesis, utter

UP, DOWN = 320, 441  # 16,000 / 22,050


def speak(text: str, voice: Voice) -> Speech:
    """Say the text; markup, phoneme codes and control characters have no effect."""
    if not text.strip():
        raise VoiceError("there is no text to say: leave empty transcripts out")
    output = utter(
        text,
        voice.language,
        voice.variant,
        words_per_minute=voice.words_per_minute,
        pitch=voice.pitch,
    )
    samples = output.samples
    marks, phonemes = _phonemes(output, len(samples))
    if not phonemes:
        raise VoiceError(f"eSpeak finds nothing to say in {shown(text)}: leave it out")
    return Speech(
        samples=to_16_khz(samples, UP, DOWN),
        words=word_spans(text, marks, phonemes),
        phonemes=tuple(phonemes),
    )


def _phonemes(output: Synthesis, samples: int) -> tuple[list[Mark], list[Span]]:
    """Return the mark of each word, and the phonemes with their times, without pauses.

    A phoneme's event comes with its burst, a word's with the closure before: the first phoneme
    takes the closure in. A word's event that coincides with the phoneme before it has overtaken
    that phoneme, and only the first phoneme's own event gives the start of the word.
    """
    starts: list[int] = []
    names: list[str] = []  # a pause has none
    marks: list[Mark] = []
    spoken = 0
    opened: int | None = None
    for kind, position, sample, name in output.events:
        if kind == WORD:
            marks.append(Mark(position=position, phoneme=spoken))
            opened = sample
            continue
        overtaken = opened is None or bool(starts and names[-1] and opened <= starts[-1])
        start = sample if overtaken else min(opened or 0, sample)
        start = min(max(start, starts[-1] if starts else 0), samples)
        if starts and not names[-1] and starts[-1] == start:  # a pause of no length
            starts.pop()
            names.pop()
        starts.append(start)
        names.append(name)
        spoken += bool(name)
        opened = None
    return marks, _spoken(names, spread_ties(starts, samples), samples)


def _spoken(names: list[str], starts: list[float], samples: int) -> list[Span]:
    edges = [1000 * at / ENGINE_RATE for at in [*starts, samples]]
    return [
        Span(text=name, start_ms=start, end_ms=end)
        for name, (start, end) in zip(names, pairwise(edges), strict=True)
        if name
    ]
