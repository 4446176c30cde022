"""Multi30k captions read aloud by a synthesiser that tells when each phoneme ends."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from data_pipelines.corpora.reading import (
    MALFORMED_ROW,
    MISSING_AUDIO,
    Shelf,
    collect,
    read_lines,
    read_table,
    refuse_layout,
    shelve,
)
from data_pipelines.utterance import CorpusError, Listing, Skip, Span, Utterance

TREE = """
ROOT/test_2016_flickr.first500.tsv       columns id, voice, en, phonemes, phone_end_frames_25ms
ROOT/test_2016_flickr.first500.opus.zip  members ID.opus; an ID is the caption's file and number
TRANSLATIONS/test_2016_flickr.de[.gz]    Multi30k's own text; TRANSLATIONS is ROOT by default
"""
FRAME_MS = 25.0
DELAY_MS = 85.0  # the durations run late by this much against the waveform
STRESS, LENGTH, PAUSES = "ˈˌ", "ː", ' ,.;:!?—…"()“”'


@dataclass(frozen=True, kw_only=True)
class Multi30kSpeech:
    """Multi30k in the 28 voices of Kokoro, for evaluation on unseen speakers. Split: test."""

    name: ClassVar[str] = "multi30k_speech"
    description: ClassVar[str] = "Image captions in synthetic English voices, with phoneme times."
    citation: ClassVar[str] = (
        "@inproceedings{elliott2016multi30k, title={Multi30K: Multilingual English-German Image "
        "Descriptions}, author={Elliott, Desmond and others}, booktitle={Workshop on Vision and "
        "Language}, year={2016}}"
    )
    homepage: ClassVar[str] = "https://github.com/multi30k/dataset"
    languages: ClassVar[tuple[str, ...]] = ("en", "de", "fr", "cs")
    source: ClassVar[str] = "en"

    target: str = "de"
    """Language of the translation."""
    translations: Path | None = None
    """Directory of Multi30k's text files, if that is not beside the speech."""

    def read(self, root: Path) -> Listing:
        """Lists the captions of every table that has an archive of the same name."""
        archives = sorted(root.glob("*.opus.zip"))
        if not archives:
            refuse_layout("Multi30k speech", "archive *.opus.zip", root, TREE)
        entries = (entry for archive in archives for entry in self._list(archive))
        return collect("Multi30k speech", {"test": entries})

    def _list(self, archive: Path) -> Iterator[Utterance | Skip]:
        table = archive.with_name(archive.name.removesuffix(".opus.zip") + ".tsv")
        if not table.is_file():
            refuse_layout("Multi30k speech", f"file {table.name}", table.parent, TREE)
        folder, shelf = self.translations or table.parent, shelve(archive)
        texts: dict[str, list[str]] = {}
        for row in read_table(table, ("id", "voice", "en", "phonemes", "phone_end_frames_25ms")):
            stem, _, number = row.cells["id"].rpartition("_") if row.cells else ("", "", "")
            if row.cells is None or not number.isdecimal():
                yield Skip(id=row.where, reason=MALFORMED_ROW, detail=str(row.cells))
                continue
            if stem not in texts:
                texts[stem] = self._translated(stem, folder)
            if int(number) >= len(texts[stem]):
                raise CorpusError(
                    f"{row.where}: {row.cells['id']} is beyond the {len(texts[stem])} lines of "
                    f"{stem}.{self.target} in {folder}. Is that Multi30k's own file?"
                )
            yield _utterance(row.where, row.cells, texts[stem][int(number)], shelf)

    def _translated(self, stem: str, folder: Path) -> list[str]:
        for name in (f"{stem}.{self.target}", f"{stem}.{self.target}.gz"):
            if (folder / name).is_file():
                return read_lines(folder / name)
        refuse_layout("Multi30k speech", f"file {stem}.{self.target}[.gz]", folder, TREE)


def _utterance(
    where: str, cells: Mapping[str, str], translation: str, shelf: Shelf
) -> Utterance | Skip:
    key, transcript = cells["id"], cells["en"]
    try:
        ends = [int(frame) for frame in cells["phone_end_frames_25ms"].split()]
        words = time_phonemes(cells["phonemes"], ends)
    except ValueError as error:
        return Skip(id=key, reason=MALFORMED_ROW, detail=f"{where}: {error}")
    clip = shelf.clip(key)
    if clip is None:
        return Skip(id=key, reason=MISSING_AUDIO, detail=f"{key} in {shelf.place}")
    return Utterance(
        id=key,
        transcript=transcript,
        translation=translation,
        audio=clip,
        speaker=cells["voice"],
        words=_time_words(transcript.split(), words),
        phonemes=tuple(phoneme for word in words for phoneme in word),
    )


def time_phonemes(symbols: str, end_frames: Sequence[int]) -> list[list[Span]]:
    """The phonemes of each word, from one symbol a character and an end for each symbol.

    The engine pads the symbols with one silent symbol on either side, so there are two more ends.
    Stress marks have a duration of their own and join the phoneme after them, length marks the one
    before; blanks and punctuation are pauses, and a blank parts words.
    """
    if len(end_frames) != len(symbols) + 2:
        raise ValueError(f"{len(symbols)} symbols need 2 ends more, not {len(end_frames)}")
    edges = [max(0.0, frame * FRAME_MS - DELAY_MS) for frame in end_frames]
    words: list[list[Span]] = [[]]
    text, start = "", edges[0]
    for symbol, begin, end in zip(symbols, edges, edges[1:], strict=False):
        if symbol == LENGTH and words[-1]:
            last = words[-1].pop()
            words[-1].append(Span(text=last.text + symbol, start_ms=last.start_ms, end_ms=end))
        elif symbol in PAUSES:
            words += [[]] if symbol == " " else []
        else:
            text, start = (text + symbol, start) if text else (symbol, begin)
            if symbol not in STRESS:
                words[-1].append(Span(text=text, start_ms=start, end_ms=end))
                text = ""
    return [word for word in words if word]


def _time_words(words: Sequence[str], phonemes: Sequence[Sequence[Span]]) -> tuple[Span, ...]:
    """The written words with times; none if they are not those spoken (`93` is two)."""
    if len(words) != len(phonemes):
        return ()
    return tuple(
        Span(text=word, start_ms=spoken[0].start_ms, end_ms=spoken[-1].end_ms)
        for word, spoken in zip(words, phonemes, strict=True)
    )
