"""Multi30k captions in synthetic speech, with the end of each phoneme."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from data_pipelines.corpora import reading
from data_pipelines.corpora.reading import AudioIndex, Reader
from data_pipelines.utterance import CorpusError, Listing, Skip, Span, Utterance

FRAME_MS = 25.0
DELAY_MS = 85.0  # the durations are late by this much against the waveform
STRESS, LENGTH, PAUSES = "ˈˌ", "ː", ' ,.;:!?—…"()“”'


@dataclass(frozen=True, kw_only=True)
class Multi30kSpeech(Reader):
    """Multi30k in the 28 voices of Kokoro, for evaluation on unseen speakers. Split: test."""

    name: ClassVar[str] = "multi30k_speech"

    target: str = "de"
    """Language of the translation."""
    translations: Path | None = None
    """Directory of Multi30k's text files, if they are not beside the speech."""

    def read(self, root: Path) -> Listing:
        """List the captions of every table that has an archive of the same name."""
        archives = sorted(root.glob("*.opus.zip"))
        self.require(archives, "archive *.opus.zip", root)
        entries = (entry for archive in archives for entry in self._list(archive))
        return self.collect({"test": entries})

    def _list(self, archive: Path) -> Iterator[Utterance | Skip]:
        table = archive.with_name(archive.name.removesuffix(".opus.zip") + ".tsv")
        self.require(table.is_file(), f"file {table.name}", table.parent)
        folder, audio = self.translations or table.parent, reading.index_audio(archive)
        texts: dict[str, list[str]] = {}
        columns = ("id", "voice", "en", "phonemes", "phone_end_frames_25ms")
        for row in reading.read_table(table, columns):
            stem, _, number = row.cells["id"].rpartition("_") if row.cells else ("", "", "")
            if row.cells is None or not number.isdecimal():
                yield Skip(id=row.where, reason=reading.MALFORMED_ROW, detail=str(row.cells))
                continue
            if stem not in texts:
                texts[stem] = self._translated(stem, folder)
            if int(number) >= len(texts[stem]):
                raise CorpusError(
                    f"{row.where}: {row.cells['id']} is beyond the {len(texts[stem])} lines of "
                    f"{stem}.{self.target} in {folder}. Is that Multi30k's own file?"
                )
            yield _utterance(row.where, row.cells, texts[stem][int(number)], audio)

    def _translated(self, stem: str, folder: Path) -> list[str]:
        for name in (f"{stem}.{self.target}", f"{stem}.{self.target}.gz"):
            if (folder / name).is_file():
                return reading.read_lines(folder / name)
        self.refuse(f"file {stem}.{self.target}[.gz]", folder)


def _utterance(
    where: str, cells: Mapping[str, str], translation: str, audio: AudioIndex
) -> Utterance | Skip:
    key, transcript = cells["id"], cells["en"]
    try:
        ends = [int(frame) for frame in cells["phone_end_frames_25ms"].split()]
        words = time_phonemes(cells["phonemes"], ends)
    except ValueError as error:
        return Skip(id=key, reason=reading.MALFORMED_ROW, detail=f"{where}: {error}")
    return reading.make_utterance(
        key,
        audio.clip(key) or reading.missing_audio(key, key, audio),
        transcript=transcript,
        translation=translation,
        speaker=cells["voice"],
        words=_time_words(transcript.split(), words),
        phonemes=tuple(phoneme for word in words for phoneme in word),
    )


def time_phonemes(symbols: str, end_frames: Sequence[int]) -> list[list[Span]]:
    """Return the phonemes of each word; a symbol is one character and has an end.

    The engine pads the symbols with one silent symbol on either side, so there are two more ends.
    Stress marks have a duration of their own and join the phoneme after them, length marks the one
    before; blanks and punctuation are pauses, and a blank separates words.
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
    """Return the written words with times; none if other words are spoken (`93` is two)."""
    if len(words) != len(phonemes):
        return ()
    return tuple(
        Span(text=word, start_ms=spoken[0].start_ms, end_ms=spoken[-1].end_ms)
        for word, spoken in zip(words, phonemes, strict=True)
    )
