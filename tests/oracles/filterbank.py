"""Kaldi's log-mel filterbank of one recording, int16 scale: one frame, one bin at a time."""

import math

import numpy as np

FRAME, SHIFT, POINTS, RATE = 400, 160, 512, 16_000


def mel(hertz):
    return 1127.0 * math.log(1.0 + hertz / 700.0)


def frame_count(samples):
    """Frames that fit, counted by laying them down one after another."""
    count = 0
    while count * SHIFT + FRAME <= samples:
        count += 1
    return count


def windowed(frame, preemphasis=0.97):
    """No DC, pre-emphasis (the first sample from itself), Povey's window."""
    frame = np.asarray(frame, np.float64) - np.mean(np.asarray(frame, np.float64))
    out = np.zeros(FRAME)
    for i in range(FRAME):
        before = frame[i - 1] if i > 0 else frame[0]
        hann = 0.5 - 0.5 * math.cos(2 * math.pi * i / (FRAME - 1))
        out[i] = (frame[i] - preemphasis * before) * hann**0.85
    return out


def triangle(b, bins, k, low=20.0, high=RATE / 2):
    """The weight of FFT bin k in filter b."""
    width = (mel(high) - mel(low)) / (bins + 1)
    left, centre, right = (mel(low) + (b + c) * width for c in range(3))
    at = mel(k * RATE / POINTS)
    if not left < at < right:
        return 0.0
    return (at - left) / width if at <= centre else (right - at) / width


def filterbank(samples, bins=80, preemphasis=0.97):
    """[F, bins], by a discrete Fourier transform written out."""
    times = np.arange(FRAME)
    waves = [np.exp(-2j * np.pi * k * times / POINTS) for k in range(POINTS // 2)]
    weights = [[triangle(b, bins, k) for k in range(POINTS // 2)] for b in range(bins)]
    features = np.zeros((frame_count(len(samples)), bins))
    for f in range(len(features)):
        frame = windowed(samples[f * SHIFT : f * SHIFT + FRAME], preemphasis)
        power = [abs(np.sum(frame * wave)) ** 2 for wave in waves]
        for b in range(bins):
            energy = sum(w * p for w, p in zip(weights[b], power, strict=True))
            features[f, b] = math.log(max(energy, float(np.finfo(np.float32).eps)))
    return features
