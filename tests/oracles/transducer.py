"""Every path of a transducer, one after the other."""

import itertools
from collections.abc import Iterator

import numpy as np


def paths(groups: int, labels: int) -> Iterator[tuple[int, ...]]:
    """In which group each label is written, from 0: never in an earlier one than that before."""
    return itertools.combinations_with_replacement(range(groups), labels)


def log_probability(blank: np.ndarray, label: np.ndarray, path: tuple[int, ...]) -> float:
    """Of one path: its labels, and a blank at the end of every group."""
    total = sum(label[t, u] for u, t in enumerate(path))
    written = [sum(t <= group for t in path) for group in range(len(blank))]
    return total + sum(blank[group, u] for group, u in enumerate(written))


def lateness(path: tuple[int, ...], groups: int) -> float:
    """The delay of one path: label u in group t, both from 1, costs max(t Y / X - u, 0) / Y."""
    y = len(path)
    return sum(max((t + 1) * y / groups - (u + 1), 0) / y for u, t in enumerate(path))


def transducer(blank: np.ndarray, label: np.ndarray) -> tuple[float, float]:
    """NLL and expected delay of scores [G, U + 1] and [G, U], none of them padding."""
    groups, labels = label.shape
    every = list(paths(groups, labels))
    scores = np.array([log_probability(blank, label, path) for path in every])
    weight = np.exp(scores - scores.max())
    total = scores.max() + np.log(weight.sum())
    late = np.array([lateness(path, groups) for path in every])
    return -total, float((weight * late).sum() / weight.sum())
