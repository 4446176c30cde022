"""Text normalisation that every vocabulary applies, and the error of this package."""

import unicodedata

from simuljax.errors import SimuljaxError


class VocabularyError(SimuljaxError):
    """A vocabulary cannot be learned, read or used as asked; the message says what to do."""


JOINERS = "\u200c\u200d"  # invisible, but spelling in Persian, in Indic scripts and in emoji


def clean(text: str) -> str:
    """Apply NFC, single spaces, and removal of control characters; words stay as they are."""
    visible = "".join(c for c in " ".join(text.split()) if not _invisible(c))
    return " ".join(unicodedata.normalize("NFC", visible).split())


def _invisible(character: str) -> bool:
    """Return True for control, surrogate and format characters, such as soft hyphens."""
    category = unicodedata.category(character)
    return category in ("Cc", "Cs", "Cf") and character not in JOINERS
