"""Beam search over a window, batched and compiled like `generate`.

Every step, each of the K beams of a window proposes its K + 1 best tokens. In the order of their
sums of log-probabilities, proposals that end the text are finished until K others have been taken,
which are the next beams. A window is done when K texts are finished; the best of them is the one
with the highest sum for its length (or for ((5 + length) / 6)^penalty).
"""

from dataclasses import replace
from functools import partial

import flax.struct
import jax
import jax.numpy as jnp

from simuljax.models.whisper.bound import Heard, Model
from simuljax.models.whisper.generate import Generated, Prompt, begin, step
from simuljax.models.whisper.model import Written
from simuljax.models.whisper.rules import Forbidden, Marks, Seen, obey, see


@flax.struct.dataclass
class _Texts:
    """K texts for each of B windows."""

    tokens: jax.Array  # int32 [B, K, limit]
    log_probs: jax.Array  # float32 [B, K, limit]
    score: jax.Array  # float32 [B, K]: the sum of log-probabilities
    count: jax.Array  # int32 [B, K]: tokens before the end


@flax.struct.dataclass
class _State:
    written: Written  # rows are windows times beams
    seen: Seen
    live: _Texts
    finished: _Texts
    number: jax.Array  # int32 [B]: how many are finished
    step: jax.Array


@flax.struct.dataclass
class _Proposals:
    """The 2 K best of a step, best first [B, 2 K]: enough for K that go on, and K that end."""

    score: jax.Array
    token: jax.Array
    log_prob: jax.Array
    beam: jax.Array


@partial(jax.jit, static_argnames=("limit", "marks", "beams"))
def beam_search(
    model: Model,
    heard: Heard,
    prompt: Prompt,
    forbidden: Forbidden,
    active: jax.Array,
    length_penalty: jax.Array,
    *,
    limit: int,
    marks: Marks,
    beams: int,
) -> Generated:
    """Return the best text of each window that is `active` [B]; a penalty below 0 is none."""
    written, logits, no_speech = begin(model, heard, prompt, limit, marks)
    state = _first(written, prompt.seen, active, limit, marks, beams)
    state = _advance(state, jnp.repeat(logits, beams, 0), forbidden, marks)

    def body(state: _State) -> _State:
        last = jax.lax.dynamic_index_in_dim(state.live.tokens, state.step - 1, 2, keepdims=False)
        written, logits = step(model, heard, state.written, last.reshape(-1))
        return _advance(replace(state, written=written), logits, forbidden, marks)

    def goes_on(state: _State) -> jax.Array:
        length = state.written.column - state.written.padding.reshape(-1, beams)[:, 0]
        room = length < model.config.dimensions.text_positions
        return (state.step < limit) & ((state.number < beams) & room).any()

    best = _best(_filled_up(jax.lax.while_loop(goes_on, body, state)), length_penalty)
    return Generated(
        tokens=best.tokens, log_probs=best.log_probs, count=best.count, no_speech=no_speech
    )


def _first(
    written: Written, seen: Seen, active: jax.Array, limit: int, marks: Marks, beams: int
) -> _State:
    """Begin with equal beams, of which only the first has a chance, so that proposals differ."""
    batch = active.shape[0]
    several = partial(jnp.repeat, repeats=beams, axis=0)
    texts = _Texts(
        tokens=jnp.full((batch, beams, limit), marks.end, jnp.int32),
        log_probs=jnp.zeros((batch, beams, limit)),
        score=jnp.broadcast_to(jnp.where(jnp.arange(beams) == 0, 0.0, -jnp.inf), (batch, beams)),
        count=jnp.zeros((batch, beams), jnp.int32),
    )
    return _State(
        written=replace(
            written, layers=jax.tree.map(several, written.layers), padding=several(written.padding)
        ),
        seen=jax.tree.map(several, seen),
        live=texts,
        finished=replace(texts, score=jnp.full((batch, beams), -jnp.inf)),
        number=jnp.where(active, 0, beams),
        step=jnp.zeros((), jnp.int32),
    )


def _advance(state: _State, logits: jax.Array, forbidden: Forbidden, marks: Marks) -> _State:
    """Advance from the logits [B K, V] to the next beams and finished texts."""
    best = _propose(obey(logits, state.seen, forbidden, marks), state.live.score)
    ends = best.token == marks.end
    beams = state.live.score.shape[1]
    order = jnp.cumsum(~ends, -1)  # index among those that go on
    finished, number = _finish(state, best, ends & (order < beams))
    goes_on = jnp.argsort(jnp.where(ends, 1, 0), axis=-1, stable=True)[:, :beams]
    best = jax.tree.map(lambda x: jnp.take_along_axis(x, goes_on, 1), best)
    rows = (jnp.arange(len(ends))[:, None] * beams + best.beam).reshape(-1)
    seen = jax.tree.map(lambda x: x[rows], state.seen)
    return _State(
        written=replace(
            state.written,
            layers=jax.tree.map(lambda x: x[rows], state.written.layers),
        ),
        seen=see(seen, best.token.reshape(-1), marks),
        live=_extended(state.live, best, state.step),
        finished=finished,
        number=number,
        step=state.step + 1,
    )


def _propose(logits: jax.Array, score: jax.Array) -> _Proposals:
    """Return the 2 K best of K + 1 for each beam, K of which at most can end."""
    batch, beams = score.shape
    log_probs, token = jax.lax.top_k(jax.nn.log_softmax(logits), beams + 1)
    shape = (batch, beams * (beams + 1))
    total = (score.reshape(-1, 1) + log_probs).reshape(shape)
    total, place = jax.lax.top_k(total, 2 * beams)
    return _Proposals(
        score=total,
        token=jnp.take_along_axis(token.reshape(shape), place, 1),
        log_prob=jnp.take_along_axis(log_probs.reshape(shape), place, 1),
        beam=place // (beams + 1),
    )


def _extended(texts: _Texts, best: _Proposals, step: jax.Array) -> _Texts:
    """Return the texts that proposals [B, n] continue, with their tokens at `step`."""
    tokens, log_probs = (
        jnp.take_along_axis(x, best.beam[..., None], 1) for x in (texts.tokens, texts.log_probs)
    )
    return _Texts(
        tokens=tokens.at[:, :, step].set(best.token),
        log_probs=log_probs.at[:, :, step].set(best.log_prob),
        score=best.score,
        count=jnp.take_along_axis(texts.count, best.beam, 1) + 1,
    )


def _finish(state: _State, best: _Proposals, ends: jax.Array) -> tuple[_Texts, jax.Array]:
    """Append the texts of `ends` [B, 2 K] to the finished ones, as long as there is room."""
    beams = state.live.score.shape[1]
    ends &= jnp.isfinite(best.score)
    texts = _extended(state.live, best, state.step)
    texts = replace(texts, count=texts.count - 1)  # the end is not counted
    slot = jnp.where(ends, state.number[:, None] + jnp.cumsum(ends, -1) - 1, beams)
    window = jnp.arange(len(slot))[:, None]
    finished = jax.tree.map(
        lambda old, new: old.at[window, slot].set(new, mode="drop"), state.finished, texts
    )
    return finished, jnp.minimum(state.number + ends.sum(-1), beams)


def _filled_up(state: _State) -> _Texts:
    """Fill up the finished texts with the best beams as they stand."""
    beams = state.live.score.shape[1]
    slot = state.number[:, None] + jnp.arange(beams)  # live beams are best first
    window = jnp.arange(len(slot))[:, None]
    return jax.tree.map(
        lambda old, new: old.at[window, slot].set(new, mode="drop"), state.finished, state.live
    )


def _best(texts: _Texts, length_penalty: jax.Array) -> _Texts:
    """Return the text of the highest score for its length, [B, limit]."""
    count = texts.count.astype(jnp.float32)
    google = ((5 + count) / 6) ** length_penalty
    score = texts.score / jnp.where(length_penalty < 0, jnp.maximum(count, 1), google)
    choice = jnp.argmax(score, -1)
    return jax.tree.map(lambda x: x[jnp.arange(len(choice)), choice], texts)
