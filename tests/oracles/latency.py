"""Latency terms of one sentence: g is a list of delays, or [heads, T]."""

import numpy as np

from .attention import softmax


def average_lagging(g, source_length, target_length):
    """mean_i (g[i] - i / gamma), gamma = T / S, i from 0, real targets only."""
    if target_length == 0:
        return 0.0
    oracle_step = source_length / target_length
    return sum(g[i] - i * oracle_step for i in range(target_length)) / target_length


def differentiable_average_lagging(g, source_length, target_length):
    """g'[0] = g[0], g'[i] = max(g[i], g'[i-1] + 1/gamma); mean_i (g'[i] - i / gamma)."""
    if target_length == 0:
        return 0.0
    oracle_step = source_length / target_length
    total, spaced = 0.0, None
    for i in range(target_length):
        spaced = g[i] if i == 0 else max(g[i], spaced + oracle_step)
        total += spaced - i * oracle_step
    return total / target_length


def average_proportion(g, source_length, target_length):
    """sum_i g[i] / (S T)."""
    if target_length == 0:
        return 0.0
    return sum(g[i] for i in range(target_length)) / (source_length * target_length)


METRICS = {"AL": average_lagging, "DAL": differentiable_average_lagging, "AP": average_proportion}


def weighted(values):
    """sum_h softmax_h(x) x[h]: the slow heads weigh most."""
    return sum(w * x for w, x in zip(softmax(values), values, strict=True))


def gathered(g, source_length, target_length, metric="DAL", gather="metric_then_heads"):
    """One figure for all heads, before the clip."""
    score = METRICS[metric]
    if gather == "heads_then_metric":
        together = [weighted([head[i] for head in g]) for i in range(target_length)]
        return score(together, source_length, target_length)
    per_head = [score(head, source_length, target_length) for head in g]
    if gather == "metric_then_heads":
        return weighted(per_head)
    return max(per_head) if gather == "max" else sum(per_head) / len(per_head)


def latency(g, source_length, target_length, metric="DAL", gather="metric_then_heads", clip=True):
    """The gathered metric, clipped at 0 for the sentence."""
    value = gathered(np.asarray(g, np.float64), source_length, target_length, metric, gather)
    return max(value, 0.0) if clip else value


def head_variance(g, target_length):
    """mean_i Var_h(g[i,h]), divided by H - 1; one head alone does not vary."""
    heads, total = len(g), 0.0
    if heads == 1 or target_length == 0:
        return 0.0
    for i in range(target_length):
        mean = sum(head[i] for head in g) / heads
        total += sum((head[i] - mean) ** 2 for head in g) / (heads - 1)
    return total / target_length
