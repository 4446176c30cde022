"""Greedy search under a policy: as many tokens as it allows, without a round trip to the host."""

from dataclasses import replace

import flax.struct
import jax
import jax.numpy as jnp
from jax import Array

from simuljax.config.decoding import Decoding, Repetition
from simuljax.decode.policies import Policy, Step
from simuljax.decode.state import Context, Known, Prefix, attempt, commit
from simuljax.models.joint import Attempt
from simuljax.nn.layers import real
from simuljax.nn.monotonic import Look, SourceProgress
from simuljax.text import EOS, WordCount


@flax.struct.dataclass
class Written:
    """Tokens in the order in which they were written; 0 beyond `count`."""

    tokens: Array  # int32 [B, N]
    count: Array  # int32 [B]
    reach: Array  # int32 [B, N]: encoder states that the furthest head attends to
    delays: Array  # int32 [B, N]: how much of the source was there, in the caller's unit

    def first(self, count: Array) -> "Written":
        """Return the first `count` [B] tokens."""
        there = real(count, self.tokens.shape[1])
        columns = {name: getattr(self, name) * there for name in ("tokens", "reach", "delays")}
        return Written(count=count, **columns)

    def after(self, start: Array, count: Array, size: int) -> "Written":
        """Return `count` [B] tokens from `start` [B] on, in arrays of this size."""
        place = jnp.minimum(start[:, None] + jnp.arange(size), self.tokens.shape[1] - 1)
        columns = {
            name: jnp.take_along_axis(getattr(self, name), place, 1)
            for name in ("tokens", "reach", "delays")
        }
        return Written(count=count, **columns).first(count)

    def append(self, write: Array, token: Array, reach: Array, delay: Array) -> "Written":
        """Return the tokens with one more where `write` [B]."""
        rows = jnp.arange(len(token))
        place = jnp.where(write, self.count, self.tokens.shape[1])

        def put(values: Array, new: Array) -> Array:
            return values.at[rows, place].set(new, mode="drop")

        return Written(
            tokens=put(self.tokens, token),
            count=self.count + write,
            reach=put(self.reach, reach),
            delays=put(self.delays, delay),
        )


@flax.struct.dataclass
class _Turn:
    prefix: Prefix
    written: Written
    stopped: Array  # bool [B]


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
    delay: Array,
    active: Array | None = None,
) -> tuple[Prefix, Written]:
    """Write in every row until it has to read, is finished, or has no more room in `written`.

    `delay` [B] is noted beside each token. The policy decides, or else the heads. Rows that are not
    `active` [B] write nothing. A row that is not finished and has no more room can go on with a new
    `written`.
    """
    decoding, policy, progress = context.decoding, context.policy, known.progress
    limit, before = limit_of(progress, prefix.room, decoding), written.count
    drops_end = decoding.force_finish or (policy is not None and policy.drops_end)

    def turn(state: _Turn) -> _Turn:
        tried = attempt(context, state.prefix, known)
        token = _choose(tried.logits[:, 0], state.prefix, progress, decoding)
        words = _count_words(context, state.prefix, token)
        if policy is None:
            reads = _heads_read(context, tried.layers.look, progress)
        else:
            since = state.written.count - before
            step = _step(policy, tried, state.prefix, token, words, since, known)
            reads = policy.should_read(step) & ~progress.ended
        if drops_end:
            reads |= (token == EOS) & ~progress.ended
        write = ~state.stopped & ~reads
        reach = tried.layers.look.reach[..., 0].max((0, 2)) + 1
        tries = write if policy else ~state.stopped  # a policy has no pointers to move
        prefix = commit(state.prefix, tried, token, write, tries)
        if words is not None:
            kept = jax.tree.map(lambda new, old: jnp.where(write, new, old), words, prefix.words)
            prefix = replace(prefix, words=kept)
        prefix = _finish(prefix, write & (token == EOS), limit, progress)
        written = state.written.append(write, token, reach, delay)
        stopped = state.stopped | reads | _stopped(prefix, written, limit)
        return _Turn(prefix=prefix, written=written, stopped=stopped)

    prefix = _finish(prefix, jnp.zeros_like(prefix.finished), limit, progress)
    stopped = _stopped(prefix, written, limit)
    stopped = stopped if active is None else stopped | ~active
    first = _Turn(prefix=prefix, written=written, stopped=stopped)
    last = jax.lax.while_loop(lambda state: ~state.stopped.all(), turn, first)
    return last.prefix, last.written


def limit_of(progress: SourceProgress, room: int, decoding: Decoding) -> Array:
    """Return int32 [B]: tokens that may be written by now; none of a source without states."""
    tokens = (decoding.limit.ratio * progress.lengths).astype(jnp.int32) + decoding.limit.constant
    return jnp.where(progress.lengths > 0, jnp.minimum(tokens, room), 0)


def _finish(prefix: Prefix, ends: Array, limit: Array, progress: SourceProgress) -> Prefix:
    """Finish sentences that end, those at the limit of a source that has ended, and full ones."""
    at_limit = (progress.ended & (prefix.position >= limit)) | (prefix.position >= prefix.room)
    return replace(prefix, finished=prefix.finished | ends | at_limit)


def _stopped(prefix: Prefix, written: Written, limit: Array) -> Array:
    full = written.count >= written.tokens.shape[1]
    return prefix.finished | full | (prefix.position >= limit)


def _step(
    policy: Policy,
    tried: Attempt,
    prefix: Prefix,
    token: Array,
    words: WordCount | None,
    since: Array,
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


def words_begun(words: WordCount) -> Array:
    """Return int32 [B]: words of which something has been written."""
    return jnp.asarray(words.completed + words.open)


def begins_word(before: WordCount, after: WordCount, token: Array) -> Array:
    """Return bool [B]: the token between these counts does not just continue a word.

    It may begin one, end the sentence, or be silent where no word is open.
    """
    continues = jnp.asarray(before.open) & (words_begun(after) == words_begun(before))
    return ~continues | (token == EOS)


def _count_words(context: Context, prefix: Prefix, token: Array) -> WordCount | None:
    """Return the count after one more token, where words are counted."""
    if prefix.words is None:
        return None
    assert context.control.words is not None
    return prefix.words.push(context.control.words.target, token)


def _heads_read(context: Context, look: Look, progress: SourceProgress) -> Array:
    """Return bool [B]: the heads of all layers together want to read first."""
    waits = look.waits[..., 0]  # [layers, B, H]
    match context.decoding.gather:
        case "any":
            return waits.any((0, 2))
        case "majority":
            return 2 * waits.sum((0, 2)) > waits.shape[0] * waits.shape[2]
        case "mean":
            mean = look.p[..., 0].mean((0, 2))
            return (mean < jax.nn.sigmoid(context.control.selection.energy)) & ~progress.ended


def _choose(logits: Array, prefix: Prefix, progress: SourceProgress, decoding: Decoding) -> Array:
    """Return int32 [B]: the best token that may be written."""
    is_end = jnp.arange(logits.shape[-1]) == EOS
    forbidden = jnp.zeros_like(logits, bool)
    if decoding.repetition is not None:
        forbidden = repeated(prefix.recent, logits.shape[-1], decoding.repetition) & ~is_end
    if decoding.avoid_eos_while_reading:
        forbidden |= is_end & ~progress.ended[:, None]
    return jnp.where(forbidden, -jnp.inf, logits).argmax(-1).astype(jnp.int32)


def repeated(recent: Array, vocabulary: int, guard: Repetition) -> Array:
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
