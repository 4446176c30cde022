"""The mean and variance of a training set's features."""

import functools

import jax
import numpy as np
from tqdm import tqdm

from data_pipelines.plan import make_plan
from data_pipelines.prepared import Split
from data_pipelines.shapes import FRAME, Lengths
from simuljax.audio import RATE, FeatureRecord, Features, Moments, extract, frame_count
from simuljax.config.data import Budget

HOURS = 20.0  # enough for five digits; a larger corpus is sampled evenly


def feature_record(split: Split, features: Features | None = None) -> FeatureRecord:
    """The features and their statistics over a split, or over 20 hours of it."""
    features = features or Features()
    rows = _sample(split.table.samples)
    samples = split.table.samples[rows]
    ones = np.ones_like(samples)
    budget = Budget(frames=max(40_000, int(samples.max()) // FRAME + 10), row_multiple=1)
    plan = make_plan(Lengths(audio=samples, source=ones, target=ones), budget, shuffle=False)
    compute = jax.jit(functools.partial(extract, config=features))
    moments = Moments.empty(features.dims)
    for planned in tqdm(plan.epoch(0), desc="statistics", unit="batch"):
        audio = np.zeros((planned.shape.rows, planned.shape.audio), np.int16)
        real = planned.rows[planned.rows >= 0]
        stored = split.source.__getitems__(rows[real].tolist())
        for padded, example in zip(audio, stored, strict=False):
            padded[: len(example["audio"])] = example["audio"]
        values = np.asarray(compute(audio))
        for value, length in zip(values, samples[real], strict=False):
            moments = moments.add(value[: frame_count(int(length), features.filterbank)])
    return FeatureRecord(features=features, statistics=moments.statistics())


def _sample(samples: np.ndarray) -> np.ndarray:
    """Every example, or every n-th so that they come to about HOURS."""
    spoken = np.flatnonzero(samples)
    stride = max(1, round(samples.sum() / RATE / 3600 / HOURS))
    return spoken[::stride]
