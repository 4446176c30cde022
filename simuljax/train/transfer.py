"""Load the parameters of a run, average those of several checkpoints, start a model from others.

A rule says which part of a donor goes into which part of the model. What does not fit is left as it
was initialised, and the report says so; only a stack of layers takes the first of a deeper donor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.models.whisper.config import Config
from simuljax.models.whisper.weights import dimensions_of, parameters, read_checkpoint
from simuljax.train.checkpoint import (
    CHECKPOINTS,
    CheckpointError,
    Checkpoints,
    around_best,
    template_of,
)
from simuljax.train.stored import find_params, read_params

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

    An export has one set of them, the last and the best (`simuljax.train.stored`). Parameters
    stored in another type become float32. The model need not be known. A damaged checkpoint causes
    a warning, and the next one is taken; if a step was asked for, it is an error that names other
    steps.
    """
    averaged = which == "averaged"
    if (exported := find_params(Path(run))) and which in ("best", "last"):
        state, steps = read_params(exported)
        return Loaded(**{part: state.get(part, {}) for part in PARTS}, steps=steps)
    checkpoints = Checkpoints(Path(run) / (AVERAGED if averaged else CHECKPOINTS))
    wanted = "last" if which == "averaged" else which
    step = wanted if isinstance(wanted, int) else checkpoints.whole(wanted)
    if step is None:
        hint = ": `--training.average N` has one written when the training ends" if averaged else ""
        raise CheckpointError(f"{checkpoints.directory} holds no checkpoint{hint}.")

    def widen(leaf: jax.Array) -> jax.Array:
        return leaf.astype(jnp.float32) if leaf.dtype == jnp.bfloat16 else leaf

    seal, parts, found = checkpoints.manifest(step), {}, None
    for part in PARTS:
        template = template_of(seal, part)
        found = checkpoints.restore(template, seal.step, part=part) if template else found
        parts[part] = jax.tree.map(widen, found.state) if template and found else {}
    origin = found.extra.get("steps", [seal.step]) if found and averaged else [seal.step]
    return Loaded(**parts, steps=tuple(origin))


def load_whisper_encoder(path: Path) -> dict[str, Any]:
    """Return the encoder's parameters, in float32, of a file or directory of Whisper's weights."""
    checkpoint = read_checkpoint(path)
    config = Config(dimensions=dimensions_of(checkpoint), alignment_heads=())
    return {"encoder": parameters(checkpoint, config)["encoder"]}


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
    held = (checkpoints.restore(template, step, part=part) for step in steps)
    states = [{part: jax.device_get(each.state)} for each in held if each is not None]

    def mean(path: tuple, leaf: Any, *leaves: jax.Array) -> jax.Array:
        host = [np.asarray(each) for each in leaves]
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            total = sum((each.astype(np.float64) for each in host), np.float64(0)) / len(host)
        elif all(np.array_equal(each, host[0]) for each in host):
            total = host[0]
        else:
            raise ValueError(
                f"{path_of(path)!r} holds integers that differ among the checkpoints: no average."
            )
        return jax.device_put(total.astype(leaf.dtype), getattr(leaf, "sharding", None))

    return jax.tree_util.tree_map_with_path(mean, {part: template}, *states)[part]


STACK = "layer"  # below this name, parameters have a leading axis of layers
NAMES = 3  # parameters that the table names of each kind
KINDS = {  # of outcomes
    "transferred": "transferred",
    "wrong_shape": "left: other shape",
    "missing": "left: not in donor",
    "no_rule": "left: no rule",
    "unused": "unused of donor",
}


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


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A parameter of the model, that of the donor, and what is to be said about them."""

    path: str
    source: str = ""
    note: str = ""

    def __str__(self) -> str:
        came = f" <- {self.source}" if self.source not in ("", self.path) else ""
        return f"{self.path}{came}{f' ({self.note})' if self.note else ''}"


class TransferReport(dict[str, list[Moved]]):
    """The fate of every parameter by its kind; prints as a short table."""

    def __str__(self) -> str:
        lines = []
        for kind, title in KINDS.items():
            more = f", and {len(self[kind]) - NAMES} more" if len(self[kind]) > NAMES else ""
            names = ", ".join(map(str, self[kind][:NAMES])) + more
            lines.append(f"{title:<19}{len(self[kind]):>5}  {names}".rstrip())
        return "\n".join(lines)


def transfer(params: dict, donor: Mapping, rules: Sequence[Rule]) -> tuple[dict, TransferReport]:
    """Return the parameters with those of the donor in place, and a report.

    Of several rules for a parameter the one with the longest `into` counts. Embeddings of another
    vocabulary must not be transferred: another size is noticed here, one of equal size is not.
    """
    own, given = by_path(params), by_path(donor)
    check_rules(rules, own, given)
    new, report = dict(own), TransferReport({kind: [] for kind in KINDS})
    for path, value in own.items():
        source = source_of(path, rules)
        if source is None:
            report["no_rule"].append(Moved(path=path))
        elif source not in given:
            report["missing"].append(Moved(path=path, source=source))
        else:
            taken, note = match(path, value, given[source])
            kind = "wrong_shape" if taken is None else "transferred"
            report[kind].append(Moved(path=path, source=source, note=note))
            new[path] = value if taken is None else taken
    used = {moved.source for moved in report["transferred"]}
    report["unused"] = [Moved(path=path) for path in sorted(given.keys() - used)]
    return jax.tree_util.tree_map_with_path(lambda keys, _: new[path_of(keys)], params), report


def path_of(keys: tuple) -> str:
    """Return the path of a parameter, "decoder/layer/norm/scale"."""
    return jax.tree_util.keystr(keys, simple=True, separator="/")


def by_path(params: Mapping) -> dict[str, jax.Array]:
    """Return the parameters by their paths."""
    return {path_of(keys): leaf for keys, leaf in jax.tree_util.tree_leaves_with_path(params)}


def match(path: str, own: jax.Array, given: jax.Array) -> tuple[jax.Array | None, str]:
    """Return the donor's values, or None if they do not fit, and a note."""
    note = ""
    if own.shape != given.shape:
        if STACK not in path.split("/") or own.shape[1:] != given.shape[1:]:
            cause = ", another vocabulary" if "embedding" in path.split("/") else ""
            return None, f"{list(given.shape)} in the donor, {list(own.shape)} here{cause}"
        if given.shape[0] < own.shape[0]:
            return None, f"the donor has {given.shape[0]} layers, {own.shape[0]} are wanted"
        note = f"the first {own.shape[0]} of {given.shape[0]} layers"
        given = given[: own.shape[0]]
    sharding = own.sharding if isinstance(own, jax.Array) else None
    return jax.device_put(jnp.array(given, own.dtype, copy=True), sharding), note


def source_of(path: str, rules: Sequence[Rule]) -> str | None:
    """Return the donor's path of a parameter by the most specific rule."""
    speaking = [rule for rule in rules if below(path, rule.into) is not None]
    if not speaking:
        return None
    rule = max(speaking, key=lambda rule: len(rule.into.strip("/")))
    return "/".join(filter(None, (rule.source.strip("/"), below(path, rule.into))))


def check_rules(rules: Sequence[Rule], own: Mapping, given: Mapping) -> None:
    """Raise an error for a rule that matches nothing, or two with the same target."""
    into = [rule.into.strip("/") for rule in rules]
    twice = sorted({prefix for prefix in into if into.count(prefix) > 1})
    if twice:
        raise ValueError(f"Several rules fill {twice[0]!r}: leave one of them.")
    for rule in rules:
        for side, prefix, paths in (("model", rule.into, own), ("donor", rule.source, given)):
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
