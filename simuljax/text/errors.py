"""The error of this package."""

from simuljax.errors import SimuljaxError


class VocabularyError(SimuljaxError):
    """A vocabulary cannot be learned, read or used as asked; the message says what to do."""
