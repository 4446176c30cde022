"""The test sets of WMT: SGM, one file a side, and the newer XML with both sides in one file."""

import html
import re
from pathlib import Path
from xml.etree import ElementTree

from data_pipelines.corpora.reading import read_text
from data_pipelines.utterance import CorpusError

SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.IGNORECASE | re.DOTALL)


def read_sgm(path: Path) -> list[str]:
    """The segments in order. SGM is no XML: it comes with bare ampersands and unclosed tags."""
    segments = SEGMENT.findall(read_text(path))
    if not segments:
        raise CorpusError(f"{path}: no <seg>...</seg>. Is it an SGM file of WMT?")
    return [" ".join(html.unescape(segment).split()) for segment in segments]


def read_xml(path: Path, source: str, target: str) -> list[tuple[str, str]]:
    """Pairs of segments by document and number; the first of several references."""
    try:
        documents = ElementTree.fromstring(read_text(path)).iter("doc")
    except ElementTree.ParseError as error:
        raise CorpusError(f"{path}: not XML: {error}") from error
    pairs = []
    for document in documents:
        spoken = _segments(document, "src", source)
        meant = _segments(document, "ref", target)
        pairs += [(text, meant.get(number, "")) for number, text in spoken.items()]
    if not any(translation for _, translation in pairs):
        raise CorpusError(f"{path}: no <ref lang={target!r}> for a <src lang={source!r}>.")
    return pairs


def _segments(document: ElementTree.Element, side: str, language: str) -> dict[str, str]:
    """Text by segment number; nothing if the document has no such side."""
    for part in document.iter(side):
        if part.get("lang") == language:
            segments = part.iter("seg")
            return {s.get("id", ""): " ".join("".join(s.itertext()).split()) for s in segments}
    return {}
