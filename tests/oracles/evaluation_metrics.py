"""Latency of a finished utterance, written down as the definitions read; words count from 1."""

import math


def average_lagging(d, S, r, profile, adaptive=False):
    """AL, or LAAL if adaptive; tau is the first word that is not before the end of the source."""
    n = len(d)
    if profile == "simuleval-1.0":
        d = [*d, S]
        length = max(n + 1, r) if adaptive else r + 1
        frozen = math.inf if adaptive else r + 1
    else:
        length = max(n, r) if adaptive else r
        frozen = math.inf
        if d[0] > S:
            return d[0]
    reached = [i for i in range(1, len(d) + 1) if d[i - 1] >= S]
    tau = reached[0] if reached else len(d)
    lags = [d[i - 1] - (min(i, frozen) - 1) * S / length for i in range(1, tau + 1)]
    return sum(lags) / tau


def length_adaptive_average_lagging(d, S, r, profile):
    return average_lagging(d, S, r, profile, adaptive=True)


def average_proportion(d, S, r, profile):
    if profile == "simuleval-1.0":
        return (sum(d) + S) / (S * (len(d) + 1))
    return sum(d) / (S * r)


def differentiable_average_lagging(d, S, r, profile):
    if profile == "simuleval-1.0":
        d = [*d, S]
    n = len(d)
    spaced = [d[0]]
    for i in range(2, n + 1):
        spaced.append(max(d[i - 1], spaced[-1] + S / n))
    return sum(spaced[i - 1] - (i - 1) * S / n for i in range(1, n + 1)) / n


def yaal(d, S, r, profile):
    length = max(len(d) + (1 if profile == "simuleval-1.0" else 0), r)
    lags = [d[i - 1] - (i - 1) * S / length for i in range(1, len(d) + 1) if d[i - 1] < S]
    return sum(lags) / len(lags) if lags else math.nan


def average_token_delay(d, S, r, profile, elapsed=None):
    """Source tokens as a list of (chunk, end), looked through again for every word."""
    delays = sorted(set(d))
    tokens = []
    for chunk, end in enumerate(delays):
        begin = delays[chunk - 1] if chunk else 0
        while end - begin > 300:
            begin += 300
            tokens.append((chunk, begin))
        if end > begin:
            tokens.append((chunk, end))
    total, last = 0.0, 0.0
    for t in range(1, len(d) + 1):
        chunk = delays.index(d[t - 1])
        words_before = sum(other < d[t - 1] for other in d)
        tokens_before = sum(c < chunk for c, _ in tokens)
        tokens_through = sum(c <= chunk for c, _ in tokens)
        s = min(t - max(0, words_before - tokens_before), tokens_through)
        last = max(d[t - 1], last)
        if elapsed is not None:
            spent = elapsed[t - 1] - d[t - 1]
            last += spent - (elapsed[t - 2] - d[t - 2] if t > 1 else 0)
        total += last - (tokens[s - 1][1] if s else 0)
    return total / len(d)


METRICS = {
    "AL": average_lagging,
    "LAAL": length_adaptive_average_lagging,
    "AP": average_proportion,
    "DAL": differentiable_average_lagging,
    "ATD": average_token_delay,
    "YAAL": yaal,
}


def minimum_error_cut(units, references):
    """All ways to cut, the cheapest by the sum of edit distances; the first of equals."""
    if len(references) == 1:
        return [len(units)]
    ways = []
    for count in range(len(units) + 1):
        rest = minimum_error_cut(units[count:], references[1:])
        sizes, cost, begin = [count, *rest], 0, 0
        for size, reference in zip(sizes, references, strict=True):
            cost += edit_distance(units[begin : begin + size], reference)
            begin += size
        ways.append((cost, sizes))
    return min(ways)[1]


def edit_distance(a, b):
    if not a or not b:
        return len(a) + len(b)
    change = edit_distance(a[:-1], b[:-1]) + (a[-1] != b[-1])
    return min(change, 1 + edit_distance(a[:-1], b), 1 + edit_distance(a, b[:-1]))
