"""Reading and writing, one utterance at a time, by attempts from scratch."""

from dataclasses import dataclass, field

import numpy as np

from tests.oracles.decisions import pool_windows, windows
from tests.oracles.hard_decoder import Heard

BOS, EOS = 1, 2


@dataclass
class Written:
    """Tokens, the states each reached, and how much had been heard when it was written."""

    tokens: list = field(default_factory=list)
    reach: list = field(default_factory=list)
    delays: list = field(default_factory=list)
    stands: list = field(default_factory=list)
    tried: list = field(default_factory=list)  # pointers, where the next token has been tried
    finished: bool = False


def fixed_windows(states, step, ended, pooling="average"):
    """Decisions at windows, the last of which must be full while more may come."""
    states = np.asarray(states, np.float64)
    full = len(states) if ended else len(states) // step * step
    keys = pool_windows(states, full, step, pooling)
    ends = [members[-1] for members in windows(full, step)]
    return Heard(states=states, keys=keys, ends=ends, ended=ended)


def every_state(states, ended, trigger=None):
    """A decision at every state, or where its trigger is at least as likely as not."""
    states = np.asarray(states, np.float64)
    exists = None
    if trigger is not None:
        exists = [
            float(state @ trigger["kernel"][:, 0] + trigger["bias"][0]) >= 0 for state in states
        ]
    ends = list(range(len(states)))
    return Heard(states=states, keys=states, ends=ends, ended=ended, exists=exists)


def reads(stands, heard, gather, threshold=0.5):
    """Whether the heads of all layers want more before the last target."""
    heads = [stand for layer in stands for stand in layer]
    waiting = sum(stand.waits for stand in heads)
    if gather == "any":
        return waiting > 0
    if gather == "majority":
        return waiting > len(heads) / 2
    return not heard.ended and sum(stand.p for stand in heads) / len(heads) < threshold


def repeats(tokens, guard):
    """Whether 1 to `longest` tokens stand more than `times` times in a row at the end."""
    for n in range(1, guard.longest + 1):
        size = n * (guard.times + 1)
        if len(tokens) >= size and tokens[-size:] == tokens[-n:] * (guard.times + 1):
            return True
    return False


def best(logits, tokens, heard, decoding):
    """The best token that may follow."""
    for token in np.argsort(-logits, kind="stable").tolist():
        if token == EOS:
            if not (decoding.avoid_eos_while_reading and not heard.ended):
                return token
        elif not (decoding.repetition and repeats([*tokens, token], decoding.repetition)):
            return token
    raise AssertionError("nothing may follow")


def pointers(decoder, written):
    """Of the last token that was written."""
    if not written.stands:
        return [[0] * decoder.heads for _ in range(decoder.layers)]
    return [[stand.pointer for stand in layer] for layer in written.stands[-1]]


def survivors(tried, stands):
    """Pointers after a READ: a layer keeps what it rejected if no head below it waits."""
    kept, settled = [], True
    for layer, before in zip(stands, tried, strict=True):
        kept.append([stand.pointer for stand in layer] if settled else before)
        settled = settled and not any(stand.waits for stand in layer)
    return kept


def write_on(decoder, written, heard, amount, decoding, *, history="kept"):
    """Writes until it has to read.

    With history "recomputed", targets are judged anew after every READ, the one that was tried and
    those that were written.
    """
    kept = history == "kept"
    while not written.finished:
        limit = int(decoding.limit.ratio * len(heard.states)) + decoding.limit.constant
        if len(written.tokens) >= limit or not len(heard.states):
            written.finished = heard.ended
            return
        start = (written.tried or pointers(decoder, written)) if kept else None
        given = ([BOS, *written.tokens], heard, written.stands if kept else ())
        logits, stands = decoder.attempt(*given, start)
        token = best(logits[-1], written.tokens, heard, decoding)
        early = decoding.force_finish and token == EOS and not heard.ended
        if early or reads(stands[-1], heard, decoding.gather, decoding.threshold):
            written.tried = survivors(start, stands[-1]) if kept else []
            return
        written.tokens.append(token)
        written.stands.append(stands[-1])
        written.tried = []
        written.reach.append(1 + max(s.reach for layer in stands[-1] for s in layer))
        written.delays.append(amount)
        written.finished = token == EOS


def translate(decoder, heard, decoding):
    """All at once."""
    written = Written()
    write_on(decoder, written, heard, len(heard.states), decoding)
    return written
