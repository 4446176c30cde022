"""Expected soft attention of one head by its double sums: a, u [T,S]."""

import numpy as np


def softmax(scores):
    """exp(s[n]) / sum_m exp(s[m]) of a list, shifted by its maximum."""
    largest = max(scores)
    weights = [np.exp(float(s) - float(largest)) for s in scores]
    total = sum(weights)
    return [w / total for w in weights]


def lookback(a, u):
    """b[i,j] = sum_{k>=j} a[i,k] exp(u[i,j]) / sum_{l<=k} exp(u[i,l])."""
    a, u = np.asarray(a, np.float64), np.asarray(u, np.float64)
    b = np.zeros_like(a)
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            weights = softmax(u[i, : k + 1])
            for j in range(k + 1):
                b[i, j] += a[i, k] * weights[j]
    return b


def chunkwise(a, u, width):
    """b[i,j] = sum_{k in [j,j+w)} a[i,k] exp(u[i,j]) / sum_{l in (k-w,k]} exp(u[i,l])."""
    a, u = np.asarray(a, np.float64), np.asarray(u, np.float64)
    b = np.zeros_like(a)
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            first = max(0, k - width + 1)
            weights = softmax(u[i, first : k + 1])
            for j in range(first, k + 1):
                b[i, j] += a[i, k] * weights[j - first]
    return b


def soft_attention(a, u, chunk=None):
    """Infinite lookback, or a chunk of the given width."""
    return lookback(a, u) if chunk is None else chunkwise(a, u, chunk)
