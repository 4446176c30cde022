"""Text: vocabularies, word boundaries and normalisation.

`learn` and `load` give a `Vocabulary` of any kind; `WordStream` turns the ids it is fed into
words as soon as they are complete, and `count_words` counts them on the device; `words_heard`
counts those that a CTC head hears.
"""

from simuljax.text.normalise import VocabularyError, clean, remove_annotations, spoken_form
from simuljax.text.phonemes import phonemize
from simuljax.text.vocabulary import (
    BOS,
    EOS,
    PAD,
    SPECIALS,
    UNK,
    Kind,
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
    ctc_labels,
    word_boundaries,
    words_heard,
)

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "SPECIALS",
    "UNK",
    "Kind",
    "Vocabulary",
    "VocabularyConfig",
    "VocabularyError",
    "WordBoundaries",
    "WordCount",
    "WordStream",
    "Words",
    "clean",
    "count_words",
    "ctc_labels",
    "learn",
    "load",
    "phonemize",
    "remove_annotations",
    "spoken_form",
    "word_boundaries",
    "words_heard",
]
