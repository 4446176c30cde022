"""hibari-tts: one natural American voice, at tens of times real time on one core.

The published graph returns a spectrum. The end of each phoneme is an inner node of it,
`/CumSum_output_0`, so the session is made with that as one more output.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from data_pipelines.synthesis.speech import Speech, to_16_khz
from data_pipelines.utterance import Span, Voice
from simuljax.voice.base import VoiceError
from simuljax.voice.hibari import LETTERS, load_engine

ENGINE_RATE = 24_000
UP, DOWN = 2, 3
FRAME_MS = 25.0  # the unit of the durations
# The sound comes this much before the frame count says. With 50, the edges of s, z and sh between
# vowels lie within 10 ms, and the first word starts 10 ms before the signal rises, in the median.
LEAD_MS = 50.0
AUDIBLE = 0.01  # of the loudest sample
PHONEME_ENDS = "/CumSum_output_0"
LANGUAGES = ("en", "en-us")
PLAIN_RATE = 175  # the words per minute that stand for the voice's own pace
PHONEME = re.compile(r"[ˈˌ]*[^ˈˌ][ːʰʲ]*")  # stress comes before a sound, length and colour after


class Hibari:
    """A loaded model. The same text and voice always give the same samples."""

    def __init__(self) -> None:
        self._engine = load_engine()
        self._session = _session(Path(self._engine.model_path))

    def speak(self, text: str, voice: Voice) -> Speech:
        _check(text, voice)
        waves: list[np.ndarray] = []
        groups: list[tuple[Span, ...]] = []  # each a word, or one of several it is read as
        noise = np.random.default_rng(0)
        for phonemes in self._engine.phonemize(text):
            elapsed = 1000 * sum(map(len, waves)) / ENGINE_RATE
            wave, ends = self._run(phonemes, voice.words_per_minute / PLAIN_RATE, noise)
            groups += _groups(phonemes, self._engine.vocab, ends, wave, elapsed)
            waves.append(wave)
        if not groups:
            raise VoiceError(f"hibari finds nothing to say in {text!r}: leave it out")
        samples = to_16_khz(np.concatenate(waves) * 32767, UP, DOWN)
        sounds = tuple(span for group in groups for span in group)
        return Speech(samples=samples, words=self._words(text, groups), phonemes=sounds)

    def _run(self, phonemes: str, speed: float, noise: np.random.Generator):
        """Return the waveform of one sentence, and the frame at which each id ends."""
        from hibari import dsp

        ids = np.asarray([self._engine.ids(phonemes)], np.int64)
        feed = {"ids": ids, "speed": np.asarray([speed], np.float32)}
        *spectrum, ends = map(np.asarray, self._session.run(None, feed))
        lh, theta, ln, lr, phi, f0 = (part[0] for part in spectrum)
        return dsp.synth(lh, theta, ln, lr, phi, f0, noise), ends.reshape(-1)

    def _words(self, text: str, groups: Sequence[tuple[Span, ...]]) -> tuple[Span, ...]:
        """Give each word as many groups as it is read as when it is alone."""
        words = text.split()
        counts = [len(LETTERS.findall(" ".join(self._engine.phonemize(word)))) for word in words]
        if sum(counts) != len(groups):
            raise VoiceError(
                f"hibari reads {text!r} as {len(groups)} words and its parts as {sum(counts)}, so"
                " word times are unknown: spell out what is abbreviated, or use espeak"
            )
        spans: list[Span] = []
        last = 0.0
        for word, stop, count in zip(words, accumulate(counts), counts, strict=True):
            own = [span for group in groups[stop - count : stop] for span in group]
            start = own[0].start_ms if own else last
            last = own[-1].end_ms if own else last
            spans.append(Span(text=word, start_ms=start, end_ms=last))
        return tuple(spans)


def _session(model: Path):
    """Return a session on the model with `PHONEME_ENDS` as its last output.

    Joining two serialised protocol buffers merges the messages: fields that repeat are appended.
    So a model that has nothing but a graph (field 7) that has nothing but an output (field 12)
    with a name (field 1), put behind the real one, adds that output.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    output = _field(7, _field(12, _field(1, PHONEME_ENDS.encode())))
    return onnxruntime.InferenceSession(
        model.read_bytes() + output, options, providers=["CPUExecutionProvider"]
    )


def _field(number: int, content: bytes) -> bytes:
    """Encode a length-delimited protocol buffer field with number < 16 and length < 128."""
    return bytes([number << 3 | 2, len(content)]) + content


def _groups(
    phonemes: str,
    vocabulary: Mapping[str, int],
    ends: Int[np.ndarray, "ids"],
    wave: Float[np.ndarray, "samples"],
    since_ms: float,
) -> Iterator[tuple[Span, ...]]:
    """Yield the sounding groups of one sentence, each as its phonemes with their times.

    A lone space is divided between the words around it; a gap with punctuation is a pause and
    belongs to no word. Before a pause the time of the last sound extends into the silence, and is
    cut to its audible part.
    """
    known = "".join(c for c in phonemes if c in vocabulary)  # the engine skips the others
    at = np.clip(FRAME_MS * ends - LEAD_MS, 0, 1000 * len(wave) / ENGINE_RATE)
    starts = at[:-1].copy()  # ends[0] belongs to a pad: character i sounds from at[i] to at[i + 1]
    stops = at[1:].copy()
    for space in re.finditer(r"(?<=[^\W\d_]) (?=[^\W\d_])", known):
        i = space.start()
        stops[i - 1] = starts[i + 1] = (starts[i] + stops[i]) / 2
    for last in re.finditer(r"[^\W\d_](?![^\W\d_]| [^\W\d_])", known):
        i = last.start()
        stops[i] = starts[i] + _audible_ms(wave, starts[i], stops[i])
    for group in LETTERS.finditer(known):
        yield tuple(
            Span(
                text=sound.group(),
                start_ms=float(starts[sound.start()]) + since_ms,
                end_ms=float(stops[sound.end() - 1]) + since_ms,
            )
            for sound in PHONEME.finditer(known, group.start(), group.end())
        )


def _audible_ms(wave: Float[np.ndarray, "samples"], start_ms: float, end_ms: float) -> float:
    """Return the time to the last audible sample of this stretch; at least a frame."""
    start, end = (round(at * ENGINE_RATE / 1000) for at in (start_ms, end_ms))
    (audible,) = np.nonzero(np.abs(wave[start:end]) > AUDIBLE * np.abs(wave).max())
    last_ms = 1000 * (audible[-1] + 1) / ENGINE_RATE if len(audible) else 0.0
    return min(max(last_ms, FRAME_MS), end_ms - start_ms)


def _check(text: str, voice: Voice) -> None:
    if not text.strip():
        raise VoiceError("there is no text to say: leave empty transcripts out")
    if voice.variant not in ("", "heart") or voice.language not in LANGUAGES:
        raise VoiceError(
            f"hibari has one voice, language en and variant heart, not {voice.language!r} and"
            f" {voice.variant!r}: use espeak for others"
        )
