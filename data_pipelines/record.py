"""One example as it is stored: the TFDS features, and the way in and out of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.proto import tf_example_pb2

from data_pipelines.utterance import Span, Utterance


def features() -> tfds.features.FeaturesDict:
    """The stored fields. Arrays are kept as bytes: as lists of integers audio reads far slower."""
    text, as_bytes = tfds.features.Text, tfds.features.Encoding.BYTES
    spans = tfds.features.Tensor(shape=(None, 2), dtype=np.float32, encoding=as_bytes)
    return tfds.features.FeaturesDict(
        {
            "id": text(doc="unique within the corpus"),
            "audio": tfds.features.Tensor(
                shape=(None,),
                dtype=np.int16,
                encoding=as_bytes,
                doc="16 kHz mono; empty: text only",
            ),
            "transcript": text(),
            "translation": text(),
            "speaker": text(),
            "words": text(doc="aligned words, separated by spaces; empty: no alignment"),
            "word_ms": spans,
            "phonemes": text(doc="aligned phonemes, separated by spaces"),
            "phoneme_ms": spans,
            "audio_origin": text(doc="what was done to the audio; empty: nothing"),
            "translation_origin": text(doc="who wrote the translation; empty: the corpus"),
        }
    )


@dataclass(frozen=True, kw_only=True)
class Record:
    """An utterance together with its samples."""

    utterance: Utterance
    audio: np.ndarray  # int16 [N]


def encode(record: Record) -> dict[str, Any]:
    """The record as TFDS stores it."""
    utterance = record.utterance
    return {
        "id": utterance.id,
        "audio": record.audio,
        "transcript": utterance.transcript,
        "translation": utterance.translation,
        "speaker": utterance.speaker,
        "words": _texts(utterance.words),
        "word_ms": _times(utterance.words),
        "phonemes": _texts(utterance.phonemes),
        "phoneme_ms": _times(utterance.phonemes),
        "audio_origin": utterance.audio_origin,
        "translation_origin": utterance.translation_origin,
    }


def in_order(example: bytes) -> bytes:
    """The serialised example, the same in every process: protobuf orders its fields at random."""
    message = tf_example_pb2.Example.FromString(example)  # pyright: ignore[reportAttributeAccessIssue]
    return message.SerializeToString(deterministic=True)


def decode(example: Mapping[str, Any]) -> Record:
    """The record that `encode` stored; where the audio once came from is not kept."""
    text = {name: value.decode() for name, value in example.items() if isinstance(value, bytes)}
    utterance = Utterance(
        id=text["id"],
        transcript=text["transcript"],
        translation=text["translation"],
        speaker=text["speaker"],
        words=_spans(text["words"], example["word_ms"]),
        phonemes=_spans(text["phonemes"], example["phoneme_ms"]),
        audio_origin=text["audio_origin"],
        translation_origin=text["translation_origin"],
    )
    return Record(utterance=utterance, audio=example["audio"])


def _texts(spans: Sequence[Span]) -> str:
    """Separated by spaces, so that none may be inside."""
    return " ".join("_".join(span.text.split()) for span in spans)


def _times(spans: Sequence[Span]) -> np.ndarray:
    return np.array([(s.start_ms, s.end_ms) for s in spans], np.float32).reshape(-1, 2)


def _spans(texts: str, times: np.ndarray) -> tuple[Span, ...]:
    pairs = zip(texts.split(" ") if texts else (), times.tolist(), strict=True)
    return tuple(Span(text=text, start_ms=start, end_ms=end) for text, (start, end) in pairs)
