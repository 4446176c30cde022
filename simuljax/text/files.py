"""A vocabulary on disk: one JSON file, the same bytes for the same vocabulary.

The checksum is of the content, so that a file damaged in the middle is noticed as well as one cut
short.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simuljax.text.errors import VocabularyError

FORMAT = "simuljax vocabulary"
VERSION = 1


def path_of(path_or_prefix: str | Path) -> Path:
    """Return the path of the file: `run/vocab` and `run/vocab.json` both mean the latter."""
    text = str(path_or_prefix)
    return Path(text if text.endswith(".json") else f"{text}.json")


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write the file atomically."""
    header = {"format": FORMAT, "version": VERSION, "sha256": _checksum(content)}
    text = json.dumps(header | {"content": content}, ensure_ascii=False, indent=1) + "\n"
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8", newline="\n")
    part.replace(path)


def read(path: Path) -> dict[str, Any]:
    """Read the content of a file written by `write`; refuse anything else by name."""
    if not path.is_file():
        raise VocabularyError(f"{path} does not exist.")
    try:
        document = json.loads(path.read_bytes())
    except ValueError as error:  # not JSON, or not UTF-8
        raise VocabularyError(f"{path} is damaged: {error}. Copy or learn it again.") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise VocabularyError(f"{path} is not a vocabulary of simuljax.")
    if document.get("version") != VERSION:
        found = document.get("version")
        raise VocabularyError(f"{path} has version {found!r}, but this simuljax reads {VERSION}.")
    content = document.get("content")
    if not isinstance(content, dict) or document.get("sha256") != _checksum(content):
        raise VocabularyError(f"{path} is damaged: wrong checksum. Copy or learn it again.")
    return content


def _checksum(content: Mapping[str, Any]) -> str:
    canonical = json.dumps(content, ensure_ascii=True, sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()
