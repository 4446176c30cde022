"""Local agreement (Liu et al. 2020): what several hypotheses in a row have in common is committed.

After every READ, what was heard is translated to its end as if nothing followed, from what has been
committed on. Of this hypothesis and those after the READs before it, the longest common beginning
is committed, without end-of-sentence; once the source has ended, all of it.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from simuljax.decode import judging
from simuljax.decode.beam import Beam, search
from simuljax.decode.options import Decoding
from simuljax.decode.policies import LocalAgreement
from simuljax.decode.prefix import Known, Prefix, recent_of
from simuljax.decode.writing import Written, write_on
from simuljax.models.translator import Translator
from simuljax.nn.layers import real
from simuljax.nn.pointers import Rule
from simuljax.text import BOS, EOS

NOTHING = -1  # in place of a token


def no_hypotheses(policy: LocalAgreement, batch: int, room: int) -> jax.Array:
    """int32 [B, agree - 1, N]: before the first READ, with which nothing agrees."""
    return jnp.full((batch, policy.agree - 1, room), NOTHING, jnp.int32)


def agree_on(
    model: Translator,
    variables: Any,
    prefix: Prefix,
    written: Written,
    before: jax.Array,
    known: Known,
    *,
    heard: jax.Array,
    rule: Rule,
    decoding: Decoding,
) -> tuple[Prefix, Written, jax.Array]:
    """What is committed after a READ; `before` [B, agree - 1, N] are the latest hypotheses."""
    policy, ended = decoding.policy, known.heard.ended
    assert isinstance(policy, LocalAgreement)
    given = (model, variables, prefix, written, known)
    way = _greedy if policy.beam == 1 else _best
    trial, whole = way(*given, heard=heard, rule=rule, decoding=decoding)
    is_token = real(whole.count, whole.tokens.shape[1]) & (whole.tokens != EOS)
    hypothesis = jnp.where(is_token, whole.tokens, NOTHING)
    every = jnp.concatenate([before, hypothesis[:, None]], 1)
    count = jnp.where(ended, whole.count, jnp.maximum(judging.in_common(every), written.count))
    count = jnp.where(prefix.finished, written.count, count)
    finished = prefix.finished | (ended & trial.finished)
    return _cut(trial, whole, count, finished), _first(whole, count), every[:, 1:]


def _greedy(
    model: Translator,
    variables: Any,
    prefix: Prefix,
    written: Written,
    known: Known,
    *,
    heard: jax.Array,
    rule: Rule,
    decoding: Decoding,
) -> tuple[Prefix, Written]:
    """The best token after the other, until end-of-sentence or the limit."""
    freely = dataclasses.replace(decoding, policy=None)
    given = (model, variables, prefix, written, _as_if_all(known))
    return write_on(*given, heard=heard, rule=rule, decoding=freely)


def _best(
    model: Translator,
    variables: Any,
    prefix: Prefix,
    written: Written,
    known: Known,
    *,
    heard: jax.Array,
    rule: Rule,
    decoding: Decoding,
) -> tuple[Prefix, Written]:
    """The best hypothesis of a beam, every one of which begins with what was written."""
    assert isinstance(decoding.policy, LocalAgreement)
    beam = Beam(size=decoding.policy.beam)
    given = (model, variables, _as_if_all(known))
    found = search(*given, rule=rule, decoding=decoding, beam=beam, start=(prefix, written))
    new = jnp.arange(written.tokens.shape[1]) >= written.count[:, None]
    best = Written(
        tokens=found.tokens[:, 0],
        count=found.lengths[:, 0],
        reach=jnp.where(new, found.delays[:, 0], written.reach),
        heard=jnp.where(new, heard[:, None], written.heard),
    )
    return dataclasses.replace(prefix, finished=jnp.ones_like(prefix.finished)), best


def _as_if_all(known: Known) -> Known:
    """Nothing follows, so that nothing waits."""
    heard = dataclasses.replace(known.heard, ended=jnp.ones_like(known.heard.ended))
    return dataclasses.replace(known, heard=heard)


def _first(written: Written, count: jax.Array) -> Written:
    """The first `count` [B] tokens."""
    there = real(count, written.tokens.shape[1])
    return Written(
        tokens=written.tokens * there,
        count=count,
        reach=written.reach * there,
        heard=written.heard * there,
    )


def _cut(prefix: Prefix, written: Written, count: jax.Array, finished: jax.Array) -> Prefix:
    """As it was after `count` [B] of these tokens; the past is that of the hypothesis."""
    last = jnp.take_along_axis(written.tokens, jnp.maximum(count - 1, 0)[:, None], 1)[:, 0]
    return dataclasses.replace(
        prefix,
        position=count,
        token=jnp.where(count > 0, last, BOS),
        recent=recent_of(written.tokens, count, prefix.recent.shape[1]),
        finished=finished,
    )
