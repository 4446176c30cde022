"""The causal pitch track and its three features of one recording, frame by frame, lag by lag."""

import math

import numpy as np

from tests.oracles.filterbank import FRAME, SHIFT, frame_count

FACTOR, LOW_RATE, WINDOW, LONGEST = 4, 4000, 100, 85  # samples at 4 kHz; lags 5 to 85 are computed
LAGS = [1 / 400 * math.exp(0.01 * s) for s in range(208)]  # seconds, 1 % apart, 400 to 50 Hz


def low_passed(samples, end, count=WINDOW + LONGEST):
    """The last `count` samples at 4 kHz of what has been heard before sample `end`."""
    taps = [
        np.sinc(2 * 1000 * n / 16_000) * (1 + math.cos(math.pi * n / 16)) for n in range(-15, 16)
    ]
    taps = np.array(taps) / sum(taps)
    heard = np.concatenate([np.zeros(1000), np.asarray(samples[:end], np.float64)])
    out = []
    for k in range(count):
        stop = len(heard) - FACTOR * (count - 1 - k)
        out.append(float(np.dot(heard[stop - len(taps) : stop], taps)))
    return np.array(out) - np.mean(out)


def correlation_at(lag_s, whole):
    """Between whole lags, by a sinc in a Hann window of five lags each side."""
    total, at = 0.0, lag_s * LOW_RATE
    for lag, value in whole.items():
        if abs(at - lag) < 5:
            hann = 0.5 + 0.5 * math.cos(math.pi * (at - lag) / 5)
            total += value * np.sinc(at - lag) * hann
    return total


def whole_correlations(low, ballast):
    """By lag, in samples at 4 kHz."""
    now, whole = low[-WINDOW:], {}
    for lag in range(5, LONGEST + 1):
        then = low[len(low) - WINDOW - lag : len(low) - lag]
        norm = np.dot(now, now) * np.dot(then, then) + ballast**2
        whole[lag] = np.dot(now, then) / math.sqrt(norm)
    return whole


def track(samples, penalty=1.0):
    """(log pitch, correlation) of every frame."""
    scores, energy, logs = np.zeros(len(LAGS)), 0.0, np.log(LAGS)
    tracked = []
    for f in range(frame_count(len(samples))):
        low = low_passed(samples, f * SHIFT + FRAME)
        energy += float(np.dot(low[-WINDOW:], low[-WINDOW:]))
        whole = whole_correlations(low, 0.01 * energy / (f + 1) + WINDOW)
        steady = np.array([correlation_at(lag, whole) for lag in LAGS])
        moved = [np.max(scores - penalty * (logs[s] - logs) ** 2) for s in range(len(LAGS))]
        scores = steady * (1 - 10 * np.array(LAGS)) + moved
        best = int(np.argmax(scores))
        free = correlation_at(LAGS[best], whole_correlations(low, WINDOW))
        tracked.append((-logs[best] - 0.01 * refinement(steady, best), free))
    return np.array(tracked).reshape(-1, 2)


def refinement(values, best):
    """How far the top of the parabola through three neighbours lies from the middle one."""
    if best in (0, len(values) - 1):
        return 0.0
    left, middle, right = values[best - 1 : best + 2]
    bend = 2 * middle - left - right
    return float(np.clip((right - left) / (2 * bend), -1, 1)) if bend > 1e-6 else 0.0


def voiced(n):
    n = abs(n)
    odds = -5.2 + 5.4 * math.exp(7.5 * (n - 1)) + 4.8 * n - 2 * math.exp(-10 * n)
    return 1 / (1 + math.exp(-(odds + 4.2 * math.exp(20 * (n - 1)))))


def features(tracked, frames=150):
    """Voicing, pitch less its mean over 1.5 s, and its slope over five frames: [F, 3]."""
    logs, fits = tracked[:, 0], np.clip(tracked[:, 1], -1, 1)
    rows = []
    for f in range(len(tracked)):
        past = range(max(0, f - frames + 1), f + 1)
        weights = [voiced(fits[k]) for k in past]
        mean = sum(w * logs[k] for w, k in zip(weights, past, strict=True)) / sum(weights)
        slope = sum((k - 2) * logs[max(0, f - 4 + k)] for k in range(5)) / 10
        rows.append([2 * ((1.0001 - fits[f]) ** 0.15 - 1), 2 * (logs[f] - mean), 10 * slope])
    return np.array(rows)
