"""Find the ends of sentences by their marks. A full stop may also end an abbreviation.

    ends a sentence    so.  so?  "so!"  so.)  他。
    does not           so...  3.5  Mr.  z.  B.  e.g.  F.

A single letter is an initial or a part of "z. B."; the pronoun I is none.
"""

import re

ABBREVIATIONS = (
    *("mr", "mrs", "ms", "dr", "prof", "st", "jr", "sr", "mt", "vs", "approx"),
    *("gen", "col", "lt", "sgt", "capt", "gov", "sen", "rep", "rev", "hon"),
    *("hr", "fr", "nr", "str", "bzw", "ca", "evtl", "ggf", "vgl", "sog", "inkl", "zzgl"),
    *("mio", "mrd", "tel", "dipl", "ing", "abs", "bd"),
)
_OPENING = "\"'“”„‘’«»([¿¡"
CLOSING = r"""["'“”‘’«»)\]]*"""  # German closes with the quotes that English and French open with
CJK_CLOSING = r"""["'”’»」』)\]]*"""  # no blank parts these from an opening quote
_END = re.compile(rf"(?<!\.)[.?!]{CLOSING}$|[。！？]{CJK_CLOSING}$")


def ends_sentence(word: str) -> bool:
    """Return True for a word with a mark that ends a sentence."""
    end = _END.search(word)
    if end is None:
        return False
    return not end[0].startswith(".") or not is_abbreviation(word[: end.start()])


def is_abbreviation(word: str) -> bool:
    """Return True for a word that has a full stop for being short, given without it."""
    word = word.lstrip(_OPENING)
    if word.casefold() in ABBREVIATIONS:
        return True
    return word != "I" and all(len(part) == 1 and part.isalpha() for part in word.split("."))
