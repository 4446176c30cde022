"""Readers of corpora: each lists what a directory holds, and leaves the audio where it is.

A reader is a frozen dataclass. Its fields are the corpus' options, its `read(root)` gives a
`Listing` of utterances per split and of what was skipped, and `CorpusError` says what a tree lacks.
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
from data_pipelines.corpora.phrasebook import Phrasebook
from data_pipelines.corpora.spoken import Spoken
from data_pipelines.corpora.text import ParallelText, Tsv

Corpus: TypeAlias = (
    MustC
    | CoVoST2
    | EuroparlST
    | How2
    | Mboshi
    | IwsltNonNative
    | Multi30kSpeech
    | Manifest
    | ParallelText
    | Tsv
    | Phrasebook
    | Spoken
)
CORPORA: tuple[type[Corpus], ...] = (  # those that are read from a place
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
