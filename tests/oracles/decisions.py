"""Selection energies, wait-k, pre-decision triggers and window pooling of one example."""

import math

import numpy as np


def monotonic_energy(query, key, bias):
    """e[i,j] = q[i] . k[j] / sqrt(d) + bias of one head, d its width."""
    e = np.zeros((len(query), len(key)))
    for i, q in enumerate(query):
        for j, k in enumerate(key):
            dot = sum(float(x) * float(y) for x, y in zip(q, k, strict=True))
            e[i, j] = dot / math.sqrt(len(q)) + bias
    return e


def wait_k(k, targets, sources, convention="stacl"):
    """1 where target i (from 0) may be written: after k + i units, or k + i + 1 (`papi`)."""
    p = np.zeros((targets, sources))
    for i in range(targets):
        needed = k + i if convention == "stacl" else k + i + 1
        for j in range(sources):
            heard = j + 1
            p[i, j] = 1.0 if heard >= needed else 0.0
    return p


def fixed_triggers(length, size, step):
    """True on every step-th real state and on the last real one."""
    triggers = np.zeros(size, dtype=bool)
    for j in range(length):
        triggers[j] = (j + 1) % step == 0 or j == length - 1
    return triggers


def carried_labels(labels, length):
    """Silence (0) takes the label of the word before it; leading silence has none and stays 0."""
    carried, word = [], 0
    for j in range(length):
        word = labels[j] if labels[j] != 0 else word
        carried.append(word)
    return carried


def label_triggers(labels, length):
    """True where the carried label changes (never at state 0) and on the last real state."""
    carried = carried_labels(labels, length)
    triggers = np.zeros(len(labels), dtype=bool)
    for j in range(length):
        changed = j > 0 and carried[j] != carried[j - 1]
        triggers[j] = changed or j == length - 1
    return triggers


def windows(length, step):
    """The real states of each window that has any: [[0..step), [step..2 step), ...]."""
    starts = range(0, length, step)
    return [list(range(start, min(start + step, length))) for start in starts]


def pool_windows(states, length, step, kind="average"):
    """The mean, or the last, of each window's real states; windows without any are left out."""
    states = np.asarray(states, np.float64)
    pooled = []
    for members in windows(length, step):
        total = sum(states[j] for j in members)
        pooled.append(total / len(members) if kind == "average" else states[members[-1]])
    return np.array(pooled)


def window_ends(length, size, step):
    """The last real state of each of the ceil(size/step) windows; an empty one takes the last."""
    ends = [members[-1] for members in windows(length, step)]
    while len(ends) < math.ceil(size / step):
        ends.append(length - 1)
    return np.array(ends)
