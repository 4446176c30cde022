"""The host side of one stream: sound in, READs out; what the model wrote in, words out.

A session knows no model and no device, so that a stream that has a device to itself and one of many
(`simuljax.serve.engine`) work alike. READs of one size are cut from the sound, however it was
pushed.

With `sentences="many"` speech may go on for hours: when the model ends a sentence, or one is as
long as a stream can hold, the next begins with the sound after the last state that any head
attended to. What came before is forgotten, so that memory and the cost of a READ are bounded.
"""

import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

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


class Session:
    """The sound of one stream, and when each part of it was pushed.

    A kind of session adds `ready`, `next` (the sound of one step) and `commit` (the words of what
    the model wrote for it).
    """

    def __init__(self, *, rate: int = RATE):
        self.rate, self.incoming = rate, Incoming(rate)
        self.waiting = np.zeros(0, np.int16)  # pushed and not read yet
        self.read_samples = self.pushed = 0  # at 16 kHz; as pushed
        self.pushes: deque[Push] = deque()  # those not read to their ends
        self.needed = Push(until=0, ms=0.0, at=0.0)  # the one that words written now waited for
        self.ended = self.finished = False

    @property
    def delay_ms(self) -> float:
        """Return the delay of words that are committed now."""
        return self.needed.ms

    @property
    def waiting_ms(self) -> float:
        """Return the sound that was pushed and not read."""
        return len(self.waiting) / MS

    @property
    def pushed_ms(self) -> float:
        """Return the sound that was pushed."""
        return self.pushed * 1000 / self.rate

    @property
    def pending(self) -> str:
        """Return the text that is not committed yet."""
        return ""

    @property
    def settled_s(self) -> float:
        """Return the seconds of sound for which no more words will come."""
        return self.read_samples / RATE

    @property
    def size(self) -> int:
        """Return the samples of the next READ."""
        raise NotImplementedError

    @property
    def ready(self) -> bool:
        """Return True if there is a READ."""
        raise NotImplementedError

    def next(self) -> Any:
        """Return the next READ, or None."""
        raise NotImplementedError

    def commit(self, written: Any) -> list[str]:
        """Take what the model wrote after the last READ; return the words it completes."""
        raise NotImplementedError

    def push(self, samples: np.ndarray) -> None:
        """Take more sound: mono, int16 or float in [-1, 1]."""
        if self.ended:
            raise ValueError("the stream has been finished: begin another")
        samples = np.asarray(samples)
        if samples.size:
            self._take(self.incoming.push(samples), len(samples))

    def finish(self) -> None:
        """Note that nothing more will come."""
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
        until = self.read_samples + len(self.waiting)
        self.pushes.append(Push(until=until, ms=self.pushed_ms, at=time.perf_counter()))

    def _read(self, count: int) -> np.ndarray:
        """Return so many waiting samples; words that follow have the delay of their push."""
        sound, self.waiting = self.waiting[:count], self.waiting[count:]
        self.read_samples += len(sound)
        while len(self.pushes) > 1 and self.pushes[0].until < self.read_samples:
            self.pushes.popleft()
        if self.ended and not len(self.waiting):
            self.needed = self.pushes[-1]  # that there is no more had to be known
        elif self.pushes[0].ms > self.needed.ms:
            self.needed = self.pushes[0]
        return sound


@dataclass(frozen=True, kw_only=True)
class Read:
    """Sound for one step."""

    samples: np.ndarray  # int16, at most a READ of them
    ended: bool  # nothing follows in this sentence
    anew: bool  # a sentence begins: step from a state that has read nothing


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Tokens that a step has written for one stream."""

    ids: list[int]
    reach: int  # encoder states that were attended to
    finished: bool  # the sentence has ended


class ReadSession(Session):
    """A stream that is read in steps of one size and written in tokens."""

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
        """Cut READs of `read` samples, and sentences of at most `most`, at 16 kHz.

        Every sentence goes on from `words`, which have seen nothing. Its first READ is of `first`
        samples, if given.
        """
        super().__init__(rate=rate)
        self.blank, self.words, self.sentences = words, words, sentences
        self.read, self.first = read, first or read
        self.most = max(1, most // read - 1) * read
        self.again = self.sentence = self.waiting  # to be read again; of this sentence
        self.reach = 0  # states of the sentence that were attended to
        self.anew = True

    @property
    def size(self) -> int:
        """Return the samples of the next READ."""
        return self.first if self.anew else self.read

    @property
    def ready(self) -> bool:
        """Return True if there is a READ."""
        there = len(self.again) + len(self.waiting)
        return not self.finished and (self.ended or there >= self.size)

    def next(self) -> Read | None:
        """Return the next READ, or None."""
        if not self.ready:
            return None
        size = self.size
        old, self.again = self.again[:size], self.again[size:]
        chunk = np.concatenate([old, self._read(size - len(old))])
        full = False
        if self.sentences == "many":
            self.sentence = np.concatenate([self.sentence, chunk])
            full = len(self.sentence) >= self.most
        anew, self.anew = self.anew, False
        last = self.ended and not len(self.again) + len(self.waiting)
        return Read(samples=chunk, ended=full or last, anew=anew)

    def commit(self, written: Tokens) -> list[str]:
        """Return the words that a step completes."""
        self.words, words = self.words.push([token for token in written.ids if token != EOS])
        self.reach = max(self.reach, written.reach)
        return words + self._end_sentence() if written.finished else words

    def _end_sentence(self) -> list[str]:
        """Forget what was translated, keep the rest to be read again; return the last words."""
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
