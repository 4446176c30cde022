"""Words and pieces of words: vocabularies, where words end, and the cleaning of text.

`learn` and `load` give a `Vocabulary` of any kind; `WordStream` turns the ids it is fed into
words as soon as they are complete, and `count_words` counts them on the device.
"""

from simuljax.text.base import BOS, EOS, PAD, SPECIALS, UNK, Kind
from simuljax.text.errors import VocabularyError
from simuljax.text.normalise import clean, remove_annotations, spoken_form
from simuljax.text.phonemes import phonemize
from simuljax.text.vocabulary import Vocabulary, VocabularyConfig, learn, load
from simuljax.text.word_count import WordBoundaries, WordCount, count_words
from simuljax.text.words import WordStream, word_boundaries

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
    "clean",
    "count_words",
    "learn",
    "load",
    "phonemize",
    "remove_annotations",
    "spoken_form",
    "word_boundaries",
]
