"""Start a model from parameters of others: other runs, fairseq files, Whisper's encoder.

A rule says which part of a donor goes into which part of the model: "decoder/ <- speech/", or
"speech/" where both have one name; "" is everything. What does not fit is left as it was
initialised, and a table says so; only a stack of layers takes the first of a deeper donor.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from data_pipelines.input import TrainingInput
from simuljax.config.experiment import Experiment, InitFrom
from simuljax.config.fields import ConfigError
from simuljax.models.fairseq import EMBEDDINGS as FAIRSEQ_EMBEDDINGS
from simuljax.models.fairseq import load_fairseq
from simuljax.models.parameters import by_path, path_of, shapes
from simuljax.models.whisper.config import Config
from simuljax.models.whisper.weights import dimensions_of, parameters, read_checkpoint
from simuljax.train import cluster
from simuljax.train.checkpoint import CHECKPOINTS, Checkpoints
from simuljax.train.run import Run, load_checkpoint, open_run
from simuljax.train.step import Initialise

EMBEDDINGS = {
    "source": ("text/embedding/", "speech/ctc/"),
    "target": ("decoder/embedding/", "decoder/output/"),
}
STACK = "layer"  # below this name, parameters have a leading axis of layers
NAMES = 3  # parameters that the table names of each kind
KINDS = {  # of outcomes
    "transferred": "transferred",
    "wrong_shape": "left: other shape",
    "missing": "left: not in donor",
    "no_rule": "left: no rule",
    "unused": "unused of donor",
}


def initialiser(experiment: Experiment, data: TrainingInput, part: str = "params") -> Initialise:
    """Return the function that takes parameters from other runs, after checking its rules."""
    entries = [init for init in experiment.init_from if init.fills == part]
    if part == "teacher" and entries and experiment.training.objective.teacher is None:
        raise ConfigError(
            f"{entries[0].run} would fill DAR's teacher, and this objective has none: set "
            "DAR's option teacher to 'averaged' or 'frozen', or leave that entry of init_from out"
        )
    if not entries or Checkpoints(experiment.run / CHECKPOINTS).steps():
        return None  # a run with checkpoints resumes
    own = by_path(shapes(experiment.model)[0])
    donors = [(init, open_donor(init, data, own)) for init in entries]

    def take(params: Any) -> Any:
        for init, load in donors:
            params, report = transfer(params, load(), init.rules)
            if cluster.is_primary():
                into = "" if part == "params" else f" for the {part}"
                print(f"parameters from {init.run}{into}:\n{table(report)}", flush=True)
        return params

    return take


def open_donor(init: InitFrom, data: TrainingInput, own: Mapping[str, Any]) -> Callable[[], Any]:
    """Check an entry against the parameters `own`; return the function that loads its donor's."""
    donor = None
    if init.fairseq is not None:
        given = fairseq_parameters(init, own)
    elif init.whisper is not None:
        given = load_whisper_encoder(init.whisper)
    else:
        donor = open_run(init.run)
        given = shapes(donor.model)[0]
    try:
        rules = check_rules(init.rules, own, by_path(given))
    except ValueError as error:
        raise ConfigError(f"the rules for {init.run}: {error}") from error
    if donor is not None:
        check_vocabularies(init, rules, donor, data, own)
    if init.whisper is not None:
        check_size(init, rules, own, by_path(given))
    return lambda: given if donor is None else load_checkpoint(donor, init.checkpoint).params


def load_whisper_encoder(path: Path) -> dict[str, Any]:
    """Return the encoder's parameters, in float32, of a file or directory of Whisper's weights."""
    checkpoint = read_checkpoint(path)
    config = Config(dimensions=dimensions_of(checkpoint), alignment_heads=())
    return {"encoder": parameters(checkpoint, config)["encoder"]}


def fairseq_parameters(init: InitFrom, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a file of fairseq; embeddings only if a rule names them."""
    assert init.fairseq is not None
    given = load_fairseq(init.fairseq, own)
    if init.rules == ("",):
        given = {path: v for path, v in given.items() if path not in FAIRSEQ_EMBEDDINGS}
    if not any(path in own and own[path].shape == value.shape for path, value in given.items()):
        raise ConfigError(
            f"{init.run} has no parameter of a size that this model has: set width, layers and "
            "speech.channels to those of the file"
        )
    return given


def check_size(
    init: InitFrom, rules: Mapping[str, str], own: Mapping[str, Any], given: Mapping[str, Any]
) -> None:
    """Reject a Whisper that would leave parameters of the encoder as they were initialised."""
    for path, value in own.items():
        source = source_of(path, rules)
        if source is None:
            continue
        found = given[source].shape if source in given else None
        if found != value.shape:
            raise ConfigError(
                f"{init.run} has {'none' if found is None else list(found)} where {path} is "
                f"{list(value.shape)}: it is of another size; set speech.size to that of the file"
            )


def check_vocabularies(
    init: InitFrom,
    rules: Mapping[str, str],
    donor: Run,
    data: TrainingInput,
    own: Collection[str],
) -> None:
    """Reject embeddings, among the parameters `own`, that belong to another vocabulary."""

    def side_of(path: str) -> str | None:
        return next((side for side, parts in EMBEDDINGS.items() if path.startswith(parts)), None)

    for path in own:
        side, source = side_of(path), source_of(path, rules)
        if side is None or source is None:
            continue
        given = side_of(source) or side
        theirs, ours = getattr(donor, given), getattr(data.vocabularies, side)
        if theirs.pieces != ours.pieces:
            raise ConfigError(
                f"{path} would come from {source} of {init.run}, whose {given} vocabulary is not "
                f"the {side} vocabulary here ({theirs.size} pieces, here {ours.size}): set "
                f"--data.vocabularies-of {init.run} in a new run, or leave {path} out of its rules"
            )


def transfer(
    params: dict, donor: Mapping, rules: Sequence[str]
) -> tuple[dict, Mapping[str, Sequence[str]]]:
    """Return the parameters with those of the donor in place, and the fate of each by its kind.

    Of several rules for a parameter the most specific counts. Embeddings of another vocabulary must
    not be transferred: another size is noticed here, one of equal size is not.
    """
    own, given = by_path(params), by_path(donor)
    parsed = check_rules(rules, own, given)
    new, used, report = dict(own), set(), {kind: [] for kind in KINDS}
    for path, value in own.items():
        source = source_of(path, parsed)
        shown = path if source in (None, path) else f"{path} <- {source}"
        if source is None:
            report["no_rule"].append(shown)
        elif source not in given:
            report["missing"].append(shown)
        else:
            taken, note = match(path, value, given[source])
            kind = "wrong_shape" if taken is None else "transferred"
            report[kind].append(f"{shown} ({note})" if note else shown)
            if taken is not None:
                new[path] = taken
                used.add(source)
    report["unused"] = sorted(given.keys() - used)
    return jax.tree_util.tree_map_with_path(lambda keys, _: new[path_of(keys)], params), report


def table(report: Mapping[str, Sequence[str]]) -> str:
    """Return a line for each kind of outcome: how many parameters, and the first of them."""
    lines = []
    for kind, title in KINDS.items():
        paths = report[kind]
        more = f", and {len(paths) - NAMES} more" if len(paths) > NAMES else ""
        lines.append(f"{title:<19}{len(paths):>5}  {', '.join(paths[:NAMES])}{more}".rstrip())
    return "\n".join(lines)


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


def check_rules(
    rules: Sequence[str], own: Collection[str], given: Collection[str]
) -> dict[str, str]:
    """Return the part of the donor for each part of the model that is filled.

    Raise an error if a rule matches none of the parameters with these paths.
    """
    parsed: dict[str, str] = {}
    for rule in rules:
        into, _, source = (piece.strip().strip("/") for piece in rule.partition("<-"))
        if into in parsed:
            raise ValueError(f"Several rules fill {into!r}: leave one of them.")
        parsed[into] = source or into
    for side, prefixes, paths in (("model", parsed, own), ("donor", parsed.values(), given)):
        for prefix in prefixes:
            if all(below(path, prefix) is None for path in paths):
                raise ValueError(
                    f"The {side} has no parameters under {prefix!r}; under its parts "
                    f"{sorted({path.split('/')[0] for path in paths})} are, for example, "
                    f"{sorted(paths)[:NAMES]}."
                )
    return parsed


def source_of(path: str, rules: Mapping[str, str]) -> str | None:
    """Return the donor's path of a parameter by the most specific rule; None without a rule."""
    into = max((into for into in rules if below(path, into) is not None), key=len, default=None)
    if into is None:
        return None
    return "/".join(filter(None, (rules[into], below(path, into))))


def below(path: str, prefix: str) -> str | None:
    """Return the rest of a path under a prefix of whole names; None if it is elsewhere."""
    if not prefix or path == prefix:
        return "" if path == prefix else path
    return path[len(prefix) + 1 :] if path.startswith(f"{prefix}/") else None
