"""Losses over target tokens of one sentence: logits [T,V]."""

import numpy as np

from .attention import softmax


def log_softmax(logits):
    """z[v] - log sum_w exp(z[w])."""
    z = [float(x) for x in logits]
    largest = max(z)
    log_total = largest + np.log(sum(np.exp(x - largest) for x in z))
    return [x - log_total for x in z]


def label_smoothed_cross_entropy(logits, targets, target_length, smoothing=0.1):
    """sum_i -(1 - eps) log p[i,y_i] - eps/V sum_v log p[i,v]."""
    total = 0.0
    for i in range(target_length):
        logp = log_softmax(logits[i])
        total -= (1.0 - smoothing) * logp[targets[i]]
        total -= smoothing / len(logp) * sum(logp)
    return total


def online_distillation(student, teacher, target_length):
    """sum_i -sum_v p_teacher[i,v] log p_student[i,v]."""
    total = 0.0
    for i in range(target_length):
        logp = log_softmax(student[i])
        total -= sum(q * x for q, x in zip(softmax(teacher[i]), logp, strict=True))
    return total
