"""Hypotheses made by hand, and a translator that has no others."""

import string
from types import SimpleNamespace
from typing import Any

from simuljax.serve.whisper import WhisperTranslator, Window
from simuljax.serve.whisper.hypothesis import Guards, Hypothesis, Segment, SpelledWord

MARK_ID = 900
OPEN = Guards(  # nothing is held back
    quiet_db=-1e3,
    steady_db=0.0,
    no_speech=1.0,
    surely_no_speech=1.0,
    silent_s=1e6,
    compression=1e6,
    echo_words=10**6,
)


class Fake(WhisperTranslator):
    """Whisper as far as its streams go; `written` is in place of the model."""

    def written(self, window: Window) -> Hypothesis:
        raise NotImplementedError

    def backend(self, **overrides: Any) -> Any:
        def step(reads):
            return {row: self.written(window) for row, window in reads.items()}

        backend: Any = super().backend(**overrides)
        backend.rows = lambda streams: SimpleNamespace(step=step)
        return backend


def spelled(word):
    """A word of one id, and one of the marks at its end."""
    bare = word.rstrip(string.punctuation)
    mark = word.removeprefix(bare)
    ids = (len(bare), MARK_ID) if mark else (len(bare),)
    return SpelledWord(text=word, ids=ids, mark=mark, mark_ids=len(ids) - 1)


def segment(text, end=1.0, *, start=0.0, no_speech=0.0, log_probability=0.0):
    words = tuple(map(spelled, text.split()))
    given = {"no_speech": no_speech, "log_probability": log_probability}
    return Segment(words=words, start=start, end=end, **given)


def hypothesis(*texts, seconds=1.0, **given):
    """Segments one after the other, each so long."""
    segments = tuple(
        segment(text, seconds * (k + 1), start=seconds * k) for k, text in enumerate(texts)
    )
    return Hypothesis(segments=segments, **given)


def attending(*states, total):
    """A segment of words that attend to these states."""
    words = tuple(SpelledWord(text=f"w{k}", state=state) for k, state in enumerate(states))
    return Hypothesis(segments=(Segment(words=words, start=0.0, end=1.0),), states=total)
