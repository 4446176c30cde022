"""Small trees of corpora for the tests, with real sound files, and the place of real corpora."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from data_pipelines.utterance import Listing

REAL = Path(__file__).parents[3] / ".." / "shared" / "data"


def real(name: str) -> Path:
    """The directory of a real corpus; skips the test where it is not kept."""
    if not (REAL / name).exists():
        pytest.skip(f"no {name} in {REAL}")
    return REAL / name


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    return path


def tone(path: Path, seconds: float = 0.5) -> Path:
    """A sound file in the format that its suffix names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    times = np.arange(int(16000 * seconds)) / 16000
    sound = 0.1 * np.sin(2 * np.pi * 440 * times)
    opus = path.suffix == ".opus"
    coding, container = ("OPUS", "OGG") if opus else (None, None)
    soundfile.write(path, sound, 16000, subtype=coding, format=container)
    return path


def sizes(listing: Listing) -> dict[str, int]:
    return {split: len(found) for split, found in listing.splits.items()}


def skips(listing: Listing) -> list[tuple[str, str]]:
    return [(skip.id, skip.reason) for skip in listing.skipped]
