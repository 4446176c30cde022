"""Europarl-ST: speeches in the European Parliament, aligned with their official translations."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from data_pipelines.corpora.reading import (
    MALFORMED_ROW,
    MISSING_AUDIO,
    NO_DURATION,
    Shelf,
    collect,
    read_parallel,
    refuse_layout,
    seconds,
    shelve,
)
from data_pipelines.utterance import CorpusError, Listing, Skip, Utterance

TREE = """
ROOT/en/audios/en.20080924.31.3-243.flac ...   converted from the m4a of the release
ROOT/en/de/{train,dev,test,train-noisy}/segments.lst   lines `AUDIO START END`, in seconds
ROOT/en/de/{train,dev,test,train-noisy}/segments.en  segments.de  speeches.lst  speakers.lst
"""
SPLIT_OF = {"train": "train", "dev": "valid", "test": "test", "train-noisy": "train_noisy"}


@dataclass(frozen=True, kw_only=True)
class EuroparlST:
    """Europarl-ST v1.1. Splits: train, valid (dev), test, train_noisy where there is one."""

    name: ClassVar[str] = "europarl_st"
    description: ClassVar[str] = "Debates of the European Parliament, 2008 to 2012."
    citation: ClassVar[str] = (
        "@inproceedings{iranzosanchez2020europarlst, title={Europarl-ST: A Multilingual Corpus for "
        "Speech Translation of Parliamentary Debates}, author={Iranzo-S{\\'a}nchez, Javier and "
        "others}, booktitle={ICASSP}, year={2020}}"
    )
    homepage: ClassVar[str] = "https://www.mllp.upv.es/europarl-st/"
    languages: ClassVar[tuple[str, ...]] = ("en", "de", "es", "fr", "it", "nl", "pl", "pt", "ro")

    source: str = "en"
    """Language spoken."""
    target: str = "de"
    """Language of the translation."""

    def read(self, root: Path) -> Listing:
        """Lists whichever splits this language pair has."""
        texts = root / self.source / self.target
        present = [split for split in SPLIT_OF if (texts / split).is_dir()]
        if not present:
            refuse_layout("Europarl-ST", "directory train, dev or test", texts, TREE)
        shelf = self._shelf(root / self.source / "audios")
        return collect(
            "Europarl-ST", {SPLIT_OF[s]: self._split(texts / s, s, shelf) for s in present}
        )

    def _shelf(self, audios: Path) -> Shelf:
        if not audios.is_dir():
            refuse_layout("Europarl-ST", "directory of audio", audios, TREE)
        shelf = shelve(audios)
        if not shelf.names and any(audios.glob("*.m4a")):
            raise CorpusError(
                f"Europarl-ST: {audios} holds m4a files only, which libsndfile cannot read. "
                f"Convert them:\n    for f in {audios}/*.m4a; do "
                'ffmpeg -i "$f" -ac 1 -ar 16000 "${f%.m4a}.flac"; done'
            )
        return shelf

    def _split(self, folder: Path, split: str, shelf: Shelf) -> Iterator[Utterance | Skip]:
        paths = [folder / f"segments.{suffix}" for suffix in ("lst", self.source, self.target)]
        for path in paths:
            if not path.is_file():
                refuse_layout("Europarl-ST", f"file {path.name}", folder, TREE)
        speakers, counted = _speakers(folder), Counter[str]()
        for segment, transcript, translation in zip(*read_parallel(*paths), strict=True):
            audio = segment.split()[0] if segment else "unknown"
            key = f"{split}_{audio}_{counted[audio]}"
            counted[audio] += 1
            speaker = speakers.get(audio, "")
            yield _utterance(key, segment, transcript, translation, speaker, shelf)


def _utterance(
    key: str, segment: str, transcript: str, translation: str, speaker: str, shelf: Shelf
) -> Utterance | Skip:
    try:
        audio, start, end = segment.split()
        begin, duration = seconds(start), round(seconds(end) - seconds(start), 6)
    except ValueError:
        return Skip(id=key, reason=MALFORMED_ROW, detail=f"segments.lst: {segment!r}")
    if begin < 0 or duration <= 0:
        return Skip(id=key, reason=NO_DURATION, detail=f"segments.lst: {segment!r}")
    clip = shelf.clip(audio, offset_s=begin, duration_s=duration)
    if clip is None:
        return Skip(id=key, reason=MISSING_AUDIO, detail=f"{audio} in {shelf.place}")
    return Utterance(
        id=key, transcript=transcript, translation=translation, audio=clip, speaker=speaker
    )


def _speakers(folder: Path) -> dict[str, str]:
    """Speaker by speech: speeches.lst and speakers.lst, line by line, where both are there."""
    speeches, speakers = folder / "speeches.lst", folder / "speakers.lst"
    if not speeches.is_file() or not speakers.is_file():
        return {}
    return dict(zip(*read_parallel(speeches, speakers), strict=True))
