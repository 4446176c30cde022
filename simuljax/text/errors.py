"""The one error of this package."""


class VocabularyError(ValueError):
    """A vocabulary cannot be learnt, read or used as asked; the message says what to do."""
