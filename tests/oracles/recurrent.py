"""LSTMs and additive attention by loops in float64; gates are in the order i, f, g, o."""

import numpy as np

from tests.oracles.attention import softmax
from tests.oracles.checks import sigmoid


def lstm_step(gates, memory):
    """h and c after a step, given W x + U h + b and the c before it."""
    i, f, g, o = np.reshape(gates, (4, -1))
    memory = sigmoid(f) * memory + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(memory), memory


def lstm(x, w, u, b):
    """h [S, units] of x [S, D]."""
    hidden = memory = np.zeros(u.shape[0])
    states = []
    for frame in x:
        hidden, memory = lstm_step(frame @ w + hidden @ u + b, memory)
        states.append(hidden)
    return np.reshape(states, (len(x), u.shape[0]))


def bidirectional(x, params):
    """[S, 2 units] of one sequence without padding."""
    w, b = (np.split(params["inputs"][name], 2, -1) for name in ("kernel", "bias"))
    u = params["kernel"]
    forward = lstm(x, w[0], u[0], b[0])
    backward = lstm(x[::-1], w[1], u[1], b[1])[::-1]
    return np.concatenate([forward, backward], 1)


def attend(query, states, params):
    """The context of what a decoder knows, and the weights of states [K, D]."""
    energies = []
    for state in states:
        key = state @ params["key"]["kernel"] + params["key"]["bias"]
        energies.append(params["v"] @ np.tanh(query @ params["query"]["kernel"] + key))
    weights = softmax(energies)
    return sum(weight * state for weight, state in zip(weights, states, strict=True)), weights


def decode(tokens, states, params):
    """Logits [T, V] of what follows each token, from states [K, D] of one source."""
    logits, known = [], nothing_known(params)
    for token in tokens:
        scores, known = decode_step(token, known, states, params)
        logits.append(scores)
    return np.array(logits)


def decode_step(token, known, states, params):
    """Logits [V] of what follows the token, and h and c of every layer after it."""
    (hidden, memory), after = known, []
    context, _ = attend(hidden[0], states, params["attention"])
    given = params["embedding"]["embedding"][token] @ params["tokens"]["kernel"]
    x = context
    for layer, h, c in zip(_layers(params), hidden, memory, strict=True):
        gates = np.concatenate([x, h]) @ layer["kernel"] + layer["bias"] + given
        after.append(lstm_step(gates, c))
        x, given = after[-1][0], 0
    both = np.concatenate([x, context])
    logits = both @ params["output"]["kernel"] + params["output"]["bias"]
    return logits, tuple(zip(*after, strict=True))


def nothing_known(params):
    """h and c of every layer before the first token."""
    zeros = [np.zeros(layer["bias"].size // 4) for layer in _layers(params)]
    return zeros, zeros


def _layers(params):
    return [params[name]["gates"] for name in sorted(params) if name.startswith("layers_")]
