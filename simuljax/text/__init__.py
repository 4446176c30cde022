"""Text: vocabularies, word boundaries and normalisation.

`learn` and `load` give a `Vocabulary` of any kind. `WordStream` turns ids into words as soon as
they are complete, `count_words` counts them on the device, and `ctc_word_counts` counts those in
the output of a CTC head.
"""

from simuljax.text.normalise import VocabularyError, clean
from simuljax.text.vocabulary import (
    BOS,
    EOS,
    PAD,
    SPECIALS,
    UNK,
    Vocabulary,
    VocabularyConfig,
    learn,
    load,
)
from simuljax.text.words import (
    WordBoundaries,
    WordCount,
    Words,
    WordStream,
    count_words,
    ctc_word_counts,
)

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "SPECIALS",
    "UNK",
    "Vocabulary",
    "VocabularyConfig",
    "VocabularyError",
    "WordBoundaries",
    "WordCount",
    "WordStream",
    "Words",
    "clean",
    "count_words",
    "ctc_word_counts",
    "learn",
    "load",
]
