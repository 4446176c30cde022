"""Train an experiment into a run directory. Mistakes are reported before anything compiles."""

import importlib.metadata
import platform
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

import data_pipelines
import simuljax
from data_pipelines.batches import Host
from data_pipelines.dataset import open_corpus, split_digest
from data_pipelines.input import TrainingInput, init_run, open_input
from simuljax.cache import enable_compilation_cache
from simuljax.config.experiment import Experiment, read_experiment
from simuljax.config.fields import ConfigError, differences, read_object, to_json, write_json
from simuljax.config.loading import code_in, source_digest
from simuljax.config.model import ENCODERS
from simuljax.lock import TRAINING, locked
from simuljax.losses.objective import check_distillation
from simuljax.models.parameters import by_path, parameter_count, shapes
from simuljax.runs.init_from import initialiser
from simuljax.train import cluster
from simuljax.train.checkpoint import CHECKPOINTS, Checkpoints
from simuljax.train.loop import Loop, TrainingRun, compile_update
from simuljax.train.run import CONFIG_FILE, ENDED, find_params
from simuljax.train.step import TrainState

# Fields that may change when a run is resumed; any other change makes it another run.
FREE = (
    *("run", "cluster", "data.directory", "data.held"),
    *("training.updates", "training.epochs", "training.parallelism", "training.patience"),
    *("training.log_every", "training.validate_every", "training.tensorboard"),
    *("training.keep_last", "training.keep_best", "training.keep_every", "training.average"),
)


def train(*experiments: Experiment, await_donors: Callable[[], None] = lambda: None) -> TrainState:
    """Train in the directory of a run, or resume there; return the last state.

    Several experiments, of one corpus and model, may differ in seeds and loss weights; those that
    stand at the same update are trained together. The runs they start from may be in training;
    `await_donors` is called when all is compiled.
    """
    first, *others = experiments
    for other in others:
        if not first.trains_like(other):
            raise ConfigError(
                f"{first.run} and {other.run} cannot be trained together: runs of one process may "
                "differ in seeds, weights of losses and first parameters alone"
            )
    *groups, last = by_last_update(experiments) if others else [experiments]
    for group in groups:
        state = train_together(group, await_donors)
        if not all((experiment.run / ENDED).exists() for experiment in group):
            return state  # interrupted
        del state  # of the devices' memory
    return train_together(last, await_donors)


def by_last_update(experiments: Sequence[Experiment]) -> list[list[Experiment]]:
    """Return the experiments in groups, by the update of their last whole checkpoint."""
    groups: dict[int | None, list[Experiment]] = {}
    for experiment in experiments:
        step = Checkpoints(experiment.run / CHECKPOINTS).whole("last")
        groups.setdefault(step, []).append(experiment)
    return [*groups.values()]


def train_together(
    experiments: Sequence[Experiment], await_donors: Callable[[], None]
) -> TrainState:
    """Train runs that stand at the same update; return the last state."""
    with cluster.ending_together(), ExitStack() as locks:
        meet(experiments)
        for experiment in experiments if cluster.is_primary() else ():
            experiment.run.mkdir(parents=True, exist_ok=True)
            locks.enter_context(locked(experiment.run, name=TRAINING))
        data = open_data(experiments)
        sized = [with_sizes(experiment, data) for experiment in experiments]
        members = [begin_run(experiment, data) for experiment in sized]
        trainings = [experiment.training for experiment in sized]
        compiled = compile_update(sized[0].model, trainings, data)
        state = Loop(members, compiled, data, await_donors).run()
    if cluster.is_primary():
        for experiment in experiments:
            print(describe_end(experiment.run), flush=True)
    return state


def meet(experiments: Sequence[Experiment]) -> None:
    """Check the experiments, and join the other hosts, which are to train the same."""
    for experiment in experiments:
        if find_params(experiment.run):
            raise ConfigError(
                f"{experiment.run} is an export, whose training cannot go on: choose another --run "
                "and begin it from this one with init_from"
            )
        check_objective(experiment)
    for directory in {directory for directory, _ in experiments[0].data.tables().values()}:
        open_corpus(directory)  # an error leaves no directory of a run
    enable_compilation_cache()
    joined = cluster.join(experiments[0].cluster)
    if jax.process_count() > 1:
        print(joined, flush=True)
    check_hosts(experiments)


def open_data(experiments: Sequence[Experiment]) -> TrainingInput:
    """Open the corpus of runs that are trained together; each keeps its vocabularies."""
    first = experiments[0]
    if cluster.is_primary():
        for experiment in experiments:
            init_run(experiment.data, experiment.run)
    cluster.wait_for_all("settled")
    cluster.at("opening the corpus")
    training, trainings = first.training, [each.training for each in experiments]
    return open_input(
        first.data,
        first.run,
        seed=training.seed if training.order is None else training.order,
        host=Host(index=jax.process_index(), count=jax.process_count()),
        devices=jax.device_count(),
        text_only=first.model.speech is None,
        transcribed=first.model.text is not None
        and (first.model.speech is None or any(t.objective.needs("text") for t in trainings)),
        decides_at=first.model.predecision.kind,
    )


def check_hosts(experiments: Sequence[Experiment]) -> None:
    """Refuse, on every process, to train with several configurations, codes or corpora."""
    if jax.process_count() == 1:
        return
    for number, experiment in enumerate(experiments):
        config = to_json(experiment)
        del config["run"], config["cluster"]  # of each host
        for name in ("directory", "text"):  # the contents count
            del config["data"][name]
        corpus = {
            f"split {split!r}, used to {role}": split_digest(directory, split)
            for role, (directory, split) in experiment.data.tables().items()
        }
        cluster.agree("configuration", config)
        cluster.agree("code", code_of(config) if number == 0 else {})
        cluster.agree("corpus", corpus)
        cluster.check_shared(experiment.run)


def code_of(config: Any) -> dict[str, Any]:
    """Return the versions and digests of all code that a training uses."""
    packages = [Path(package.__path__[0]) for package in (simuljax, data_pipelines)]
    sources = {path.name: source_digest(path) for path in packages} | code_in(config)
    return {
        "version of simuljax": simuljax.__version__,
        "version of jax": jax.__version__,
        "version of jaxlib": importlib.metadata.version("jaxlib"),
        "version of Python": ".".join(platform.python_version_tuple()[:2]),
        "default float": jax.numpy.zeros(0, float).dtype.name,
        "matmul precision": jax.config.values["jax_default_matmul_precision"],
    } | {f"source of {name}": found for name, found in sources.items()}


def check_objective(experiment: Experiment) -> None:
    """Reject losses that the model cannot compute, and a lack of the one that chooses the best."""
    model, objective = experiment.model, experiment.training.objective
    speech, chooses = model.speech, "st_nll" if model.speech else "mt_nll"
    if not any(t.name == chooses and (t.weight or t.watch) for t in objective.terms):
        raise ConfigError(
            f"{experiment.run}: the objective has no {chooses!r}, by which the best checkpoint is "
            f"chosen; add Term(name={chooses!r}, weight=0, watch=True)"
        )
    training = experiment.training
    check_distillation(objective.terms, (training.patience or 0) * training.validate_every)
    has_ctc = not speech or speech.ctc_after or speech.kind not in ENCODERS
    needs = {
        "ctc": (has_ctc, "a CTC head: set model.speech.ctc_after"),
        "transducer": (model.decoder == "caat", "model.decoder='caat'"),
        "transducer_delay": (model.decoder == "caat", "model.decoder='caat'"),
    }
    for name, (has, needed) in needs.items():
        if (weight := objective.weight(name)) and not has:
            raise ConfigError(
                f"{experiment.run}: {name} has weight {weight:g} and needs {needed}, or leave the "
                "weight at 0"
            )
    check_latency(experiment)


def check_latency(experiment: Experiment) -> None:
    """Reject a latency weight if no parameter of the model changes the delays."""
    weight, model = experiment.training.objective.weight("st_latency"), experiment.model
    if not weight or (model.decoder == "monotonic" and model.monotonic.policy == "learned"):
        return
    instead = "use transducer_delay" if model.decoder == "caat" else "leave it at 0"
    decides = "CAAT" if model.decoder == "caat" else f"policy {model.monotonic.policy!r}"
    raise ConfigError(
        f"{experiment.run}: st_latency has weight {weight:g}, but with {decides} no parameter "
        f"changes the delays; {instead}"
    )


def begin_run(experiment: Experiment, data: TrainingInput) -> TrainingRun:
    """Write config.json, and return the run with the functions that initialise it."""
    check_factors(experiment)
    begin, teach = (initialiser(experiment, data, part) for part in ("params", "teacher"))
    if cluster.is_primary():
        write_config(experiment)
        count, devices = parameter_count(experiment.model), jax.devices()
        print(
            f"run {experiment.run}: {count / 1e6:.1f} M parameters on {len(devices)} x "
            f"{devices[0].device_kind}\ncorpus {experiment.data.directory}, vocabularies of "
            f"{data.vocabularies.source.size} and {data.vocabularies.target.size} pieces\n"
            f"{data.description}",
            flush=True,
        )
    cluster.wait_for_all("recorded")
    return TrainingRun(experiment.run, experiment.training, begin, teach)


def with_sizes(experiment: Experiment, data: TrainingInput) -> Experiment:
    """Set the sizes of vocabularies and features, which the corpus decides."""
    model = replace(
        experiment.model,
        source_vocabulary=data.vocabularies.source.size,
        target_vocabulary=data.vocabularies.target.size,
        features=data.features.features.dims,
    )
    return replace(experiment, model=model)


def write_config(experiment: Experiment) -> None:
    """Write config.json; a directory that holds another experiment is rejected.

    Until it has a checkpoint, it may be another experiment on the same data.
    """
    path, run = experiment.run / CONFIG_FILE, experiment.run
    saved = any(p.name.isdecimal() for p in (run / CHECKPOINTS).glob("*"))
    free = FREE if saved else (*FREE, "model", "training", "init_from")
    config, code = to_json(experiment), code_in(to_json(experiment))
    software = {
        "simuljax": simuljax.__version__,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "code": code,
    }
    if path.exists():
        old = to_json(read_experiment(experiment.run))
        if old["data"]["text"] and config["data"]["text"]:
            free = (*free, "data.text")  # its contents are compared, not its place
        changed = [
            line
            for line in differences(old, config)
            if not any(line.startswith((f"{name} ", f"{name}.")) for name in free)
        ]
        before: Any = read_object(path).get("software", {})
        old_code = before.get("code", {}) if saved else {}
        changed += [
            f"{name} was edited" for name in code if old_code.get(name) not in (None, code[name])
        ]
        if changed:
            raise ConfigError(
                f"{experiment.run} holds another experiment: {'; '.join(changed)}. Choose another "
                "--run, or undo the change to resume this one"
            )
    write_json(path, config | {"software": software})


def describe_end(run: Path) -> str:
    """Describe the result of a training, and the next command to try."""
    checkpoints = Checkpoints(run / CHECKPOINTS)
    last = max(checkpoints.steps(), default=0)
    if not (run / ENDED).exists():
        return f"stopped after update {last}; the same command resumes"
    best = checkpoints.best()
    score = None if best is None else checkpoints.manifest(best).score
    found = "" if score is None else f", best checkpoint at {best} (validation {-score:.4g})"
    return f"trained {last} updates{found}\nnext: simuljax evaluate {run}"


def check_factors(experiment: Experiment) -> None:
    """Reject a learning-rate factor of a part that the model does not have."""
    factors = experiment.training.optimiser.factors
    paths = list(by_path(shapes(experiment.model)[0])) if factors else []
    for part in factors:
        if not any(map(part.holds, paths)):
            raise ConfigError(
                f"optimiser.factors: the model has no parameters under {part.part!r}; its parts "
                f"are {', '.join(sorted({path.split('/')[0] for path in paths}))}"
            )
