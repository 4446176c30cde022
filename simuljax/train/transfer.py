"""Starting a model from the parameters of another: a recogniser's encoder, a teacher's decoder.

A rule says which part of the donor goes into which part of the model. Nothing is bent to fit: what
does not fit is left as it was initialised, and the report says so. The one liberty is that a stack
of layers takes the first of a deeper donor.

The average of several checkpoints, which translates a little better than any of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.train.checkpoint import (
    CHECKPOINTS,
    CheckpointError,
    Checkpoints,
    around_best,
    template_of,
)

AVERAGED = "averaged"  # the directory of a run beside its checkpoints
PARTS = ("params", "statistics")  # of a state, which a translator computes with

Which = int | Literal["last", "best", "averaged"]


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """Parameters and statistics of a run, and the steps they come from."""

    params: Any
    statistics: Any  # BatchNorm's; {} without one
    steps: tuple[int, ...]


def average_around_best(run: str | Path, n: int) -> tuple[int, ...]:
    """Write the average of the n checkpoints around the best of a run; return their steps.

    They are of the phase that the run is in. `load(run, "averaged")` finds the result.
    """
    checkpoints = Checkpoints(Path(run) / CHECKPOINTS)
    checkpoints.whole("best")  # says which are damaged; the average is of the others
    best = checkpoints.best()
    if best is None or n < 1:
        raise CheckpointError(
            f"{n} checkpoints around the best: {checkpoints.directory} has "
            f"{'none that was validated' if best is None else 'some'}; n must be 1 or more."
        )
    steps = around_best(checkpoints.scored(), best, n)
    seal = checkpoints.manifest(best)
    held = {part: average(checkpoints, steps, template_of(seal, part), part=part) for part in PARTS}
    written = Checkpoints(Path(run) / AVERAGED, keep_last=1, keep_best=0)
    written.discard_after(best - 1)
    written.save(best, jax.tree.map(np.asarray, held), {"steps": steps})  # the same on all hosts
    written.close()
    return tuple(steps)


def load(run: str | Path, which: Which = "best") -> Loaded:
    """Return the parameters of a run: the last, best or averaged ones, or those of a step.

    Parameters stored as bfloat16 (`simuljax.serve.run`) become float32 again. The model need not
    be known. A damaged checkpoint causes a warning, and the next one is taken; if a step was asked
    for, it is an error that names other steps.
    """
    averaged = which == "averaged"
    checkpoints = Checkpoints(Path(run) / (AVERAGED if averaged else CHECKPOINTS))
    wanted = "last" if which == "averaged" else which
    step = wanted if isinstance(wanted, int) else checkpoints.whole(wanted)
    if step is None:
        hint = ": `--training.average N` has one written when the training ends" if averaged else ""
        raise CheckpointError(f"{checkpoints.directory} holds no checkpoint{hint}.")
    seal, parts, found = checkpoints.manifest(step), {}, None
    for part in PARTS:
        template = template_of(seal, part)
        found = checkpoints.restore(template, seal.step, part=part) if template else found
        parts[part] = jax.tree.map(widened, found.state) if template and found else {}
    origin = found.extra.get("steps", [seal.step]) if found and averaged else [seal.step]
    return Loaded(**parts, steps=tuple(origin))


def widened(leaf: jax.Array) -> jax.Array:
    """Return an array in the precision that models compute with."""
    return leaf.astype(jnp.float32) if leaf.dtype == jnp.bfloat16 else leaf


def average(
    checkpoints: Checkpoints, steps: Sequence[int], template: Any, *, part: str = "params"
) -> Any:
    """Return the mean over steps of one part of their states, summed in float64.

    The template is that part's: its shardings place the result, and its dtypes are kept. Integers
    have no mean, so they have to be equal in all.
    """
    if not steps:
        raise ValueError("There is no average of no checkpoints: give at least one step.")
    if not jax.tree.leaves(template):
        return template
    total: dict[str, Any] = {}
    for step in steps:
        held = checkpoints.restore(template, step, part=part)
        assert held is not None  # a named step is restored or refused
        host = {part: jax.tree.map(wide, held.state)}
        total = jax.tree_util.tree_map_with_path(add, total, host) if total else host
    return jax.tree.map(lambda leaf, sum_: place(leaf, sum_, len(steps)), template, total[part])


def wide(leaf: jax.Array) -> np.ndarray:
    """Return the array on the host, in float64 unless it is an integer."""
    array = np.asarray(leaf)
    return array.astype(np.float64) if jax.numpy.issubdtype(leaf.dtype, np.floating) else array


def add(path: tuple, total: np.ndarray, more: np.ndarray) -> np.ndarray:
    """Add numbers; equal integers stay as they are."""
    if total.dtype == np.float64:
        return total + more
    if not np.array_equal(total, more):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        raise ValueError(f"{name!r} holds integers that differ among the checkpoints: no average.")
    return total


def place(leaf: Any, total: np.ndarray, count: int) -> jax.Array:
    """Return the mean in the template's dtype and on its devices."""
    mean = total / count if total.dtype == np.float64 else total
    return jax.device_put(mean.astype(leaf.dtype), getattr(leaf, "sharding", None))


STACK = "layer"  # below this name, parameters have a leading axis of layers
NAMES = 3  # parameters that the table names of each kind


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Fills the part `into` of the model from the part `source` of the donor; "" is all of it."""

    into: str
    source: str

    @staticmethod
    def parse(text: str) -> "Rule":
        """Read "decoder/ <- speech/", or "speech/" where both have one name."""
        into, _, source = (piece.strip() for piece in text.partition("<-"))
        return Rule(into=into.strip("/"), source=(source or into).strip("/"))

    def donor_of(self, path: str) -> str | None:
        """Return the donor's path of a parameter, if the rule covers it."""
        rest = below(path, self.into)
        return None if rest is None else "/".join(p for p in (self.source.strip("/"), rest) if p)


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A parameter of the model, that of the donor, and what is to be said about them."""

    path: str
    source: str
    note: str = ""

    def __str__(self) -> str:
        came = "" if self.path == self.source else f" <- {self.source}"
        return f"{self.path}{came}{f' ({self.note})' if self.note else ''}"


@dataclass(frozen=True, kw_only=True)
class TransferReport:
    """The fate of every parameter; prints as a short table."""

    transferred: tuple[Moved, ...]
    wrong_shape: tuple[Moved, ...]  # left: the donor's has another shape
    missing: tuple[Moved, ...]  # left: the donor has none
    withheld: tuple[Moved, ...]  # left: the caller said so
    no_rule: tuple[str, ...]  # left: no rule speaks of them
    unused: tuple[str, ...]  # of the donor

    def __str__(self) -> str:
        rows = [
            ("transferred", self.transferred),
            ("left: other shape", self.wrong_shape),
            ("left: not in donor", self.missing),
            ("left: withheld", self.withheld),
            ("left: no rule", self.no_rule),
            ("unused of donor", self.unused),
        ]
        return "\n".join(f"{name:<19}{len(held):>5}  {some(held)}".rstrip() for name, held in rows)


def transfer(
    params: dict,
    donor: Mapping,
    rules: Sequence[Rule],
    *,
    withheld: Mapping[str, str] | None = None,
) -> tuple[dict, TransferReport]:
    """Return the parameters with those of the donor in place, and a report.

    Of several rules for a parameter the one with the longest `into` counts. Embeddings of another
    vocabulary must not be transferred: another size is noticed here, but only the caller can tell
    vocabularies of equal size apart, and puts them into `withheld`, {"text/embedding": why}.
    """
    own, given = by_path(params), by_path(donor)
    check_rules(rules, own, given)
    new, kinds = dict(own), {name: [] for name in ("moved", "shape", "missing", "withheld")}
    no_rule = []
    for path, value in own.items():
        source = source_of(path, rules)
        if source is None:
            no_rule.append(path)
            continue
        kind, note, taken = match(path, value, given.get(source), withheld or {})
        kinds[kind].append(Moved(path=path, source=source, note=note))
        new[path] = value if taken is None else taken
    report = TransferReport(
        transferred=tuple(kinds["moved"]),
        wrong_shape=tuple(kinds["shape"]),
        missing=tuple(kinds["missing"]),
        withheld=tuple(kinds["withheld"]),
        no_rule=tuple(no_rule),
        unused=tuple(sorted(given.keys() - {moved.source for moved in kinds["moved"]})),
    )
    return jax.tree_util.tree_map_with_path(lambda keys, _: new[path_of(keys)], params), report


def path_of(keys: tuple) -> str:
    """Return the path of a parameter, "decoder/layer/norm/scale"."""
    return jax.tree_util.keystr(keys, simple=True, separator="/")


def by_path(params: Mapping) -> dict[str, jax.Array]:
    """Return the parameters by their paths."""
    return {path_of(keys): leaf for keys, leaf in jax.tree_util.tree_leaves_with_path(params)}


def match(
    path: str, own: jax.Array, given: jax.Array | None, withheld: Mapping[str, str]
) -> tuple[str, str, jax.Array | None]:
    """Return the outcome for a parameter, a note, and its new value if it has one."""
    reasons = [why for prefix, why in withheld.items() if below(path, prefix) is not None]
    if reasons:
        return "withheld", reasons[0], None
    if given is None:
        return "missing", "", None
    if own.shape == given.shape:
        return "moved", "", placed_as(own, given)
    if STACK in path.split("/") and own.shape[1:] == given.shape[1:]:
        if given.shape[0] > own.shape[0]:
            note = f"the first {own.shape[0]} of {given.shape[0]} layers"
            return "moved", note, placed_as(own, given[: own.shape[0]])
        return "shape", f"the donor has {given.shape[0]} layers, {own.shape[0]} are wanted", None
    cause = ", another vocabulary" if "embedding" in path.split("/") else ""
    return "shape", f"{list(given.shape)} in the donor, {list(own.shape)} here{cause}", None


def placed_as(own: jax.Array, given: jax.Array) -> jax.Array:
    """Copy the donor's values to the dtype and devices of the model's."""
    return jax.device_put(
        jnp.array(given, own.dtype, copy=True), own.sharding if isinstance(own, jax.Array) else None
    )


def source_of(path: str, rules: Sequence[Rule]) -> str | None:
    """Return the donor's path of a parameter by the most specific rule."""
    speaking = [rule for rule in rules if below(path, rule.into) is not None]
    return (
        max(speaking, key=lambda rule: len(rule.into.strip("/"))).donor_of(path)
        if speaking
        else None
    )


def check_rules(rules: Sequence[Rule], own: Mapping, given: Mapping) -> None:
    """Raise an error for a rule that matches nothing, or two with the same target."""
    into = [rule.into.strip("/") for rule in rules]
    twice = sorted({prefix for prefix in into if into.count(prefix) > 1})
    if twice:
        raise ValueError(f"Several rules fill {twice[0]!r}: leave one of them.")
    for rule in rules:
        sides = (("model", rule.into, own), ("donor", rule.source, given))
        for side, prefix, paths in sides:
            if all(below(path, prefix) is None for path in paths):
                raise ValueError(
                    f"The {side} has no parameters under {prefix!r}; under its parts "
                    f"{sorted({path.split('/')[0] for path in paths})} are, for example, "
                    f"{sorted(paths)[:NAMES]}."
                )


def below(path: str, prefix: str) -> str | None:
    """Return the rest of a path under a prefix of whole names; None if it is elsewhere."""
    prefix = prefix.strip("/")
    if not prefix or path == prefix:
        return "" if path == prefix else path
    return path[len(prefix) + 1 :] if path.startswith(f"{prefix}/") else None


def some(held: Sequence[Moved] | Sequence[str]) -> str:
    """Return the first few names."""
    more = f", and {len(held) - NAMES} more" if len(held) > NAMES else ""
    return ", ".join(map(str, held[:NAMES])) + more
