"""Records for the tests: a published log, and made-up ones."""

from pathlib import Path

import numpy as np
import pytest

LOGS = Path(__file__).parents[2] / ".." / "shared" / "data" / "logs"
ACL = LOGS / "acl6060dev_en-de_fixed8.0_step0.5"
WORDS = ["der", "die", "das", "Haus", "ist", "gross", "und", "klein", "heute", "gehen", "wir"]

needs_published_log = pytest.mark.skipif(
    not ACL.is_dir(), reason=f"the published log is not here: {ACL}"
)


def published(name):
    """A table that was published with the log: column -> values."""
    header, *rows = [
        line.split("\t") for line in (ACL / name).read_text().splitlines() if "\t" in line
    ]
    return {name: [float(row[i]) for row in rows] for i, name in enumerate(header)}


def made_up(seed, count=20, speed=1.0):
    """Records as a log has them: steps of 280 ms, a clock, some predictions that copy well."""
    rng = np.random.default_rng(seed)
    return [one(rng, index, speed) for index in range(count)]


def one(rng, index, speed):
    reference = [str(word) for word in rng.choice(WORDS, rng.integers(3, 12))]
    prediction = [w if rng.random() < 0.8 else "nicht" for w in reference]
    prediction += ["so"] * int(rng.integers(0, 3))
    source = float(rng.integers(8, 40) * 100)
    ideal = np.linspace(0, source, len(prediction)) + 600 * speed
    delays = np.minimum(np.ceil(ideal / 280) * 280, source)
    return {
        "index": index,
        "prediction": " ".join(prediction),
        "delays": delays.tolist(),
        "elapsed": (delays + 20 + 5 * np.arange(len(delays))).tolist(),
        "prediction_length": len(prediction),
        "reference": " ".join(reference),
        "source": [f"{index}.wav", "samplerate: 16000 Hz"],
        "source_length": source,
    }
