"""The batch of a training step: the contract between data and training."""

from typing import Any, TypeAlias

import flax.struct

Array: TypeAlias = Any  # NumPy's on the host, JAX's on a device


@flax.struct.dataclass
class Batch:
    """B utterances of the same padded shape; every length is 0 in a row that holds nothing.

    Speech is carried as samples, not as features: 10 ms are 320 bytes either way, and filterbanks
    cost an accelerator next to nothing, so that training and streaming compute them with the same
    code (`simuljax.audio`). A text-only batch has N = F = 0 and every audio length 0. Padding is on
    the right. Labels number the words (or phonemes) of an utterance from 1 and are 0 in silence;
    they are None where the corpus carries no alignment.

    ======  =====================================================================
    B       rows of this host; their number over all hosts divides among devices
    N, F    samples at 16 kHz; the 10 ms frames these samples give
    L, T    transcript and translation tokens, end-of-sentence included
    ======  =====================================================================
    """

    audio: Array  # int16 [B, N]
    audio_length: Array  # int32 [B], samples
    source: Array  # int32 [B, L]
    source_length: Array  # int32 [B]; 0 where there is no transcript
    target: Array  # int32 [B, T]
    target_length: Array  # int32 [B]
    index: Array  # int32 [B]: the utterance's place in its split; -1 in an empty row
    words: Array | None = None  # int16 [B, F]
    phonemes: Array | None = None  # int16 [B, F]
