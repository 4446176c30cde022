"""The training-time forward pass as the judge of a stream: one pass per READ, from scratch.

The decoder of training works with expectations. With energies so large that every probability is 0
or 1 it decides like a stream does, whose decisions ask for the sign of an energy alone.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.config.decoding import Decoding
from simuljax.decode.state import control_of
from simuljax.models.encoders import Encoded
from simuljax.models.joint import JointModel
from simuljax.models.streaming import chunking_of
from simuljax.nn.layers import zero_padding
from simuljax.nn.monotonic import Decisions
from simuljax.text import BOS, EOS
from tests.decode import small
from tests.decode.spoken import Material, in_groups
from tests.oracles import simultaneous

SHARP = 1e6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Passed:
    """After one READ: what each target would be, and which decisions each head accepts for it."""

    logits: np.ndarray  # [T, V]
    accepted: np.ndarray  # bool [layers, H, T, W]
    states: int
    ended: bool

    def waits(self, target: int) -> list[bool]:
        """Whether heads go on past the last decision, from target to target."""
        if self.ended:
            return [False]
        layers, heads, _, count = self.accepted.shape
        stands = np.zeros((layers, heads), int)
        for accepted in np.moveaxis(self.accepted, 2, 0)[: target + 1]:
            for place in np.ndindex(layers, heads):
                while stands[place] < count and not accepted[*place, stands[place]]:
                    stands[place] += 1
        return (stands == count).ravel().tolist()


class Training:
    """A model as training runs it, without dropout and noise."""

    def __init__(self, model: JointModel, variables: Any, decoding: Decoding):
        self.model, self.variables, self.decoding = model, variables, decoding
        self.k = int(control_of(decoding, model.config.monotonic).selection.k)

    @functools.cached_property
    def forward(self) -> Any:
        """Features [B, F, D] of what has been heard, and targets [B, T] -> logits, decisions."""

        def forward(features, frames, ended, targets):
            def decode(model: JointModel):
                encoded = self.heard(model.encode_speech(features, frames, train=False), ended)
                points = model.speech_decisions(encoded)
                if points.step is not None:  # windows that are not full have to wait
                    full = jnp.where(ended, points.count, encoded.lengths // points.step)
                    points = dataclasses.replace(points, count=full)
                decoded = model.decode(targets, encoded, points, jnp.int32(self.k), train=False)
                accepted = self.accepted(decoded.reading.energy, points, targets.shape[1])
                return decoded.logits, accepted, points.count, encoded.lengths

            return self.model.apply(self.variables, method=decode)

        return jax.jit(forward, compiler_options=small.FAST)

    def heard(self, encoded: Encoded, ended: jax.Array) -> Encoded:
        """Without states that would change with more sound."""
        speech = self.model.config.speech
        assert speech is not None
        if speech.kind != "streaming":
            return encoded
        complete = chunking_of(speech).complete(encoded.lengths) * speech.chunk
        lengths = jnp.where(ended, encoded.lengths, complete)
        return Encoded(states=zero_padding(encoded.states, lengths), lengths=lengths)

    def accepted(self, energy: jax.Array | None, points: Decisions, targets: int) -> jax.Array:
        """bool [B, layers, H, T, W]; those that are not real decisions are the last."""
        if energy is None:  # wait-k
            needed = self.k + (self.model.config.monotonic.convention == "papi")
            batch, count = points.ends.shape
            enough = jnp.arange(count) + 1 >= needed + jnp.arange(targets)[:, None]
            return jnp.broadcast_to(enough, (batch, 1, 1, targets, count))
        accepted = energy.swapaxes(0, 1) >= 0
        return (
            accepted
            if points.gate is None
            else accepted & (points.gate >= 0.5)[:, None, None, None]
        )

    def passes(self, material: Material, tokens: list[list[int]]) -> list[Passed]:
        """One for each READ, with what its recording's stream has written in the end."""
        targets = np.zeros((len(material.owner), 2 + max(map(len, tokens))), np.int32)
        for row, owner in zip(targets, material.owner, strict=True):
            row[: 1 + len(tokens[owner])] = [BOS, *tokens[owner]]
        given = (material.features, material.frames, material.ended, targets)
        rows = zip(*in_groups(self.forward, *given), material.ended.tolist(), strict=True)
        return [
            Passed(logits=logits, accepted=accepted[..., :count], states=int(states), ended=ended)
            for logits, accepted, count, states, ended in rows
        ]

    def judge(self, after: Passed, tokens: list[int], before: int, now: int) -> None:
        """That exactly the tokens from number `before` to `now` are written after this READ."""
        limit = self.decoding.limit.of(after.states) if after.states else 0
        for place in range(before, now):
            assert place < limit and not self.reads(after, tokens[:place]), "written too early"
            assert self.choice(after, tokens[:place]) == tokens[place], "another token is best"
        over = now and tokens[now - 1] == EOS
        assert over or now >= limit or self.reads(after, tokens[:now]), "written too late"

    def choice(self, after: Passed, tokens: list[int]) -> int:
        """The best token that may follow these."""
        return simultaneous.best(after.logits[len(tokens)], tokens, after, self.decoding)

    def reads(self, after: Passed, tokens: list[int]) -> bool:
        """Whether more has to be heard before another token."""
        waits = after.waits(len(tokens))
        if self.decoding.gather == "any" and any(waits):
            return True
        if self.decoding.gather == "majority" and sum(waits) > len(waits) / 2:
            return True
        early = self.choice(after, tokens) == EOS and not after.ended
        return self.decoding.force_finish and early
