"""Moses tokenisation, and its inverse one token at a time.

Moses splits "Haus." into "Haus" and "."; its detokeniser looks at each token and decides whether
a space comes before it. Here that decision is a pure function of a small state, so that a stream
of tokens and a finished sentence are spelled by the same rules. They are those of the Moses
detokeniser; the ones for Czech, which look at the end of the sentence first, are left out.

What Moses would not put together again is not taken apart: "and/or", "geht's", a quotation mark
that closes what another line opened. Hence the words of a text stay words. What remains lost is a
space before a mark that Moses attaches ("5 %" becomes "5%").
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from sacremoses import MosesTokenizer
from sacremoses.util import is_cjk

MARKS = ",.?!:;\\%}])"  # attach to what comes before
OPENERS = "([{¿¡"  # attach to what comes after, as currency signs do
QUOTES = "'\"„“`"  # before or after, in turn

_MARKS = re.compile(f"[{re.escape(MARKS)}]+")
_QUOTES = re.compile(f"[{re.escape(QUOTES)}]+")
_FRENCH_SPACED = re.compile(r"[?!:;\\%]")
_ELIDING = ("fr", "it", "ga")


@dataclass(frozen=True, kw_only=True)
class Spacing:
    """The state that decides about the space before the next token."""

    language: str
    attach_next: Literal["no", "yes", "letter"] = "no"  # letter: if it begins with one ("l'")
    last: str = ""  # the last character
    open_quotes: frozenset[str] = frozenset()


def attaches(spacing: Spacing, token: str) -> bool:
    """Return True if no space comes before this token."""
    if _MARKS.fullmatch(token):
        return not (spacing.language == "fr" and _FRENCH_SPACED.fullmatch(token))
    if _QUOTES.fullmatch(token) and _closes(spacing, token):
        return True
    if spacing.language == "en" and token[0] == "'" and _is_letter(token[1:2]):
        return True
    if spacing.language != "ko" and is_cjk(token[0]) and spacing.last and is_cjk(spacing.last):
        return True
    if spacing.attach_next == "letter":
        return _is_letter(token[0])
    return spacing.attach_next == "yes"


def attachment_is_open(token: str) -> bool:
    """Return True if a token that begins like this may still attach or not."""
    return token[0] in MARKS + QUOTES


def after(spacing: Spacing, token: str) -> Spacing:
    """Return the state after a token."""
    following = replace(spacing, attach_next="no", last=token[-1])
    if _QUOTES.fullmatch(token):
        if _possessive(spacing, token):
            return following
        closes = _closes(spacing, token)
        quotes = spacing.open_quotes ^ {_quote_kind(token)}
        return replace(following, attach_next="no" if closes else "yes", open_quotes=quotes)
    if opens(token):
        return replace(following, attach_next="yes")
    if spacing.language in _ELIDING and token[-1] == "'" and _is_letter(token[-2:-1]):
        return replace(following, attach_next="letter")
    return following


def opens(token: str) -> bool:
    """Return True for opening brackets and currency signs, which attach to the next token."""
    return all(c in OPENERS or unicodedata.category(c) == "Sc" for c in token)


def is_quote(token: str) -> bool:
    """Return True for quotation marks, which attach to one side or the other."""
    return bool(_QUOTES.fullmatch(token))


def detokenise(tokens: Iterable[str], language: str) -> str:
    """Return plain text from tokens."""
    spacing, text = Spacing(language=language), ""
    for token in tokens:
        text += token if attaches(spacing, token) or not text else f" {token}"
        spacing = after(spacing, token)
    return text


def tokenise(text: str, language: str) -> list[str]:
    """Split clean text into tokens, none of which contains `@@`."""
    text = re.sub("@(?=@)", "@ ", text)
    tokens = list(_moses(language).tokenize(text, escape=False))
    if "".join(tokens) != text.replace(" ", ""):  # Moses' own placeholders, such as DOTMULTI
        tokens = text.split()
    return _keep_together(text, tokens, language)


def _keep_together(text: str, tokens: list[str], language: str) -> list[str]:
    """Join tokens that touch in the text but that `detokenise` would separate."""
    kept: list[str] = []
    spacings, joined, at = [Spacing(language=language)], [], 0
    for token in tokens:
        start = text.index(token, at)
        kept.append(token)
        joined.append(start == at and at > 0)  # it follows the previous one without a space
        at = start + len(token)
        while joined[-1] and not attaches(spacings[len(kept) - 1], kept[-1]):
            tail = kept.pop()
            joined.pop()
            kept[-1] += tail
        del spacings[len(kept) :]
        spacings.append(after(spacings[-1], kept[-1]))
    return kept


def _closes(spacing: Spacing, token: str) -> bool:
    return _quote_kind(token) in spacing.open_quotes or _possessive(spacing, token)


def _possessive(spacing: Spacing, token: str) -> bool:
    """Return True for the apostrophe of "the dogs' house" outside a quotation."""
    opened = "'" in spacing.open_quotes
    return spacing.language == "en" and token == "'" and spacing.last == "s" and not opened


def _quote_kind(token: str) -> str:
    return '"' if set(token) <= set("„“") else token


def _is_letter(character: str) -> bool:
    """Return True for a letter of an alphabet, as Moses defines it: not Chinese or Japanese."""
    return character.isalpha() and not is_cjk(character)


@cache
def _moses(language: str) -> MosesTokenizer:
    return MosesTokenizer(language)
