"""Greedy search under a policy: as many tokens as it allows, without a round trip to the host.

`attempt` passes the next token through the decoder and changes nothing; `commit` takes over its
result; `replay` passes all targets again over a source that has changed.
"""

from dataclasses import replace
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jax import Array

from simuljax.config.decoding import Decoding, Repetition
from simuljax.decode.context import Context, Known
from simuljax.decode.policies import Policy, Step
from simuljax.models.decoders import Attempt, DecoderState, LayerState
from simuljax.models.joint import JointModel, init_past
from simuljax.nn.attention import Past
from simuljax.nn.layers import real
from simuljax.nn.monotonic import Look, SourceProgress
from simuljax.text import BOS, EOS, PAD, WordCount

SHORT = 64  # tokens that most sentences do not exceed


@flax.struct.dataclass
class Written:
    """Tokens in the order in which they were written; 0 beyond the lengths."""

    tokens: Array  # int32 [B, N]
    lengths: Array  # int32 [B]; end-of-sentence counts
    reach: Array  # int32 [B, N]: encoder states that the furthest head attends to
    delays: Array  # int32 [B, N]: how much of the source was there, in the caller's unit

    def first(self, count: Array) -> "Written":
        """Return the first `count` [B] tokens."""
        there = real(count, self.tokens.shape[1])
        columns = {name: getattr(self, name) * there for name in ("tokens", "reach", "delays")}
        return Written(lengths=count, **columns)

    def after(self, start: Array, count: Array, size: int) -> "Written":
        """Return `count` [B] tokens from `start` [B] on, in arrays of this size."""
        place = jnp.minimum(start[:, None] + jnp.arange(size), self.tokens.shape[1] - 1)
        columns = {
            name: jnp.take_along_axis(getattr(self, name), place, 1)
            for name in ("tokens", "reach", "delays")
        }
        return Written(lengths=count, **columns).first(count)

    def append(self, write: Array, token: Array, reach: Array, delay: Array) -> "Written":
        """Return the tokens with one more where `write` [B]."""
        rows = jnp.arange(len(token))
        place = jnp.where(write, self.lengths, self.tokens.shape[1])

        def put(values: Array, new: Array) -> Array:
            return values.at[rows, place].set(new, mode="drop")

        return Written(
            tokens=put(self.tokens, token),
            lengths=self.lengths + write,
            reach=put(self.reach, reach),
            delays=put(self.delays, delay),
        )


def nothing_written(batch: int, room: int) -> Written:
    """Return room for so many tokens."""
    empty = jnp.zeros((batch, room), jnp.int32)
    return Written(tokens=empty, lengths=jnp.zeros(batch, jnp.int32), reach=empty, delays=empty)


@flax.struct.dataclass
class Events:
    """The output of a step; `delays` count samples, its own included."""

    written: Written
    finished: Array  # bool [B]: nothing more will come
    more: Array  # bool [B]: more would have come; take another step, without samples if need be


@flax.struct.dataclass
class Prefix:
    """Targets whose keys and values are in `past`, and the last token, which is not yet there."""

    past: Past  # [layers, B, N, H, d]
    pointer: Array  # int32 [layers, B, H]: the first decision not yet rejected
    position: Array  # int32 [B]: tokens written
    token: Array  # int32 [B]: the last of them, or begin-of-sentence
    recent: Array  # int32 [B, R]: the last of them, for the guard against repetition
    finished: Array  # bool [B]: nothing more will be written
    words: WordCount | None = None  # of them, if the policy counts words

    @property
    def room(self) -> int:
        """Return the most tokens that can be written."""
        return self.past.key.shape[2]


def init_prefix(model: JointModel, batch: int, room: int, decoding: Decoding) -> Prefix:
    """Return a prefix without tokens, with room for so many."""
    past = init_past(model.config, batch, room)
    layers, _, _, count, _ = past.key.shape
    window = decoding.repetition.window if decoding.repetition else 0
    counts = decoding.policy is not None and "words" in decoding.policy.needs
    return Prefix(
        past=past,
        pointer=jnp.zeros((layers, batch, count), jnp.int32),
        position=jnp.zeros(batch, jnp.int32),
        token=jnp.full(batch, BOS, jnp.int32),
        recent=_no_tokens(batch, window),
        finished=jnp.zeros(batch, bool),
        words=WordCount.begin((batch,)) if counts else None,
    )


@flax.struct.dataclass
class _Turn:
    prefix: Prefix
    written: Written
    stopped: Array  # bool [B]


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
    limit, before = limit_of(progress, prefix.room, decoding), written.lengths
    drops_end = decoding.force_finish or (policy is not None and policy.drops_end)

    def turn(state: _Turn) -> _Turn:
        tried = attempt(context, state.prefix, known)
        token = _choose(tried.logits[:, 0], state.prefix, progress, decoding)
        words = state.prefix.words
        if words is not None:
            assert context.control.words is not None
            words = words.push(context.control.words.target, token)
        if policy is None:
            reads = _heads_read(context, tried.layers.look, progress)
        else:
            since = state.written.lengths - before
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


def attempt(context: Context, prefix: Prefix, known: Known, tokens: Array | None = None) -> Attempt:
    """Return what would be written next; with `tokens` [B, T], after each of these."""
    state = DecoderState(
        position=prefix.position,
        layers=LayerState(past=prefix.past, memory=known.memory, pointer=prefix.pointer),
        progress=known.progress,
        selection=context.control.selection,
    )
    tokens = prefix.token[:, None] if tokens is None else tokens
    return context.apply(method=lambda model: model.decoder.attempt(tokens, state))


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


def commit(prefix: Prefix, tried: Attempt, token: Array, write: Array, attempted: Array) -> Prefix:
    """Return the prefix with `token` [B] where `write` [B]; where `attempted`, pointers alone move.

    A layer's query depends on where the heads of the layers below attend. So what a layer rejected
    stays rejected only if all heads below had found their place: if one of them still waits, it
    will attend to more, and the layers above will judge anew.
    """
    rows, size = jnp.arange(len(token)), prefix.room
    place = jnp.where(write, prefix.position, size)  # beyond the array, where nothing is written

    def put(past: Array, new: Array) -> Array:
        return past.at[:, rows, place].set(new[:, :, 0], mode="drop")

    waits = tried.layers.look.waits[..., 0].any(-1)  # [layers, B]
    settled_below = jnp.cumsum(waits, 0) - waits == 0
    moves = write | (attempted & settled_below)
    recent = jnp.concatenate([prefix.recent, token[:, None]], 1)[:, 1:]
    return replace(
        prefix,
        past=jax.tree.map(put, prefix.past, tried.layers.added),
        pointer=jnp.where(moves[..., None], tried.layers.look.pointer[..., 0], prefix.pointer),
        position=prefix.position + write,
        token=jnp.where(write, token, prefix.token),
        recent=jnp.where(write[:, None], recent, prefix.recent),
    )


def _finish(prefix: Prefix, ends: Array, limit: Array, progress: SourceProgress) -> Prefix:
    """Finish sentences that end, those at the limit of a source that has ended, and full ones."""
    at_limit = (progress.ended & (prefix.position >= limit)) | (prefix.position >= prefix.room)
    return replace(prefix, finished=prefix.finished | ends | at_limit)


def _stopped(prefix: Prefix, written: Written, limit: Array) -> Array:
    full = written.lengths >= written.tokens.shape[1]
    return prefix.finished | full | (prefix.position >= limit)


def replay(context: Context, prefix: Prefix, tokens: Array, known: Known) -> Prefix:
    """Return the prefix as if its tokens, the first of [B, N], were written with what is known now.

    All of them are judged anew, and nothing waits: a head that would read on attends as from the
    last decision, as in training. There is room for far more tokens than most sentences have: while
    all are short, only so many are looked at.
    """

    def first(count: int) -> Prefix:
        return _replay(context, prefix, tokens[:, :count], known)

    if prefix.room <= SHORT:
        return first(prefix.room)
    is_short = (prefix.position <= SHORT).all()
    return jax.lax.cond(is_short, lambda: first(SHORT), lambda: first(prefix.room))


def _replay(context: Context, prefix: Prefix, tokens: Array, known: Known) -> Prefix:
    """Replay tokens [B, n], which are all that were written."""
    before = jnp.pad(tokens[:, :-1], [(0, 0), (1, 0)], constant_values=BOS)
    start = replace(
        prefix,
        past=jax.tree.map(lambda a: a[:, :, :0], prefix.past),
        pointer=jnp.zeros_like(prefix.pointer),
        position=jnp.zeros_like(prefix.position),
    )
    selection = replace(context.control.selection, weights=False)  # none is needed
    context = replace(context, control=replace(context.control, selection=selection))
    passed = attempt(context, start, known, before)
    last = jnp.maximum(prefix.position - 1, 0)[None, :, None, None]
    pointer = jnp.take_along_axis(passed.layers.look.pointer, last, 3)[..., 0]

    def put(past: Array, new: Array) -> Array:
        return past.at[:, :, : tokens.shape[1]].set(new)

    return replace(
        prefix,
        past=jax.tree.map(put, prefix.past, passed.layers.added),
        pointer=jnp.where((prefix.position > 0)[:, None], pointer, 0),
    )


def take_prefixes(prefix: Prefix, rows: Array) -> Prefix:
    """Return the prefixes of these rows [J]."""
    layers_first = {"past": prefix.past, "pointer": prefix.pointer}
    others: Any = replace(prefix, past=None, pointer=None)  # pyright: ignore[reportArgumentType]
    taken = jax.tree.map(lambda a: a[rows], others)
    return replace(taken, **jax.tree.map(lambda a: a[:, rows], layers_first))


def recent_of(tokens: Array, count: Array, window: int) -> Array:
    """Return int32 [B, window]: the last of the first `count` [B] of tokens [B, N]."""
    place = count[:, None] - window + jnp.arange(window)
    found = jnp.take_along_axis(tokens, jnp.maximum(place, 0), 1)
    return jnp.where(place >= 0, found, _no_tokens(len(tokens), window))


def _no_tokens(batch: int, window: int) -> Array:
    """Return ids unlike every token and each other, so that nothing seems to repeat."""
    return jnp.broadcast_to(PAD - 1 - jnp.arange(window, dtype=jnp.int32), (batch, window))
