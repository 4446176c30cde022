"""How2: instructional videos in English with Portuguese translations, laid out as Kaldi does."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from data_pipelines.corpora.reading import (
    MALFORMED_ROW,
    MISSING_AUDIO,
    NO_DURATION,
    Shelf,
    collect,
    read_lines,
    refuse_layout,
    seconds,
    shelve,
)
from data_pipelines.utterance import Clip, CorpusError, Listing, Skip, Utterance

TREE = """
ROOT/data/{train,val,dev5}/segments      lines `UTTERANCE VIDEO START END`, in seconds
ROOT/data/{train,val,dev5}/text.id.en    lines `UTTERANCE TEXT`
ROOT/data/{train,val,dev5}/text.id.pt
ROOT/data/{train,val,dev5}/utt2spk       optional: lines `UTTERANCE SPEAKER`
ROOT/wav/VIDEO.wav ... or ROOT/wav/UTTERANCE.wav ...
    or ROOT/data/{train,val,dev5}/wav.scp   lines `VIDEO PATH`
(ROOT is how2-300h-v1. The release has text and filterbanks only: the audio is that of the videos.)
"""
SPLIT_OF = {"train": "train", "val": "valid", "dev5": "test"}


@dataclass(frozen=True, kw_only=True)
class How2:
    """How2, 300 hours. Splits: train, valid (val), test (dev5)."""

    name: ClassVar[str] = "how2"
    description: ClassVar[str] = "Instructional videos: English speech, Portuguese translations."
    citation: ClassVar[str] = (
        "@inproceedings{sanabria18how2, title={How2: A Large-scale Dataset For Multimodal Language "
        "Understanding}, author={Sanabria, Ramon and others}, booktitle={ViGIL, NeurIPS}, "
        "year={2018}}"
    )
    homepage: ClassVar[str] = "https://srvk.github.io/how2-dataset/"
    languages: ClassVar[tuple[str, ...]] = ("en", "pt")
    source: ClassVar[str] = "en"
    target: ClassVar[str] = "pt"

    audio: Path | None = None
    """Directory of the audio files, one per video or one per utterance; by default ROOT/wav."""

    def read(self, root: Path) -> Listing:
        """Lists whichever of the three splits are there."""
        data = root / "data"
        present = [split for split in SPLIT_OF if (data / split).is_dir()]
        if not present:
            refuse_layout("How2", f"directory {', '.join(SPLIT_OF)}", data, TREE)
        folder = self.audio or root / "wav"
        shelf = shelve(folder) if folder.is_dir() else None
        return collect("How2", {SPLIT_OF[s]: _split(data / s, folder, shelf) for s in present})


def _split(folder: Path, audio: Path, shelf: Shelf | None) -> Iterator[Utterance | Skip]:
    segments, transcripts, translations = (
        _keyed(folder, name) for name in ("segments", "text.id.en", "text.id.pt")
    )
    _same_ids(folder, segments, {"text.id.en": transcripts, "text.id.pt": translations})
    speakers = _keyed(folder, "utt2spk") if (folder / "utt2spk").is_file() else {}
    recordings = _recordings(folder / "wav.scp")
    if not recordings and shelf is None:
        refuse_layout("How2", f"audio file (and no wav.scp in {folder})", audio, TREE)
    for key, segment in segments.items():
        clip = _clip(key, segment, recordings, shelf)
        if isinstance(clip, Skip):
            yield clip
        else:
            yield Utterance(
                id=key,
                transcript=transcripts[key],
                translation=translations[key],
                audio=clip,
                speaker=speakers.get(key, ""),
            )


def _keyed(folder: Path, name: str) -> dict[str, str]:
    """The lines of a Kaldi table: what follows the first blank, by what stands before it."""
    if not (folder / name).is_file():
        refuse_layout("How2", f"file {name}", folder, TREE)
    pairs = [line.split(maxsplit=1) for line in read_lines(folder / name) if line]
    table = {key: " ".join(value) for key, *value in pairs}
    if len(table) < len(pairs):
        raise CorpusError(f"{folder / name}: {len(pairs) - len(table)} ids stand twice.")
    return table


def _same_ids(
    folder: Path, segments: Mapping[str, str], others: Mapping[str, Mapping[str, str]]
) -> None:
    for name, table in others.items():
        if segments.keys() != table.keys():
            example = min(segments.keys() ^ table.keys())
            raise CorpusError(
                f"Line counts differ: {folder / 'segments'} has {len(segments)} utterances, {name} "
                f"has {len(table)}; {example} is in one of them only. Reproduce the text again."
            )


def _recordings(scp: Path) -> dict[str, Path]:
    """Paths by video from a wav.scp; relative ones are relative to it."""
    if not scp.is_file():
        return {}
    table = _keyed(scp.parent, scp.name)
    piped = [path for path in table.values() if path.endswith("|")]
    if piped:
        raise CorpusError(
            f"{scp}: `{piped[0]}` is a command. Run the commands once and list the files they make."
        )
    return {video: scp.parent / path for video, path in table.items()}


def _clip(
    key: str, segment: str, recordings: Mapping[str, Path], shelf: Shelf | None
) -> Clip | Skip:
    try:
        video, start, end = segment.split()
        begin, duration = seconds(start), round(seconds(end) - seconds(start), 6)
    except ValueError:
        return Skip(id=key, reason=MALFORMED_ROW, detail=f"segments: {key} {segment}")
    if begin < 0 or duration <= 0:
        return Skip(id=key, reason=NO_DURATION, detail=f"segments: {key} {segment}")
    if video in recordings and recordings[video].is_file():
        return Clip(path=recordings[video], offset_s=begin, duration_s=duration)
    cut = shelf.clip(key) if shelf else None
    whole = shelf.clip(video, offset_s=begin, duration_s=duration) if shelf else None
    return cut or whole or Skip(id=key, reason=MISSING_AUDIO, detail=f"neither {video} nor {key}")
