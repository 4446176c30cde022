"""MuST-C: TED talks in English with translations, one yaml line and one text line per sentence."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from data_pipelines.corpora import reading
from data_pipelines.corpora.reading import AudioIndex, Reader, seconds, timed_clip
from data_pipelines.utterance import CorpusError, Listing, Skip, Utterance

SPLIT_OF = {"train": "train", "dev": "valid", "tst-COMMON": "test", "tst-HE": "tst_he"}
# `- {duration: 3.5, offset: 16.08, rW: 9, uW: 0, speaker_id: spk.767, wav: ted_767.wav}`
FLOW_ENTRY = re.compile(r"- *\{([^{}\[\]\"'#&*!|>%@`]*)\} *")
FLOW_PAIR = re.compile(r" *(\w+): +([^,\s:]+) *")


@dataclass(frozen=True, kw_only=True)
class MustC(Reader):
    """MuST-C v1, v2 and v3. Splits: train, valid (dev), test (tst-COMMON), tst_he (tst-HE)."""

    name: ClassVar[str] = "must_c"

    target: str = "de"
    """Language of the translation; it names the directory, en-TARGET."""

    def read(self, root: Path) -> Listing:
        """List whichever of the four splits exist."""
        data = self._data(root)
        present = [split for split in SPLIT_OF if (data / split).is_dir()]
        self.require(present, f"directory {', '.join(SPLIT_OF)}", data)
        return self.collect({SPLIT_OF[s]: self._split(data / s, s) for s in present})

    def _data(self, root: Path) -> Path:
        pair = f"en-{self.target}"
        if (root / pair / "data").is_dir():
            return root / pair / "data"
        other = root.name != pair and root.name.startswith("en-")
        self.require((root / "data").is_dir() and not other, f"directory {pair}/data", root)
        return root / "data"

    def _split(self, folder: Path, split: str) -> Iterator[Utterance | Skip]:
        paths = [folder / "txt" / f"{split}.{suffix}" for suffix in ("yaml", "en", self.target)]
        for path in paths:
            self.require(path.is_file(), f"file {path.name}", path.parent)
        self.require((folder / "wav").is_dir(), "directory wav", folder)
        entries, texts = read_yaml(paths[0]), reading.read_parallel(*paths[1:])
        reading.check_counts(paths, [entries, *texts])
        audio, counted = reading.index_audio(folder / "wav"), Counter[str]()
        for entry, transcript, translation in zip(entries, *texts, strict=True):
            stem = Path(str(entry.get("wav", "unknown"))).stem
            key = f"{split}_{stem}_{counted[stem]}"
            counted[stem] += 1
            yield _utterance(key, entry, transcript, translation, audio)


def _utterance(
    key: str, entry: dict[str, Any], transcript: str, translation: str, audio: AudioIndex
) -> Utterance | Skip:
    try:
        offset, duration = seconds(entry["offset"]), seconds(entry["duration"])
        stem = Path(entry["wav"]).stem
    except (KeyError, TypeError, ValueError) as error:
        return Skip(id=key, reason=reading.MALFORMED_ROW, detail=f"{entry}: {error!r}")
    where = f"offset {offset}, duration {duration}"
    return reading.make_utterance(
        key,
        timed_clip(key, audio, stem, offset, duration, where),
        transcript=transcript,
        translation=translation,
        speaker=str(entry.get("speaker_id", "")),
    )


def read_yaml(path: Path) -> Sequence[dict[str, Any]]:
    """Return the entries of a segmentation.

    The releases write one flow-style entry per line, which is split here: the 230,000 of a training
    set take 2 seconds, yaml's C parser 40. Any other file goes to that parser.
    """
    entries = [_flow_entry(line) for line in reading.stream_lines(path) if line.strip()]
    plain = [entry for entry in entries if entry is not None]
    return plain if len(plain) == len(entries) else _parse_yaml(path)


def _flow_entry(line: str) -> dict[str, Any] | None:
    """Return the entry on that line, or None if it needs a yaml parser."""
    match = FLOW_ENTRY.fullmatch(line)
    pairs = [FLOW_PAIR.fullmatch(pair) for pair in match[1].split(",")] if match else [None]
    return {p[1]: p[2] for p in pairs if p} if all(pairs) else None


def _parse_yaml(path: Path) -> list[dict[str, Any]]:
    import yaml

    loader, text = getattr(yaml, "CSafeLoader", yaml.SafeLoader), reading.read_text(path)
    try:
        entries = yaml.load(text, Loader=loader)
    except yaml.YAMLError as error:
        raise CorpusError(f"{path}: not yaml: {error}") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise CorpusError(f"{path}: not a list of entries {{duration, offset, speaker_id, wav}}.")
    return entries
