"""Writing: as many tokens as the decisions allow, without a round trip to the host."""

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from simuljax.decode import judging
from simuljax.decode.options import Decoding, Gather
from simuljax.decode.policies import AlignAtt, EDAtt, FixedSteps, LocalAgreement, Policy, WaitK
from simuljax.decode.prefix import Known, Prefix, attempt, commit
from simuljax.decode.repetition import repeated
from simuljax.models.translator import Attempt, Translator
from simuljax.nn.pointers import Heard, Look, Rule
from simuljax.text import EOS, WordCount


@flax.struct.dataclass
class Written:
    """Tokens in the order in which they were written; 0 beyond `count`."""

    tokens: jax.Array  # int32 [B, N]
    count: jax.Array  # int32 [B]
    reach: jax.Array  # int32 [B, N]: encoder states that the furthest head attends to
    heard: jax.Array  # int32 [B, N]: how much of the source had been heard, in the caller's unit


@flax.struct.dataclass
class _Turn:
    prefix: Prefix
    written: Written
    stopped: jax.Array  # bool [B]


def nothing_written(batch: int, room: int) -> Written:
    """Room for so many tokens."""
    empty = jnp.zeros((batch, room), jnp.int32)
    return Written(tokens=empty, count=empty[:, :0].sum(1), reach=empty, heard=empty)


def write_on(
    model: Translator,
    variables: Any,
    prefix: Prefix,
    written: Written,
    known: Known,
    *,
    heard: jax.Array,
    rule: Rule,
    decoding: Decoding,
    active: jax.Array | None = None,
) -> tuple[Prefix, Written]:
    """Every row writes until it has to read, is finished, or has no more room in `written`.

    `heard` [B] is noted beside each token. Who decides is the policy, or else the heads. Rows that
    are not `active` [B] have nothing to decide. A row that is not finished and has no more room can
    go on with a new `written`.
    """
    limit, before = limit_of(known.heard, prefix.room, decoding), written.count

    def turn(state: _Turn) -> _Turn:
        tried = attempt(model, variables, state.prefix, known, rule)
        token = _choose(tried.logits[:, 0], state.prefix, known.heard, decoding)
        words = _count_words(state.prefix, token, rule)
        if decoding.policy is None:
            reads = _heads_read(tried.layers.look, known.heard, rule, decoding.gather)
        else:
            since = state.written.count - before
            given = (tried, state.prefix, token, words, since, known, rule)
            reads = _policy_reads(decoding.policy, *given) & ~known.heard.ended
        if _drops_end(decoding):
            reads |= (token == EOS) & ~known.heard.ended
        write = ~state.stopped & ~reads
        reach = tried.layers.look.reach[..., 0].max((0, 2)) + 1
        tries = write if decoding.policy else ~state.stopped  # a policy has no pointers to move
        prefix = commit(state.prefix, tried, token, write, tries)
        prefix = _note_words(prefix, words, write)
        prefix = _finish(prefix, write & (token == EOS), limit, known.heard)
        written = _append(state.written, write, token, reach, heard)
        stopped = state.stopped | reads | _stopped(prefix, written, limit)
        return _Turn(prefix=prefix, written=written, stopped=stopped)

    prefix = _finish(prefix, jnp.zeros_like(prefix.finished), limit, known.heard)
    stopped = _stopped(prefix, written, limit)
    stopped = stopped if active is None else stopped | ~active
    first = _Turn(prefix=prefix, written=written, stopped=stopped)
    last = jax.lax.while_loop(lambda state: ~state.stopped.all(), turn, first)
    return last.prefix, last.written


def limit_of(heard: Heard, room: int, decoding: Decoding) -> jax.Array:
    """int32 [B]: tokens that may be written by now; none of a source that has nothing."""
    tokens = (decoding.limit.ratio * heard.lengths).astype(jnp.int32) + decoding.limit.constant
    return jnp.where(heard.lengths > 0, jnp.minimum(tokens, room), 0)


def _finish(prefix: Prefix, ends: jax.Array, limit: jax.Array, heard: Heard) -> Prefix:
    """Over are sentences that end, those at the limit of a source that has ended, and full ones."""
    at_limit = (heard.ended & (prefix.position >= limit)) | (prefix.position >= prefix.room)
    return dataclasses.replace(prefix, finished=prefix.finished | ends | at_limit)


def _stopped(prefix: Prefix, written: Written, limit: jax.Array) -> jax.Array:
    full = written.count >= written.tokens.shape[1]
    return prefix.finished | full | (prefix.position >= limit)


def _drops_end(decoding: Decoding) -> bool:
    """Whether end-of-sentence writes nothing while the source is live."""
    return decoding.force_finish or (decoding.policy is not None and decoding.policy.drops_end)


def _policy_reads(
    policy: Policy,
    tried: Attempt,
    prefix: Prefix,
    token: jax.Array,
    words: WordCount | None,
    since: jax.Array,
    known: Known,
    rule: Rule,
) -> jax.Array:
    """bool [B]: whether the policy wants to hear more; `since` [B] tokens follow the last READ."""
    match policy:
        case WaitK():
            assert prefix.words is not None and words is not None and known.units is not None
            written = judging.begun(prefix.words)
            lacks = judging.lacks_units(known.units, written, rule.k, convention=policy.convention)
            return lacks & judging.needs_unit(prefix.words, words, token)
        case FixedSteps():
            assert rule.tokens is not None
            return since >= rule.tokens
        case AlignAtt() | EDAtt():
            weights = tried.layers.look.weights
            assert weights is not None and rule.frames is not None
            attention = judging.attention_of(weights[..., 0, :], policy.layer, policy.heads)
            given = (attention, known.heard.lengths, rule.frames)
            if isinstance(policy, AlignAtt):
                return judging.aligned_with_end(*given, scores=policy.scores)
            assert rule.alpha is not None
            return judging.attends_to_end(*given, rule.alpha, scores=policy.scores)
        case LocalAgreement():
            raise AssertionError("hypotheses agree, not single tokens: decode.agreement")


def _count_words(prefix: Prefix, token: jax.Array, rule: Rule) -> WordCount | None:
    """The count after one more token, where words are counted."""
    return None if prefix.words is None else prefix.words.push(rule.words.target, token)


def _note_words(prefix: Prefix, words: WordCount | None, write: jax.Array) -> Prefix:
    """With the words of a token that was written."""
    if words is None:
        return prefix
    chosen = jax.tree.map(lambda new, old: jnp.where(write, new, old), words, prefix.words)
    return dataclasses.replace(prefix, words=chosen)


def _heads_read(look: Look, heard: Heard, rule: Rule, gather: Gather) -> jax.Array:
    """bool [B]: whether the heads, of all layers together, want to hear more first."""
    waits = look.waits[..., 0]  # [layers, B, H]
    match gather:
        case "any":
            return waits.any((0, 2))
        case "majority":
            return 2 * waits.sum((0, 2)) > waits.shape[0] * waits.shape[2]
        case "mean":
            mean = look.p[..., 0].mean((0, 2))
            return (mean < jax.nn.sigmoid(rule.energy)) & ~heard.ended


def _choose(logits: jax.Array, prefix: Prefix, heard: Heard, decoding: Decoding) -> jax.Array:
    """int32 [B]: the best token that may be written."""
    is_end = jnp.arange(logits.shape[-1]) == EOS
    forbidden = jnp.zeros_like(logits, bool)
    if decoding.repetition is not None:
        forbidden = repeated(prefix.recent, logits.shape[-1], decoding.repetition) & ~is_end
    if decoding.avoid_eos_while_reading:
        forbidden |= is_end & ~heard.ended[:, None]
    return jnp.where(forbidden, -jnp.inf, logits).argmax(-1).astype(jnp.int32)


def _append(
    written: Written, write: jax.Array, token: jax.Array, reach: jax.Array, heard: jax.Array
) -> Written:
    rows = jnp.arange(len(token))
    place = jnp.where(write, written.count, written.tokens.shape[1])

    def put(values: jax.Array, new: jax.Array) -> jax.Array:
        return values.at[rows, place].set(new, mode="drop")

    return Written(
        tokens=put(written.tokens, token),
        count=written.count + write,
        reach=put(written.reach, reach),
        heard=put(written.heard, heard),
    )
