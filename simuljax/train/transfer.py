"""Start a model from parameters of another.

A rule says which part of a donor goes into which part of the model. What does not fit is left as it
was initialised, and the report says so; only a stack of layers takes the first of a deeper donor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from simuljax.models.parameters import by_path, path_of

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
