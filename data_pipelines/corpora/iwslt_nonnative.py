"""IWSLT 2020 non-native: talks and meetings in English by people who learnt it, timed by word."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from data_pipelines.corpora.reading import (
    MALFORMED_ROW,
    MISSING_AUDIO,
    NO_DURATION,
    NO_TIMES,
    Row,
    Shelf,
    collect,
    make_span,
    read_table,
    refuse_layout,
    seconds,
    shelve,
    split_name,
)
from data_pipelines.utterance import Listing, Skip, Span, Utterance

TREE = """
ROOT/manifest.tsv   columns doc (dev_... or test_...), sent, start_s, end_s, en_OSt (the sentence),
                    en_OStt (its timed words), word_end_s, de, cs; times from the document's start
ROOT/DOC.opus ...
"""
COLUMNS = ("doc", "sent", "start_s", "end_s", "en_OSt", "en_OStt", "word_end_s")


@dataclass(frozen=True, kw_only=True)
class IwsltNonNative:
    """Sentences of IWSLT 2020's non-native task, for evaluation. Splits: valid (dev), test."""

    name: ClassVar[str] = "iwslt_nonnative"
    description: ClassVar[str] = "Non-native English talks and meetings with timed words."
    citation: ClassVar[str] = (
        "@inproceedings{ansari2020iwslt, title={Findings of the IWSLT 2020 Evaluation Campaign}, "
        "author={Ansari, Ebrahim and others}, booktitle={IWSLT}, year={2020}}"
    )
    homepage: ClassVar[str] = "https://github.com/ELITR/elitr-testset"
    languages: ClassVar[tuple[str, ...]] = ("en", "de", "cs")
    source: ClassVar[str] = "en"

    target: Literal["de", "cs"] = "de"
    """Language of the translation."""

    def read(self, root: Path) -> Listing:
        """Lists the sentences; those of a document without timestamps are skipped."""
        manifest = root / "manifest.tsv"
        if not manifest.is_file():
            refuse_layout("IWSLT non-native", "file manifest.tsv", root, TREE)
        splits: dict[str, list[Row]] = {"valid": [], "test": []}
        for row in read_table(manifest, (*COLUMNS, self.target)):
            prefix = row.cells["doc"].partition("_")[0] if row.cells else "test"
            splits.setdefault(split_name(prefix), []).append(row)
        shelf = shelve(root)
        return collect(
            "IWSLT non-native", {split: self._list(rows, shelf) for split, rows in splits.items()}
        )

    def _list(self, rows: list[Row], shelf: Shelf) -> Iterator[Utterance | Skip]:
        for row in rows:
            if row.cells is None:
                yield Skip(id=row.where, reason=MALFORMED_ROW, detail="wrong number of cells")
            else:
                yield self._utterance(row.where, row.cells, shelf)

    def _utterance(self, where: str, cells: Mapping[str, str], shelf: Shelf) -> Utterance | Skip:
        key = f"{cells['doc']}_{cells['sent']}"
        if not cells["start_s"] or not cells["end_s"]:
            return Skip(id=key, reason=NO_TIMES, detail=where)
        try:
            start, end = seconds(cells["start_s"]), seconds(cells["end_s"])
            words = timed_words(cells["en_OStt"].split(), cells["word_end_s"].split(), start, end)
        except ValueError as error:
            return Skip(id=key, reason=MALFORMED_ROW, detail=f"{where}: {error}")
        if start < 0 or end <= start:
            return Skip(id=key, reason=NO_DURATION, detail=f"{where}: {start} s to {end} s")
        clip = shelf.clip(cells["doc"], offset_s=start, duration_s=round(end - start, 6))
        if clip is None:
            return Skip(id=key, reason=MISSING_AUDIO, detail=f"{cells['doc']} in {shelf.place}")
        return Utterance(
            id=key,
            transcript=cells["en_OSt"],
            translation=cells[self.target],
            audio=clip,
            speaker=cells["doc"],
            words=words,
        )


def timed_words(
    words: list[str], ends: list[str], start_s: float, end_s: float
) -> tuple[Span, ...]:
    """Each word from the end of the one before it to its own; none beyond the sentence's end.

    (One of the 1,354 sentences has a word that ends after the sentence does.)
    """
    if len(words) != len(ends):
        raise ValueError(f"{len(words)} words, {len(ends)} times")
    stops = [min(seconds(end), end_s) - start_s for end in ends]
    starts = [min(stop, before) for stop, before in zip(stops, [0.0, *stops], strict=False)]
    return tuple(map(make_span, words, starts, stops))
