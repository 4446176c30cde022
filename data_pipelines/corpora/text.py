"""Parallel text without speech: pairs of files line by line, and tables of sentence pairs."""

import hashlib
import html
import re
import unicodedata
import zipfile
import zlib
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from xml.etree import ElementTree

from data_pipelines.corpora import reading
from data_pipelines.corpora.reading import Reader
from data_pipelines.utterance import CorpusError, Listing, Skip, Utterance
from simuljax.parsing import ParseError, open_member

USUAL_NAMES = {
    "train": ("train",),
    "valid": ("valid", "val", "dev", "validation"),
    "test": ("test", "test_2016_flickr"),
}


@dataclass(frozen=True, kw_only=True)
class ParallelText(Reader):
    """Pairs of text files such as Multi30k, IWSLT or WMT; every further pair is a split too."""

    name: ClassVar[str] = "parallel_text"

    source: str = "en"
    """Suffix of the source files."""
    target: str = "de"
    """Suffix of the target files."""
    train: str = ""
    """Name of the training files without the suffix; by default train."""
    valid: str = ""
    """The same for validation; by default valid, val, dev or validation."""
    test: str = ""
    """The same for the test; by default test or test_2016_flickr."""

    def read(self, root: Path) -> Listing:
        """List every pair of files in the directory, as train, valid, test or by its own name."""
        pairs = self._pairs(root)
        self.require(pairs, f"pair of files *.{self.source} and *.{self.target}", root)
        chosen = {split: self._choose(split, pairs, root) for split in USUAL_NAMES}
        splits = {split: stem for split, stem in chosen.items() if stem}
        for stem in sorted(pairs.keys() - splits.values()):
            split = re.sub(r"\W", "_", stem)
            if split in splits:
                raise CorpusError(f"{root}: both {splits[split]} and {stem} would be {split}.")
            splits[split] = stem
        return self.collect({s: self._list(stem, pairs[stem]) for s, stem in splits.items()})

    def _pairs(self, root: Path) -> dict[str, tuple[Path, ...]]:
        """Return files by their common name: two of them, or one XML with both sides."""
        found = sorted(root.iterdir()) if root.is_dir() else []
        names = {path.name.removesuffix(".gz"): path for path in found}
        sides = (
            (f".{self.source}", f".{self.target}"),
            (f"-src.{self.source}.sgm", f"-ref.{self.target}.sgm"),
        )
        both = f".{self.source}-{self.target}.xml"
        pairs: dict[str, tuple[Path, ...]] = {}
        for name, path in names.items():
            if name.endswith(both):
                pairs[name.removesuffix(both)] = (path,)
            for mine, other in sides:
                stem = name.removesuffix(mine)
                if stem != name and stem + other in names:
                    pairs[stem] = (path, names[stem + other])
        return pairs

    def _choose(self, split: str, pairs: Mapping[str, object], root: Path) -> str:
        asked = {"train": self.train, "valid": self.valid, "test": self.test}[split]
        if asked and asked not in pairs:
            raise CorpusError(f"{root}: no pair {asked}; there are {', '.join(sorted(pairs))}.")
        there = [name for name in USUAL_NAMES[split] if name in pairs]
        return asked or (there[0] if there else "")

    def _list(self, stem: str, files: tuple[Path, ...]) -> Iterator[Utterance | Skip]:
        if len(files) == 1:
            pairs = read_xml(files[0], self.source, self.target)
        elif ".sgm" in files[0].suffixes:
            sides = [read_sgm(path) for path in files]
            reading.check_counts(files, sides)
            pairs = zip(*sides, strict=True)
        else:
            pairs = zip(*reading.read_parallel(*files), strict=True)
        for number, (transcript, translation) in enumerate(pairs):
            key = f"{stem}_{number:05d}"
            yield Utterance(id=key, transcript=transcript, translation=translation)


@dataclass(frozen=True, kw_only=True)
class Tsv(Reader):
    """A table of sentence pairs such as Tatoeba's, split by a hash of the source sentence.

    All translations of one sentence are in the same split, on every machine and in every order
    of the lines, so a test sentence is never seen in training with another translation.
    """

    name: ClassVar[str] = "tsv"

    source: str = "en"
    """Language of the source column; for the record only."""
    target: str = "de"
    """Language of the target column; for the record only."""
    source_column: int = 1
    """Number of the column with the source sentence, from 1."""
    target_column: int = 2
    """Number of the column with the translation."""
    valid_fraction: float = 0.01
    """Part of the source sentences that goes to valid."""
    test_fraction: float = 0.01
    """Part of the source sentences that goes to test."""
    exclude: tuple[Path, ...] = ()
    """Tab-separated test sets: a pair whose source is one of their cells is in no split."""
    member: str = ""
    """File to read in a zip archive; by default the only .txt or .tsv without a leading _."""

    def read(self, root: Path) -> Listing:
        fractions = (self.valid_fraction, self.test_fraction)
        if not (min(fractions) >= 0 and sum(fractions) <= 1):
            raise CorpusError(
                f"valid_fraction and test_fraction are {fractions}: they must be at least 0 and "
                "add up to at most 1."
            )
        if min(self.source_column, self.target_column) < 1:
            raise CorpusError("source_column and target_column count from 1.")
        stem, lines = _read_table(self._table_file(root), self.member)
        others = [line for path in self.exclude for line in _read_table(path, "")[1]]
        excluded = {_fold(cell) for line in others for cell in line.split("\t")}
        splits: dict[str, list[Utterance | Skip]] = {"train": [], "valid": [], "test": []}
        for number, line in enumerate(lines, start=1):
            if line.strip():
                entry = self._entry(f"{stem}_{number:06d}", line.split("\t"), excluded)
                sentence = entry.transcript if isinstance(entry, Utterance) else ""
                splits[self.split_of(sentence)].append(entry)
        return self.collect(splits)

    def split_of(self, sentence: str) -> str:
        """Return the split of a source sentence, by its hash between 0 and 1."""
        digest = hashlib.blake2b(_fold(sentence).encode(), digest_size=8).digest()
        place = int.from_bytes(digest) / 2**64
        if place < self.test_fraction:
            return "test"
        return "valid" if place < self.test_fraction + self.valid_fraction else "train"

    def _entry(self, key: str, cells: list[str], excluded: Container[str]) -> Utterance | Skip:
        if len(cells) < max(self.source_column, self.target_column):
            what = f"{len(cells)} columns: {cells}"
            return Skip(id=key, reason=reading.MALFORMED_ROW, detail=what)
        transcript = cells[self.source_column - 1].strip()
        if _fold(transcript) in excluded:
            return Skip(id=key, reason=reading.EXCLUDED, detail=transcript)
        translation = cells[self.target_column - 1].strip()
        return Utterance(id=key, transcript=transcript, translation=translation)

    def _table_file(self, root: Path) -> Path:
        if root.is_file():
            return root
        found = sorted(root.iterdir()) if root.is_dir() else []
        ends = (".txt", ".tsv", ".txt.gz", ".tsv.gz", ".zip")
        tables = [p for p in found if p.name.endswith(ends) and not p.name.startswith("_")]
        choice = f"file to choose: {len(tables)} tables; give the file itself"
        self.require(len(tables) == 1, choice if tables else "table", root)
        return tables[0]


def _fold(sentence: str) -> str:
    """Return one form for sentences that differ in case, blanks or coding of accents alone."""
    return " ".join(unicodedata.normalize("NFC", sentence).casefold().split())


def _read_table(path: Path, member: str) -> tuple[str, list[str]]:
    """Return the name of the table without suffixes, and its lines."""
    if not path.is_file():
        raise CorpusError(f"{path}: no such file.")
    if path.suffix != ".zip":
        return path.name.removesuffix(".gz").rpartition(".")[0] or path.name, [
            *reading.stream_lines(path)
        ]
    try:
        with zipfile.ZipFile(path) as archive:
            names = [n for n in archive.namelist() if n.endswith((".txt", ".tsv")) and n[0] != "_"]
            if member not in archive.namelist() if member else len(names) != 1:
                raise CorpusError(f"{path}: set member to one of {archive.namelist()}.")
            name = member or names[0]
            with open_member(archive, name) as file:
                return Path(name).stem, [*reading.decode_lines(file, path / name)]
    except CorpusError:
        raise
    except ParseError as error:
        raise CorpusError(f"{path}: {error}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        raise CorpusError(f"{path}: not a whole zip archive. Fetch it again.") from error


# The test sets of WMT: SGM, one file a side, and the newer XML with both sides in one file.

SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.IGNORECASE | re.DOTALL)


def read_sgm(path: Path) -> list[str]:
    """Return the segments of an SGM file, which has bare ampersands and unclosed tags."""
    segments = SEGMENT.findall("\n".join(reading.stream_lines(path)))
    if not segments:
        raise CorpusError(f"{path}: no <seg>...</seg>. Is it an SGM file of WMT?")
    return [" ".join(html.unescape(segment).split()) for segment in segments]


def read_xml(path: Path, source: str, target: str) -> list[tuple[str, str]]:
    """Return pairs of segments by document and number, with the first of several references."""
    try:
        documents = ElementTree.fromstring("\n".join(reading.stream_lines(path))).iter("doc")
    except ElementTree.ParseError as error:
        raise CorpusError(f"{path}: not XML: {error}") from error
    pairs = []
    for document in documents:
        spoken = _segments(path, document, "src", source)
        meant = _segments(path, document, "ref", target)
        pairs += [(text, meant.get(number, "")) for number, text in spoken.items()]
    if not any(translation for _, translation in pairs):
        raise CorpusError(f"{path}: no <ref lang={target!r}> for a <src lang={source!r}>.")
    return pairs


def _segments(
    path: Path, document: ElementTree.Element, side: str, language: str
) -> dict[str, str]:
    """Return text by segment number; nothing if the document has no such side."""
    for part in document.iter(side):
        if part.get("lang") == language:
            segments = [*part.iter("seg")]
            texts = {s.get("id", ""): " ".join("".join(s.itertext()).split()) for s in segments}
            if len(texts) < len(segments):
                where = f"{path}, document {document.get('id', '')!r}, <{side} lang={language!r}>"
                raise CorpusError(f"{where}: two <seg> have the same id, or none.")
            return texts
    return {}
