"""A live stream for encoders that look at everything: with every READ all of it is encoded anew.

What has been heard grows, but shapes may not: samples are padded to one of a few lengths, each
compiled once. A READ costs as much as the stream is long; the streaming encoder has no such cost.
"""

from dataclasses import dataclass, field, replace

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from simuljax.audio import RATE, Features, features_of, frame_count
from simuljax.decode.listen import hear_speech
from simuljax.decode.options import Decoding
from simuljax.decode.prefix import Prefix, init_prefix, replay
from simuljax.decode.stream import Events, Learnt, StreamLimits
from simuljax.decode.writing import Written, nothing_written, write_on
from simuljax.models.translator import Translator

SHORTEST = 4 * RATE  # samples of the smallest shape; each further one is twice as long


@flax.struct.dataclass
class RereadState:
    """Streams between two READs: all that was written, and the decoder as it left it."""

    prefix: Prefix
    written: Written


@dataclass(frozen=True, kw_only=True)
class RereadingDecoder:
    """The READ of one model. Its methods are pure, like those of `StreamingDecoder`."""

    model: Translator
    features: Features = field(default_factory=Features)
    decoding: Decoding = field(default_factory=Decoding)
    limits: StreamLimits = field(default_factory=StreamLimits)

    def learnt(self, variables, statistics) -> Learnt:
        """What `read` takes first."""
        rule = self.decoding.rule(self.model.config.monotonic)
        return Learnt(variables=variables, statistics=statistics, rule=rule)

    def init(self, batch: int) -> RereadState:
        """Streams that have heard nothing."""
        return RereadState(
            prefix=init_prefix(self.model, batch, self.limits.tokens, self.decoding),
            written=nothing_written(batch, self.limits.tokens),
        )

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
        known = hear_speech(self.model, learnt.variables, features, frames, ended)
        prefix = replay(
            self.model, learnt.variables, state.prefix, state.written.tokens, known, learnt.rule
        )
        prefix, written = write_on(
            self.model,
            learnt.variables,
            prefix,
            state.written,
            known,
            heard=length,
            rule=learnt.rule,
            decoding=self.decoding.fixed(),
        )
        events = Events(
            written=_after(written, state.written.count),
            finished=prefix.finished,
            more=jnp.zeros_like(prefix.finished),
        )
        return RereadState(prefix=prefix, written=written), events


def padded(samples: np.ndarray) -> np.ndarray:
    """Samples [N] with silence up to the next shape, [1, S]."""
    size = SHORTEST
    while size < len(samples):
        size *= 2
    return np.pad(samples, (0, size - len(samples)))[None]


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
