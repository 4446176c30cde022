"""Writes a window: every token in one compiled loop, rows of a batch side by side.

A row's next token is argmax(logits + temperature * Gumbel noise): a sample from
softmax(logits / temperature), and at temperature 0 the likeliest. Rows have their own temperatures,
so that those of a batch that need another try get one in the same program.
"""

from dataclasses import replace
from functools import partial

import flax.struct
import jax
import jax.numpy as jnp

from simuljax.models.whisper.bound import Heard, Model
from simuljax.models.whisper.config import Config
from simuljax.models.whisper.model import Written, nothing_written
from simuljax.models.whisper.rules import Forbidden, Marks, Seen, obey, see


@flax.struct.dataclass
class Prompt:
    """Tokens before the first to be written; padded at the left."""

    tokens: jax.Array  # int32 [R, P]
    padding: jax.Array  # int32 [R]
    start: jax.Array  # int32 [R]: the column of <|startoftranscript|>
    seen: Seen  # of a prefix


@flax.struct.dataclass
class Generated:
    """Written tokens, filled up with the end token."""

    tokens: jax.Array  # int32 [R, limit]
    log_probs: jax.Array  # float32 [R, limit], 0 after the end
    count: jax.Array  # int32 [R]: tokens before the end
    no_speech: jax.Array  # float32 [R]


@flax.struct.dataclass
class _State:
    written: Written
    seen: Seen
    tokens: jax.Array
    log_probs: jax.Array
    last: jax.Array  # int32 [R]
    done: jax.Array  # bool [R]
    step: jax.Array  # int32 []
    key: jax.Array


def begin(
    model: Model, heard: Heard, prompt: Prompt, limit: int, marks: Marks
) -> tuple[Written, jax.Array, jax.Array]:
    """Reads the prompt: the cache, logits [R, V] of the first token, and P(no speech) [R]."""
    columns = prompt.tokens.shape[1] + limit
    written = nothing_written(model.config, prompt.padding, columns)
    states, written, _ = model.write(prompt.tokens, written, heard)
    at_start = jnp.take_along_axis(states, prompt.start[:, None, None], axis=1)
    logits = model.logits(jnp.concatenate([at_start, states[:, -1:]], axis=1))
    no_speech = jax.nn.softmax(logits[:, 0])[:, marks.no_speech]
    return written, logits[:, 1], no_speech


def step(
    model: Model, heard: Heard, written: Written, token: jax.Array
) -> tuple[Written, jax.Array]:
    """Write one more token [R] into the cache; return the logits [R, V] after it."""
    states, written, _ = model.write(token[:, None], written, heard)
    return written, model.logits(states[:, 0])


@partial(jax.jit, static_argnames=("limit", "marks"))
def generate(
    model: Model,
    heard: Heard,
    prompt: Prompt,
    forbidden: Forbidden,
    temperature: jax.Array,
    active: jax.Array,
    key: jax.Array,
    *,
    limit: int,
    marks: Marks,
) -> Generated:
    """Write at most `limit` tokens for each row that is `active` [R], at its temperature [R]."""
    written, logits, no_speech = begin(model, heard, prompt, limit, marks)
    pick = partial(
        _pick, forbidden=forbidden, temperature=temperature, marks=marks, config=model.config
    )

    def body(state: _State) -> _State:
        written, logits = step(model, heard, state.written, state.last)
        return pick(replace(state, written=written), logits)

    state = pick(_first(written, prompt, active, key, limit, marks), logits)
    state = jax.lax.while_loop(lambda s: (s.step < limit) & ~s.done.all(), body, state)
    count = (state.tokens != marks.end).sum(-1)
    return Generated(
        tokens=state.tokens, log_probs=state.log_probs, count=count, no_speech=no_speech
    )


def _first(
    written: Written, prompt: Prompt, active: jax.Array, key: jax.Array, limit: int, marks: Marks
) -> _State:
    """Return the state after the prompt."""
    rows = active.shape[0]
    return _State(
        written=written,
        seen=prompt.seen,
        tokens=jnp.full((rows, limit), marks.end, jnp.int32),
        log_probs=jnp.zeros((rows, limit)),
        last=jnp.zeros(rows, jnp.int32),
        done=~active,
        step=jnp.zeros((), jnp.int32),
        key=key,
    )


def _pick(
    state: _State,
    logits: jax.Array,
    *,
    forbidden: Forbidden,
    temperature: jax.Array,
    marks: Marks,
    config: Config,
) -> _State:
    """Pick the next token of each row; rows that are done write the end, which does not count."""
    logits = obey(logits, state.seen, forbidden, marks)
    key, used = jax.random.split(state.key)
    noisy = jax.lax.platform_dependent(
        logits, temperature, used, cpu=_with_noise_if_any, default=_with_noise
    )
    token = jnp.where(state.done, marks.end, jnp.argmax(noisy, -1).astype(jnp.int32))
    chosen = jnp.take_along_axis(logits, token[:, None], 1)[:, 0]
    log_prob = chosen - jax.nn.logsumexp(logits, -1)
    full = state.written.column - state.written.padding >= config.dimensions.text_positions
    return replace(
        state,
        seen=see(state.seen, token, marks),
        tokens=state.tokens.at[:, state.step].set(token),
        log_probs=state.log_probs.at[:, state.step].set(jnp.where(state.done, 0, log_prob)),
        last=token,
        done=state.done | (token == marks.end) | full,
        step=state.step + 1,
        key=key,
    )


def _with_noise(logits: jax.Array, temperature: jax.Array, key: jax.Array) -> jax.Array:
    return logits + temperature[:, None] * jax.random.gumbel(key, logits.shape)


def _with_noise_if_any(logits: jax.Array, temperature: jax.Array, key: jax.Array) -> jax.Array:
    """Skip the noise if no row needs it: on a CPU it takes a tenth of a step."""
    given = (logits, temperature, key)
    return jax.lax.cond((temperature > 0).any(), _with_noise, lambda x, *_: x, *given)
