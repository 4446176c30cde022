"""Checkpoints of a run: written in the background, complete or absent, checked before use.

A step is a directory DIRECTORY/STEP that Orbax writes under another name and renames when it is
done. Just before that it is sealed (`train.manifest`), and a restored step has an unbroken seal.
"""

import json
import math
import shutil
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from jax.sharding import SingleDeviceSharding

from simuljax.errors import SimuljaxError
from simuljax.train.manifest import (
    SEAL,
    Kind,
    Manifest,
    Retention,
    check_template,
    damage,
    digests,
    kinds,
    ranked,
    read_manifest,
    write_manifest,
)

CHECKPOINTS = "checkpoints"  # the directory of a run that they are in


class CheckpointError(SimuljaxError):
    """There are checkpoints, and none that can be used."""


@dataclass(frozen=True, kw_only=True)
class Restored:
    """A restored step: arrays placed as the template says, and the JSON beside them."""

    step: int
    state: Any
    extra: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Pending:
    """Content of the manifest of the save in progress."""

    step: int
    score: float | None
    since: int
    arrays: dict[str, Kind]


class KeepSteps(ocp.checkpoint_managers.PreservationPolicy):
    """Tells Orbax which steps to keep; the rest goes once the save in progress is complete."""

    def __init__(self) -> None:
        self.steps: set[int] = set()

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> list[bool]:
        """Return True for each checkpoint that stays."""
        return [info.step in self.steps for info in checkpoints]


class Checkpoints:
    """The checkpoints of one directory; only saving creates or removes anything.

    A score is a number of which more is better; the earlier of two equal ones is the better. A
    checkpoint that was found damaged is removed after the next one is safely written.
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
        self._retention = Retention(
            keep_last=keep_last, keep_best=keep_best, every=every, around=around
        )
        self._keep = KeepSteps()
        self._damaged: set[int] = set()
        self._writer: ocp.CheckpointManager | None = None
        self._pending: Pending | None = None

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
        next update at once. Scores of steps up to `since` do not compare with this one: from now on
        the best is among the later, and of the earlier the best one stays.
        """
        snapshot = json.loads(json.dumps(dict(extra)))  # before the caller changes it
        arrays = kinds(state)
        writer = self._ready_writer()
        writer.wait_until_finished()
        seals = self._seals()
        self._refuse_rewriting(step, seals)
        score = score if score is not None and math.isfinite(score) else None
        self._pending = Pending(step=step, score=score, since=since, arrays=arrays)
        scores = {other: seal.score for other, seal in seals.items()} | {step: score}
        before = ranked({other: scores[other] for other in scores if other <= since})[:1]
        self._keep.steps = {*self._retention.kept(in_phase(scores, since)), *before}
        self._damaged.discard(step)
        writer.save(
            step,
            args=ocp.args.Composite(
                state=ocp.args.PyTreeSave(state), extra=ocp.args.JsonSave(snapshot)
            ),
            force=True,  # whether to save was decided by the caller
        )

    def restore(
        self, template: Any, step: int | None = None, *, part: str | None = None
    ) -> Restored | None:
        """Return the latest whole checkpoint, or the one of `step`; None if there is none.

        The template's arrays, or `jax.ShapeDtypeStruct`s, say where each array is placed, on
        however many devices it was before. With `part`, it is the template of that entry of the
        saved state alone ("params"). A damaged checkpoint is passed over for the one before it,
        with a warning, unless `step` asks for that very one.
        """
        self.wait()
        chosen = self._choose(step)
        if chosen is None:
            return None
        wanted = template if part is None else {part: template}
        path = self.directory / str(chosen)
        check_template(read_manifest(path), kinds(wanted), part)
        abstract = jax.tree.map(placed, wanted)
        arguments = ocp.checkpoint_utils.construct_restore_args(abstract)
        state = ocp.args.PyTreeRestore(
            item=abstract, restore_args=arguments, partial_restore=part is not None
        )
        with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as reader:
            held = reader.restore(
                path, args=ocp.args.Composite(state=state, extra=ocp.args.JsonRestore())
            )
        tree = held["state"] if part is None else held["state"][part]
        return Restored(step=chosen, state=tree, extra=dict(held["extra"]))

    def steps(self) -> list[int]:
        """Return the steps whose files all exist, ascending."""
        return sorted(self._seals())

    def whole(self, which: Literal["last", "best"]) -> int | None:
        """Return the last or best step whose every byte is intact; the last if none has a score.

        Those that are damaged are passed over, with a warning; None where there is none at all.
        """
        problems = self._problems()
        while steps := self.steps():
            step = (self.best() if which == "best" else None) or steps[-1]
            problem = damage(self.directory / str(step), thorough=True)
            if problem is None:
                self._warn(problems)
                return step
            problems[step] = problem
            self._damaged.add(step)
        if problems:
            raise self._unusable(problems)
        return None

    def best(self) -> int | None:
        """Return the step with the highest score of the latest phase."""
        return next(iter(ranked(self._scores())), None)

    def scored(self) -> list[int]:
        """Return the steps saved with a score in the latest phase, ascending."""
        return sorted(ranked(self._scores()))

    def manifest(self, step: int) -> Manifest:
        """Return the manifest of a whole checkpoint; its arrays are not read."""
        return read_manifest(self.directory / str(self._named(step)))

    def discard_after(self, step: int) -> None:
        """Remove checkpoints after `step`, to resume from an earlier point."""
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
            handlers = {"state": one_replica_handler(), "extra": ocp.JsonCheckpointHandler()}
            self._writer = ocp.CheckpointManager(
                self.directory, item_handlers=handlers, options=options
            )
        return self._writer

    def _seal(self) -> None:
        """Write the manifest, after the files and before the directory is renamed."""
        if self._pending is None or jax.process_index() != 0:
            return
        held = self._pending
        written = self.directory.glob(f"{held.step}.orbax-checkpoint-tmp*")
        path = max(written, key=lambda path: path.stat().st_mtime)  # an older one failed
        files, since = digests(path), held.since
        seal = Manifest(
            step=held.step, score=held.score, files=files, arrays=held.arrays, since=since
        )
        write_manifest(path, seal)

    def _refuse_rewriting(self, step: int, known: Iterable[int]) -> None:
        later = [other for other in known if other >= step]
        if later:
            raise ValueError(
                f"{self.directory} already holds step {max(later)}, so step {step} cannot be saved "
                f"there. Resume from step {max(later)}, call discard_after({step - 1}) to give up "
                "what is later, or train in another directory."
            )
        if step in self._listed():
            self._remove([step])  # damaged, and about to be written again

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

    def _problems(self) -> dict[int, str]:
        """Return the damage of the steps that do not look whole."""
        found = {s: damage(self.directory / str(s), thorough=False) for s in self._listed()}
        return {step: problem for step, problem in found.items() if problem}

    def _warn(self, problems: Mapping[int, str]) -> None:
        for step, problem in problems.items():
            path = self.directory / str(step)
            warnings.warn(f"Checkpoint {path} is damaged ({problem}): passed over.", stacklevel=4)

    def _seals(self) -> dict[int, Manifest]:
        """Return the manifests of the steps that look whole, by the sizes of their files."""
        seals = {}
        for step in self._listed():
            path = self.directory / str(step)
            if step not in self._damaged and damage(path, thorough=False) is None:
                seals[step] = read_manifest(path)
        return seals

    def _scores(self) -> dict[int, float | None]:
        """Return the scores of the latest phase."""
        seals = self._seals()
        since = max((seal.since for seal in seals.values()), default=0)
        return in_phase({step: seal.score for step, seal in seals.items()}, since)

    def _choose(self, step: int | None) -> int | None:
        """Return the step to restore; the first process chooses it for all."""
        failure: CheckpointError | None = None
        chosen, listed = -1, self._listed()
        if jax.process_index() == 0:
            try:
                found = self._latest_whole() if step is None else self._named(step)
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

    def _latest_whole(self) -> int | None:
        tried: dict[int, str] = {}
        for step in reversed(self._listed()):
            path = self.directory / str(step)
            problem = damage(path, thorough=True)
            if problem is None:
                return step
            tried[step] = problem
            warnings.warn(
                f"Checkpoint {path} is damaged ({problem}); trying the one before it.",
                stacklevel=4,
            )
        if tried:
            raise self._unusable(tried)
        return None

    def _unusable(self, problems: Mapping[int, str]) -> CheckpointError:
        tried = [f"  step {step}: {problems[step]}" for step in sorted(problems, reverse=True)]
        return CheckpointError(
            "\n".join([f"All checkpoints in {self.directory} are damaged:", *tried])
            + "\nRestore the files from a backup, or remove the directory to start anew."
        )


def one_replica_handler() -> ocp.PyTreeCheckpointHandler:
    """Return a handler that writes from one device; Orbax has each replica write a slice."""
    handlers = ocp.type_handlers
    registry = handlers.create_type_handler_registry(
        (jax.Array, handlers.ArrayHandler(use_replica_parallel=False)),
        (np.ndarray, handlers.NumpyHandler()),
    )
    return ocp.PyTreeCheckpointHandler(type_handler_registry=registry)


def in_phase(scores: Mapping[int, float | None], since: int) -> dict[int, float | None]:
    """Return the scores that compare; None for the steps up to `since`."""
    return {step: score if step > since else None for step, score in scores.items()}


def placed(leaf: Any) -> jax.ShapeDtypeStruct:
    """Return the array to restore: on the template's devices, or this process's first."""
    sharding = getattr(leaf, "sharding", None) or SingleDeviceSharding(jax.local_devices()[0])
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
