"""Greedy search under a policy: as many tokens as it allows, without a round trip to the host."""

import dataclasses

import flax.struct
import jax
import jax.numpy as jnp

from simuljax.config.decoding import Decoding, Gather, Repetition
from simuljax.decode.policies import Policy, Step
from simuljax.decode.state import Context, Control, Known, Prefix, attempt, commit
from simuljax.models.joint import Attempt
from simuljax.nn.monotonic import Look, SourceProgress
from simuljax.text import EOS, WordCount


@flax.struct.dataclass
class Written:
    """Tokens in the order in which they were written; 0 beyond `count`."""

    tokens: jax.Array  # int32 [B, N]
    count: jax.Array  # int32 [B]
    reach: jax.Array  # int32 [B, N]: encoder states that the furthest head attends to
    delays: jax.Array  # int32 [B, N]: how much of the source was there, in the caller's unit


@flax.struct.dataclass
class _Turn:
    prefix: Prefix
    written: Written
    stopped: jax.Array  # bool [B]


def nothing_written(batch: int, room: int) -> Written:
    """Return room for so many tokens."""
    empty = jnp.zeros((batch, room), jnp.int32)
    return Written(tokens=empty, count=empty[:, :0].sum(1), reach=empty, delays=empty)


def greedy_search(
    context: Context,
    prefix: Prefix,
    written: Written,
    known: Known,
    *,
    delay: jax.Array,
    active: jax.Array | None = None,
) -> tuple[Prefix, Written]:
    """Write in every row until it has to read, is finished, or has no more room in `written`.

    `delay` [B] is noted beside each token. The policy decides, or else the heads. Rows that are not
    `active` [B] write nothing. A row that is not finished and has no more room can go on with a new
    `written`.
    """
    decoding, control = context.decoding, context.control
    policy, progress = context.policy, known.progress
    limit, before = limit_of(progress, prefix.room, decoding), written.count

    def turn(state: _Turn) -> _Turn:
        tried = attempt(context, state.prefix, known)
        token = _choose(tried.logits[:, 0], state.prefix, progress, decoding)
        words = _count_words(state.prefix, token, control)
        if policy is None:
            reads = _heads_read(tried.layers.look, progress, control, decoding.gather)
        else:
            since = state.written.count - before
            step = _step(policy, tried, state.prefix, token, words, since, known)
            reads = policy.should_read(step) & ~progress.ended
        if decoding.force_finish or (policy is not None and policy.drops_end):
            reads |= (token == EOS) & ~progress.ended
        write = ~state.stopped & ~reads
        reach = tried.layers.look.reach[..., 0].max((0, 2)) + 1
        tries = write if policy else ~state.stopped  # a policy has no pointers to move
        prefix = commit(state.prefix, tried, token, write, tries)
        prefix = _note_words(prefix, words, write)
        prefix = _finish(prefix, write & (token == EOS), limit, progress)
        written = _append(state.written, write, token, reach, delay)
        stopped = state.stopped | reads | _stopped(prefix, written, limit)
        return _Turn(prefix=prefix, written=written, stopped=stopped)

    prefix = _finish(prefix, jnp.zeros_like(prefix.finished), limit, progress)
    stopped = _stopped(prefix, written, limit)
    stopped = stopped if active is None else stopped | ~active
    first = _Turn(prefix=prefix, written=written, stopped=stopped)
    last = jax.lax.while_loop(lambda state: ~state.stopped.all(), turn, first)
    return last.prefix, last.written


def limit_of(progress: SourceProgress, room: int, decoding: Decoding) -> jax.Array:
    """Return int32 [B]: tokens that may be written by now; none of a source without states."""
    tokens = (decoding.limit.ratio * progress.lengths).astype(jnp.int32) + decoding.limit.constant
    return jnp.where(progress.lengths > 0, jnp.minimum(tokens, room), 0)


def _finish(prefix: Prefix, ends: jax.Array, limit: jax.Array, progress: SourceProgress) -> Prefix:
    """Finish sentences that end, those at the limit of a source that has ended, and full ones."""
    at_limit = (progress.ended & (prefix.position >= limit)) | (prefix.position >= prefix.room)
    return dataclasses.replace(prefix, finished=prefix.finished | ends | at_limit)


def _stopped(prefix: Prefix, written: Written, limit: jax.Array) -> jax.Array:
    full = written.count >= written.tokens.shape[1]
    return prefix.finished | full | (prefix.position >= limit)


def _step(
    policy: Policy,
    tried: Attempt,
    prefix: Prefix,
    token: jax.Array,
    words: WordCount | None,
    since: jax.Array,
    known: Known,
) -> Step:
    """Return what the policy may know of the next token."""
    log_probability = None
    if "log_probability" in policy.needs:
        log_p = jax.nn.log_softmax(tried.logits[:, 0].astype(jnp.float32))
        log_probability = jnp.take_along_axis(log_p, token[:, None], 1)[:, 0]
    weights, begun, begins = tried.layers.look.weights, None, None
    if prefix.words is not None and words is not None:
        begun, begins = words_begun(prefix.words), begins_word(prefix.words, words, token)
    return Step(
        ended=known.progress.ended,
        states=known.progress.lengths,
        since_read=since,
        token=token,
        samples=known.samples,
        units=known.units,
        words=begun,
        begins_word=begins,
        attention=None if weights is None else weights[..., 0, :],
        log_probability=log_probability,
    )


def words_begun(words: WordCount) -> jax.Array:
    """Return int32 [B]: words of which something has been written."""
    return jnp.asarray(words.completed + words.open)


def begins_word(before: WordCount, after: WordCount, token: jax.Array) -> jax.Array:
    """Return bool [B]: the token between these counts does not just continue a word.

    It may begin one, end the sentence, or be silent where no word is open.
    """
    continues = jnp.asarray(before.open) & (words_begun(after) == words_begun(before))
    return ~continues | (token == EOS)


def _count_words(prefix: Prefix, token: jax.Array, control: Control) -> WordCount | None:
    """Return the count after one more token, where words are counted."""
    if prefix.words is None:
        return None
    assert control.words is not None
    return prefix.words.push(control.words.target, token)


def _note_words(prefix: Prefix, words: WordCount | None, write: jax.Array) -> Prefix:
    if words is None:
        return prefix
    chosen = jax.tree.map(lambda new, old: jnp.where(write, new, old), words, prefix.words)
    return dataclasses.replace(prefix, words=chosen)


def _heads_read(
    look: Look, progress: SourceProgress, control: Control, gather: Gather
) -> jax.Array:
    """Return bool [B]: the heads of all layers together want to read first."""
    waits = look.waits[..., 0]  # [layers, B, H]
    match gather:
        case "any":
            return waits.any((0, 2))
        case "majority":
            return 2 * waits.sum((0, 2)) > waits.shape[0] * waits.shape[2]
        case "mean":
            mean = look.p[..., 0].mean((0, 2))
            return (mean < jax.nn.sigmoid(control.selection.energy)) & ~progress.ended


def _choose(
    logits: jax.Array, prefix: Prefix, progress: SourceProgress, decoding: Decoding
) -> jax.Array:
    """Return int32 [B]: the best token that may be written."""
    is_end = jnp.arange(logits.shape[-1]) == EOS
    forbidden = jnp.zeros_like(logits, bool)
    if decoding.repetition is not None:
        forbidden = repeated(prefix.recent, logits.shape[-1], decoding.repetition) & ~is_end
    if decoding.avoid_eos_while_reading:
        forbidden |= is_end & ~progress.ended[:, None]
    return jnp.where(forbidden, -jnp.inf, logits).argmax(-1).astype(jnp.int32)


def repeated(recent: jax.Array, vocabulary: int, guard: Repetition) -> jax.Array:
    """Return bool [B, V]: tokens that would repeat the tokens before them once too often.

    `recent` [B, R] are the last tokens, the latest last, with R = guard.window. With token c,
    the last n tokens stand (times + 1) times in a row if c = recent[-n] and the n (times + 1) - 1
    tokens before it have period n.
    """
    forbidden = jnp.zeros((recent.shape[0], vocabulary), bool)
    for n in range(1, guard.longest + 1):
        last = recent[:, recent.shape[1] - (n * (guard.times + 1) - 1) :]
        periodic = (last[:, n:] == last[:, : last.shape[1] - n]).all(-1)
        again = jax.nn.one_hot(last[:, last.shape[1] - n], vocabulary, dtype=bool)
        forbidden |= periodic[:, None] & again
    return forbidden


def _append(
    written: Written, write: jax.Array, token: jax.Array, reach: jax.Array, delay: jax.Array
) -> Written:
    rows = jnp.arange(len(token))
    place = jnp.where(write, written.count, written.tokens.shape[1])

    def put(values: jax.Array, new: jax.Array) -> jax.Array:
        return values.at[rows, place].set(new, mode="drop")

    return Written(
        tokens=put(written.tokens, token),
        count=written.count + write,
        reach=put(written.reach, reach),
        delays=put(written.delays, delay),
    )
