"""Which checkpoints stay, and what each of them holds.

`seal.json` of a checkpoint records the size and SHA-256 of every file, the shape and dtype of every
array, and the score. Orbax notices a missing file but not a flipped bit; the manifest notices both,
says which checkpoints are whole without reading them, and knows the arrays before any is restored.
"""

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import jax

from simuljax.errors import SimuljaxError


@dataclass(frozen=True, kw_only=True)
class Retention:
    """The latest stay, those with the highest scores, the multiples of `every`, and as many as
    `around` nearest to the best, for their average."""

    keep_last: int
    keep_best: int
    every: int | None
    around: int = 0

    def __post_init__(self) -> None:
        if self.keep_last < 1 or self.keep_best < 0 or (self.every is not None and self.every < 1):
            raise ValueError(
                f"keep_last={self.keep_last}, keep_best={self.keep_best}, every={self.every}: at "
                "least one has to stay, so keep_last >= 1, keep_best >= 0, every >= 1 or None."
            )

    def kept(self, scores: Mapping[int, float | None]) -> set[int]:
        """Return the steps that stay, given all steps with their scores."""
        steps = sorted(scores)
        best = ranked(scores)
        last = max(self.keep_last, self.around)  # a new best finds its neighbours still there
        period = {step for step in steps if self.every and step % self.every == 0}
        near = around_best(steps, best[0], min(self.around, len(steps))) if best else []
        return {*steps[-last:], *best[: self.keep_best], *period, *near}


def ranked(scores: Mapping[int, float | None]) -> list[int]:
    """Return steps with a score, best first."""
    return sorted(
        (step for step, score in scores.items() if score is not None),
        key=lambda step: (-(scores[step] or 0.0), step),
    )


def around_best(steps: Sequence[int], best: int, n: int) -> list[int]:
    """Return the n saved steps nearest to the best, itself included."""
    if best not in steps:
        raise ValueError(f"The best step {best} is not among the saved steps {sorted(steps)}.")
    if not 0 <= n <= len(steps):
        raise ValueError(
            f"Cannot take {n} checkpoints around step {best}: {len(steps)} are saved "
            f"({sorted(steps)}). Take fewer, or keep more of them while training."
        )
    return sorted(sorted(steps, key=lambda step: (abs(step - best), step))[:n])


SEAL = "seal.json"
ITEMS = ("state", "extra")
SHOWN = 5  # differences that an error names

Kind = tuple[tuple[int, ...], str]  # of an array: shape and dtype


class MismatchError(SimuljaxError):
    """A checkpoint holds other arrays than the ones asked for."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Facts of a complete checkpoint."""

    step: int
    score: float | None
    files: dict[str, tuple[int, str]]  # path -> size, SHA-256
    arrays: dict[str, Kind]
    since: int = 0  # scores of steps up to this one are of another phase


def digests(path: Path) -> dict[str, tuple[int, str]]:
    """Return size and SHA-256 of every file of the items, by path."""
    found = {}
    for file in sorted(f for item in ITEMS for f in (path / item).rglob("*") if f.is_file()):
        stat = file.stat()
        digest = _sha256(file, stat.st_size, stat.st_mtime_ns)
        found[file.relative_to(path).as_posix()] = (stat.st_size, digest)
    return found


@functools.lru_cache(maxsize=4096)
def _sha256(file: Path, size: int, modified_ns: int) -> str:
    """Read a file once per process, unless its size or time of change differs."""
    del size, modified_ns
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def write_manifest(path: Path, seal: Manifest) -> None:
    """Write the manifest with a digest of itself."""
    held = {field.name: getattr(seal, field.name) for field in fields(seal)}
    body = json.dumps(held, sort_keys=True)
    digest = hashlib.sha256(body.encode()).hexdigest()
    (path / SEAL).write_text(f"{digest}\n{body}\n")


def read_manifest(path: Path) -> Manifest:
    """Read it back; ValueError or OSError if it is not as it was written."""
    digest, _, body = (path / SEAL).read_text().rstrip("\n").partition("\n")
    if hashlib.sha256(body.encode()).hexdigest() != digest:
        raise ValueError(f"{SEAL} is not as it was written")
    held = json.loads(body)
    return Manifest(
        step=held["step"],
        score=held["score"],
        files={name: (size, sha) for name, (size, sha) in held["files"].items()},
        arrays={name: (tuple(shape), dtype) for name, (shape, dtype) in held["arrays"].items()},
        since=held.get("since", 0),
    )


def damage(path: Path, *, thorough: bool) -> str | None:
    """Return what is wrong with a checkpoint, or None; `thorough` reads every byte."""
    try:
        seal = read_manifest(path)
        if str(seal.step) != path.name:
            return f"it was written as step {seal.step}"
        for name, (size, _) in seal.files.items():
            if not (path / name).is_file():
                return f"{name} is missing"
            if (path / name).stat().st_size != size:
                return f"{name} has {(path / name).stat().st_size} bytes instead of {size}"
        found = digests(path) if thorough else seal.files
        changed = [name for name in seal.files if found.get(name) != seal.files[name]]
        return f"{changed[0]} has other content than was written" if changed else None
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError) as error:
        return str(error)


def kinds(tree: Any) -> dict[str, Kind]:
    """Return shape and dtype of every array by its path, "params/encoder/kernel"."""
    found = {}
    for keys, leaf in jax.tree_util.tree_leaves_with_path(tree):
        path = jax.tree_util.keystr(keys, simple=True, separator="/")
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise TypeError(f"{path} is a {type(leaf).__name__}; a state is made of arrays.")
        found[path] = (tuple(leaf.shape), str(leaf.dtype))
    return found


def template_of(seal: Manifest, part: str) -> Any:
    """Return the shapes of one part of a checkpoint, as nested dictionaries."""
    tree: dict[str, Any] = {}
    for path, (shape, dtype) in seal.arrays.items():
        *parents, name = path.split("/")
        if parents and parents[0] == part:
            inner = tree
            for parent in parents[1:]:
                inner = inner.setdefault(parent, {})
            inner[name] = jax.ShapeDtypeStruct(shape, dtype)
    return tree


def check_template(seal: Manifest, wanted: Mapping[str, Kind], part: str | None) -> None:
    """Raise an error that names what differs, before anything is restored."""
    inside = (lambda p: p == part or p.startswith(f"{part}/")) if part else (lambda p: True)
    saved = {path: kind for path, kind in seal.arrays.items() if inside(path)}
    lines = [
        f"{path}: {shown(saved.get(path))} in the checkpoint, {shown(wanted.get(path))} wanted"
        for path in sorted({*saved, *wanted}, key=lambda p: (p.startswith("optimiser/"), p))
        if saved.get(path) != wanted.get(path)
    ]
    if lines:
        more = f"\n  and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
        raise MismatchError(
            f"Step {seal.step} holds other arrays than the model:\n  "
            + "\n  ".join(lines[:SHOWN])
            + f"{more}\nLikely cause: {likely_cause(saved, wanted)}."
        )


def shown(kind: Kind | None) -> str:
    """Return `float32[3,4]`, or nothing."""
    return f"{kind[1]}[{','.join(map(str, kind[0]))}]" if kind else "nothing"


def likely_cause(saved: Mapping[str, Kind], wanted: Mapping[str, Kind]) -> str:
    """Guess what was changed between saving and restoring."""
    differing = [path for path in {*saved, *wanted} if saved.get(path) != wanted.get(path)]
    common = [path for path in differing if path in saved and path in wanted]
    lone = [path for path in differing if path not in common]
    if lone and all(path.startswith("optimiser/") for path in lone):
        return "another optimiser; give the one the run was started with"
    if lone:
        return "another architecture; give the configuration the run was started with"
    if all(saved[path][0] == wanted[path][0] for path in common):
        return "another precision of the parameters"
    if any("embedding" in path and saved[path][0][1:] == wanted[path][0][1:] for path in common):
        return "another vocabulary; give the one the run was started with"
    if all("layer" in p.split("/") and saved[p][0][1:] == wanted[p][0][1:] for p in common):
        return "another number of layers"
    return "another width of the model"
