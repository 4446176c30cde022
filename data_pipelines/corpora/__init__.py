"""Readers of corpora: each lists the examples of a directory without reading the audio.

A reader is a frozen dataclass. Its fields are the options of the corpus. `read(root)` returns a
`Listing` of utterances and skips; it raises `CorpusError` for a wrong layout.
"""

from typing import TypeAlias

from data_pipelines.corpora.covost2 import CoVoST2
from data_pipelines.corpora.europarl_st import EuroparlST
from data_pipelines.corpora.how2 import How2
from data_pipelines.corpora.iwslt_nonnative import IwsltNonNative
from data_pipelines.corpora.manifest import Manifest
from data_pipelines.corpora.mboshi import Mboshi
from data_pipelines.corpora.multi30k_speech import Multi30kSpeech
from data_pipelines.corpora.must_c import MustC
from data_pipelines.corpora.spoken import Phrasebook, Spoken
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
