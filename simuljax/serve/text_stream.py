"""A written source that is translated as its words come.

    reader = TextReader(simuljax.load("runs/dar"), threshold=0.5)

    stream = reader.stream()
    for word in ("the", "red", "house"):
        for written in stream.push(word):
            print(written.text, written.delay)
    print(stream.finish())

A READ is a word, and the end of the text is one more. What is written is what `simulate_text` gives
for the same READs.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.decode.policy import PolicyError
from simuljax.decode.reencoding import (
    SHORTEST_TEXT,
    ReencodingState,
    ReencodingTextDecoder,
    padded,
)
from simuljax.decode.stream import Events
from simuljax.serve.run import RunError
from simuljax.serve.run_translator import RunTranslator, Streaming
from simuljax.text import EOS, WordStream
from simuljax.text.word_pieces import pieces_of_word

SHARED = ("decoding", "limits")  # settings that text has too; the others are about sound


@dataclass(frozen=True, kw_only=True)
class TextWord:
    """A committed word of the translation: it will not change."""

    text: str
    delay: int  # words of the source that had been pushed


class TextReader:
    """A text branch with its settings; what its streams share is compiled once."""

    def __init__(self, translator: RunTranslator, **overrides: Any):
        """Take fields of `Decoding` and `StreamLimits` by name; `states` are pieces here."""
        run = translator.run
        if run.model.text is None:
            raise RunError(f"{run.directory} has no text branch: use translator.stream")
        chosen = text_settings(overrides)
        self.run, self.most = run, chosen.limits.states
        pieces_of_word(run.source, "", is_first=True)  # refuses a vocabulary without words
        self.decoder = ReencodingTextDecoder(
            model=translator.network, decoding=chosen.decoding, limits=chosen.limits
        )
        try:
            self.learnt = self.decoder.params(translator.variables, translator.words)
        except PolicyError as error:
            raise RunError(f"{run.directory}: {error}") from None
        self.compiled = jax.jit(self.decoder.read)
        self.read(self.begin(), [], ended=False)  # compiles the first shape

    def stream(self) -> "TextStream":
        """Return a stream that has read nothing."""
        return TextStream(self)

    def begin(self) -> ReencodingState:
        """Return a state on its device, as a READ returns it, or the second would compile again."""
        return jax.device_put(self.decoder.init(1), jax.local_devices()[0])

    def read(
        self, state: ReencodingState, pieces: list[int], *, ended: bool
    ) -> tuple[ReencodingState, Events]:
        """Read all pieces so far; return the state, and the events on the host."""
        if len(pieces) > self.most:
            raise ValueError(
                f"a text of more than {self.most} pieces, all of which are read anew with every "
                f"word: cut it into sentences, or say states={2 * self.most}"
            )
        tokens = padded(np.array(pieces, np.int32), SHORTEST_TEXT)
        length, over = jnp.array([len(pieces)]), jnp.array([ended])
        state, events = self.compiled(self.learnt, state, jnp.asarray(tokens), length, over)
        return state, jax.device_get(events)


class TextStream:
    """One text, word by word."""

    def __init__(self, reader: TextReader):
        self.reader, self.state = reader, reader.begin()
        self.pieces: list[int] = []
        self.words = WordStream.begin(reader.run.target)
        self.pushed = 0  # words of the source
        self.ended = self.finished = False  # the source; the translation

    def push(self, text: str) -> list[TextWord]:
        """Read the next word, or several, each a READ. Return the words it completes."""
        if self.ended:
            raise ValueError("the stream has been finished: begin another with reader.stream()")
        return [written for word in text.split() for written in self._push(word)]

    def finish(self) -> list[TextWord]:
        """Note that the source has ended; return the words that were still waiting."""
        if self.ended:
            return []
        self.ended = True
        if self.pushed:
            self.pieces.append(EOS)
        return self._read()

    def _push(self, word: str) -> list[TextWord]:
        source = self.reader.run.source
        self.pieces += pieces_of_word(source, word, is_first=not self.pieces)
        self.pushed += 1
        return self._read()

    def _read(self) -> list[TextWord]:
        """Write what the pieces allow, unless all has been written."""
        if self.finished:
            return []
        self.state, events = self.reader.read(self.state, self.pieces, ended=self.ended)
        tokens, _, self.finished = events.row(0)
        self.words, words = self.words.push([token for token in tokens if token != EOS])
        words += self.words.finish() if self.finished else []
        return [TextWord(text=word, delay=self.pushed) for word in words]


def text_settings(overrides: dict[str, Any]) -> Streaming:
    """Return the settings by names of `Decoding` or `StreamLimits`; refuse others."""
    for field in dataclasses.fields(Streaming):
        if field.name in overrides and field.name not in SHARED:
            raise TypeError(f"a stream of text has no setting {field.name!r}: it is about sound")
    return Streaming.of(overrides)
