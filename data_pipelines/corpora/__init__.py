"""Readers of corpora: each lists the examples of a directory without reading the audio.

A reader is a frozen dataclass. Its fields are the options of the corpus. `read(root)` returns a
`Listing` of utterances and skips; it raises `CorpusError` for a wrong layout.
"""

from typing import TypeAlias

from data_pipelines.corpora.manifest import Manifest
from data_pipelines.corpora.segments import EuroparlST, How2, MustC
from data_pipelines.corpora.spoken import Phrasebook, Spoken
from data_pipelines.corpora.tables import CoVoST2, IwsltNonNative, Mboshi, Multi30kSpeech
from data_pipelines.corpora.text import ParallelText, Tsv

Corpus: TypeAlias = (
    MustC | CoVoST2 | EuroparlST | How2 | Mboshi | IwsltNonNative | Multi30kSpeech
) | (Manifest | ParallelText | Tsv | Phrasebook | Spoken)
CORPORA: tuple[type[Corpus], ...] = (  # those that are read from a directory
    *(MustC, CoVoST2, EuroparlST, How2, Mboshi, IwsltNonNative),
    *(Multi30kSpeech, Manifest, ParallelText, Tsv),
)

__all__ = [
    "CORPORA",
    "CoVoST2",
    "Corpus",
    "EuroparlST",
    "How2",
    "IwsltNonNative",
    "Manifest",
    "Mboshi",
    "Multi30kSpeech",
    "MustC",
    "ParallelText",
    "Phrasebook",
    "Spoken",
    "Tsv",
]
