"""A Conformer layer by loops, over one sequence [S, D] of which all is real."""

import numpy as np

from tests.oracles.attention import softmax
from tests.oracles.checks import sigmoid


def normalise(x, scale, bias):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * scale + bias


def linear(x, kernel, bias=0.0):
    return x @ kernel + bias


def half_forward(x, params):
    hidden = linear(normalise(x, **params["LayerNorm_0"]), **params["inner"])
    return linear(hidden * sigmoid(hidden), **params["outer"]) / 2


def sinusoid(distance, width):
    half = width // 2
    rates = [10_000 ** (-i / (half - 1)) for i in range(half)]
    return np.array([np.sin(distance * r) for r in rates] + [np.cos(distance * r) for r in rates])


def relative_attention(x, params, heads):
    """Every pair of positions on its own: what they hold, and how far apart they are."""
    size, width = x.shape
    d, maps = width // heads, params["heads"]
    query, key, value = (linear(x, **maps[name]) for name in ("query", "key", "value"))
    out = np.zeros((size, width))
    for h in range(heads):
        own = slice(h * d, (h + 1) * d)
        u, v = params["content_bias"][h], params["distance_bias"][h]
        for i in range(size):
            energy = []
            for j in range(size):
                r = linear(sinusoid(i - j, width), **params["distance"])[own]
                content, distance = (query[i, own] + u) @ key[j, own], (query[i, own] + v) @ r
                energy.append((content + distance) / d**0.5)
            out[i, own] = softmax(energy) @ value[:, own]
    return linear(out, **maps["out"])


def depthwise(x, taps):
    """y[t, c] = sum_k taps[k, c] x[t + k - n // 2, c]; 0 outside."""
    out = np.zeros(x.shape)
    for t, c in np.ndindex(x.shape):
        for k in range(len(taps)):
            s = t + k - len(taps) // 2
            out[t, c] += taps[k, c] * x[s, c] if 0 <= s < len(x) else 0
    return out


def convolution(x, params, statistics):
    value, gate = np.split(linear(normalise(x, **params["LayerNorm_0"]), **params["gated"]), 2, -1)
    x = depthwise(value * sigmoid(gate), params["taps"])
    x = (x - statistics["norm"]["mean"]) / np.sqrt(statistics["norm"]["variance"] + 1e-5)
    x = x * params["norm"]["scale"] + params["norm"]["bias"]
    return linear(x * sigmoid(x), **params["out"])


def layer(x, params, statistics, heads):
    x = np.asarray(x, np.float64)
    x = x + half_forward(x, params["first_half"])
    around = normalise(x, **params["attention_norm"])
    x = x + relative_attention(around, params["attention"], heads)
    x = x + convolution(x, params["convolution"], statistics["convolution"])
    x = x + half_forward(x, params["second_half"])
    return normalise(x, **params["norm"])
