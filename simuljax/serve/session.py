"""The host side of a stream, which knows no model and no device: sound in, words out.

What a push passes through, from the host to the device and back:

    Stream or EngineStream    one speaker
    Session                   cuts sound into READs; turns tokens into words with delays
    Rows                      the state of all streams on the device; `step` takes a READ of each
    Backend                   opens sessions and rows, compiles
    Decoder (decode/)         the compiled step: arrays only

READs of one size are cut from the sound, however it was pushed; a word has the delay of the push
that it waited for.

With `sentences="many"` speech may go on for hours: when the model ends a sentence, or one is as
long as a stream can hold, the next begins with the sound after the last state that any head
attended to. What came before is forgotten, so that memory and the cost of a READ are bounded.

With `sentences="pauses"` a session reads the segments of speech alone (`audio.segmentation`); the
end of a segment ends the sentence, and the next segment begins with a fresh state. If the model
ends a sentence within a segment, the rest of it is a sentence of its own if it is long enough.
Words go through a `RepetitionFilter`, which begins anew with a stream and after a pause.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from simuljax.audio import MS, RATE, Incoming
from simuljax.audio.segmentation import Segmenter
from simuljax.config.decoding import Decoding
from simuljax.config.model import STATE_MS
from simuljax.decode.stammer import RepetitionFilter
from simuljax.text import EOS, WordStream

STATE = STATE_MS * MS  # samples


@dataclass(frozen=True)
class Word:
    """A committed word: it will not change."""

    text: str
    delay_ms: float  # of the source that had been pushed
    elapsed_ms: float  # the same plus the time spent until then


class Stream:
    """One speaker, with a device to himself. Sound may come in pieces of any size."""

    def __init__(self, backend: "Backend"):
        self.backend, self.session, self.rows = backend, backend.open(), backend.rows(1)
        self.computed_ms = 0.0

    @property
    def pending(self) -> str:
        """Return the text that is not committed yet; "" where there is none."""
        return self.session.pending

    @property
    def settled_s(self) -> float:
        """Return the seconds of sound for which no more words will come."""
        return self.session.settled_s

    def push(self, samples: Sequence[float] | np.ndarray) -> list[Word]:
        """Take more sound: mono, int16 or float in [-1, 1]. Return the words it completes."""
        start = time.perf_counter()
        self.session.push(np.asarray(samples))
        return self._read_all(start)

    def finish(self) -> list[Word]:
        """Note that nothing more will come; return the words that were still waiting."""
        start = time.perf_counter()
        self.session.finish()
        return self._read_all(start)

    def _read_all(self, start: float) -> list[Word]:
        words, before_ms = [], self.computed_ms
        while (read := self.session.next()) is not None:
            texts = self.session.commit(self.rows.step({0: read})[0])
            spent_ms = before_ms + (time.perf_counter() - start) * 1e3
            words += self.session.timed(texts, spent_ms)
        self.computed_ms = before_ms + (time.perf_counter() - start) * 1e3
        return words


class Push(NamedTuple):
    """Sound that came at once."""

    until: int  # samples at 16 kHz in all, of all pushes so far
    ms: float  # of sound in all
    at: float  # the clock's time


class Session:
    """The sound of one stream, and when each part of it was pushed."""

    pending = ""  # text that is not committed yet

    def __init__(self, *, rate: int = RATE):
        self.set_rate(rate)
        self.waiting = np.zeros(0, np.int16)  # pushed and not read yet
        self.read_samples = self.pushed = 0  # at 16 kHz; as pushed
        self.pushes: deque[Push] = deque()  # those not read to their ends
        self.needed = Push(until=0, ms=0.0, at=0.0)  # the one that words written now waited for
        self.ended = self.finished = False
        self.end_counts = True  # that nothing follows has to be known for the last READ

    def set_rate(self, rate: int) -> None:
        """Take samples at another rate. Call it before the first push."""
        self.rate, self.incoming = rate, Incoming(rate)

    @property
    def delay_ms(self) -> float:
        """Return the delay of words that are committed now."""
        return self.needed.ms

    @property
    def waiting_ms(self) -> float:
        """Return the sound that was pushed and not read."""
        return len(self.waiting) / MS

    @property
    def read_ms(self) -> float:
        """Return the sound that was read, or left out as silence."""
        return self.read_samples / MS

    @property
    def settled_s(self) -> float:
        """Return the seconds of sound for which no more words will come."""
        return self.read_ms / 1000

    @property
    def sentence_over(self) -> bool:
        """Return True if the words of the last commit ended a sentence."""
        return self.finished

    @property
    def size(self) -> int:
        """Return the samples of the next READ."""
        raise NotImplementedError

    @property
    def push_size(self) -> int:
        """Return the samples to push at once where a recording is played."""
        return self.size

    @property
    def ready(self) -> bool:
        """Return True if there is a READ."""
        raise NotImplementedError

    @property
    def missing(self) -> int:
        """Return the samples at 16 kHz without which there can be no READ, unless nothing follows.

        Sound that comes may wait until there are as many: nothing would be done with it earlier.
        """
        raise NotImplementedError

    def next(self) -> Any:
        """Return the next READ, the sound of one step, or None."""
        raise NotImplementedError

    def commit(self, written: Any) -> list[str]:
        """Take what the model wrote after the last READ; return the words it completes."""
        raise NotImplementedError

    def push(self, samples: np.ndarray) -> None:
        """Take more sound: mono, int16 or float in [-1, 1]; it came now."""
        samples = np.asarray(samples)
        self._push(samples, [(samples.size, time.perf_counter())])

    def push_pcm(self, pieces: Sequence[tuple[bytes, float]]) -> None:
        """Take PCM16 in pieces, each with the time when it came, as many pushes would."""
        samples = np.frombuffer(b"".join([data for data, _ in pieces]), "<i2")
        self._push(samples, [(len(data) // 2, at) for data, at in pieces])

    def _push(self, samples: np.ndarray, pieces: Sequence[tuple[int, float]]) -> None:
        if self.ended:
            raise ValueError("the stream has been finished: begin another")
        if not samples.size:
            return
        incoming, first = self.incoming, self.incoming.given_by(self.pushed)
        sound, pushes = incoming.push(samples), []
        for count, at in pieces:
            self.pushed += count
            pushes.append(Push(incoming.given_by(self.pushed) - first, self._pushed_ms, at))
        self._take(sound, pushes)

    @property
    def _pushed_ms(self) -> float:
        return self.pushed * 1000 / self.rate

    def finish(self, at: float | None = None) -> None:
        """Note that nothing more will come; the end came `at` a time, by default now."""
        if self.ended:
            return
        self.ended, sound = True, self.incoming.finish()
        self._take(sound, [Push(len(sound), self._pushed_ms, at or time.perf_counter())])
        self.finished = self.finished or not self.pushed

    def timed(self, texts: Sequence[str], spent_ms: float) -> list[Word]:
        """Return the words that are committed now, with the time spent on them and before."""
        elapsed_ms = self.delay_ms + spent_ms
        return [Word(text=t, delay_ms=self.delay_ms, elapsed_ms=elapsed_ms) for t in texts]

    def _take(self, sound: np.ndarray, pushes: Sequence[Push]) -> None:
        """Let sound wait to be read; its pushes are those `until` a place of it."""
        if self.finished:
            return
        first = self.read_samples + len(self.waiting)
        self.waiting = np.concatenate([self.waiting, sound])
        for count, ms, at in pushes:
            if self.ended or not self.pushes or first + count > self.pushes[-1].until:
                self.pushes.append(Push(first + count, ms, at))

    def _read(self, count: int) -> np.ndarray:
        """Return so many waiting samples; words that follow have the delay of their push."""
        sound, self.waiting = self.waiting[:count], self.waiting[count:]
        self.read_samples += len(sound)
        while len(self.pushes) > 1 and self.pushes[0].until < self.read_samples:
            self.pushes.popleft()
        if self.ended and self.end_counts and not len(self.waiting):
            self.needed = self.pushes[-1]
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
        decoding: Decoding | None = None,
        rate: int = RATE,
        first: int | None = None,
    ):
        """Cut READs of `read` samples, and sentences of at most `most`, at 16 kHz.

        Every sentence goes on from `words`, which have seen nothing. Its first READ is of `first`
        samples, if given. `decoding` says where sentences end and what may not be repeated.
        """
        super().__init__(rate=rate)
        decoding = decoding or Decoding()
        self.blank, self.words, self.sentences = words, words, decoding.sentences
        self.unrepeated = self.unrepeated_blank = RepetitionFilter(limits=decoding.stammer)
        self.read, self.first = read, first or read
        self.most = max(1, most // read - 1) * read
        self.again = self.waiting  # to be read again
        self.parts: list[np.ndarray] = []  # READs of this sentence
        self.length = 0  # samples of these
        self.reach = 0  # states of the sentence that were attended to
        self.anew = True
        self.taken = 0  # samples at 16 kHz, silence included
        self.segmenter: Segmenter | None = None
        self.ends: deque[int] = deque()  # of segments, in samples that are read
        self.closing = False  # the READ that is computed ends a segment
        self.least = 0  # samples without which a sentence does not begin
        if self.sentences == "pauses":
            self.segmenter, self.end_counts = Segmenter(decoding.segmentation), False

    @property
    def size(self) -> int:
        return self.first if self.anew else self.read

    @property
    def push_size(self) -> int:
        return self.size if self.segmenter is None else STATE

    @property
    def sentence(self) -> np.ndarray:
        """Return the sound of this sentence that was read."""
        return np.concatenate([self.again[:0], *self.parts])

    @property
    def sentence_over(self) -> bool:
        return self.anew

    @property
    def read_ms(self) -> float:
        held = 0 if self.segmenter is None else self.segmenter.held
        return (self.taken - held - len(self.waiting)) / MS

    @property
    def ready(self) -> bool:
        return not self.finished and (self._over or self._there >= max(self.size, self.least))

    @property
    def missing(self) -> int:
        lacks = max(self.size, self.least) - len(self.again) - len(self.waiting)
        if self.segmenter is None:
            return max(0, lacks)
        return max(0, min(lacks - self.segmenter.held, self.segmenter.missing))

    @property
    def _over(self) -> bool:
        """Return True if all sound of the sentence, or of the segment, has come."""
        return bool(self.ends) if self.segmenter else self.ended

    @property
    def _there(self) -> int:
        """Return the samples that can be read of this sentence, or of the segment."""
        return len(self.again) + self._unread

    @property
    def _unread(self) -> int:
        return self.ends[0] - self.read_samples if self.ends else len(self.waiting)

    def next(self) -> Read | None:
        if not self.ready:
            return None
        size, self.least = self.size, 0
        old, self.again = self.again[:size], self.again[size:]
        chunk = np.concatenate([old, self._read(min(size - len(old), self._unread))])
        full = False
        if self.sentences != "one":
            self.parts.append(chunk)
            self.length += len(chunk)
            full = self.length >= self.most
        anew, self.anew = self.anew, False
        last = self._over and not self._there
        self.closing = last and self.segmenter is not None
        return Read(samples=chunk, ended=full or last, anew=anew)

    def commit(self, written: Tokens) -> list[str]:
        over = written.finished or self.closing
        if not written.ids and not over:
            return []  # most READs: nothing changes
        self.words, words = self.words.push([token for token in written.ids if token != EOS])
        self.reach = max(self.reach, written.reach)
        words += self.words.finish() if over else []
        self.unrepeated, kept = self.unrepeated.push(words)
        if over:
            self._end_sentence()
        return [word for word in kept if word]

    def _end_sentence(self) -> None:
        """Forget what was translated; keep the rest, if it counts, to be read again."""
        rest = self.sentence[min(max(self.reach * STATE, self.read), self.length) :]
        self.parts, self.length, self.reach, self.anew = [], 0, 0, True
        self.words = self.blank
        self.again = np.concatenate([rest, self.again])
        if self.segmenter is not None:
            settings = self.segmenter.settings
            self.least = settings.pause_ms * MS + round(settings.remainder_s * RATE)
            if self.closing:
                self._end_segment()
            self._skip()
            return
        over = self.ended and not len(self.waiting) and len(self.again) < self.read
        if self.sentences == "one" or over:
            self.finished, self.again, self.waiting = True, self.again[:0], self.waiting[:0]

    def _take(self, sound: np.ndarray, pushes: Sequence[Push]) -> None:
        self.taken += len(sound)
        if self.segmenter is not None:
            sound, pushes = self._speech(sound, pushes, self.segmenter)
        super()._take(sound, pushes)
        self._skip()

    def _speech(
        self, sound: np.ndarray, pushes: Sequence[Push], segmenter: Segmenter
    ) -> tuple[np.ndarray, Sequence[Push]]:
        """Return the sound of segments, with its pushes; note where segments end."""
        parts, given = segmenter.push_pieces(sound, [push.until for push in pushes])
        pushes = [Push(count, ms, at) for count, (_, ms, at) in zip(given, pushes, strict=True)]
        last = segmenter.finish() if self.ended else []
        self.end_counts = bool(last)
        place, parts = self.read_samples + len(self.waiting), [*parts, *last]
        for part in parts:
            place += len(part.samples)
            if part.ends:
                self.ends.append(place)
        speech = np.concatenate([sound[:0], *(part.samples for part in parts)])
        if last:  # by the end, of which there is one push
            pushes = [pushes[-1]._replace(until=len(speech))]
        return speech, pushes

    def _skip(self) -> None:
        """Leave out the rest of a segment that is too short for a sentence; note the end of all."""
        if self.segmenter is None:
            return
        while self.ends and self._there < self.least:
            self._end_segment()
        self.finished = self.finished or (self.ended and not self.ends)

    def _end_segment(self) -> None:
        """Go on with the next segment; what is left of this one is not read."""
        count = self.ends.popleft() - self.read_samples
        self.waiting, self.read_samples = self.waiting[count:], self.read_samples + count
        self.again, self.least, self.closing = self.again[:0], 0, False
        self.unrepeated = self.unrepeated_blank


class Rows(Protocol):
    """The states of so many streams on a device."""

    meanwhile: Callable[[], object]  # may be called while the device computes

    def step(self, reads: Mapping[int, Any]) -> Mapping[int, Any]:
        """Compute one READ of some rows; return what each has written, for `Session.commit`."""
        ...


class Backend(Protocol):
    """A model with settings, compiled once for all of its streams."""

    def open(self) -> Session: ...

    def rows(self, streams: int) -> Rows:
        """Return room for so many streams."""
        ...

    def compile(self, streams: int) -> None:
        """Compile all that so many streams may need."""
        ...
