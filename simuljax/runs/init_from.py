"""Start a model from the parameters of donors: other runs, fairseq files, Whisper's encoder."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from data_pipelines.input import TrainingInput
from simuljax.config.experiment import Experiment, InitFrom
from simuljax.config.fields import ConfigError
from simuljax.models.fairseq import EMBEDDINGS as FAIRSEQ_EMBEDDINGS
from simuljax.models.fairseq import load_fairseq
from simuljax.models.parameters import by_path
from simuljax.models.whisper.config import Config
from simuljax.models.whisper.weights import dimensions_of, parameters, read_checkpoint
from simuljax.serve.run import Run, load_checkpoint, open_run, shapes
from simuljax.train import cluster
from simuljax.train.checkpoint import CHECKPOINTS, Checkpoints
from simuljax.train.transfer import Rule, check_rules, source_of, transfer

Initialise = Callable[[Any], Any]  # changes the first parameters
EMBEDDINGS = {
    "source": ("text/embedding/", "speech/ctc/"),
    "target": ("decoder/embedding/", "decoder/output/"),
}


def initialiser(
    experiment: Experiment, data: TrainingInput, part: str = "params"
) -> Initialise | None:
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
            rules = [Rule.parse(rule) for rule in init.rules]
            params, report = transfer(params, load(), rules)
            if cluster.is_primary():
                into = "" if part == "params" else f" for the {part}"
                print(f"parameters from {init.run}{into}:\n{report}", flush=True)
        return params

    return take


def open_donor(init: InitFrom, data: TrainingInput, own: Mapping[str, Any]) -> Callable[[], Any]:
    """Check an entry against the parameters `own`; return the function that loads its donor's."""
    rules = [Rule.parse(rule) for rule in init.rules]
    if init.fairseq is not None:
        given = fairseq_parameters(init, own)
        load = lambda: given  # noqa: E731
    elif init.whisper is None:
        donor = open_run(init.run)
        check_vocabularies(init, donor, data, own)
        given, load = shapes(donor.model)[0], lambda: load_checkpoint(donor, init.checkpoint).params
    else:
        given = load_whisper_encoder(init.whisper)
        load = lambda: given  # noqa: E731
    try:
        check_rules(rules, own, by_path(given))
    except ValueError as error:
        raise ConfigError(f"the rules for {init.run}: {error}") from error
    if init.whisper is not None:
        check_size(init, rules, own, by_path(given))
    return load


def load_whisper_encoder(path: Path) -> dict[str, Any]:
    """Return the encoder's parameters, in float32, of a file or directory of Whisper's weights."""
    checkpoint = read_checkpoint(path)
    config = Config(dimensions=dimensions_of(checkpoint), alignment_heads=())
    return {"encoder": parameters(checkpoint, config)["encoder"]}


def fairseq_parameters(init: InitFrom, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a file of fairseq; embeddings only if a rule names them."""
    assert init.fairseq is not None
    given = load_fairseq(init.fairseq, own)
    named = init.rules != ("",)
    given = {
        path: value for path, value in given.items() if named or path not in FAIRSEQ_EMBEDDINGS
    }
    if not any(path in own and own[path].shape == value.shape for path, value in given.items()):
        raise ConfigError(
            f"{init.run} has no parameter of a size that this model has: set width, layers and "
            "speech.channels to those of the file"
        )
    return given


def check_size(
    init: InitFrom, rules: Sequence[Rule], own: Mapping[str, Any], given: Mapping[str, Any]
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


def check_vocabularies(init: InitFrom, donor: Run, data: TrainingInput, own: Iterable[str]) -> None:
    """Reject embeddings, among the parameters `own`, that belong to another vocabulary."""
    rules = [Rule.parse(rule) for rule in init.rules]
    for side, parts in EMBEDDINGS.items():
        taken = [
            path for path in own if source_of(path, rules) is not None and path.startswith(parts)
        ]
        theirs, ours = getattr(donor, side), getattr(data.vocabularies, side)
        if taken and theirs.pieces != ours.pieces:
            raise ConfigError(
                f"{taken[0]} would come from {init.run}, which has another {side} vocabulary "
                f"({theirs.size} pieces, here {ours.size}): set --data.vocabularies-of "
                f"{init.run} in a new run, or leave {taken[0]} out of its rules"
            )
