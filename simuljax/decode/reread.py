"""A live stream for encoders that look at everything: with every READ all of it is encoded anew.

What has been heard grows, but shapes may not: samples, and tokens of a text, are padded to one of a
few lengths, each compiled once. A READ costs as much as the stream is long; the streaming encoder
has no such cost.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from simuljax.audio import RATE, Features, Statistics, features_of, frame_count
from simuljax.decode.choosing import check_policy, usual_history
from simuljax.decode.counting import count_units, counting_of
from simuljax.decode.listen import hear_speech, hear_text
from simuljax.decode.options import Decoding
from simuljax.decode.policies import History
from simuljax.decode.prefix import Known
from simuljax.decode.stream import Events, Learnt, StreamLimits
from simuljax.decode.turn import Told, nothing_told, tell
from simuljax.decode.writing import Written
from simuljax.models.translator import Translator
from simuljax.nn.pointers import Rule
from simuljax.text import Words

SHORTEST = 4 * RATE  # samples of the smallest shape; each further one is twice as long
SHORTEST_TEXT = 32  # tokens


@flax.struct.dataclass
class RereadState:
    """Streams between two READs."""

    told: Told
    reads: jax.Array  # int32 [B]


@flax.struct.dataclass
class LearntText:
    """What a READ of text computes with."""

    variables: Any  # of `model.apply`
    rule: Rule


@dataclass(frozen=True, kw_only=True)
class _Rereading:
    """What speech and text have in common: all that comes after the encoder."""

    model: Translator
    decoding: Decoding = field(default_factory=Decoding)
    limits: StreamLimits = field(default_factory=StreamLimits)

    def init(self, batch: int) -> RereadState:
        """Streams that have heard nothing."""
        told = nothing_told(self.model, batch, self.limits.tokens, self.decoding)
        return RereadState(told=told, reads=jnp.zeros(batch, jnp.int32))

    def _write(
        self,
        variables: Any,
        rule: Rule,
        state: RereadState,
        known: Known,
        heard: jax.Array,
        history: History,
    ) -> tuple[RereadState, Events]:
        """What was written judged anew, unless it is kept; then what is known allows to write."""
        told = tell(
            self.model,
            variables,
            state.told,
            known,
            heard=heard,
            rule=rule,
            decoding=self.decoding.fixed(),
            history=history,
        )
        events = Events(
            written=_after(told.written, state.told.written.count),
            finished=told.prefix.finished,
            more=jnp.zeros_like(told.prefix.finished),
        )
        return RereadState(told=told, reads=state.reads + 1), events


@dataclass(frozen=True, kw_only=True)
class RereadingDecoder(_Rereading):
    """The READ of one model of speech. Methods are pure, like those of `StreamingDecoder`."""

    features: Features = field(default_factory=Features)

    def learnt(self, variables: Any, statistics: Statistics, words: Words | None = None) -> Learnt:
        """What `read` takes first; `words` serve policies that count them."""
        check_policy(self.decoding.policy, self.model.config)
        rule = self.decoding.rule(self.model.config.monotonic, words)
        return Learnt(variables=variables, statistics=statistics, rule=rule)

    def read(
        self,
        learnt: Learnt,
        state: RereadState,
        samples: jax.Array,
        length: jax.Array,
        ended: jax.Array,
    ) -> tuple[RereadState, Events]:
        """Of samples [B, N] the first `length` [B] have been heard; writes what that allows."""
        features = features_of(samples, self.features, learnt.statistics)
        frames = frame_count(length, self.features.filterbank)
        rule, decoding = learnt.rule, self.decoding
        counting = counting_of(self.model.config, decoding, rule)
        given = (features, frames, ended)
        known = hear_speech(self.model, learnt.variables, *given, counting=counting)
        known = count_units(known, decoding, rule, length)
        history = usual_history(decoding.policy, self.model.config)
        return self._write(learnt.variables, rule, state, known, length, history)


@dataclass(frozen=True, kw_only=True)
class RereadingTextDecoder(_Rereading):
    """The READ of one model of text. Of the limits, `states` are tokens."""

    def learnt(self, variables: Any, words: Words | None = None) -> LearntText:
        """What `read` takes first; `words` serve policies that count them."""
        check_policy(self.decoding.policy, self.model.config, "text")
        rule = self.decoding.rule(self.model.config.monotonic, words)
        return LearntText(variables=variables, rule=rule)

    def read(
        self,
        learnt: LearntText,
        state: RereadState,
        tokens: jax.Array,
        length: jax.Array,
        ended: jax.Array,
    ) -> tuple[RereadState, Events]:
        """Of tokens [B, L] the first `length` [B] have been read, an end-of-sentence if `ended`."""
        known = hear_text(self.model, learnt.variables, tokens, length, ended)
        known = replace(known, units=state.reads + 1)
        return self._write(learnt.variables, learnt.rule, state, known, length, "recomputed")


def padded(source: np.ndarray, shortest: int = SHORTEST) -> np.ndarray:
    """Samples or tokens [N], and zeros up to the next shape, [1, S]."""
    size = shortest
    while size < len(source):
        size *= 2
    return np.pad(source, (0, size - len(source)))[None]


def _after(written: Written, before: jax.Array) -> Written:
    """What was written since there were `before` [B] tokens."""
    size = written.tokens.shape[1]
    place = before[:, None] + jnp.arange(size)

    def shifted(values: jax.Array) -> jax.Array:
        return jnp.take_along_axis(values, jnp.minimum(place, size - 1), 1)

    return replace(
        written,
        tokens=shifted(written.tokens),
        reach=shifted(written.reach),
        heard=shifted(written.heard),
        count=written.count - before,
    )
