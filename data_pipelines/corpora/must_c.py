"""MuST-C: TED talks in English with translations, one yaml line and one text line per sentence."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from data_pipelines.corpora.reading import (
    MALFORMED_ROW,
    MISSING_AUDIO,
    NO_DURATION,
    Shelf,
    check_counts,
    collect,
    read_parallel,
    read_text,
    refuse_layout,
    seconds,
    shelve,
    stream_lines,
)
from data_pipelines.utterance import CorpusError, Listing, Skip, Utterance

TREE = """
ROOT/en-de/data/train/wav/ted_1.wav ...
ROOT/en-de/data/train/txt/train.yaml  train.en  train.de
ROOT/en-de/data/dev/..., data/tst-COMMON/..., data/tst-HE/...
(ROOT may also be the directory en-de itself)
"""
SPLIT_OF = {"train": "train", "dev": "valid", "tst-COMMON": "test", "tst-HE": "tst_he"}
# `- {duration: 3.5, offset: 16.08, rW: 9, uW: 0, speaker_id: spk.767, wav: ted_767.wav}`
FLOW_ENTRY = re.compile(r"- *\{([^{}\[\]\"'#&*!|>%@`]*)\} *")
FLOW_PAIR = re.compile(r" *(\w+): +([^,\s:]+) *")


@dataclass(frozen=True, kw_only=True)
class MustC:
    """MuST-C v1, v2 and v3. Splits: train, valid (dev), test (tst-COMMON), tst_he (tst-HE)."""

    name: ClassVar[str] = "must_c"
    description: ClassVar[str] = "TED talks: English speech, transcripts and translations."
    citation: ClassVar[str] = (
        "@inproceedings{digangi2019, title={MuST-C: a Multilingual Speech Translation Corpus}, "
        "author={Di Gangi, Mattia A. and Cattoni, Roldano and Bentivogli, Luisa and Negri, Matteo "
        "and Turchi, Marco}, booktitle={NAACL-HLT}, year={2019}}"
    )
    homepage: ClassVar[str] = "https://mt.fbk.eu/must-c/"
    languages: ClassVar[tuple[str, ...]] = (
        *("en", "ar", "cs", "de", "es", "fa", "fr", "it", "ja"),
        *("nl", "pt", "ro", "ru", "tr", "vi", "zh"),
    )
    source: ClassVar[str] = "en"

    target: str = "de"
    """Language of the translation; it names the directory, en-TARGET."""

    def read(self, root: Path) -> Listing:
        """Lists whichever of the four splits are there."""
        data = self._data(root)
        present = [split for split in SPLIT_OF if (data / split).is_dir()]
        if not present:
            refuse_layout("MuST-C", f"directory {', '.join(SPLIT_OF)}", data, TREE)
        return collect("MuST-C", {SPLIT_OF[s]: self._split(data / s, s) for s in present})

    def _data(self, root: Path) -> Path:
        pair = f"en-{self.target}"
        if (root / pair / "data").is_dir():
            return root / pair / "data"
        if not (root / "data").is_dir() or (root.name != pair and root.name.startswith("en-")):
            refuse_layout("MuST-C", f"directory {pair}/data", root, TREE)
        return root / "data"

    def _split(self, folder: Path, split: str) -> Iterator[Utterance | Skip]:
        paths = [folder / "txt" / f"{split}.{suffix}" for suffix in ("yaml", "en", self.target)]
        for path in paths:
            if not path.is_file():
                refuse_layout("MuST-C", f"file {path.name}", path.parent, TREE)
        if not (folder / "wav").is_dir():
            refuse_layout("MuST-C", "directory wav", folder, TREE)
        entries, texts = read_yaml(paths[0]), read_parallel(*paths[1:])
        check_counts(paths, [entries, *texts])
        shelf, counted = shelve(folder / "wav"), Counter[str]()
        for entry, transcript, translation in zip(entries, *texts, strict=True):
            stem = Path(str(entry.get("wav", "unknown"))).stem
            key = f"{split}_{stem}_{counted[stem]}"
            counted[stem] += 1
            yield _utterance(key, entry, transcript, translation, shelf)


def _utterance(
    key: str, entry: dict[str, Any], transcript: str, translation: str, shelf: Shelf
) -> Utterance | Skip:
    try:
        offset, duration = seconds(entry["offset"]), seconds(entry["duration"])
        stem = Path(entry["wav"]).stem
    except (KeyError, TypeError, ValueError) as error:
        return Skip(id=key, reason=MALFORMED_ROW, detail=f"{entry}: {error!r}")
    if duration <= 0 or offset < 0:
        return Skip(id=key, reason=NO_DURATION, detail=f"offset {offset}, duration {duration}")
    clip = shelf.clip(stem, offset_s=offset, duration_s=duration)
    if clip is None:
        return Skip(id=key, reason=MISSING_AUDIO, detail=f"{entry['wav']} in {shelf.place}")
    speaker = str(entry.get("speaker_id", ""))
    return Utterance(
        id=key, transcript=transcript, translation=translation, audio=clip, speaker=speaker
    )


def read_yaml(path: Path) -> Sequence[dict[str, Any]]:
    """The entries of a segmentation.

    The releases write one flow-style entry a line, which is split here: the 230,000 of a training
    set take 2 seconds, yaml's C parser 40. Whatever looks otherwise goes to that parser.
    """
    entries = [_flow_entry(line) for line in stream_lines(path) if line.strip()]
    plain = [entry for entry in entries if entry is not None]
    if len(plain) == len(entries):
        return plain
    return _parse_yaml(path)


def _flow_entry(line: str) -> dict[str, Any] | None:
    """The entry on that line, or None where only a yaml parser can tell."""
    match = FLOW_ENTRY.fullmatch(line)
    pairs = [FLOW_PAIR.fullmatch(pair) for pair in match[1].split(",")] if match else [None]
    return {p[1]: p[2] for p in pairs if p} if all(pairs) else None


def _parse_yaml(path: Path) -> list[dict[str, Any]]:
    import yaml

    try:
        entries = yaml.load(read_text(path), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise CorpusError(f"{path}: not yaml: {error}") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise CorpusError(f"{path}: not a list of entries {{duration, offset, speaker_id, wav}}.")
    return entries
