"""Plan a grid: the runs it consists of, each named by a hash of what can change its result.

A file under experiments/ defines `GRID`, or several that share their runs in `GRIDS`. Variants
are experiments that may start from one another; those of the table are trained for every seed. The
hash covers the corpus and the runs it starts from: a finished run is never repeated, and one that
changed is another run.
"""

import fnmatch
import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from data_pipelines.dataset import SUMMARY
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import Experiment
from simuljax.config.fields import Checked, ConfigError, without_defaults
from simuljax.config.loading import code_in, load_module
from simuljax.errors import ChoiceError, unknown
from simuljax.eval.significance import Rule
from simuljax.lock import is_locked
from simuljax.report.results import Claim, Latency
from simuljax.runs.evaluate import SCORES
from simuljax.train.run import ENDED
from simuljax.train.run_log import FILE as METRICS

# Fields that cannot change a result.
WITHOUT_INFLUENCE = (
    ("run",),
    ("cluster",),
    ("data", "directory"),  # its contents count
    ("data", "held"),
    ("training", "parallelism"),
    ("training", "log_every"),
    ("training", "keep_last"),
    ("training", "keep_best"),
    ("training", "keep_every"),
    ("training", "tensorboard"),
)
HASHED = 10  # digits of the hash in a directory's name
UNNAMED = "summary"  # the folder of a grid that is alone in its folder of runs
FAILED = "failed.txt"  # in a run's directory
Stage = Literal["both", "train", "evaluate", "clock"]  # evaluate: without a clock
# trained: to be evaluated; untimed: to be evaluated in real time; blocked: a run it needs failed
State = Literal["done", "running", "failed", "trained", "untimed", "waiting", "blocked"]


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """A variant that needs no training: a model file. Its evaluations name a corpus."""

    model: Path

    @property
    def run(self) -> Path:
        """Return the directory of its results."""
        return Evaluation(run=self.model).results


@dataclass(frozen=True, kw_only=True)
class Grid(Checked):
    """A grid: the variants, the baseline and the measurements."""

    runs: Path
    variants: Mapping[str, Experiment | Pretrained]  # all that are needed, by name
    table: tuple[str, ...]  # the variants that are compared
    baseline: str  # the variant that the others are compared with
    evaluations: tuple[Evaluation, ...]  # of every run of the table; their `run` is filled in
    seeds: tuple[int, ...] = (0,)
    # Seeds differ in first values, dropout, noise and augmentation; the order of batches is that of
    # this seed for all, so that runs can be trained together. None: each has its own.
    order: int | None = 0
    # Variants that continue a variant of the table at other latencies: more points of its curve.
    curves: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Of single variants in place of `evaluations`. A cascade may continue with another variant.
    own: Mapping[str, tuple[Evaluation, ...]] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()  # judged by the rule, which is fixed before anything runs
    rule: Rule = field(default_factory=Rule)
    latency: Latency = "AL"  # of curves
    title: str = ""
    name: str = UNNAMED  # the folder of its page, beside the runs

    def __post_init__(self) -> None:
        super().__post_init__()
        named = [*self.seeded, self.baseline, *self.curves, *self.own]
        named += [variant for claim in self.claims for variant in (claim.variant, claim.over)]
        for name in named:
            if name not in self.variants:
                raise ConfigError(f"there is no variant {name!r}; there are {list(self.variants)}")
        if len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"seeds are {self.seeds}: each one once")
        if self.baseline not in self.table:
            raise ConfigError(f"the baseline {self.baseline!r} is no variant of the table")
        models = [each for each in self.variants.items() if isinstance(each[1], Pretrained)]
        for (one, first), (other, second) in itertools.combinations(models, 2):
            if first.run.name == second.run.name:
                raise ConfigError(
                    f"{one!r} ({first.model}) and {other!r} ({second.model}) would share their "
                    f"results, {first.run.name}: rename one of the files, or link it"
                )
        for variant in self.seeded:
            self._check_averages(variant)
            names = Counter(way.folder.name for way in self.evaluations_of(variant))
            if (most := names.most_common(1)) and most[0][1] > 1:
                raise ConfigError(
                    f"{most[0][1]} evaluations of {variant!r} would share their results, "
                    f"{most[0][0]}: give each a name"
                )
        for claim in self.claims:
            for variant in (claim.variant, claim.over):
                names = [way.folder.name for way in self.evaluations_of(variant)]
                if claim.evaluation not in names:
                    raise ConfigError(
                        f"the claim {claim.says!r} is about {claim.evaluation!r}, but the "
                        f"evaluations of {variant!r} are {names}: set Claim(evaluation=...)"
                    )

    def _check_averages(self, variant: str) -> None:
        """Refuse evaluations of an average that no training will have written."""
        for way in self.evaluations_of(variant):
            asked = [each for each in self.variants.values() if each.run == way.then]
            for each in [self.variants[variant], *asked]:
                averages = isinstance(each, Pretrained) or each.training.average
                if way.checkpoint == "averaged" and not averages:
                    raise ConfigError(
                        f"an evaluation of {variant!r} asks for averages of {each.run}, "
                        "whose training keeps none: set training.average there"
                    )

    @property
    def seeded(self) -> tuple[str, ...]:
        """Return the variants that are trained once for every seed, and evaluated."""
        return tuple(dict.fromkeys([*self.table, *sum(self.curves.values(), ())]))

    def evaluations_of(self, variant: str) -> tuple[Evaluation, ...]:
        """Return the evaluations of a variant, with the runs of other variants filled in."""
        return self.own.get(variant, self.evaluations) if variant in self.seeded else ()


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A run of the grid, and what its directory tells of it."""

    variant: str
    seed: int | None  # None: the variant's own, for runs that others start from
    digest: str  # a hash of everything that can change its result
    experiment: Experiment | Pretrained
    needs: tuple["Planned", ...]  # the runs it starts from
    evaluations: tuple[Evaluation, ...]

    @property
    def to_train(self) -> Experiment:
        """Return the experiment of a run that needs training."""
        assert isinstance(self.experiment, Experiment)
        return self.experiment

    @property
    def directory(self) -> Path:
        return self.experiment.run

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def is_trained(self) -> bool:
        """Return True if the training has ended, so that others can start from the run."""
        return isinstance(self.experiment, Pretrained) or (self.directory / ENDED).exists()

    def pending(self, stage: Stage = "both") -> list[Evaluation]:
        """Return the evaluations without a result: of `clock` those in real time, else the others.

        `both` stands for all of them.
        """
        left = [each for each in self.evaluations if not (each.folder / SCORES).exists()]
        return [e for e in left if stage == "both" or (e.mode == "live") == (stage == "clock")]

    @property
    def state(self) -> State:
        """Return how far it is, from its files and locks; `State` says what each means."""
        trained, pending = self.is_trained, self.pending()
        if trained and not pending:
            return "done"
        if is_locked(self.directory) or any(is_locked(each.folder) for each in pending):
            return "running"
        if (self.directory / FAILED).exists():
            return "failed"
        if trained:
            return "trained" if self.pending("evaluate") else "untimed"
        states = [need.state for need in self.needs if not need.is_trained]
        return "blocked" if {"failed", "blocked"} & set(states) else "waiting"

    @property
    def progress(self) -> str:
        """Describe how far it has come, such as "dar/0 1200/5000" or "dar/0 evaluated 1/3"."""
        name = f"{self.variant}{'' if self.seed is None else f'/{self.seed}'}"
        if self.is_trained:
            every = len(self.evaluations)
            return f"{name} evaluated {every - len(self.pending())}/{every}"
        path, training = self.directory / METRICS, self.to_train.training
        lines = path.read_bytes()[-4_000:].split(b"\n")[1:-1] if path.exists() else []
        if not lines:
            return f"{name} loads and compiles"
        steps = [re.search(rb'"step": *(\d+)', line) for line in lines]
        last = max((int(step[1]) for step in steps if step), default=0)
        return f"{name} {last}{'' if training.epochs else f'/{training.updates}'}"


def load_grid(path: Path, name: str | None = None) -> Grid:
    """Load the grid of a file; of several, the one of this name."""
    module = load_module(path)
    several = getattr(module, "GRIDS", {})
    if several and name not in several:
        what = "say which one" if name is None else unknown(name, several)
        raise ChoiceError(f"{path} has the grids {', '.join(several)}: {what} (--grid)")
    if not several and name is not None:
        raise ChoiceError(f"{path} has one grid, and that has no name: leave --grid {name} out")
    grid = several[name] if several else getattr(module, "GRID", None)
    if not isinstance(grid, Grid):
        raise ConfigError(f"{path} defines no GRID: see simuljax/ablate/grid.py")
    return grid


class MissingError(ConfigError):
    """A corpus or a model of the grid that does not exist."""


def plan(grid: Grid, wanted: Collection[str] | None = None) -> list[Planned]:
    """Return every run of the grid, each after those it starts from.

    Runs whose corpus or model is missing are left out, unless a wanted variant needs it; by default
    all variants are wanted.
    """
    planned: dict[str, Planned] = {}
    missing: MissingError | None = None
    for variant in grid.seeded:
        try:
            for seed in grid.seeds:
                _plan(grid, variant, seed, planned)
        except MissingError as error:
            if wanted is None or variant in wanted:
                raise
            missing = error
    if missing is not None and not {*(wanted or ())} <= {run.variant for run in planned.values()}:
        raise missing
    return list(planned.values())


def missing(grid: Grid) -> dict[str, str]:
    """Return the variants whose runs have no name yet, with what is missing: it is part of that."""
    found = {}
    for variant in grid.seeded:
        try:
            _plan(grid, variant, grid.seeds[0], {})
        except MissingError as error:
            found[variant] = str(error)
    return found


def _plan(grid: Grid, variant: str, seed: int, planned: dict[str, Planned]) -> Planned:
    """Plan the run of a variant after those it starts from."""
    experiment, own = grid.variants[variant], seed if variant in grid.seeded else None
    if isinstance(experiment, Pretrained):
        if not experiment.model.exists():
            raise MissingError(f"variant {variant!r}: {experiment.model} does not exist")
        ways = tuple(replace(way, run=experiment.model) for way in grid.evaluations_of(variant))
        once = Planned(
            variant=variant, seed=own, digest="", experiment=experiment, needs=(), evaluations=ways
        )
        return planned.setdefault(once.name, once)
    if own is not None:
        # Runs that are trained together need threefry's random numbers.
        random = experiment.training.random if grid.order is None else "threefry"
        training = replace(experiment.training, seed=own, order=grid.order, random=random)
        experiment = replace(experiment, training=training)
    by_run = {str(each.run): name for name, each in grid.variants.items()}
    named = [begin.run for begin in experiment.init_from]
    named += [v for v in [experiment.data.vocabularies_of] if v is not None]
    named += [way.then for way in grid.evaluations_of(variant) if way.then is not None]
    needs = {
        str(run): _plan(grid, by_run[str(run)], seed, planned)
        for run in named
        if str(run) in by_run
    }
    place = {run: need.directory for run, need in needs.items()}
    digest = _digest(experiment, {run: need.digest for run, need in needs.items()})
    name = "-".join([variant, *([] if own is None else [f"seed{own}"]), digest[:HASHED]])
    moved = replace(_moved(experiment, place), run=grid.runs / name)
    each = Planned(
        variant=variant,
        seed=own,
        digest=digest,
        experiment=moved,
        needs=tuple(needs.values()),
        evaluations=tuple(
            replace(way, run=moved.run, then=place.get(str(way.then), way.then))
            for way in grid.evaluations_of(variant)
        ),
    )
    return planned.setdefault(name, each)


def select(
    grid: Grid,
    *,
    variants: Sequence[str] = (),
    seeds: Sequence[int] = (),
    only: Sequence[str] = (),
    publish: bool = False,
    listing: bool = False,
) -> tuple[list[Planned], list[Planned]]:
    """Return the runs of the grid and the part of them to work on; by default all.

    A part has the runs of some variants (patterns) and seeds with those they start from, or `only`
    the runs of these names. Corpora of other variants may be missing, but not when it publishes;
    all may where runs are only listed.
    """
    wanted = None
    if only and not publish:
        wanted = {v for v in grid.variants if any(name.startswith(f"{v}-") for name in only)}
    elif variants and not publish:
        wanted = {v for each in variants for v in fnmatch.filter(grid.variants, each)}
    elif listing:
        wanted = set()
    runs = plan(grid, wanted)
    by_name = {run.name: run for run in runs}
    known = [*dict.fromkeys(run.variant for run in runs)]
    known_seeds = [*dict.fromkeys(run.seed for run in runs if run.seed is not None)]
    for name in only:
        if name not in by_name:
            names = ", ".join(by_name)
            raise ChoiceError(f"--only: {unknown(name, by_name)} (the grid has {names})")
    for variant in variants:
        if not fnmatch.filter(known, variant):
            names = ", ".join(known)
            raise ChoiceError(f"--variants: {unknown(variant, known)} (the grid has {names})")
    for seed in seeds:
        if seed not in known_seeds:
            names = ", ".join(map(str, known_seeds))
            raise ChoiceError(f"--seeds: there is no {seed} (the grid has {names})")
    if only:
        return runs, [by_name[name] for name in only]
    asked = {name for variant in variants or known for name in fnmatch.filter(known, variant)}
    part = {
        each.name
        for run in runs
        if run.variant in asked and (not seeds or run.seed in (None, *seeds))
        for each in with_needs(run)
    }
    return runs, [run for run in runs if run.name in part]


def with_needs(run: Planned) -> list[Planned]:
    """Return the run and everything that it starts from."""
    return [run, *(each for need in run.needs for each in with_needs(need))]


def _moved(experiment: Experiment, runs: Mapping[str, Path]) -> Experiment:
    """Replace the runs that an experiment starts from by those of the grid."""
    init_from = tuple(replace(b, run=runs.get(str(b.run), b.run)) for b in experiment.init_from)
    given = experiment.data.vocabularies_of
    data = replace(experiment.data, vocabularies_of=runs.get(str(given), given))
    return replace(experiment, init_from=init_from, data=data)


def _digest(experiment: Experiment, digests: Mapping[str, str]) -> str:
    """Hash an experiment, with the hashes of runs and corpora in place of their paths.

    Defaults are left out, so that a release with new fields finds the runs of an older one.
    """
    config: Any = without_defaults(experiment)
    for path in WITHOUT_INFLUENCE:
        parent = config
        for name in path[:-1]:
            parent = parent.get(name, {})
        parent.pop(path[-1], None)
    for begin in config.get("init_from", []):
        begin["run"] = digests.get(begin["run"], begin["run"])
    config.setdefault("data", {})
    given = config["data"].get("vocabularies_of")
    config["data"]["vocabularies_of"] = digests.get(str(given), given)
    config["data"]["contents"] = contents(experiment.data.directory)
    if experiment.data.text is not None:
        config["data"]["text"] = contents(experiment.data.text)
    text = json.dumps(config, sort_keys=True)
    for path, code in code_in(config).items():
        text = text.replace(f'"{path}:', f'"{code}:')
    return hashlib.sha256(text.encode()).hexdigest()


def contents(corpus: Path) -> str:
    """Hash the summary of a prepared corpus, which says how it was made and how large it is."""
    path = corpus / SUMMARY
    if not path.exists():
        raise MissingError(
            f"{corpus} holds no prepared corpus: build it first (simuljax prepare or speak, with "
            "--distil for one of a teacher's translations; the head of the file has the commands)"
        )
    return hashlib.sha256(path.read_bytes()).hexdigest()
