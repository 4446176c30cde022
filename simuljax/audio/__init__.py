"""Audio: from recordings to the features of a model.

    audio -> samples               waveform: any file, int16 mono at 16 kHz, or a counted error
    samples -> augmented           wave_augment: in training only
    samples -> features            features: 80 log-mel filterbanks, with pitch if configured
    features -> normalised         features: statistics over the training set, stored with the model
    normalised -> augmented        spec_augment: in training only

Features come whole (`extract`) or as the samples arrive (`init_stream`, `stream_step`), and are the
same either way. Padding is on the right; features of real samples never depend on it.
"""

from simuljax.audio.features import (
    FeatureRecord,
    Features,
    FeatureState,
    Moments,
    Statistics,
    extract,
    extract_features,
    features_of,
    init_stream,
    load_features,
    neutral,
    normalise,
    save_features,
    stream_step,
)
from simuljax.audio.filterbank import Filterbank, frame_count
from simuljax.audio.spec_augment import SpecAugment
from simuljax.audio.wave_augment import WaveAugment
from simuljax.audio.waveform import RATE, AudioError, Incoming, as_int16, read_audio
from simuljax.config.segmentation import MS

__all__ = [
    "MS",
    "RATE",
    "AudioError",
    "FeatureRecord",
    "FeatureState",
    "Features",
    "Filterbank",
    "Incoming",
    "Moments",
    "SpecAugment",
    "Statistics",
    "WaveAugment",
    "as_int16",
    "extract",
    "extract_features",
    "features_of",
    "frame_count",
    "init_stream",
    "load_features",
    "neutral",
    "normalise",
    "read_audio",
    "save_features",
    "stream_step",
]
