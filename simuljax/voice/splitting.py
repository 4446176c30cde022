"""Long text in pieces that an engine takes at once."""

import re

# Best first: the end of a sentence, of a clause, of a word. Chinese and Japanese have no spaces.
_CUTS = (
    re.compile(r"""[.!?…]["'”’»)\]]*\s|[。！？]["'”’»」』)\]]*"""),
    re.compile(r"[,;:—]\s|[、，；：]"),
    re.compile(r"\s"),
)


def split(text: str, limit: int) -> list[str]:
    """Pieces of at most `limit` characters, each as long as the best kind of cut allows.

    Nothing but white space at the cuts is lost. A text within the limit stays as it is.
    """
    pieces, rest = [], text.strip()
    while len(rest) > limit:
        at = _cut(rest[: limit + 1], limit)
        pieces.append(rest[:at].rstrip())
        rest = rest[at:].lstrip()
    return [*pieces, rest] if rest else pieces


def _cut(text: str, limit: int) -> int:
    """Where to cut: behind the last mark of the best kind that there is, or else at the limit."""
    for kind in _CUTS:
        ends = [match.end() for match in kind.finditer(text)]
        if ends:
            return min(ends[-1], limit)
    return limit
