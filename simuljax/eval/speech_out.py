"""Latency of spoken output: start, end and average token delay of the voice.

Output is a sequence of pieces, each spoken without a pause. A piece is committed after `delay_ms`
of the source and sounds from `start_ms` to `end_ms`, from the start of the source. `start_ms`
includes computation where it is measured, synthesis, and waiting for the piece before.

    StartOffset    start of the first piece
    EndOffset      end of the last piece - end of the source
    ATD            average token delay (Kano et al. 2023) with tokens on both sides

For ATD every piece is cut into tokens of 300 ms; its remainder is a shorter one. Token t belongs to
source token s(t) as in `token_delay`, by the delays of the pieces, and is complete at its end T_t:

    ATD = mean_t T_t - (end of source token s(t)) = ATD of text with those delays + mean_t T_t - d_t
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from simuljax.eval.token_delay import TOKEN_MS, average_token_delay


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Speech without a pause."""

    delay_ms: float  # of the source, when its words were committed
    start_ms: float
    end_ms: float

    def __post_init__(self) -> None:
        if not self.start_ms <= self.end_ms < math.inf:
            raise ValueError(f"a piece cannot sound from {self.start_ms} to {self.end_ms} ms")
        if self.delay_ms < 0:
            raise ValueError(f"the delay of a piece must not be below 0, as {self.delay_ms} ms is")


@dataclass(frozen=True, kw_only=True)
class SpeechLatency:
    """The latencies of one recording, in ms."""

    start_offset: float
    end_offset: float
    token_delay: float


def speech_latency(pieces: Sequence[Piece], source_length: float) -> SpeechLatency:
    """Return the latencies of pieces in order that do not overlap; NaN without speech.

    `source_length` is the source's duration in ms.
    """
    if not 0 < source_length < math.inf:
        raise ValueError(f"source_length must be positive and finite, not {source_length}")
    for one, following in itertools.pairwise(pieces):
        if following.start_ms < one.end_ms or following.delay_ms < one.delay_ms:
            raise ValueError(f"{following} does not come after {one}")
    said = [piece for piece in pieces if piece.end_ms > piece.start_ms]
    if not said:
        return SpeechLatency(start_offset=math.nan, end_offset=math.nan, token_delay=math.nan)
    return SpeechLatency(
        start_offset=said[0].start_ms,
        end_offset=said[-1].end_ms - source_length,
        token_delay=speech_token_delay(said, source_length),
    )


def speech_token_delay(pieces: Sequence[Piece], source_length: float) -> float:
    """Return ATD of pieces that have a length; NaN if there are none."""
    tokens = [(piece.delay_ms, end) for piece in pieces for end in _token_ends(piece)]
    if not tokens:
        return math.nan
    delays = [delay for delay, _ in tokens]
    late = math.fsum(end - delay for delay, end in tokens) / len(tokens)
    return average_token_delay(delays, source_length, len(tokens)) + late


def _token_ends(piece: Piece) -> list[float]:
    """Return the ends of the tokens of a piece."""
    count = math.ceil((piece.end_ms - piece.start_ms) / TOKEN_MS)
    return [min(piece.start_ms + (t + 1) * TOKEN_MS, piece.end_ms) for t in range(count)]
