"""Guards against text that nobody said.

Whisper was trained on subtitles: of silence it writes "you", of noise "Thank you.", and a text that
begins to repeat itself goes on doing so, because it is the prompt of what follows.

    before the model   sound that is quiet, or as loud all the time, holds no speech
    after it           P(no speech) is high and the text a guess; the text repeats itself
    before a commit    the words repeat what was said last
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simuljax.audio import RATE
from simuljax.config.fields import check, setting
from simuljax.models.whisper.decoding import compression_ratio
from simuljax.serve.whisper.hypothesis import Hypothesis, plain

FRAME = RATE // 20  # 50 ms
_LEAST = RATE  # sound that tells whether loudness moves


@dataclass(frozen=True, kw_only=True)
class Guards:
    """Limits; one that is None does not hold.

    Without `log_probability` P(no speech) decides alone; without `silent_s` a buffer in which
    nobody speaks is kept until it is full.
    """

    quiet_db: float | None = setting(
        -60.0,
        help="Level of 50 ms below which is silence.",
        label="quiet{:g}",
        high=0,
    )
    steady_db: float | None = setting(
        3.0, help="Loudest above the quiet tenth; less is noise.", label="steady{:g}", low=0
    )
    no_speech: float | None = setting(
        0.6, help="P(no speech) above which unlikely text is dropped.", label="nospeech{:g}"
    )
    log_probability: float | None = setting(
        -0.5, help="Mean log P below which text is unlikely.", label="logp{:g}"
    )
    surely_no_speech: float | None = setting(
        0.9, help="P(no speech) above which any text is dropped.", label="surely{:g}"
    )
    silent_s: float | None = setting(
        5.0, help="Length of a buffer without speech that is let go.", label="silent{:g}s"
    )
    compression: float | None = setting(
        2.4, help="Compression by zlib above which text repeats itself.", label="zlib{:g}"
    )
    echo_words: int | None = setting(
        4, help="Words that repeat what is before them and are an echo.", label="echo{}", low=1
    )

    def __post_init__(self) -> None:
        check(self)


def levels(samples: np.ndarray) -> np.ndarray:
    """Return decibels of full scale of each 50 ms of samples, the last frame perhaps shorter."""
    if not len(samples):
        return np.zeros(0)
    starts = np.arange(0, len(samples), FRAME)
    energy = np.add.reduceat(np.square(samples / 32768), starts)
    counts = np.diff(starts, append=len(samples))
    return 10 * np.log10(np.maximum(energy / counts, 1e-12))


def silent_samples(samples: np.ndarray, guards: Guards) -> int:
    """Return the number of samples at the beginning without speech: before the first loud one.

    All of them, if loudness does not move at all: speech comes in syllables, noise does not. That
    is told by the differences of samples, so that a rumble, which moves slowly, does not count.
    """
    if _is_steady(samples, guards):
        return len(samples)
    if guards.quiet_db is None:
        return 0
    loud = np.flatnonzero(levels(samples) >= guards.quiet_db)
    return int(loud[0]) * FRAME if len(loud) else len(samples)


def _is_steady(samples: np.ndarray, guards: Guards) -> bool:
    if guards.steady_db is None or len(samples) < _LEAST:
        return False
    db = levels(np.diff(samples.astype(np.int32)))
    return bool(db.max() - np.percentile(db, 10) < guards.steady_db)


def nobody_speaks(hypothesis: Hypothesis, guards: Guards) -> bool:
    """Return True if the model itself detects no speech."""
    sure, likely = guards.surely_no_speech, guards.no_speech
    if sure is not None and hypothesis.no_speech > sure:
        return True
    if likely is None or hypothesis.no_speech <= likely:
        return False
    limit = guards.log_probability
    return limit is None or hypothesis.log_probability < limit


def repeats_itself(text: str, guards: Guards) -> bool:
    """Return True if zlib compresses the text too well, or it ends in a phrase said three times.

    The latter catches loops when they begin: "for the recipe" three times, a word five times.
    """
    if guards.compression is not None and compression_ratio(text) > guards.compression:
        return True
    if guards.echo_words is None:
        return False
    words = [plain(word) for word in text.split()]
    periods = range(1, len(words) // 3 + 1)
    return any(_run(words, period) >= max(2 * period, guards.echo_words) for period in periods)


def is_echo(words: Sequence[str], said: Sequence[str], guards: Guards) -> bool:
    """Return True if words only continue a loop of what was said before them.

    That is, for a period p: from some place on every word, these included, is the one p before it;
    the run has at least `echo_words` words, p of them (a whole round) and all of these.
    """
    if guards.echo_words is None or not words:
        return False
    text, least = [*said, *words], max(guards.echo_words, len(words))
    return any(_run(text, period) >= max(least, period) for period in range(1, len(said) + 1))


def _run(text: Sequence[str], period: int) -> int:
    """Return the number of last words that equal those a period before them."""
    place = len(text) - 1
    while place >= period and text[place] == text[place - period]:
        place -= 1
    return len(text) - 1 - place
