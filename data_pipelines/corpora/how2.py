"""How2: instructional videos in English with Portuguese translations, in the layout of Kaldi."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from data_pipelines.corpora import reading
from data_pipelines.corpora.reading import AudioIndex, Reader, seconds
from data_pipelines.utterance import Clip, CorpusError, Listing, Skip, Utterance

SPLIT_OF = {"train": "train", "val": "valid", "dev5": "test"}


@dataclass(frozen=True, kw_only=True)
class How2(Reader):
    """How2, 300 hours. Splits: train, valid (val), test (dev5)."""

    name: ClassVar[str] = "how2"

    audio: Path | None = None
    """Directory of the audio files, one per video or one per utterance; by default ROOT/wav."""

    def read(self, root: Path) -> Listing:
        """List whichever of the three splits exist."""
        data = root / "data"
        present = [split for split in SPLIT_OF if (data / split).is_dir()]
        self.require(present, f"directory {', '.join(SPLIT_OF)}", data)
        folder = self.audio or root / "wav"
        audio = reading.index_audio(folder) if folder.is_dir() else None
        return self.collect({SPLIT_OF[s]: self._split(data / s, folder, audio) for s in present})

    def _split(
        self, folder: Path, place: Path, audio: AudioIndex | None
    ) -> Iterator[Utterance | Skip]:
        segments, transcripts, translations = (
            self._keyed(folder, name) for name in ("segments", "text.id.en", "text.id.pt")
        )
        _check_ids(folder, segments, {"text.id.en": transcripts, "text.id.pt": translations})
        speakers = self._keyed(folder, "utt2spk") if (folder / "utt2spk").is_file() else {}
        recordings = self._recordings(folder / "wav.scp")
        found = recordings or audio is not None
        self.require(found, f"audio file (and no wav.scp in {folder})", place)
        for key, segment in segments.items():
            yield reading.make_utterance(
                key,
                _clip(key, segment, recordings, audio),
                transcript=transcripts[key],
                translation=translations[key],
                speaker=speakers.get(key, ""),
            )

    def _keyed(self, folder: Path, name: str) -> dict[str, str]:
        """Return the lines of a Kaldi table by their first word."""
        self.require((folder / name).is_file(), f"file {name}", folder)
        pairs = [line.split(maxsplit=1) for line in reading.read_lines(folder / name) if line]
        table = {key: " ".join(value) for key, *value in pairs}
        if len(table) < len(pairs):
            raise CorpusError(f"{folder / name}: {len(pairs) - len(table)} ids occur twice.")
        return table

    def _recordings(self, scp: Path) -> dict[str, Path]:
        """Return paths by video from a wav.scp; relative ones are relative to it."""
        if not scp.is_file():
            return {}
        table = self._keyed(scp.parent, scp.name)
        piped = [path for path in table.values() if path.endswith("|")]
        if piped:
            raise CorpusError(
                f"{scp}: `{piped[0]}` is a command. Run the commands once and list their files."
            )
        return {video: scp.parent / path for video, path in table.items()}


def _check_ids(
    folder: Path, segments: Mapping[str, str], others: Mapping[str, Mapping[str, str]]
) -> None:
    for name, table in others.items():
        if segments.keys() != table.keys():
            example = min(segments.keys() ^ table.keys())
            raise CorpusError(
                f"Line counts differ: {folder / 'segments'} has {len(segments)} utterances, {name} "
                f"has {len(table)}; {example} is in one of them only. Create the text again."
            )


def _clip(
    key: str, segment: str, recordings: Mapping[str, Path], audio: AudioIndex | None
) -> Clip | Skip:
    where = f"segments: {key} {segment}"
    try:
        video, start, end = segment.split()
        offset, duration = seconds(start), round(seconds(end) - seconds(start), 6)
    except ValueError:
        return Skip(id=key, reason=reading.MALFORMED_ROW, detail=where)
    if offset < 0 or duration <= 0:
        return Skip(id=key, reason=reading.NO_DURATION, detail=where)
    if video in recordings and recordings[video].is_file():
        return Clip(path=recordings[video], offset_s=offset, duration_s=duration)
    cut = audio.clip(key) if audio else None
    whole = audio.clip(video, offset_s=offset, duration_s=duration) if audio else None
    detail = f"neither {video} nor {key}"
    return cut or whole or Skip(id=key, reason=reading.MISSING_AUDIO, detail=detail)
