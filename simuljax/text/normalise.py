"""Text normalisation before vocabularies are learned and words are counted.

`clean` is applied by every vocabulary to whatever it is given. The other two change what the text
says and are asked for by name: `remove_annotations` for subtitles, `spoken_form` for what a
recogniser is to learn.

The error of this package.
"""

import re
import unicodedata

from simuljax.errors import SimuljaxError


class VocabularyError(SimuljaxError):
    """A vocabulary cannot be learned, read or used as asked; the message says what to do."""


JOINERS = "\u200c\u200d"  # invisible, but spelling in Persian, in Indic scripts and in emoji
APOSTROPHES = "'’"

# "(Applause)", "(Laughter ends)", "[Musik]": one to three words, the first with a capital that
# is not an abbreviation's. "(NATO)" and "(which is why it is here)" are said, and stay.
_ANNOTATION = re.compile(r"\((?![^\W\d_]*[^\W\d_a-z]{2})[^\W\d_a-z][^\W\d_]*(?: [^\W\d_]+){0,2}\)")
_BRACKETED = re.compile(r"\[[^\[\]]*\]")
_MUSIC = re.compile("[♩♪♫♬]+")


def clean(text: str) -> str:
    """Apply NFC, single spaces, and removal of control characters; words stay as they are."""
    visible = "".join(c for c in " ".join(text.split()) if not _invisible(c))
    return " ".join(unicodedata.normalize("NFC", visible).split())


def remove_annotations(text: str) -> str:
    """Remove annotations nobody says: "(Applause)", "[Music]", "♪" (MuST-C, Papi 2022).

    A parenthesis counts as an annotation when it holds one to three words and begins with a
    capital; German writes every noun so, hence "(Berlin)" goes too. Brackets always go.
    """
    for pattern in (_BRACKETED, _ANNOTATION, _MUSIC):
        text = pattern.sub(" ", text)
    return " ".join(text.split())


def spoken_form(text: str) -> str:
    """Return lower case without punctuation: the target of a CTC head on the source side.

    Hyphens and other marks separate words; an apostrophe between letters is part of its word.
    """
    text = clean(text.lower())
    kept = (c if _said(text, i) else " " for i, c in enumerate(text))
    return " ".join("".join(kept).replace("’", "'").split())


def _said(text: str, i: int) -> bool:
    if text[i] in APOSTROPHES:
        return text[i - 1 : i].isalpha() and text[i + 1 : i + 2].isalpha()
    return unicodedata.category(text[i])[0] not in "PSZ"


def _invisible(character: str) -> bool:
    """Return True for control, surrogate and format characters, such as soft hyphens."""
    category = unicodedata.category(character)
    return category in ("Cc", "Cs", "Cf") and character not in JOINERS
