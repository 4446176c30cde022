"""One speaker: sound in, windows out; hypotheses in, words out. No model, no clock, no threads.

    course.push(samples)
    while window := course.next():
        words += course.judge(write(window))

The model may stop before the sound does: what is left when nothing more will come is written again.

The buffer is the sound since the point up to which all is done with, at most `most_s` of it. A
window is the buffer with `window_s` more. When segments are committed, the buffer is trimmed at the
end of the last one, and their text becomes the prompt. Where words are judged, those committed
of a segment that is not done with stay in the buffer, and the next hypothesis begins with them.

Sound leaves the buffer in three ways, and each is counted: with segments that are committed
(`said`), because nobody speaks in it (`silent`), because its text was refused as an echo,
or because the buffer is full and there is no text for it (`refused`).
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simuljax.audio import RATE
from simuljax.serve.interpret.guards import is_echo, nobody_speaks, repeats_itself, silent_samples
from simuljax.serve.interpret.hypothesis import Hypothesis, Token
from simuljax.serve.interpret.policies import judge, plain
from simuljax.serve.interpret.settings import Interpreting

_MARGIN = RATE // 2  # silence that is kept before what may be the beginning of speech
_LEAST = RATE // 10  # sound of which anything can be written
_REST = RATE  # sound after the last text in which more may have been said
_LANGUAGE = 5 * RATE  # sound after which the guess of a language stays
_BEGUN = 200  # tokens that a window may begin with: Whisper writes 448 in all
_REMEMBERED = 256  # words said that echoes are looked for in

Leaves = Literal["said", "silent", "refused"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Window:
    """What the model is asked to write."""

    samples: np.ndarray  # int16: the whole buffer
    prompt: tuple[int, ...]  # text before the buffer
    begun: tuple[int, ...]  # how its own text begins
    language: str | None  # that is spoken; None: guess


class Course:
    """The state of one speaker; bounded, however long he speaks."""

    def __init__(self, interpreting: Interpreting):
        self.interpreting = self.following = interpreting  # of this window, and of those after it
        self.language = interpreting.language
        self.buffer = np.zeros(0, np.int16)
        self.waiting: deque[np.ndarray] = deque()  # not in the buffer yet
        self.committed: tuple[Token, ...] = ()  # words of the buffer that are said
        self.open: tuple[Token, ...] = ()  # words of the last hypothesis that are not
        self.before: list[Hypothesis] = []  # the latest last
        self.prompt: tuple[int, ...] = ()
        self.last_said: list[str] = []  # without capitals and marks
        self.left: dict[Leaves, int] = {"said": 0, "silent": 0, "refused": 0}  # samples
        self.guessed = 0  # samples of windows of which the language was guessed
        self.ended = self.finished = False
        self.again = False  # the same window is written once more
        self.refused = False  # words of the buffer were not said

    @property
    def hypothesis(self) -> str:
        """What is written and not said yet."""
        return " ".join(word.text for word in self.open)

    @property
    def waits(self) -> int:
        """Samples that are in no window yet."""
        return sum(map(len, self.waiting))

    def push(self, samples: np.ndarray) -> None:
        """More sound: int16 at 16 kHz."""
        if len(samples):
            self.waiting.append(samples)

    def finish(self) -> None:
        """Nothing more will be said."""
        self.ended = True

    def change(self, interpreting: Interpreting) -> None:
        """From the next window on."""
        self.following = interpreting

    def next(self) -> Window | None:
        """What is to be written next, if there is sound for it."""
        if self.again:
            self.again = False
            return self._window()
        self._settle_change()
        while (count := self._due()) is not None:
            self._take(count)
            if self._has_speech():
                return self._window()
            self.before, self.open = [], ()
            self.finished = self._is_last
        return None

    def judge(self, hypothesis: Hypothesis) -> list[str]:
        """The words that are said of what the model wrote for the window."""
        guards = self.interpreting.guards
        if nobody_speaks(hypothesis, guards):
            return self._hear_nothing()
        self._settle_language(hypothesis)
        if repeats_itself(hypothesis.text, guards):
            if self.prompt:  # which may have begun it: the same sound is written without
                self.prompt, self.again = (), True
                return []
            if not self._least_s:
                self.before, self.open = [], ()
                return []
        return self._commit(hypothesis)

    @property
    def _step(self) -> int:
        return round(self.interpreting.window_s * RATE)

    @property
    def _most(self) -> int:
        return round(self.interpreting.most_s * RATE)

    @property
    def _is_last(self) -> bool:
        """Whether all sound is in the buffer and none will come."""
        return self.ended and not self.waiting

    @property
    def _least_s(self) -> float:
        """Sound that has to leave the buffer before the next window."""
        if self._is_last:
            return math.inf
        if sum(len(word.ids) for word in self.committed) > _BEGUN:
            return 1 / RATE
        return max(0, len(self.buffer) + self._step - self._most) / RATE

    def _due(self) -> int | None:
        """Samples that the next window adds; None if it has to wait."""
        if self.finished:
            return None
        waits, size = self.waits, self._step
        if waits < size and not self.ended:
            return None
        room = max(0, self._most - len(self.buffer))  # less than a window only after a change
        if self.interpreting.behind == "latest":
            size = max(size, min(waits, room) // size * size)
        return min(waits, size, room)

    def _take(self, count: int) -> None:
        parts = [self.buffer]
        while count:
            first = self.waiting.popleft()
            parts.append(first[:count])
            if len(first) > count:
                self.waiting.appendleft(first[count:])
            count -= len(parts[-1])
        self.buffer = np.concatenate(parts)

    def _has_speech(self) -> bool:
        """Lets silence at the beginning of the buffer go; whether there is anything after it."""
        silence = silent_samples(self.buffer, self.interpreting.guards)
        everything = silence == len(self.buffer)
        if everything or not self.committed:
            self._let_go(silence - _MARGIN, "silent")
        return not everything and len(self.buffer) >= _LEAST

    def _window(self) -> Window:
        limit = self.interpreting.prompt_tokens
        begun = tuple(i for word in self.committed for i in word.ids)
        return Window(
            samples=self.buffer,
            prompt=self.prompt[-limit:] if limit else (),
            begun=begun,
            language=self.language,
        )

    def _settle_change(self) -> None:
        if self.following.language != self.interpreting.language:
            self.language, self.guessed = self.following.language, 0
        self.interpreting = self.following

    def _settle_language(self, hypothesis: Hypothesis) -> None:
        """A guess stays once there was enough speech for it."""
        self.guessed += self._step
        if self.language is None and self.guessed >= _LANGUAGE:
            self.language = hypothesis.language

    def _hear_nothing(self) -> list[str]:
        """The buffer waits a while, because the beginning of speech is easily missed."""
        self.before, self.open = [], ()
        self.finished = self._is_last
        patience_s = self.interpreting.guards.silent_s
        given_up = patience_s is not None and len(self.buffer) >= patience_s * RATE
        if self._least_s or given_up:
            self._let_go(len(self.buffer) - self._step, "silent")
        return []

    def _commit(self, hypothesis: Hypothesis) -> list[str]:
        policy, known, least_s = self.interpreting.policy, len(self.committed), self._least_s
        verdict = judge(policy, hypothesis, self.before, committed=known, least_s=least_s)
        words, done = hypothesis.words, hypothesis.words_in(verdict.segments)
        said = self._said(hypothesis, known, verdict.words)
        self._remember(words[:done])
        self.committed, self.open = words[done : verdict.words], words[verdict.words :]
        hypotheses = [h.without(done) for h in (*self.before, hypothesis)]
        self.before = hypotheses[max(0, len(hypotheses) - policy.looks_back) :]
        before = len(self.buffer)
        self._leave(round(hypothesis.end_of(verdict.segments) * RATE))
        if self._least_s:  # no text is left: of the rest nothing was written
            self._let_go(len(self.buffer) + self._step - self._most, "refused")
        shorter = len(self.buffer) < before
        self.finished = self._is_last and not (shorter and len(self.buffer) >= _REST)
        return said

    def _said(self, hypothesis: Hypothesis, first: int, last: int) -> list[str]:
        """The texts of words `first` to `last`, less those of segments that are refused."""
        guards = self.interpreting.guards
        said, place = [], 0
        for segment in hypothesis.segments:
            start, end = max(first, place), min(last, place + len(segment.words))
            place += len(segment.words)
            texts = [word.text for word in hypothesis.words[start:end]]
            bare = [plain(text) for text in texts]
            loops = bool(texts) and repeats_itself(segment.text, guards)
            if loops or is_echo(bare, self.last_said, guards):
                self.refused = True
                continue
            said += texts
            self.last_said = [*self.last_said, *bare][-_REMEMBERED:]
        return said

    def _leave(self, count: int) -> None:
        """Sound of segments that are done with; after what was refused, the prompt begins anew."""
        if count:
            self._trim(count, "refused" if self.refused else "said")
            self.prompt = () if self.refused else self.prompt
            self.refused = False

    def _remember(self, words: Sequence[Token]) -> None:
        """As the prompt of what follows."""
        ids = tuple(i for word in words for i in word.ids)
        limit = self.interpreting.prompt_tokens
        self.prompt = (*self.prompt, *ids)[-limit:] if limit else ()

    def _let_go(self, count: int, how: Leaves) -> None:
        """Sound that nothing more will be said of."""
        if count > 0:
            self._remember(self.committed)
            self.committed, self.refused = (), False
            self._trim(count, how)

    def _trim(self, count: int, how: Leaves) -> None:
        count = min(count, len(self.buffer))
        self.buffer = self.buffer[count:]
        self.left[how] += count
