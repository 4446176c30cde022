"""`simuljax train`: from an experiment to a trained run. What is wrong is said before compiling."""

import dataclasses
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import jax
from jax.experimental import multihost_utils

from data_pipelines.batches import Host
from data_pipelines.input import TrainingInput, init_run, open_input
from simuljax import __version__
from simuljax.cache import enable_compilation_cache
from simuljax.config.experiment import Experiment, InitFrom, read_experiment
from simuljax.config.fields import ConfigError
from simuljax.config.json import differences, to_json, write_json
from simuljax.serve.run import CONFIG_FILE, Run, learnt, open_run, parameter_count, shapes
from simuljax.text import Words
from simuljax.train import cluster
from simuljax.train.checkpoint import CHECKPOINTS, Checkpoints
from simuljax.train.loop import Data, alike, compile_ahead, fit, fit_together
from simuljax.train.member import Member
from simuljax.train.step import TrainState
from simuljax.train.transfer import Rule, by_path, check_rules, source_of, transfer

# What may change when a run goes on; everything else makes it another run.
FREE = (
    "run",
    "cluster",
    "data.directory",
    "data.held",
    "training.updates",
    "training.epochs",
    "training.parallelism",
    "training.log_every",
    "training.validate_every",
    "training.patience",
    "training.keep_last",
    "training.keep_best",
    "training.keep_every",
    "training.average",
    "training.tensorboard",
    "software",
)
EMBEDDINGS = {
    "source": ("text/embedding/", "speech/ctc/"),
    "target": ("decoder/embedding/", "decoder/output/"),
}


def train(experiment: Experiment) -> TrainState:
    """Trains, or goes on training, in the experiment's run directory."""
    fed = opened([experiment])
    experiment, begin = recorded(experiment, fed)
    return fit(experiment.run, experiment.model, experiment.training, data_of(fed), begin=begin)


def train_together(experiments: Sequence[Experiment]) -> None:
    """Trains runs of one corpus and one model, which differ in seeds and weights of losses."""
    fed = opened(experiments)
    ready = [recorded(experiment, fed) for experiment in experiments]
    members = [Member(experiment.run, experiment.training, begin) for experiment, begin in ready]
    fit_together(members, ready[0][0].model, data_of(fed))


def compile_together(experiments: Sequence[Experiment]) -> None:
    """What training them will compile, for the cache on disk; donors need only have begun."""
    fed = opened(experiments)
    ready = [filled(experiment, fed) for experiment in experiments]
    compile_ahead(ready[0].model, [each.training for each in ready], data_of(fed))


def can_be_together(one: Experiment, other: Experiment) -> bool:
    """Whether one compiled update serves both, and the same batches do."""
    same = replace(other, run=one.run, init_from=one.init_from, training=one.training)
    return same == one and alike(one.training) == alike(other.training)


def opened(experiments: Sequence[Experiment]) -> TrainingInput:
    """The corpus that all of them are fed, with the files that each run keeps of it in place."""
    for experiment in experiments:
        check_latency(experiment)
    enable_compilation_cache()
    first = experiments[0]
    cluster.join(first.cluster)
    if cluster.is_primary():
        for experiment in experiments:
            init_run(experiment.data, experiment.run)
    wait_for_all("settled")
    training = first.training
    return open_input(
        first.data,
        first.run,
        seed=training.seed if training.order is None else training.order,
        host=Host(index=jax.process_index(), count=jax.process_count()),
        devices=jax.device_count(),
        text_only=first.model.speech is None,
    )


def check_latency(experiment: Experiment) -> None:
    """Refuses a weight on delays that no parameter has an influence on."""
    joint, model = experiment.training.objective.joint, experiment.model
    if not joint.latency or (model.decoder == "monotonic" and model.monotonic.policy == "learnt"):
        return
    instead = "use transducer_delay" if model.decoder == "caat" else "leave it at 0"
    decides = "CAAT" if model.decoder == "caat" else f"policy {model.monotonic.policy!r}"
    raise ConfigError(
        f"{experiment.run}: latency is {joint.latency:g}, and with {decides} no parameter changes "
        f"the delays that it would shorten: {instead}"
    )


def recorded(
    experiment: Experiment, fed: TrainingInput
) -> tuple[Experiment, Callable[[Any], Any] | None]:
    """The experiment with all its sizes, written down, and how its first parameters are made."""
    experiment = filled(experiment, fed)
    begin = beginning(experiment, fed)
    if cluster.is_primary():
        record(experiment)
        print(describe(experiment, fed), flush=True)
    wait_for_all("recorded")
    return experiment, begin


def data_of(fed: TrainingInput) -> Data:
    """What the loop needs of it."""
    return Data(
        train=fed.train,
        valid=fed.valid,
        steps_per_epoch=fed.steps_per_epoch,
        heard=fed.features,
        words=Words.of(fed.vocabularies.source, fed.vocabularies.target),
        shapes=fed.shapes,
    )


def wait_for_all(name: str) -> None:
    """Returns when every process has come here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def filled(experiment: Experiment, fed: TrainingInput) -> Experiment:
    """The experiment with the sizes that only its corpus knows."""
    model = dataclasses.replace(
        experiment.model,
        source_vocabulary=fed.vocabularies.source.size,
        target_vocabulary=fed.vocabularies.target.size,
        features=fed.features.features.dims,
    )
    objective = dataclasses.replace(experiment.training.objective, features=fed.features.features)
    training = dataclasses.replace(experiment.training, objective=objective)
    return dataclasses.replace(experiment, model=model, training=training)


def record(experiment: Experiment) -> None:
    """Writes config.json; what is there already must be the same experiment."""
    path = experiment.run / CONFIG_FILE
    new = to_json(experiment) | {
        "software": {
            "simuljax": __version__,
            "jax": jax.__version__,
            "python": platform.python_version(),
        }
    }
    if path.exists():
        old = to_json(read_experiment(experiment.run))
        changed = [
            line
            for line in differences(old, new)
            if not any(line.startswith((f"{name} ", f"{name}.")) for name in FREE)
        ]
        if changed:
            raise ConfigError(
                f"{experiment.run} is another run: {'; '.join(changed)}. Choose another --run, "
                "or take the change back to go on with this one"
            )
    write_json(path, new)


def describe(experiment: Experiment, fed: TrainingInput) -> str:
    """What is about to be trained on what."""
    devices = jax.devices()
    return "\n".join(
        [
            f"run {experiment.run}: {parameter_count(experiment.model) / 1e6:.1f} M parameters on "
            f"{len(devices)} x {devices[0].device_kind}",
            f"corpus {experiment.data.directory}, vocabularies of "
            f"{fed.vocabularies.source.size} and {fed.vocabularies.target.size} pieces",
            fed.description,
        ]
    )


def beginning(experiment: Experiment, fed: TrainingInput) -> Callable[[Any], Any] | None:
    """How the first parameters are made from other runs', checked before anything is compiled."""
    if not experiment.init_from or Checkpoints(experiment.run / CHECKPOINTS).steps():
        return None  # or it goes on from its own
    donors = [(begin, open_run(begin.run)) for begin in experiment.init_from]
    own = by_path(shapes(experiment.model)[0])
    for begin, donor in donors:
        check_vocabularies(begin, donor, fed, own)
        try:
            check_rules([Rule.parse(r) for r in begin.rules], own, by_path(shapes(donor.model)[0]))
        except ValueError as error:
            raise ConfigError(f"the rules for {begin.run}: {error}") from error

    def take(params: Any) -> Any:
        for begin, donor in donors:
            given = learnt(donor, begin.checkpoint).params
            rules = [Rule.parse(rule) for rule in begin.rules]
            params, report = transfer(params, given, rules)
            if cluster.is_primary():
                print(f"parameters from {begin.run}:\n{report}", flush=True)
        return params

    return take


def check_vocabularies(begin: InitFrom, donor: Run, fed: TrainingInput, own: Iterable[str]) -> None:
    """Refuses to take embeddings, among the parameters `own`, that belong to other pieces."""
    rules = [Rule.parse(rule) for rule in begin.rules]
    for side, parts in EMBEDDINGS.items():
        taken = [
            path for path in own if source_of(path, rules) is not None and path.startswith(parts)
        ]
        theirs, ours = getattr(donor, side), getattr(fed.vocabularies, side)
        if taken and theirs.pieces != ours.pieces:
            raise ConfigError(
                f"{taken[0]} would come from {begin.run}, whose {side} vocabulary is another one "
                f"({theirs.size} pieces, here {ours.size}): set --data.vocabularies-of "
                f"{begin.run} in a new run, or leave {taken[0]} out of its rules"
            )
