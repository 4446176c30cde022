"""A model with its choices as a decoder of streams: what streams of every kind have in common."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import flax.struct
import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from simuljax.audio import Statistics
from simuljax.config.decoding import Branch, Decoding, check_policy
from simuljax.config.fields import Checked, setting
from simuljax.decode.greedy import Written
from simuljax.decode.state import Context, Control, control_of
from simuljax.models.joint import JointModel
from simuljax.models.parameters import cast_weights
from simuljax.text import Words


@dataclass(frozen=True, kw_only=True)
class StreamLimits(Checked):
    """The sizes of a stream's arrays.

    A source of so many states has ended, whether its sound goes on or not; a sentence of so many
    tokens is cut. With more tokens than events to write, a step leaves the rest to the next one.
    """

    states: int = setting(1500, help="Encoder states of 40 ms; tokens of a text.", low=1)
    tokens: int = setting(300, help="Tokens of a sentence.", low=1)
    events: int = setting(32, help="Tokens of a step.", low=1)


@flax.struct.dataclass
class StreamParams:
    """Everything a step computes with: parameters, statistics of the features, choices."""

    variables: Any  # of `model.apply`
    statistics: Statistics | None  # None: of text
    control: Control


@flax.struct.dataclass
class Events:
    """The output of a step; `delays` count samples, its own included."""

    written: Written
    finished: Array  # bool [B]: nothing more will come
    more: Array  # bool [B]: more would have come; take another step, without samples if need be

    def row(self, index: int) -> tuple[list[int], int, bool]:
        """Return a stream's tokens, how far they reach, and True if it is over; on the host."""
        count = int(self.written.count[index])
        tokens = self.written.tokens[index, :count].tolist()
        reach = max(self.written.reach[index, :count].tolist(), default=0)
        return tokens, reach, bool(self.finished[index])


@dataclass(frozen=True, kw_only=True)
class ModelDecoder:
    """A model with its choices; what streams of every kind have in common."""

    branch: ClassVar[Branch] = "speech"
    model: JointModel
    decoding: Decoding = field(default_factory=Decoding)
    limits: StreamLimits = field(default_factory=StreamLimits)

    def params(
        self, variables: Any, statistics: Statistics | None = None, words: Words | None = None
    ) -> StreamParams:
        """Return what a step takes first, with weights in the type that they are computed with.

        Speech has `statistics`; `words` serve policies that count them.
        """
        check_policy(self.decoding.policy, self.model.config, self.branch)
        control = control_of(self.decoding, self.model.config.monotonic, words)
        cast = cast_weights(variables["params"], self.model.config.width.dtype)
        variables = {**variables, "params": cast}
        return StreamParams(variables=variables, statistics=statistics, control=control)

    def context(self, params: StreamParams) -> Context:
        given = {"variables": params.variables, "control": params.control}
        return Context(model=self.model, decoding=self.decoding.fixed(), **given)


Axes = tuple[int, ...]  # of every array of a state, in the order of jax.tree.leaves


def batch_axes(init: Callable[[int], Any]) -> Axes:
    """Return the batch axis of every array of a state; `init` makes the state of so many streams.

    It is found by comparing states of 1 and of 2 streams.
    """

    def shapes(batch: int) -> list[tuple[int, ...]]:
        arrays = jax.eval_shape(lambda: jax.tree.leaves(init(batch)))
        return [array.shape for array in arrays]

    pairs = zip(shapes(1), shapes(2), strict=True)
    return tuple([a == b for a, b in zip(*pair, strict=True)].index(False) for pair in pairs)


def take_rows(state: Any, rows: ArrayLike, axes: Axes) -> Any:
    """Return the streams of these rows [n]; a row beyond the end gives the last."""
    leaves, tree = jax.tree.flatten(state)
    taken = (jnp.take(a, rows, axis=i, mode="clip") for a, i in zip(leaves, axes, strict=True))
    return tree.unflatten(taken)


def put_rows(state: Any, rows: ArrayLike, some: Any, axes: Axes) -> Any:
    """Return the streams with `some`, of n rows, in rows [n]; one beyond the end is dropped."""
    rows, (leaves, tree) = jnp.atleast_1d(rows), jax.tree.flatten(state)
    pairs = zip(leaves, jax.tree.leaves(some), axes, strict=True)
    return tree.unflatten(
        [a.at[(slice(None),) * i + (rows,)].set(b, mode="drop") for a, b, i in pairs]
    )
