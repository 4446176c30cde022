"""Declare where a stream of speech is cut; `audio.segmentation` cuts it."""

from dataclasses import dataclass

from simuljax.config.fields import Checked, setting

MS = 16  # samples of all audio in a millisecond


@dataclass(frozen=True, kw_only=True)
class Segmentation(Checked):
    """Cut a stream into segments of speech at its pauses."""

    pause_ms: int = setting(
        400,
        help="Pause that ends a segment.",
        label="pause{}ms",
        low=50,
        unit="ms",
    )
    speech_db: float = setting(
        12.0,
        help="Level over the noise floor at which speech begins.",
        label="speech{:g}db",
        low=1,
        unit="dB",
    )
    segment_s: float = setting(
        20.0,
        help="Longest segment; one without a pause is cut at its quietest place.",
        label="segment{:g}s",
        low=4,
        unit="s",
    )
    remainder_s: float = setting(
        1.0,
        help="Sound after the model's end of sentence, in the same segment and beside the pause, "
        "from which on it is a new sentence; less is left out.",
        label="remainder{:g}s",
        low=0,
        unit="s",
    )
