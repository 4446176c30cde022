"""Corpora of long recordings with lists of segments: MuST-C, Europarl-ST and How2."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from data_pipelines.corpora import reading
from data_pipelines.corpora.reading import AudioIndex, Reader, SkipError, parse_segment, seconds
from data_pipelines.utterance import Clip, CorpusError, Listing, Skip, Utterance
from simuljax.parsing import ParseError, parse_yaml

# `- {duration: 3.5, offset: 16.08, rW: 9, uW: 0, speaker_id: spk.767, wav: ted_767.wav}`
FLOW_ENTRY = re.compile(r"- *\{([^{}\[\]\"'#&*!|>%@`]*)\} *")
FLOW_PAIR = re.compile(r" *(\w+): +([^,\s:]+) *")


@dataclass(frozen=True, kw_only=True)
class MustC(Reader):
    """MuST-C v1, v2 and v3. Splits: train, valid (dev), test (tst-COMMON), tst_he (tst-HE)."""

    name: ClassVar[str] = "must_c"
    splits: ClassVar = {"train": "train", "dev": "valid", "tst-COMMON": "test", "tst-HE": "tst_he"}

    target: str = "de"
    """Language of the translation; it names the directory, en-TARGET."""

    def read(self, root: Path) -> Listing:
        """List whichever of the four splits exist."""
        pair = f"en-{self.target}"
        data = root / pair / "data"
        if not data.is_dir():
            other = root.name != pair and root.name.startswith("en-")
            data = root / "data"
            self.require(data.is_dir() and not other, f"directory {pair}/data", root)
        present = self.present(data, self.splits)
        return self.collect({self.splits[s]: self._split(data / s, s) for s in present})

    def _split(self, folder: Path, split: str) -> Iterator[Utterance | Skip]:
        paths = [folder / "txt" / f"{split}.{suffix}" for suffix in ("yaml", "en", self.target)]
        self.require_files(*paths)
        self.require((folder / "wav").is_dir(), "directory wav", folder)
        entries, texts = read_yaml(paths[0]), reading.read_parallel(*paths[1:])
        reading.check_counts(paths, [entries, *texts])
        audio = reading.index_audio(folder / "wav")
        stems = [Path(str(entry.get("wav", "unknown"))).stem for entry in entries]
        for key, entry, *pair in zip(_numbered(split, stems), entries, *texts, strict=True):
            speaker = str(entry.get("speaker_id", ""))
            clip = partial(_must_c_clip, audio, entry)
            yield _utterance(key, str(entry), pair, speaker, clip)


def _numbered(split: str, recordings: Iterable[str]) -> Iterator[str]:
    """Yield an id for each segment, which counts those of its recording."""
    counted = Counter[str]()
    for recording in recordings:
        yield f"{split}_{recording}_{counted[recording]}"
        counted[recording] += 1


def _utterance(
    key: str, where: str, pair: Sequence[str], speaker: str, clip: Callable[[], Clip]
) -> Utterance | Skip:
    """Return the utterance, or the reason why it has no clip."""

    def make() -> Utterance:
        said, meant = pair
        return Utterance(id=key, transcript=said, translation=meant, audio=clip(), speaker=speaker)

    return reading.attempt(key, where, make)


def _must_c_clip(audio: AudioIndex, entry: Mapping[str, Any]) -> Clip:
    offset, duration = seconds(entry["offset"]), seconds(entry["duration"])
    return audio.clip(Path(entry["wav"]).stem, offset, duration)


def read_yaml(path: Path) -> Sequence[dict[str, Any]]:
    """Return the entries of a segmentation.

    The releases write one flow-style entry per line, which is split here: the 230,000 of a training
    set take 2 seconds, yaml's C parser 40. Any other file goes to that parser.
    """
    lines = [*reading.stream_lines(path)]
    entries = [_flow_entry(line) for line in lines if line.strip()]
    plain = [entry for entry in entries if entry is not None]
    return plain if len(plain) == len(entries) else _parse_yaml(path, "\n".join(lines))


def _flow_entry(line: str) -> dict[str, Any] | None:
    """Return the entry on that line, or None if it needs a yaml parser."""
    match = FLOW_ENTRY.fullmatch(line)
    pairs = [FLOW_PAIR.fullmatch(pair) for pair in match[1].split(",")] if match else [None]
    return {p[1]: p[2] for p in pairs if p} if all(pairs) else None


def _parse_yaml(path: Path, text: str) -> list[dict[str, Any]]:
    try:
        entries = parse_yaml(text)
    except ParseError as error:
        raise CorpusError(f"{path}: {error}") from None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise CorpusError(f"{path}: not a list of entries {{duration, offset, speaker_id, wav}}.")
    return entries


@dataclass(frozen=True, kw_only=True)
class EuroparlST(Reader):
    """Europarl-ST v1.1. Splits: train, valid (dev), test, and train_noisy if it exists."""

    name: ClassVar[str] = "europarl_st"
    splits: ClassVar = {s: reading.split_name(s) for s in ("train", "dev", "test", "train-noisy")}

    source: str = "en"
    """Language spoken."""
    target: str = "de"
    """Language of the translation."""

    def read(self, root: Path) -> Listing:
        """List whichever splits this language pair has."""
        texts, audios = root / self.source / self.target, root / self.source / "audios"
        present = self.present(texts, self.splits)
        self.require(audios.is_dir(), "directory of audio", audios)
        audio = reading.index_audio(audios)
        if not audio.names and any(audios.glob("*.m4a")):
            raise CorpusError(
                f"Europarl-ST: {audios} holds m4a files only, which libsndfile cannot read. "
                f"Convert them:\n    for f in {audios}/*.m4a; do "
                'ffmpeg -i "$f" -ac 1 -ar 16000 "${f%.m4a}.flac"; done'
            )
        return self.collect({self.splits[s]: self._split(texts / s, s, audio) for s in present})

    def _split(self, folder: Path, split: str, audio: AudioIndex) -> Iterator[Utterance | Skip]:
        paths = [folder / f"segments.{suffix}" for suffix in ("lst", self.source, self.target)]
        self.require_files(*paths)
        speakers, (segments, *texts) = _speakers(folder), reading.read_parallel(*paths)
        speeches = [segment.split()[0] if segment else "unknown" for segment in segments]
        keys = _numbered(split, speeches)
        for key, speech, segment, *pair in zip(keys, speeches, segments, *texts, strict=True):
            clip = partial(lambda s: audio.clip(*parse_segment(s)), segment)
            where = f"segments.lst: {segment!r}"
            yield _utterance(key, where, pair, speakers.get(speech, ""), clip)


def _speakers(folder: Path) -> dict[str, str]:
    """Return speakers by speech from speeches.lst and speakers.lst, if both exist."""
    files = folder / "speeches.lst", folder / "speakers.lst"
    there = all(file.is_file() for file in files)
    return dict(zip(*reading.read_parallel(*files), strict=True)) if there else {}


@dataclass(frozen=True, kw_only=True)
class How2(Reader):
    """How2, 300 hours, in the layout of Kaldi. Splits: train, valid (val), test (dev5)."""

    name: ClassVar[str] = "how2"
    splits: ClassVar = {"train": "train", "val": "valid", "dev5": "test"}

    audio: Path | None = None
    """Directory of the audio files, one per video or one per utterance; by default ROOT/wav."""

    def read(self, root: Path) -> Listing:
        """List whichever of the three splits exist."""
        data, folder = root / "data", self.audio or root / "wav"
        present = self.present(data, self.splits)
        audio = reading.index_audio(folder) if folder.is_dir() else None
        return self.collect({self.splits[s]: self._split(data / s, folder, audio) for s in present})

    def _split(
        self, folder: Path, place: Path, audio: AudioIndex | None
    ) -> Iterator[Utterance | Skip]:
        names = ("segments", "text.id.en", "text.id.pt")
        segments, said, meant = (self._keyed(folder / name) for name in names)
        for name, table in zip(names[1:], (said, meant), strict=True):
            if segments.keys() != table.keys():
                raise CorpusError(
                    f"Line counts differ: {folder / 'segments'} has {len(segments)} utterances, "
                    f"{name} has {len(table)}; {min(segments.keys() ^ table.keys())} is in one of "
                    "them only. Create the text again."
                )
        speakers = self._keyed(folder / "utt2spk") if (folder / "utt2spk").is_file() else {}
        recordings = self._recordings(folder / "wav.scp")
        found = recordings or audio is not None
        self.require(found, f"audio file (and no wav.scp in {folder})", place)
        for key, segment in segments.items():
            clip, pair = partial(_clip, key, segment, recordings, audio), (said[key], meant[key])
            where = f"segments: {key} {segment}"
            yield _utterance(key, where, pair, speakers.get(key, ""), clip)

    def _keyed(self, path: Path) -> dict[str, str]:
        """Return the lines of a Kaldi table by their first word."""
        self.require_files(path)
        pairs = [line.split(maxsplit=1) for line in reading.read_lines(path) if line]
        table = {key: " ".join(value) for key, *value in pairs}
        if len(table) < len(pairs):
            raise CorpusError(f"{path}: {len(pairs) - len(table)} ids occur twice.")
        return table

    def _recordings(self, scp: Path) -> dict[str, Path]:
        """Return paths by video from a wav.scp; relative ones are relative to it."""
        table = self._keyed(scp) if scp.is_file() else {}
        piped = [path for path in table.values() if path.endswith("|")]
        if piped:
            raise CorpusError(
                f"{scp}: `{piped[0]}` is a command. Run the commands once and list their files."
            )
        return {video: scp.parent / path for video, path in table.items()}


def _clip(key: str, segment: str, recordings: Mapping[str, Path], audio: AudioIndex | None) -> Clip:
    """Return a stretch of a listed recording, the utterance's own file, or a stretch of a video."""
    video, offset, duration = parse_segment(segment)
    reading.check_stretch(offset, duration)
    if video in recordings and recordings[video].is_file():
        return Clip(path=recordings[video], offset_s=offset, duration_s=duration)
    if audio is None or not {key, video} & audio.names.keys():
        raise SkipError(reading.MISSING_AUDIO, f"neither {video} nor {key}")
    return audio.clip(key) if key in audio.names else audio.clip(video, offset, duration)
