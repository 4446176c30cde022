"""IWSLT 2020 non-native: talks and meetings in English by non-native speakers, timed by word."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

from data_pipelines.corpora import reading
from data_pipelines.corpora.reading import AudioIndex, Reader, Row, seconds
from data_pipelines.utterance import Listing, Skip, Span, Utterance

COLUMNS = ("doc", "sent", "start_s", "end_s", "en_OSt", "en_OStt", "word_end_s")


@dataclass(frozen=True, kw_only=True)
class IwsltNonNative(Reader):
    """Sentences of IWSLT 2020's non-native task, for evaluation. Splits: valid (dev), test."""

    name: ClassVar[str] = "iwslt_nonnative"

    target: Literal["de", "cs"] = "de"
    """Language of the translation."""

    def read(self, root: Path) -> Listing:
        """List the sentences; those of a document without timestamps are skipped."""
        manifest = root / "manifest.tsv"
        self.require(manifest.is_file(), "file manifest.tsv", root)
        splits: dict[str, list[Row]] = {"valid": [], "test": []}
        for row in reading.read_table(manifest, (*COLUMNS, self.target)):
            prefix = row.cells["doc"].partition("_")[0] if row.cells else "test"
            splits.setdefault(reading.split_name(prefix), []).append(row)
        make = partial(self._utterance, reading.index_audio(root))
        return self.collect({s: reading.list_rows(rows, make) for s, rows in splits.items()})

    def _utterance(
        self, audio: AudioIndex, where: str, cells: Mapping[str, str]
    ) -> Utterance | Skip:
        key = f"{cells['doc']}_{cells['sent']}"
        if not cells["start_s"] or not cells["end_s"]:
            return Skip(id=key, reason=reading.NO_TIMES, detail=where)
        try:
            start, end = seconds(cells["start_s"]), seconds(cells["end_s"])
            words = timed_words(cells["en_OStt"].split(), cells["word_end_s"].split(), start, end)
        except ValueError as error:
            return Skip(id=key, reason=reading.MALFORMED_ROW, detail=f"{where}: {error}")
        where = f"{where}: {start} s to {end} s"
        clip = reading.timed_clip(key, audio, cells["doc"], start, round(end - start, 6), where)
        return reading.make_utterance(
            key,
            clip,
            transcript=cells["en_OSt"],
            translation=cells[self.target],
            speaker=cells["doc"],
            words=words,
        )


def timed_words(
    words: list[str], ends: list[str], start_s: float, end_s: float
) -> tuple[Span, ...]:
    """Time each word from the end of the one before it to its own, within the sentence.

    (One of the 1,354 sentences has a word that ends after the sentence does.)
    """
    if len(words) != len(ends):
        raise ValueError(f"{len(words)} words, {len(ends)} times")
    stops = [min(seconds(end), end_s) - start_s for end in ends]
    starts = [min(stop, before) for stop, before in zip(stops, [0.0, *stops], strict=False)]
    return tuple(map(reading.make_span, words, starts, stops))
