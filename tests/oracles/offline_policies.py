"""Policies on an offline decoder, read literally: one utterance, attempts from scratch, float64."""

import math
from dataclasses import dataclass, field

import numpy as np

from simuljax.decode.policies import AlignAtt, EDAtt, FixedSteps, LocalAgreement, WaitK
from tests.oracles.hard_decoder import (
    HardDecoder,
    heads_of,
    layer_of,
    linear,
    norm,
    positions,
    self_attention,
)
from tests.oracles.simultaneous import BOS, EOS, best


@dataclass
class Source:
    """What has been heard: states [K, D], units of wait-k, and whether that is all."""

    states: np.ndarray
    units: int
    ended: bool


@dataclass
class Told:
    """Tokens, the READ after which each was written, and the states that each attended to."""

    tokens: list = field(default_factory=list)
    heard: list = field(default_factory=list)
    sources: list = field(default_factory=list)
    hypotheses: list = field(default_factory=list)
    finished: bool = False


class OfflineDecoder(HardDecoder):
    """Every target attends to all of the states that it is given."""

    def follow(self, tokens, sources):
        """Logits after the last token, and the weights [layers, H, K] with which it attends."""
        table = self.parameters["embedding"]["embedding"]
        x = table[tokens] * math.sqrt(table.shape[1]) + positions(len(tokens), table.shape[1])
        weights = []
        for index in range(self.layers):
            p = layer_of(self.parameters, index)
            x = x + self_attention(p["heads"], norm(p["self_norm"], x), self.heads)
            pairs = zip(norm(p["cross_norm"], x), sources, strict=True)
            seen = [self.attended(p["cross"]["heads"], *pair) for pair in pairs]
            weights.append(seen[-1][1])
            x = x + linear(p["cross"]["heads"]["out"], np.array([read for read, _ in seen]))
            y = np.maximum(linear(p["feed_forward"]["inner"], norm(p["forward_norm"], x)), 0)
            x = x + linear(p["feed_forward"]["outer"], y)
        x = norm(self.parameters["norm"], x)
        return x[-1] @ self.parameters["output"]["kernel"], np.array(weights)

    def attended(self, p, query, states):
        """Values of all heads, concatenated, and weights [H, K]."""
        q = heads_of(linear(p["query"], query[None]), self.heads)[:, 0]
        k, v = (heads_of(linear(p[name], states), self.heads) for name in ("key", "value"))
        energy = np.einsum("hd,hkd->hk", q, k) / math.sqrt(q.shape[1])
        weight = np.exp(energy - energy.max(-1, keepdims=True))
        weight /= weight.sum(-1, keepdims=True)
        return np.einsum("hk,hkd->hd", weight, v).reshape(-1), weight


def words_in(vocabulary, tokens):
    """How many words a text has."""
    return len(vocabulary.decode([token for token in tokens if token != EOS]).split())


def is_open(vocabulary, tokens):
    """Whether a word is under way, in a vocabulary whose words begin with ▁."""
    telling = [token for token in tokens if token > EOS]
    return bool(telling) and vocabulary.pieces[telling[-1]] != "▁"


def waits(policy, vocabulary, tokens, token, weights, source, since):
    """Whether the token after these has to wait; `since` of them follow the last READ."""
    if isinstance(policy, WaitK):
        written = words_in(vocabulary, tokens)
        begins = token == EOS or words_in(vocabulary, [*tokens, token]) > written
        begins = begins or not is_open(vocabulary, tokens)
        due = written + policy.k + (policy.convention == "papi")
        return begins and source.units < due
    if isinstance(policy, FixedSteps):
        return since >= policy.tokens
    rows = weights if policy.layer is None else weights[policy.layer - 1 : policy.layer]
    rows = rows if policy.heads == "mean" else rows[:, policy.heads - 1 : policy.heads]
    row, count = rows.mean((0, 1)), len(source.states)
    if isinstance(policy, AlignAtt):
        return int(row.argmax()) in range(max(0, count - policy.frames), count)
    assert isinstance(policy, EDAtt)
    return sum(row[max(0, count - policy.frames) :]) >= policy.alpha


def limit_of(source, decoding):
    """The most tokens that what was heard allows."""
    return int(decoding.limit.ratio * len(source.states)) + decoding.limit.constant


def tell(decoder, told, source, read, decoding, vocabulary, *, history):
    """Writes after READ number `read` until it has to read."""
    policy, before = decoding.policy, len(told.tokens)
    if isinstance(policy, LocalAgreement):
        return agree(decoder, told, source, read, decoding)
    while not told.finished:
        if len(told.tokens) >= limit_of(source, decoding) or not len(source.states):
            told.finished = source.ended
            return None
        earlier = told.sources if history == "kept" else [source.states] * len(told.tokens)
        logits, weights = decoder.follow([BOS, *told.tokens], [*earlier, source.states])
        token = best(logits, told.tokens, source, decoding)
        drops = decoding.force_finish or not isinstance(policy, WaitK)
        given = (vocabulary, told.tokens, token, weights, source, len(told.tokens) - before)
        if not source.ended and ((drops and token == EOS) or waits(policy, *given)):
            return None
        told.tokens.append(token)
        told.heard.append(read)
        told.sources.append(source.states)
        told.finished = token == EOS
    return None


def agree(decoder, told, source, read, decoding):
    """Local agreement: hypothesise to the end, commit what is common."""
    if told.finished:
        return
    hypothesis = list(told.tokens)
    everything = Source(states=source.states, units=0, ended=True)
    while len(source.states) and len(hypothesis) < limit_of(source, decoding):
        sources = [source.states] * (1 + len(hypothesis))
        logits, _ = decoder.follow([BOS, *hypothesis], sources)
        hypothesis.append(best(logits, hypothesis, everything, decoding))
        if hypothesis[-1] == EOS:
            break
    count = len(hypothesis)
    told.hypotheses.append([token for token in hypothesis if token != EOS])
    if not source.ended:
        latest = told.hypotheses[-decoding.policy.agree :]
        pairs = zip(*latest, strict=False)
        count = next((n for n, each in enumerate(pairs) if len(set(each)) > 1), None)
        count = min(map(len, latest)) if count is None else count
        count = count if len(latest) == decoding.policy.agree else 0
    assert hypothesis[: len(told.tokens)] == told.tokens and count >= len(told.tokens)
    told.heard += [read] * (count - len(told.tokens))
    told.tokens, told.finished = hypothesis[:count], source.ended
