"""Checkpoints of a run: written in the background, complete or absent, checked before use.

A step is a directory DIRECTORY/STEP that Orbax writes under another name and renames when it is
done. Just before that it gets a manifest, `seal.json`: size and SHA-256 of every file, shape and
dtype of every array, and the score. Orbax notices a missing file but not a flipped bit; the
manifest notices both, says which checkpoints are whole without reading them, and knows the arrays
before any is restored.
"""

import functools
import hashlib
import json
import math
import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import orbax.checkpoint as ocp
from flax import traverse_util
from jax.experimental import multihost_utils
from jax.sharding import SingleDeviceSharding

from simuljax.config.fields import from_json, to_json
from simuljax.errors import SimuljaxError
from simuljax.models.parameters import path_of
from simuljax.parsing import parse_json

CHECKPOINTS = "checkpoints"  # the directory of a run that they are in
SEAL = "seal.json"
ITEMS = ("state", "extra")
SHOWN = 5  # differences that an error names

Kind = tuple[tuple[int, ...], str]  # of an array: shape and dtype
Scores = Mapping[int, float | None]  # by step


class CheckpointError(SimuljaxError):
    """A checkpoint is damaged, absent, or of another model."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Facts of a complete checkpoint."""

    step: int
    score: float | None
    files: Mapping[str, tuple[int, str]]  # path -> size, SHA-256
    arrays: Mapping[str, Kind]
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
    body = json.dumps(to_json(seal), sort_keys=True)
    digest = hashlib.sha256(body.encode()).hexdigest()
    (path / SEAL).write_text(f"{digest}\n{body}\n")


def read_manifest(path: Path) -> Manifest:
    """Read it back; ValueError or OSError if it is not as it was written."""
    digest, _, body = (path / SEAL).read_text().rstrip("\n").partition("\n")
    if hashlib.sha256(body.encode()).hexdigest() != digest:
        raise ValueError(f"{SEAL} is not as it was written")
    return from_json(Manifest, parse_json(body), SEAL)


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
        path = path_of(keys)
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise TypeError(f"{path} is a {type(leaf).__name__}; a state is made of arrays.")
        found[path] = (tuple(leaf.shape), str(leaf.dtype))
    return found


def check_template(seal: Manifest, wanted: Mapping[str, Kind]) -> None:
    """Raise an error that names the arrays that differ, before anything is restored."""
    saved = seal.arrays
    lines = [
        f"{path}: {_shown(saved.get(path))} in the checkpoint, {_shown(wanted.get(path))} wanted"
        for path in sorted({*saved, *wanted}, key=lambda p: (p.startswith("optimiser/"), p))
        if saved.get(path) != wanted.get(path)
    ]
    if lines:
        more = f"\n  and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
        raise CheckpointError(
            f"Step {seal.step} holds other arrays than the model:\n  "
            + "\n  ".join(lines[:SHOWN])
            + f"{more}\nGive the model, vocabularies and optimiser that the run was started with."
        )


def _shown(kind: Kind | None) -> str:
    return f"{kind[1]}[{','.join(map(str, kind[0]))}]" if kind else "nothing"


def ranked(scores: Scores) -> list[int]:
    """Return steps with a score, best first; the earlier of two equal ones is the better."""
    known = {step: score for step, score in scores.items() if score is not None}
    return sorted(known, key=lambda step: (-known[step], step))


def nearest(steps: Sequence[int], best: int, n: int) -> list[int]:
    """Return the n steps nearest to the best, itself included."""
    return sorted(sorted(steps, key=lambda step: (abs(step - best), step))[:n])


def in_phase(scores: Scores, since: int) -> Scores:
    """Return the scores that compare; None for the steps up to `since`."""
    return {step: score if step > since else None for step, score in scores.items()}


@dataclass(frozen=True, kw_only=True)
class Restored:
    """A restored step: arrays placed as the template says, and the JSON beside them."""

    step: int
    state: Any
    extra: dict[str, Any]


class KeepSteps(ocp.checkpoint_managers.PreservationPolicy):
    """Tells Orbax which steps to keep; the rest goes once the save in progress is complete."""

    def __init__(self) -> None:
        self.steps: set[int] = set()

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> list[bool]:
        return [info.step in self.steps for info in checkpoints]


class Checkpoints:
    """The checkpoints of one directory; only saving creates or removes anything.

    Kept are the last, those with the highest scores, the multiples of `every`, and as many as
    `around` nearest to the best, for their average. A checkpoint that was found damaged is removed
    after the next one is safely written.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        keep_last: int = 3,
        keep_best: int = 5,
        every: int | None = None,
        around: int = 0,
    ) -> None:
        self.directory = Path(directory).absolute()
        self.keep_last = max(keep_last, around)  # a new best finds its neighbours still there
        self.keep_best, self.every, self.around = keep_best, every, around
        self._keep = KeepSteps()
        self._damaged: set[int] = set()
        self._writer: ocp.CheckpointManager | None = None
        self._pending: Manifest | None = None  # of the save in progress, without its files

    def save(
        self,
        step: int,
        state: Any,
        extra: Mapping[str, Any],
        *,
        score: float | None = None,
        since: int = 0,
    ) -> None:
        """Copy the state off the devices and write it in the background.

        Waits for the save before it, and raises what that one met. The state may be donated to the
        next update at once. Of two scores the higher is the better. Scores of steps up to `since`
        do not compare with this one: from now on the best is among the later, and of the earlier
        the best one stays.
        """
        snapshot = json.loads(json.dumps(dict(extra)))  # before the caller changes it
        arrays = kinds(state)
        writer = self._ready_writer()
        writer.wait_until_finished()
        seals = self._seals()
        if max(seals, default=-1) >= step:
            raise ValueError(
                f"{self.directory} already holds step {max(seals)}, so step {step} cannot be saved "
                f"there: resume from step {max(seals)}, or train in another directory"
            )
        if step in self._listed():
            self._remove([step])  # damaged, and about to be written again
        score = score if score is not None and math.isfinite(score) else None
        self._pending = Manifest(step=step, score=score, files={}, arrays=arrays, since=since)
        scores = {other: seal.score for other, seal in seals.items()} | {step: score}
        before = ranked({other: scores[other] for other in scores if other <= since})[:1]
        self._keep.steps = {*self._kept(in_phase(scores, since)), *before}
        self._damaged.discard(step)
        writer.save(
            step,
            args=ocp.args.Composite(
                state=ocp.args.PyTreeSave(state), extra=ocp.args.JsonSave(snapshot)
            ),
            force=True,  # whether to save was decided by the caller
        )

    def restore(self, template: Any, step: int | None = None) -> Restored | None:
        """Return the latest whole checkpoint, or the one of `step`; None if there is none.

        The template's arrays, or `jax.ShapeDtypeStruct`s, say where each array is placed, on
        however many devices it was before. A damaged checkpoint is passed over for the one before
        it, with a warning, unless `step` asks for that very one.
        """
        self.wait()
        chosen = self._choose(step)
        if chosen is None:
            return None
        check_template(self.manifest(chosen), kinds(template))
        return self._read(chosen, template, partial=False)

    def read(self, step: int, parts: Sequence[str]) -> Restored:
        """Return some entries of the state of a whole step, such as "params", as they were saved.

        An entry that the state does not have is {}.
        """
        arrays = self.manifest(step).arrays
        shapes = {path: jax.ShapeDtypeStruct(*kind) for path, kind in arrays.items()}
        saved = traverse_util.unflatten_dict(shapes, sep="/")
        wanted = {part: saved[part] for part in parts if part in saved}
        held = self._read(step, wanted, partial=True)
        return replace(held, state={part: held.state.get(part, {}) for part in parts})

    def _read(self, step: int, template: Any, *, partial: bool) -> Restored:
        abstract = jax.tree.map(_placed, template)
        arguments = ocp.checkpoint_utils.construct_restore_args(abstract)
        state = ocp.args.PyTreeRestore(
            item=abstract, restore_args=arguments, partial_restore=partial
        )
        with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as reader:
            held = reader.restore(
                self.directory / str(step),
                args=ocp.args.Composite(state=state, extra=ocp.args.JsonRestore()),
            )
        return Restored(step=step, state=held["state"], extra=dict(held["extra"]))

    def steps(self) -> list[int]:
        """Return the steps whose files all exist, ascending."""
        return sorted(self._seals())

    def whole(self, which: int | Literal["last", "best"]) -> int | None:
        """Return the last or best step whose every byte is intact; the last if none has a score.

        Those that are damaged are passed over, with a warning; None where there is none at all. A
        step that is named is returned, or an error says why it cannot be used.
        """
        if isinstance(which, int):
            return self._named(which)
        found = {s: damage(self.directory / str(s), thorough=False) for s in self._listed()}
        problems = {step: problem for step, problem in found.items() if problem}
        while steps := self.steps():
            step = (self.best() if which == "best" else None) or steps[-1]
            problem = damage(self.directory / str(step), thorough=True)
            if problem is None:
                for bad, why in problems.items():
                    text = f"{self.directory / str(bad)} is damaged ({why}): passed over."
                    warnings.warn(f"Checkpoint {text}", stacklevel=3)
                return step
            problems[step] = problem
            self._damaged.add(step)
        if not problems:
            return None
        tried = [f"  step {step}: {problems[step]}" for step in sorted(problems, reverse=True)]
        raise CheckpointError(
            "\n".join([f"All checkpoints in {self.directory} are damaged:", *tried])
            + "\nRestore the files from a backup, or remove the directory to start anew."
        )

    def best(self) -> int | None:
        """Return the step with the highest score of the latest phase."""
        return next(iter(ranked(self._scores())), None)

    def scored(self) -> list[int]:
        """Return the steps saved with a score in the latest phase, ascending."""
        return sorted(ranked(self._scores()))

    def manifest(self, step: int) -> Manifest:
        """Return the manifest of a step; its arrays are not read."""
        return read_manifest(self.directory / str(step))

    def discard_after(self, step: int) -> None:
        """Remove checkpoints after `step`."""
        self.wait()
        self._remove([later for later in self._listed() if later > step])

    def wait(self) -> None:
        """Wait for the save in progress, and raise its error."""
        if self._writer is not None:
            self._writer.wait_until_finished()

    def close(self) -> None:
        """Wait for the save in progress, and end the threads."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _kept(self, scores: Scores) -> set[int]:
        """Return the steps that stay, given all steps with their scores."""
        steps, best = sorted(scores), ranked(scores)
        period = {step for step in steps if self.every and step % self.every == 0}
        near = nearest(steps, best[0], self.around) if best else []
        return {*steps[-self.keep_last :], *best[: self.keep_best], *period, *near}

    def _ready_writer(self) -> ocp.CheckpointManager:
        if self._writer is None:
            sealing = ocp.AsyncOptions(
                post_finalization_callback=self._seal,
                create_directories_asynchronously=False,  # else a full disk is noticed by timeout
            )
            options = ocp.CheckpointManagerOptions(
                preservation_policy=self._keep,
                cleanup_tmp_directories=True,  # what a killed run left behind
                async_options=sealing,
            )
            types = ocp.type_handlers  # one device writes; by default each replica writes a slice
            registry = types.create_type_handler_registry(
                (jax.Array, types.ArrayHandler(use_replica_parallel=False)),
                (np.ndarray, types.NumpyHandler()),
            )
            handlers = {
                "state": ocp.PyTreeCheckpointHandler(type_handler_registry=registry),
                "extra": ocp.JsonCheckpointHandler(),
            }
            self._writer = ocp.CheckpointManager(
                self.directory, item_handlers=handlers, options=options
            )
        return self._writer

    def _seal(self) -> None:
        """Write the manifest, after the files and before the directory is renamed."""
        if self._pending is None or jax.process_index() != 0:
            return
        written = self.directory.glob(f"{self._pending.step}.orbax-checkpoint-tmp*")
        path = max(written, key=lambda path: path.stat().st_mtime)  # an older one failed
        write_manifest(path, replace(self._pending, files=digests(path)))

    def _remove(self, steps: list[int]) -> None:
        if jax.process_index() == 0:
            for step in steps:
                (self.directory / str(step) / SEAL).unlink(missing_ok=True)  # if we die half way
                shutil.rmtree(self.directory / str(step))
        if jax.process_count() > 1:
            multihost_utils.sync_global_devices("checkpoints removed")
        if self._writer is not None:
            self._writer.reload()

    def _listed(self) -> list[int]:
        """Return every step that has a directory, whole or not."""
        if not self.directory.is_dir():
            return []
        return sorted(int(p.name) for p in self.directory.iterdir() if p.name.isdecimal())

    def _seals(self) -> dict[int, Manifest]:
        """Return the manifests of the steps that look whole, by the sizes of their files."""
        seals = {}
        for step in self._listed():
            path = self.directory / str(step)
            if step not in self._damaged and damage(path, thorough=False) is None:
                seals[step] = read_manifest(path)
        return seals

    def _scores(self) -> Scores:
        seals = self._seals()
        since = max((seal.since for seal in seals.values()), default=0)
        return in_phase({step: seal.score for step, seal in seals.items()}, since)

    def _choose(self, step: int | None) -> int | None:
        """Return the step to restore; the first process chooses it for all."""
        failure: CheckpointError | None = None
        chosen, listed = -1, self._listed()
        if jax.process_index() == 0:
            try:
                found = self.whole("last" if step is None else step)
                chosen = -1 if found is None else found
            except CheckpointError as error:
                failure, chosen = error, -2
        if jax.process_count() > 1:
            chosen = int(multihost_utils.broadcast_one_to_all(np.int32(chosen)))
        if chosen == -2:
            raise failure or CheckpointError(f"No usable checkpoint in {self.directory}.")
        if step is None:  # the latest whole one: what is later is not
            self._damaged |= {later for later in listed if later > chosen}
        return None if chosen < 0 else chosen

    def _named(self, step: int) -> int:
        if step not in self._listed():
            raise CheckpointError(
                f"{self.directory} has no step {step}; it has {self._listed() or 'none'}."
            )
        problem = damage(self.directory / str(step), thorough=True)
        if problem:
            raise CheckpointError(
                f"Checkpoint {self.directory / str(step)} is damaged ({problem}). Other steps: "
                f"{[other for other in self.steps() if other != step] or 'none'}."
            )
        return step


def _placed(leaf: Any) -> jax.ShapeDtypeStruct:
    """Return the array to restore: on the template's devices, or this process's first."""
    sharding = getattr(leaf, "sharding", None) or SingleDeviceSharding(jax.local_devices()[0])
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
