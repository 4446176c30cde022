"""Layers over spectrogram images by loops: images [T, F] or [T, F, C], all of it real."""

import numpy as np

from tests.oracles.attention import softmax


def convolve(image, kernel, bias=None, stride=1):
    """y[i, j] = bias + sum_{a, b in -1..1} x[si + a, sj + b] W[a, b], with 0 outside the image."""
    times, frequencies, _ = image.shape
    out = np.zeros((-(-times // stride), -(-frequencies // stride), kernel.shape[-1]))
    for i, j in np.ndindex(out.shape[:2]):
        out[i, j] = 0 if bias is None else bias
        for a, b in np.ndindex(3, 3):
            t, f = stride * i + a - 1, stride * j + b - 1
            if 0 <= t < times and 0 <= f < frequencies:
                out[i, j] += image[t, f] @ kernel[a, b]
    return out


def over_time(query, key, value):
    """softmax_s(sum_f q[t, f] k[s, f] / sqrt(F)) v[s, f] of one head."""
    times, frequencies = query.shape
    out = np.zeros((times, frequencies))
    for t in range(times):
        weights = softmax([query[t] @ key[s] / frequencies**0.5 for s in range(times)])
        for s in range(times):
            out[t] += weights[s] * value[s]
    return out


def over_frequency(query, key, value):
    """The same of the images on their sides."""
    return over_time(query.T, key.T, value.T).T


def normalise(values, mean, variance, scale, bias, epsilon=1e-5):
    """Every channel on its own."""
    out = np.zeros(values.shape)
    for c in range(values.shape[-1]):
        out[..., c] = (values[..., c] - mean[c]) / (variance[c] + epsilon) ** 0.5
        out[..., c] = out[..., c] * scale[c] + bias[c]
    return out


def real_moments(x, lengths):
    """Mean and variance of each channel of x [B, T, ..., C] over positions before the lengths."""
    rows = [row[:length].reshape(-1, x.shape[-1]) for row, length in zip(x, lengths, strict=True)]
    values = np.concatenate(rows).astype(np.float64)
    return values.mean(0), values.var(0)


def attention_block(image, params, statistics):
    """x + relu(norm(conv(over time, over frequency))) of one image [T, F, C]."""
    q, k, v = (
        convolve(image, params[name]["kernel"], params[name].get("bias"))
        for name in ("query", "key", "value")
    )
    heads = range(q.shape[-1])
    seen = [
        attend(q[..., h], k[..., h], v[..., h])
        for attend in (over_time, over_frequency)
        for h in heads
    ]
    out = convolve(np.stack(seen, -1), params["out"]["kernel"])
    out = normalise(out, **statistics["norm"], **params["norm"])
    return image + np.maximum(out, 0)
