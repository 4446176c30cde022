"""The contract between data and training: a batch, and all that a run is given."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import flax.struct

from simuljax.audio import FeatureRecord
from simuljax.text import Words

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


class BatchIterator(Protocol):
    """Batches without end, whose place can be saved and restored (Grain's iterators)."""

    def __iter__(self) -> Iterator[Batch]: ...
    def __next__(self) -> Batch: ...
    def get_state(self) -> Any: ...
    def set_state(self, state: Any) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Data:
    """The input of a run: this host's part of every batch."""

    train: BatchIterator
    valid: Callable[[], Iterable[Batch]]
    steps_per_epoch: int
    features: FeatureRecord
    words: Words | None = None  # for models that count words
    shapes: Callable[[], Iterable[Batch]] = tuple  # a batch of each shape that `train` gives
    valid_shapes: Callable[[], Iterable[Batch]] = tuple
