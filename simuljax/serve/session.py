"""One speaker: sound that came and was not heard yet, words that were written and when.

This is what lies between samples and words on the host, the same for a stream that has a device to
itself and for one of many. READs of one size are cut from the sound, however it was pushed; what a
step writes becomes words.

With `sentences="many"` speech may go on for hours: when the model ends a sentence, or one is as
long as a stream can hold, the next begins with the sound after the last state that any head
attended to. What came before is forgotten, so that memory and the cost of a READ are bounded.
"""

import time
from collections import deque
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simuljax.audio import RATE, Incoming
from simuljax.nn.subsampling import STRIDE
from simuljax.text import EOS, WordStream

MS = RATE // 1000  # samples
STATE = 10 * STRIDE * MS
Sentences = Literal["one", "many"]


@dataclass(frozen=True)
class Word:
    """A committed word: it will not change."""

    text: str
    delay_ms: float  # of the source that had been pushed
    elapsed_ms: float  # the same plus the time spent until then


@dataclass(frozen=True, kw_only=True)
class Push:
    """Sound that came at once."""

    until: int  # samples at 16 kHz in all, of all pushes so far
    ms: float  # of sound in all
    at: float  # the clock's time


@dataclass(frozen=True, kw_only=True)
class Read:
    """Sound for one step."""

    samples: np.ndarray  # int16, at most a READ of them
    ended: bool  # nothing follows in this sentence
    anew: bool  # a sentence begins: step from a state that has heard nothing


class Listener:
    """Sound in, READs out; tokens in, words out."""

    def __init__(
        self,
        words: WordStream,
        *,
        read: int,
        most: int,
        sentences: Sentences,
        rate: int = RATE,
        first: int | None = None,
    ):
        """READs of `read` samples; sentences of at most `most`, at 16 kHz.

        Every sentence goes on from `words`, which have seen nothing. Its first READ is of `first`
        samples, if given.
        """
        self.blank, self.sentences, self.read = words, sentences, read
        self.first = first or read
        self.most = max(1, most // read - 1) * read
        self.incoming, self.rate = Incoming(rate), rate
        nothing = np.zeros(0, np.int16)
        self.again = nothing  # heard in the sentence before and not translated: comes first
        self.waiting, self.sentence = nothing, nothing  # not heard yet; of this sentence
        self.heard = self.pushed = 0  # of all sentences, at 16 kHz; as pushed
        self.pushes: deque[Push] = deque()  # those not heard to their ends
        self.needed = Push(until=0, ms=0.0, at=0.0)  # the one that words written now waited for
        self.reach = 0  # states of the sentence that were attended to
        self.words = words
        self.anew, self.ended, self.finished = True, False, False

    @property
    def delay_ms(self) -> float:
        """Of words written now."""
        return self.needed.ms

    @property
    def size(self) -> int:
        """Samples of the next READ."""
        return self.first if self.anew else self.read

    @property
    def ready(self) -> bool:
        """Whether there is a READ."""
        there = len(self.again) + len(self.waiting)
        return not self.finished and (self.ended or there >= self.size)

    @property
    def waiting_ms(self) -> float:
        """Sound that was pushed and not heard."""
        return len(self.waiting) / MS

    def push(self, samples: np.ndarray) -> None:
        """More sound: mono, int16 or float in [-1, 1]."""
        if self.ended:
            raise ValueError("the stream has been finished: begin another")
        samples = np.asarray(samples)
        if samples.size == 0:
            return
        self._take(self.incoming.push(samples), len(samples))

    def finish(self) -> None:
        """Nothing more will be said."""
        if self.ended:
            return
        self._take(self.incoming.finish(), 0)
        self.ended = True
        self.finished = self.finished or not self.pushed

    def _take(self, sound: np.ndarray, pushed: int) -> None:
        self.pushed += pushed
        if self.finished:
            return
        self.waiting = np.concatenate([self.waiting, sound])
        until, ms = self.heard + len(self.waiting), self.pushed * 1000 / self.rate
        self.pushes.append(Push(until=until, ms=ms, at=time.perf_counter()))

    def next(self) -> Read | None:
        """The next READ, if there is one."""
        if not self.ready:
            return None
        size = self.size
        old, self.again = self.again[:size], self.again[size:]
        count = size - len(old)
        new, self.waiting = self.waiting[:count], self.waiting[count:]
        chunk = np.concatenate([old, new])
        self._hear(len(new))
        full = False
        if self.sentences == "many":
            self.sentence = np.concatenate([self.sentence, chunk])
            full = len(self.sentence) >= self.most
        anew, self.anew = self.anew, False
        last = self.ended and not len(self.again) + len(self.waiting)
        return Read(samples=chunk, ended=full or last, anew=anew)

    def _hear(self, count: int) -> None:
        """Words that follow have the delay of the push that brought the last sample they heard."""
        self.heard += count
        while len(self.pushes) > 1 and self.pushes[0].until < self.heard:
            self.pushes.popleft()
        if self.ended and not len(self.waiting):
            self.needed = self.pushes[-1]  # that there is no more had to be known
        elif self.pushes[0].ms > self.needed.ms:
            self.needed = self.pushes[0]

    def write(self, tokens: list[int], reach: int, finished: bool) -> list[str]:
        """What a step has written, as the words it completes; `finished`: the sentence ends."""
        self.words, words = self.words.push([token for token in tokens if token != EOS])
        self.reach = max(self.reach, reach)
        return words + self._end_sentence() if finished else words

    def _end_sentence(self) -> list[str]:
        """Forgets what was translated; what was not is heard again. Gives the last words."""
        done = min(max(self.reach * STATE, self.read), len(self.sentence))
        rest = self.sentence[done:]
        over = self.ended and not len(self.waiting) and len(rest) + len(self.again) < self.read
        words = self.words.finish()
        if self.sentences == "one" or over:
            self.finished, self.again, self.waiting = True, self.again[:0], self.waiting[:0]
            return words
        self.again = np.concatenate([rest, self.again])
        self.sentence, self.reach, self.anew = self.sentence[:0], 0, True
        self.words = self.blank
        return words
