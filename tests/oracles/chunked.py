"""Chunk-causal Transformer layers, one chunk, head and state at a time, in float64."""

import numpy as np


def layer_norm(x, p):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * p["scale"] + p["bias"]


def linear(x, p):
    return x @ p["kernel"] + p["bias"]


def turned(vector, position):
    """Each pair (i, i + d/2) as a complex number, times e^(i position rate)."""
    half = len(vector) // 2
    rate = 10_000.0 ** (-np.arange(half) / half)
    z = (vector[:half] + 1j * vector[half:]) * np.exp(1j * position * rate)
    return np.concatenate([z.real, z.imag])


def attention(query, at, keys, values, places):
    """One head of one state that stands `at` a place, over keys at their places."""
    energy = np.array([turned(query, at) @ turned(k, p) for k, p in zip(keys, places, strict=True)])
    weight = np.exp((energy - energy.max()) / np.sqrt(len(query)))
    return (weight / weight.sum()) @ values


def layer(main, copies, p, heads, c, left):
    """`main` [K, D]; `copies[i]`: the states after chunk i. The same pair, a layer higher."""
    qkv = {}
    for name in ("query", "key", "value"):

        def project(x, name=name):
            y = linear(layer_norm(x, p["attention_norm"]), p["heads"][name])
            return y.reshape(len(x), heads, y.shape[1] // heads)

        qkv[name] = project(main), [project(copy) for copy in copies]
    new_main, new_copies = [], []
    for i, copy in enumerate(copies):
        start, end = i * c, min(i * c + c, len(main))
        own = np.concatenate([main[start:end], copy])
        places = np.arange(max(0, start - left), end + len(copy))  # from the start of the stream
        query, key, value = (
            np.concatenate([m[places[0] if name != "query" else start : end], cs[i]])
            for name, (m, cs) in qkv.items()
        )
        attended = np.array(
            [
                [
                    attention(query[s, h], start + s, key[:, h], value[:, h], places)
                    for h in range(heads)
                ]
                for s in range(len(own))
            ]
        ).reshape(len(own), -1)
        x = own + linear(attended, p["heads"]["out"])
        hidden = linear(layer_norm(x, p["forward_norm"]), p["feed_forward"]["inner"])
        x = x + linear(np.maximum(hidden, 0), p["feed_forward"]["outer"])
        new_main.append(x[: end - start])
        new_copies.append(x[end - start :])
    return np.concatenate(new_main), new_copies


def layers(x, params, heads, c, left, right):
    """x [K, D] through layers whose parameters are a list."""
    starts = range(c, len(x) + c, c)
    main, copies = x, [x[start : start + right] for start in starts]
    for p in params:
        main, copies = layer(main, copies, p, heads, c, left)
    return main
