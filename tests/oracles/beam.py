"""Beam search and, where it is possible, the search of everything; lists, sorted."""

from dataclasses import dataclass

import numpy as np

from tests.oracles.simultaneous import BOS, EOS, repeats


@dataclass
class Hypothesis:
    tokens: list
    log_prob: float

    def score(self, penalty):
        return self.log_prob / max(len(self.tokens), 1) ** penalty

    @property
    def ended(self):
        return self.tokens[-1:] == [EOS]


def log_softmax(logits):
    logits = logits - logits.max()
    return logits - np.log(np.exp(logits).sum())


def scorer(decoder, heard):
    """tokens -> log-probabilities of what may follow, by a pass from scratch."""
    return lambda tokens: log_softmax(decoder.attempt([BOS, *tokens], heard)[0][-1])


def total(decoder, heard, tokens):
    """Teacher-forced: one pass for all of the tokens."""
    logits = decoder.attempt([BOS, *tokens[:-1]], heard)[0]
    return sum(log_softmax(row)[token] for row, token in zip(logits, tokens, strict=True))


def limit_of(states, decoding):
    return int(decoding.limit.ratio * states) + decoding.limit.constant if states else 0


def search(following, limit, size, penalty, *, guard=None):
    """The best `size` hypotheses, those that have ended first."""
    live, ended = [Hypothesis([], 0.0)], []
    for _ in range(limit):
        further = []
        for old in live:
            for token, log_p in enumerate(following(old.tokens)):
                new = Hypothesis([*old.tokens, token], old.log_prob + log_p)
                if token == EOS or guard is None or not repeats(new.tokens, guard):
                    further.append(new)
        further.sort(key=lambda h: -h.log_prob)
        ended += [h for h in further[:size] if h.ended]
        live = [h for h in further if not h.ended][:size]
        if len(ended) >= size:
            break
    ended.sort(key=lambda h: -h.score(penalty))
    return [*ended, *live][:size]


def everything(following, vocabulary, limit, penalty):
    """The best of all sentences that end within the limit."""
    others = [token for token in range(vocabulary) if token != EOS]
    live, ended = [Hypothesis([], 0.0)], []
    for _ in range(limit):
        after = [(old, following(old.tokens)) for old in live]
        ended += [Hypothesis([*h.tokens, EOS], h.log_prob + log_p[EOS]) for h, log_p in after]
        live = [Hypothesis([*h.tokens, token], h.log_prob + log_p[token])
                for h, log_p in after for token in others]  # fmt: skip
    assert len(ended) == sum(len(others) ** n for n in range(limit))
    return max(ended, key=lambda h: h.score(penalty))
