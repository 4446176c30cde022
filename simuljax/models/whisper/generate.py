"""Write a window: every token in one compiled loop, rows of a batch side by side.

A row's next token is argmax(logits + temperature * Gumbel noise): a sample from
softmax(logits / temperature), and at temperature 0 the likeliest. Rows have their own temperatures,
so that those of a batch that need another try get one in the same program.

Which tokens may come next: signs that nobody says never; timestamps in pairs that do not fall.

With timestamps on, a window is written as `<|0.00|> text <|1.20|><|1.20|> text <|2.00|>`:
- it begins with one, of at most `latest_start`;
- after text and one timestamp comes another, or the end; after two comes text;
- none is smaller than the last; one that ends a segment is larger than the one that began it;
- where all timestamps together are likelier than any one token of text, it is a timestamp.

In beam search, each of the K beams of a window proposes its K + 1 best tokens. In the order of
their sums of log-probabilities, proposals that end the text are finished until K others have been
taken, which are the next beams. A window is done when K texts are finished; the best of them is
the one with the highest sum for its length.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from simuljax.models.whisper.config import STATE_S
from simuljax.models.whisper.model import Memory, Model, Written, nothing_written
from simuljax.models.whisper.tokenizer import Tokenizer
from simuljax.nn.beam import BeamHypotheses, empty_beam, going_on, propose


@flax.struct.dataclass
class Rules:
    """Which tokens may come, and the ids that the order of timestamps is about."""

    never: Array  # bool [V]
    never_first: Array  # bool [V]
    end: int = flax.struct.field(pytree_node=False)
    no_speech: int = flax.struct.field(pytree_node=False)
    first_timestamp: int = flax.struct.field(pytree_node=False)
    # The id of the latest timestamp to begin with; None: timestamps off.
    latest_start: int | None = flax.struct.field(pytree_node=False)


@flax.struct.dataclass
class Seen:
    """State of the rules for each row [R]."""

    tokens: Array | np.ndarray  # int32: how many, a prefix counted in
    last: Array | np.ndarray  # bool: the last was a timestamp
    before_last: Array | np.ndarray  # bool: so was the one before, or there was none
    timestamp: Array | np.ndarray  # int32: the last timestamp, 0 if there was none


def make_rules(
    t: Tokenizer, suppressed: Sequence[int], timestamps: str, max_initial_s: float
) -> Rules:
    """Return the rules for timestamps "predict" or "none".

    Special tokens are not written, and neither are those that a user or `unspoken` names.
    """
    special = [t.transcribe, t.translate, t.start, t.previous, t.start_lm, t.no_speech]
    never, never_first = np.zeros(t.size, bool), np.zeros(t.size, bool)
    never[[*suppressed, *special, t.no_timestamps]] = True
    never_first[[*t.encode(" "), t.end]] = True
    first = t.timestamps.start
    return Rules(
        never=jnp.asarray(never),
        never_first=jnp.asarray(never_first),
        end=t.end,
        no_speech=t.no_speech,
        first_timestamp=first,
        latest_start=first + round(max_initial_s / STATE_S) if timestamps == "predict" else None,
    )


def seen_of(prefixes: Sequence[Sequence[int]], rules: Rules) -> Seen:
    """Return the memory of the rules for rows that begin with these tokens."""
    first = rules.first_timestamp
    stamps = [[token for token in prefix if token >= first] for prefix in prefixes]
    return Seen(
        tokens=np.array([len(prefix) for prefix in prefixes], np.int32),
        last=np.array([len(p) > 0 and p[-1] >= first for p in prefixes]),
        before_last=np.array([len(p) < 2 or p[-2] >= first for p in prefixes]),
        timestamp=np.array([stamp[-1] if stamp else 0 for stamp in stamps], np.int32),
    )


def see(seen: Seen, token: Array, rules: Rules) -> Seen:
    """Return the memory of the rules after one more token [R]."""
    is_timestamp = token >= rules.first_timestamp
    return Seen(
        tokens=seen.tokens + 1,
        last=is_timestamp,
        before_last=jnp.where(seen.tokens == 0, True, seen.last),
        timestamp=jnp.where(is_timestamp, token, seen.timestamp),
    )


def obey(logits: Array, seen: Seen, rules: Rules) -> Array:
    """Return logits [R, V] with -inf for tokens that may not come."""
    begins = (seen.tokens == 0)[:, None]
    logits = jnp.where(rules.never | (begins & rules.never_first), -jnp.inf, logits)
    if rules.latest_start is None:
        return logits
    token = jnp.arange(logits.shape[-1])
    is_timestamp, is_text = token >= rules.first_timestamp, token < rules.end
    last, before_last = seen.last[:, None], seen.before_last[:, None]
    # A second timestamp in a row may repeat the first; any other has to be larger than the last.
    lowest = (seen.timestamp + jnp.where(seen.last & ~seen.before_last, 0, 1))[:, None]
    falls = is_timestamp & (seen.timestamp > 0)[:, None] & (token < lowest)
    pair = last & jnp.where(before_last, is_timestamp, is_text)
    late = token > rules.latest_start
    wrong = falls | pair | (begins & (~is_timestamp | late))
    logits = jnp.where(wrong, -jnp.inf, logits)
    together = jax.nn.logsumexp(logits[:, rules.first_timestamp :], axis=-1)
    likeliest = logits[:, : rules.first_timestamp].max(-1)
    return jnp.where((together > likeliest)[:, None] & ~is_timestamp, -jnp.inf, logits)


@flax.struct.dataclass
class Prompt:
    """Tokens before the first to be written; padded at the left."""

    tokens: Array  # int32 [R, P]
    padding: Array  # int32 [R]
    start: Array  # int32 [R]: the column of <|startoftranscript|>
    seen: Seen  # of a prefix
    most: Array  # int32 [R]: tokens that may be written without beams


@flax.struct.dataclass
class Generated:
    """Written tokens, filled up with the end token."""

    tokens: Array  # int32 [R, limit]
    log_probs: Array  # float32 [R, limit], 0 after the end
    count: Array  # int32 [R]: tokens before the end
    no_speech: Array  # float32 [R]


@flax.struct.dataclass
class _State:
    written: Written
    seen: Seen
    tokens: Array
    log_probs: Array
    last: Array  # int32 [R]
    done: Array  # bool [R]
    step: Array  # int32 []
    key: Array


def begin(
    model: Model, memory: Memory, prompt: Prompt, limit: int, no_speech: int
) -> tuple[Written, Array, Array]:
    """Read the prompt: the cache, logits [R, V] of the first token, and P(no speech) [R]."""
    rows, columns = prompt.tokens.shape
    written = nothing_written(model.config, rows, columns + limit, prompt.padding)
    states, written, _ = model.write(prompt.tokens, written, memory)
    at_start = jnp.take_along_axis(states, prompt.start[:, None, None], axis=1)
    logits = model.logits(jnp.concatenate([at_start, states[:, -1:]], axis=1))
    return written, logits[:, 1], jax.nn.softmax(logits[:, 0])[:, no_speech]


def step(model: Model, memory: Memory, written: Written, token: Array) -> tuple[Written, Array]:
    """Write one more token [R] into the cache; return the logits [R, V] after it."""
    states, written, _ = model.write(token[:, None], written, memory)
    return written, model.logits(states[:, 0])


@partial(jax.jit, static_argnames="limit")
def generate(
    model: Model,
    memory: Memory,
    prompt: Prompt,
    rules: Rules,
    temperature: Array,
    active: Array,
    key: Array,
    *,
    limit: int,
) -> Generated:
    """Write at most `limit` tokens for each row that is `active` [R], at its temperature [R]."""
    written, logits, no_speech = begin(model, memory, prompt, limit, rules.no_speech)
    room = model.config.dimensions.text_positions

    def pick(state: _State, logits: Array) -> _State:
        """Pick a token for each row; rows that are done write the end, which does not count."""
        logits = obey(logits, state.seen, rules)
        key, used = jax.random.split(state.key)
        noisy = jax.lax.platform_dependent(
            logits, temperature, used, cpu=_with_noise_if_any, default=_with_noise
        )
        token = jnp.where(state.done, rules.end, jnp.argmax(noisy, -1).astype(jnp.int32))
        chosen = jnp.take_along_axis(logits, token[:, None], 1)[:, 0]
        log_prob = chosen - jax.nn.logsumexp(logits, -1)
        length = state.written.column - state.written.padding
        full = (length >= room) | (state.step + 1 >= prompt.most)
        return replace(
            state,
            seen=see(state.seen, token, rules),
            tokens=state.tokens.at[:, state.step].set(token),
            log_probs=state.log_probs.at[:, state.step].set(jnp.where(state.done, 0, log_prob)),
            last=token,
            done=state.done | (token == rules.end) | full,
            step=state.step + 1,
            key=key,
        )

    def body(state: _State) -> _State:
        written, logits = step(model, memory, state.written, state.last)
        return pick(replace(state, written=written), logits)

    rows = active.shape[0]
    first = _State(
        written=written,
        seen=prompt.seen,
        tokens=jnp.full((rows, limit), rules.end, jnp.int32),
        log_probs=jnp.zeros((rows, limit)),
        last=jnp.zeros(rows, jnp.int32),
        done=~active,
        step=jnp.zeros((), jnp.int32),
        key=key,
    )
    state = pick(first, logits)
    state = jax.lax.while_loop(lambda s: (s.step < limit) & ~s.done.all(), body, state)
    count = (state.tokens != rules.end).sum(-1)
    return Generated(
        tokens=state.tokens, log_probs=state.log_probs, count=count, no_speech=no_speech
    )


def _with_noise(logits: Array, temperature: Array, key: Array) -> Array:
    return logits + temperature[:, None] * jax.random.gumbel(key, logits.shape)


def _with_noise_if_any(logits: Array, temperature: Array, key: Array) -> Array:
    """Skip the noise if no row needs it: on a CPU it takes a tenth of a step."""
    given = (logits, temperature, key)
    return jax.lax.cond((temperature > 0).any(), _with_noise, lambda x, *_: x, *given)


@flax.struct.dataclass
class _BeamState:
    written: Written  # rows are windows times beams
    seen: Seen
    live: BeamHypotheses  # notes are the log-probabilities of the tokens
    finished: BeamHypotheses
    step: Array


@partial(jax.jit, static_argnames=("limit", "beams"))
def beam_search(
    model: Model,
    memory: Memory,
    prompt: Prompt,
    rules: Rules,
    active: Array,
    *,
    limit: int,
    beams: int,
) -> Generated:
    """Return the best text of each window that is `active` [B]."""
    written, logits, no_speech = begin(model, memory, prompt, limit, rules.no_speech)
    state = _first_beam(written, prompt.seen, limit, rules.end, beams)
    state = _advance(state, jnp.repeat(logits, beams, 0), rules)

    def body(state: _BeamState) -> _BeamState:
        written, logits = step(model, memory, state.written, state.live.last.reshape(-1))
        return _advance(replace(state, written=written), logits, rules)

    def goes_on(state: _BeamState) -> Array:
        length = state.written.column - state.written.padding.reshape(-1, beams)[:, 0]
        room = active & (length < model.config.dimensions.text_positions)
        open_windows = jnp.isinf(state.finished.log_prob).any(-1) & room
        return (state.step < limit) & open_windows.any()

    last = jax.lax.while_loop(goes_on, body, state)
    # Texts that did not finish fill up those that did; the end is not counted.
    ended = replace(last.finished, lengths=last.finished.lengths - 1)
    texts = ended.join(last.live).existing(beams)
    score = texts.log_prob / jnp.maximum(texts.lengths.astype(jnp.float32), 1)
    best = jax.tree.map(lambda a: a[:, 0], texts.take(jnp.argmax(score, -1)[:, None]))
    return Generated(
        tokens=best.tokens, log_probs=best.notes, count=best.lengths, no_speech=no_speech
    )


def _first_beam(written: Written, seen: Seen, limit: int, end: int, beams: int) -> _BeamState:
    """Begin with equal beams, of which only the first has a chance, so that proposals differ."""
    several = partial(jnp.repeat, repeats=beams, axis=0)
    shape = (len(written.padding), beams, limit)
    live = empty_beam(jnp.full(shape, end, jnp.int32), jnp.zeros(shape))
    layers = jax.tree.map(several, written.layers)
    return _BeamState(
        written=replace(written, layers=layers, padding=several(written.padding)),
        seen=jax.tree.map(several, seen),
        live=live,
        finished=live.only(jnp.zeros(shape[:2], bool)),
        step=jnp.zeros((), jnp.int32),
    )


def _advance(state: _BeamState, logits: Array, rules: Rules) -> _BeamState:
    """Advance from the logits [B K, V] to the next beams and finished texts."""
    batch, beams = state.live.log_prob.shape
    allowed = jax.nn.log_softmax(obey(logits, state.seen, rules))
    own, tokens = jax.lax.top_k(allowed, beams + 1)
    total, token, own, parent = propose(state.live.log_prob, tokens, own)
    proposed, ends = state.live.extended(parent, token, own, total), token == rules.end
    in_time = ends & (jnp.cumsum(~ends, -1) < beams)  # before K that go on
    lives = going_on(ends, beams)
    token, parent = (jnp.take_along_axis(a, lives, 1) for a in (token, parent))
    rows = (jnp.arange(batch)[:, None] * beams + parent).reshape(-1)
    layers = jax.tree.map(lambda x: x[rows], state.written.layers)
    seen = jax.tree.map(lambda x: x[rows], state.seen)
    return _BeamState(
        written=replace(state.written, layers=layers),
        seen=see(seen, token.reshape(-1), rules),
        live=proposed.take(lives),
        finished=state.finished.join(proposed.only(in_time)).existing(beams),
        step=state.step + 1,
    )
