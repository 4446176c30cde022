"""Corpora of one table with a row per clip: CoVoST 2, Mboshi, IWSLT non-native, Multi30k speech."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import ClassVar, Literal

from data_pipelines.corpora import reading
from data_pipelines.corpora.reading import AudioIndex, Reader, Row, SkipError, seconds
from data_pipelines.utterance import CorpusError, Listing, Skip, Span, Utterance

Cells = Mapping[str, str]
SILENCE = "SIL"  # among Mboshi's words
# Of Multi30k speech: durations are in frames, and late by DELAY_MS against the waveform.
FRAME_MS, DELAY_MS = 25.0, 85.0
STRESS, LENGTH, PAUSES = "ˈˌ", "ː", ' ,.;:!?—…"()“”'


@dataclass(frozen=True, kw_only=True)
class CoVoST2(Reader):
    """CoVoST 2. Splits: train (with the rows marked train_covost), valid (dev), test."""

    name: ClassVar[str] = "covost2"

    source: str = "en"
    """Language spoken, as CoVoST writes it: en, de, zh-CN, sv-SE, ..."""
    target: str = "de"
    """Language of the translation; one of the two is English."""
    translations: Path | None = None
    """Directory of the covost_v2 files, if they are not beside Common Voice's own."""
    min_seconds: float = 0.0
    """Leave out shorter clips; durations are from clip_durations.tsv, else from the clips."""

    def read(self, root: Path) -> Listing:
        """List the clips that have a translation, in the order of CoVoST's table."""
        home = root if (root / "clips").is_dir() else root / self.source
        self.require((home / "clips").is_dir(), "directory clips", root)
        splits = self._rows(home, self.translations or home)
        audio = reading.index_audio(home / "clips")
        make = partial(self._utterance, audio, self._durations(home, audio, splits))
        return self.collect({s: reading.list_rows(r, _clip_id, make) for s, r in splits.items()})

    def _rows(self, home: Path, folder: Path) -> dict[str, list[Row]]:
        """Return rows with path, sentence, translation and client_id per split."""
        whole = folder / f"covost_v2.{self.source}_{self.target}.tsv"
        if whole.is_file():
            self.require_files(home / "validated.tsv")
            return _joined(whole, home)
        parts = {s: whole.with_suffix(f".{s}.tsv") for s in ("train", "dev", "test")}
        there = {split: path for split, path in parts.items() if path.is_file()}
        self.require(there, f"file {whole.name}", folder)
        columns = ("path", "sentence", "translation")
        return {reading.split_name(s): list(_escaped(path, columns)) for s, path in there.items()}

    def _durations(
        self, home: Path, audio: AudioIndex, splits: Mapping[str, list[Row]]
    ) -> Mapping[str, float]:
        """Return seconds by clip if they are needed; unreadable clips are missing."""
        if self.min_seconds <= 0:
            return {}
        table = home / "clip_durations.tsv"
        if table.is_file():
            rows = (row.cells or {} for row in _escaped(table, ("clip", "duration[ms]")))
            listed = (r for r in rows if r.get("duration[ms]", "").isdecimal())
            return {Path(r["clip"]).stem: int(r["duration[ms]"]) / 1e3 for r in listed}
        clips = [_clip_id(row.cells) for rows in splits.values() for row in rows if row.cells]
        return dict(_measured_durations([clip for clip in clips if clip in audio.names], audio))

    def _utterance(
        self, audio: AudioIndex, durations: Mapping[str, float], key: str, cells: Cells
    ) -> Utterance:
        if "sentence" not in cells:
            raise SkipError("not in validated.tsv", cells["path"])
        clip = audio.clip(key)
        if self.min_seconds > 0 and key not in durations:
            raise SkipError(reading.UNREADABLE_AUDIO, f"{clip.path}: no duration")
        if self.min_seconds > 0 and durations[key] < self.min_seconds:
            raise SkipError(reading.TOO_SHORT, f"{durations[key]:.3f} s")
        return Utterance(
            id=key,
            transcript=cells["sentence"],
            translation=cells["translation"],
            audio=clip,
            speaker=cells.get("client_id", ""),
        )


def _clip_id(cells: Cells) -> str:
    return Path(cells["path"]).stem


def _escaped(path: Path, required: tuple[str, ...]) -> Iterator[Row]:
    return reading.read_table(path, required, backslashes="escape")


def _joined(whole: Path, home: Path) -> dict[str, list[Row]]:
    """Join CoVoST's table with the sentences and speakers of Common Voice."""
    voices = _escaped(home / "validated.tsv", ("path", "sentence", "client_id"))
    kept = ("sentence", "client_id")
    spoken = {row.cells["path"]: {k: row.cells[k] for k in kept} for row in voices if row.cells}
    rows = (
        replace(row, cells={**spoken.get(row.cells["path"], {}), **row.cells}) if row.cells else row
        for row in _escaped(whole, ("path", "translation", "split"))
    )

    def split_of(cells: Cells) -> str:
        return "train" if cells["split"] == "train_covost" else cells["split"]

    return reading.group_rows(rows, split_of, "train", "valid", "test")


def _measured_durations(stems: list[str], audio: AudioIndex) -> Iterator[tuple[str, float]]:
    import soundfile
    from tqdm import tqdm

    for stem in tqdm(stems, desc="durations from headers", unit="clip", disable=None):
        try:
            yield stem, soundfile.info(audio.clip(stem).path).duration
        except soundfile.LibsndfileError:
            continue  # the reader skips it


@dataclass(frozen=True, kw_only=True)
class Mboshi(Reader):
    """Mboshi speech with French text and word times. Splits: train, valid (dev)."""

    name: ClassVar[str] = "mboshi"

    def read(self, root: Path) -> Listing:
        """List the recordings; those in a zip archive are read from there."""
        self.require_files(root / "manifest.tsv")
        places = [place for place in (root, root / "audio") if place.is_dir()]
        indexes = map(reading.index_audio, [*places, *sorted(root.glob("*.zip"))])
        filled = [index for index in indexes if index.names]
        self.require(filled, "zip archive of audio, nor any audio file,", root)
        columns = ("id", "split", "speaker", "mboshi", "french")
        rows = reading.read_table(root / "manifest.tsv", columns)
        splits = reading.group_rows(rows, itemgetter("split"), "train", "valid")
        key, make = itemgetter("id"), partial(self._utterance, filled[0])
        return self.collect({s: reading.list_rows(r, key, make) for s, r in splits.items()})

    def _utterance(self, audio: AudioIndex, key: str, cells: Cells) -> Utterance:
        aligned = [text for column, text in cells.items() if column.startswith("word_alignment")]
        words = reading.parse_spans(" ".join(aligned))
        return Utterance(
            id=key,
            transcript=cells["mboshi"],
            translation=cells["french"],
            audio=audio.clip(key),
            speaker=cells["speaker"],
            words=tuple(word for word in words if word.text != SILENCE),
        )


@dataclass(frozen=True, kw_only=True)
class IwsltNonNative(Reader):
    """Sentences of IWSLT 2020's non-native task, for evaluation. Splits: valid (dev), test."""

    name: ClassVar[str] = "iwslt_nonnative"

    target: Literal["de", "cs"] = "de"
    """Language of the translation."""

    def read(self, root: Path) -> Listing:
        """List the sentences; those of a document without timestamps are skipped."""
        self.require_files(root / "manifest.tsv")
        columns = ("doc", "sent", "start_s", "end_s", "en_OSt", "en_OStt", "word_end_s")
        rows = reading.read_table(root / "manifest.tsv", (*columns, self.target))
        splits = reading.group_rows(rows, lambda c: c["doc"].partition("_")[0], "valid", "test")
        make = partial(self._utterance, reading.index_audio(root))
        key = "{doc}_{sent}".format_map
        return self.collect({s: reading.list_rows(r, key, make) for s, r in splits.items()})

    def _utterance(self, audio: AudioIndex, key: str, cells: Cells) -> Utterance:
        if not cells["start_s"] or not cells["end_s"]:
            raise SkipError(reading.NO_TIMES, cells["doc"])
        start, end = seconds(cells["start_s"]), seconds(cells["end_s"])
        words = timed_words(cells["en_OStt"].split(), cells["word_end_s"].split(), start, end)
        return Utterance(
            id=key,
            transcript=cells["en_OSt"],
            translation=cells[self.target],
            audio=audio.clip(cells["doc"], start, round(end - start, 6)),
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
        self.require_files(table)
        columns = ("id", "voice", "en", "phonemes", "phone_end_frames_25ms")
        rows = (  # an id ends in the number of the caption
            row if row.cells and _caption(row.cells["id"])[1] else replace(row, cells=None)
            for row in reading.read_table(table, columns)
        )
        audio = reading.index_audio(archive)
        make = partial(self._utterance, self.translations or table.parent, {}, audio)
        return reading.list_rows(rows, itemgetter("id"), make)

    def _utterance(
        self, folder: Path, texts: dict[str, list[str]], audio: AudioIndex, key: str, cells: Cells
    ) -> Utterance:
        stem, number = _caption(key)
        if stem not in texts:
            texts[stem] = self._translated(stem, folder)
        if int(number) >= len(texts[stem]):
            raise CorpusError(
                f"{key} is beyond the {len(texts[stem])} lines of {stem}.{self.target} in {folder}."
                " Is that Multi30k's own file?"
            )
        ends = [int(frame) for frame in cells["phone_end_frames_25ms"].split()]
        words, written = time_phonemes(cells["phonemes"], ends), cells["en"].split()
        known = len(written) == len(words)  # else other words are spoken (`93` is two)
        return Utterance(
            id=key,
            transcript=cells["en"],
            translation=texts[stem][int(number)],
            audio=audio.clip(key),
            speaker=cells["voice"],
            words=tuple(
                Span(text=word, start_ms=spoken[0].start_ms, end_ms=spoken[-1].end_ms)
                for word, spoken in zip(written if known else (), words, strict=known)
            ),
            phonemes=tuple(phoneme for word in words for phoneme in word),
        )

    def _translated(self, stem: str, folder: Path) -> list[str]:
        for name in (f"{stem}.{self.target}", f"{stem}.{self.target}.gz"):
            if (folder / name).is_file():
                return reading.read_lines(folder / name)
        self.refuse(f"file {stem}.{self.target}[.gz]", folder)


def _caption(key: str) -> tuple[str, str]:
    """Return file and number of a caption; no number if the id has none."""
    stem, _, number = key.rpartition("_")
    return stem, number if number.isdecimal() else ""


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
