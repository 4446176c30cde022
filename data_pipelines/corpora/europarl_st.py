"""Europarl-ST: speeches in the European Parliament, aligned with their official translations."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from data_pipelines.corpora import reading
from data_pipelines.corpora.reading import AudioIndex, Reader, seconds, timed_clip
from data_pipelines.utterance import Clip, CorpusError, Listing, Skip, Utterance

SPLIT_OF = {"train": "train", "dev": "valid", "test": "test", "train-noisy": "train_noisy"}


@dataclass(frozen=True, kw_only=True)
class EuroparlST(Reader):
    """Europarl-ST v1.1. Splits: train, valid (dev), test, and train_noisy if it exists."""

    name: ClassVar[str] = "europarl_st"

    source: str = "en"
    """Language spoken."""
    target: str = "de"
    """Language of the translation."""

    def read(self, root: Path) -> Listing:
        """List whichever splits this language pair has."""
        texts = root / self.source / self.target
        present = [split for split in SPLIT_OF if (texts / split).is_dir()]
        self.require(present, "directory train, dev or test", texts)
        audio = self._audio(root / self.source / "audios")
        return self.collect({SPLIT_OF[s]: self._split(texts / s, s, audio) for s in present})

    def _audio(self, audios: Path) -> AudioIndex:
        self.require(audios.is_dir(), "directory of audio", audios)
        audio = reading.index_audio(audios)
        if not audio.names and any(audios.glob("*.m4a")):
            raise CorpusError(
                f"Europarl-ST: {audios} holds m4a files only, which libsndfile cannot read. "
                f"Convert them:\n    for f in {audios}/*.m4a; do "
                'ffmpeg -i "$f" -ac 1 -ar 16000 "${f%.m4a}.flac"; done'
            )
        return audio

    def _split(self, folder: Path, split: str, audio: AudioIndex) -> Iterator[Utterance | Skip]:
        paths = [folder / f"segments.{suffix}" for suffix in ("lst", self.source, self.target)]
        for path in paths:
            self.require(path.is_file(), f"file {path.name}", folder)
        speakers, counted = _speakers(folder), Counter[str]()
        for segment, transcript, translation in zip(*reading.read_parallel(*paths), strict=True):
            speech = segment.split()[0] if segment else "unknown"
            key = f"{split}_{speech}_{counted[speech]}"
            counted[speech] += 1
            yield reading.make_utterance(
                key,
                _clip(key, segment, audio),
                transcript=transcript,
                translation=translation,
                speaker=speakers.get(speech, ""),
            )


def _clip(key: str, segment: str, audio: AudioIndex) -> Clip | Skip:
    where = f"segments.lst: {segment!r}"
    try:
        stem, start, end = segment.split()
        offset, duration = seconds(start), round(seconds(end) - seconds(start), 6)
    except ValueError:
        return Skip(id=key, reason=reading.MALFORMED_ROW, detail=where)
    return timed_clip(key, audio, stem, offset, duration, where)


def _speakers(folder: Path) -> dict[str, str]:
    """Return speakers by speech from speeches.lst and speakers.lst, if both exist."""
    speeches, speakers = folder / "speeches.lst", folder / "speakers.lst"
    if not speeches.is_file() or not speakers.is_file():
        return {}
    return dict(zip(*reading.read_parallel(speeches, speakers), strict=True))
