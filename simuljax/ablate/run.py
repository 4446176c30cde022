"""Run a grid: train and evaluate its runs, several at a time, and write and publish its page.

Every run is a process of its own, `simuljax ablate FILE --only NAME`, on this machine or in a job
of a cluster. It holds a lock on its directory, so nothing is trained twice at a time. What a killed
process has done is kept, and the next call resumes it. A failed run keeps its error; runs that need
it are not started, the others are.

With several workers, other processes evaluate what was trained, so that runs which start from it
need not wait. Evaluations in real time come last, one at a time: nothing else of the grid may take
their computing time. Idle workers compile runs whose predecessor is still being trained. Runs that
differ only in seeds and loss weights can share a process and a compiled update (`--together`).

A published grid is experiments/results/NAME/, see simuljax/report/results.py. NAME is that of the
runs' folder, with the grid's own after it where several grids share the folder.
"""

import fnmatch
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro
from tqdm import tqdm

from simuljax.ablate import launchers
from simuljax.ablate.grid import UNNAMED, Grid, Planned, Pretrained, evaluations_of, plan
from simuljax.ablate.launchers import Jobs, Process
from simuljax.ablate.scheduler import Task, next_tasks, progress, state_of, to_compile, to_evaluate
from simuljax.ablate.worker import (
    FAILED,
    Stage,
    check_all_data,
    is_trained,
    lacking,
    work,
)
from simuljax.config.experiment import CONFIG_FILE, read_experiment
from simuljax.config.fields import ConfigError
from simuljax.errors import ChoiceError, unknown
from simuljax.report.collect import Evaluated, gather
from simuljax.report.grid_page import write_grid_page, write_published_page
from simuljax.report.page import Table, make_table
from simuljax.report.results import (
    GridInfo,
    PublishedRun,
    Results,
    read_evaluation,
    read_run,
    write_results,
)
from simuljax.report.variants import Variant, make_variant
from simuljax.runs.evaluate import SCORES
from simuljax.serve.run import parameter_count
from simuljax.train.lock import is_locked
from simuljax.train.run_log import duration

LOGS = "instances*.log"  # several where the clock was measured more than once
OUTPUT = "output.log"  # in a run's directory
SHOWN = 2_000  # characters of a failed run's output
POLL_S, REFRESH_S = 0.5, 30.0  # of the progress line: on a terminal, and in a log


@dataclass(frozen=True, kw_only=True)
class AblateOptions:
    """Choose a grid, and how many of its runs to work on at a time."""

    file: Annotated[Path, tyro.conf.Positional]
    """A Python file that defines GRID, like experiments/zaidi2022/demo_grid.py."""
    grid: str | None = None
    """Name of the grid, if the file defines several in GRIDS."""
    workers: int = 1
    """Runs at a time on this machine; they share its devices."""
    together: int = 1
    """Runs per process, if they differ only in seeds and loss weights."""
    variants: tuple[str, ...] = ()
    """Only these variants ('dar_*' for several), and the runs they start from."""
    seeds: tuple[int, ...] = ()
    """Only these seeds."""
    jobs: Jobs = field(default_factory=Jobs)
    only: tuple[str, ...] = ()
    """Train and evaluate this run, or these together, in this process."""
    stage: Stage = "both"
    """With --only: compile, train, evaluate without a clock, or evaluate in real time."""
    list: bool = False
    """List the runs of the grid with their states."""
    report: bool = False
    """Train and evaluate nothing: write the summary from the results so far."""
    publish: bool = False
    """Write the page, the scores, the curves and the logs to experiments/results/NAME."""

    def __post_init__(self) -> None:
        for option, count in (("workers", self.workers), ("together", self.together)):
            if count < 1:
                raise ChoiceError(f"--{option} {count}: say 1 or more")

    @property
    def command(self) -> str:
        """Return the command that runs the grid."""
        return f"simuljax ablate {self.file}" + (f" --grid {self.grid}" if self.grid else "")


def ablate(options: AblateOptions, grid: Grid) -> None:
    """Work on the grid or a part of it, or list it; the summary covers every result there is."""
    runs = plan(grid, wanted_of(options, grid))
    part = part_of(runs, options.variants, options.seeds)
    if options.list:
        print("\n".join(f"{state_of(run, grid):8} {run.name}" for run in part))
        return
    if options.only:
        work([the_one(runs, name) for name in options.only], grid, options.stage)
        return
    check_all_data(runs, grid)
    if not options.report:
        run_all(options, grid, part)
    if any((run.experiment.run / "eval").exists() for run in runs):
        print(f"summary: {write_summary(grid, runs, options.command)}")
    elif options.report or options.publish:
        raise ConfigError(f"{grid.runs} holds no evaluation of this grid")
    if options.publish:
        where = Path("experiments") / "results"
        print(f"published: {publish(grid, runs, where, options.command)}")
    failed = [] if options.report else [r for r in part if state_of(r, grid) == "failed"]
    if failed:
        raise ConfigError(
            f"{len(failed)} of {len(part)} runs failed; see {FAILED} in their directories"
        )


def wanted_of(options: AblateOptions, grid: Grid) -> set[str] | None:
    """Return the variants that the options name; None stands for all, as for what is published."""
    if options.publish:
        return None
    if options.only:
        return {v for v in grid.variants if any(run.startswith(f"{v}-") for run in options.only)}
    found = {v for each in options.variants for v in fnmatch.filter(grid.variants, each)}
    return found if options.variants else None


def part_of(
    runs: Sequence[Planned], variants: Sequence[str], seeds: Sequence[int]
) -> Sequence[Planned]:
    """Return the runs of these variants and seeds, and the runs they start from; all by default."""
    known = [*dict.fromkeys(run.variant for run in runs)]
    for variant in variants:
        if not fnmatch.filter(known, variant):
            raise ChoiceError(
                f"--variants: {unknown(variant, known)} (the grid has {', '.join(known)})"
            )
    known_seeds = [*dict.fromkeys(run.seed for run in runs if run.seed is not None)]
    for seed in seeds:
        if seed not in known_seeds:
            names = ", ".join(map(str, known_seeds))
            raise ChoiceError(f"--seeds: there is no {seed} (the grid has {names})")
    asked = {name for variant in variants or known for name in fnmatch.filter(known, variant)}
    part = {
        each.name
        for run in runs
        if run.variant in asked and (not seeds or run.seed in (None, *seeds))
        for each in with_needs(run)
    }
    return [run for run in runs if run.name in part]


def with_needs(run: Planned) -> list[Planned]:
    """Return the run and everything that it starts from."""
    return [run, *(each for need in run.needs for each in with_needs(need))]


def the_one(runs: Sequence[Planned], name: str) -> Planned:
    """Return the run of this name."""
    names = [run.name for run in runs]
    if name not in names:
        raise ChoiceError(f"--only: {unknown(name, names)} (the grid has {', '.join(names)})")
    return runs[names.index(name)]


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A process and its task."""

    task: Task
    process: Process


def run_all(options: AblateOptions, grid: Grid, runs: Sequence[Planned]) -> None:
    """Keep the workers busy until nothing is left, show the progress, and print what failed."""
    for run in runs:
        (run.experiment.run / FAILED).unlink(missing_ok=True)  # tried again
    began, local = time.monotonic(), options.jobs.engine == "none"
    compiled: set[str] = set()  # or about to be
    with (
        tqdm(total=len(runs), unit="run", desc=options.file.stem, smoothing=0.0) as bar,
        stopped_with_us() as working,
    ):
        while True:
            collect(working)
            states = {run.name: state_of(run, grid) for run in runs}
            show(bar, runs, states, grid)
            tasks = next_tasks(
                runs,
                states,
                [each.task for each in working],
                {run.name: to_evaluate(run, grid) for run in runs},
                workers=options.workers,
                together=options.together,
            )
            if local:  # a job would wait for a device, and its node may have another cache
                idle = options.workers - len(working) - len(tasks)
                at_work = [*(each.task for each in working), *tasks]
                ahead = to_compile(runs, states, at_work, compiled, options.together)[:idle]
                compiled |= {run.name for task in ahead for run in task.runs}
                tasks += ahead
            working += [start(options, task) for task in tasks]
            if not working and "running" not in states.values():
                break
            time.sleep(POLL_S)
    print(describe(runs, grid, time.monotonic() - began))


def show(bar: tqdm, runs: Sequence[Planned], states: Mapping[str, str], grid: Grid) -> None:
    """Show the runs that are done, the progress of those that run, and the time."""
    if bar.disable:  # by TQDM_DISABLE; it has no fields then
        return
    bar.n = sum(state == "done" for state in states.values())
    running = [progress(run, grid) for run in runs if states[run.name] == "running"]
    text = ", ".join(running)
    due = bar.fp.isatty() or time.time() - bar.last_print_t > REFRESH_S
    changed = (bar.n, text) != (bar.last_print_n, bar.postfix or "")
    if due or changed:
        bar.set_postfix_str(text)
        bar.last_print_n, bar.last_print_t = bar.n, time.time()


@contextmanager
def stopped_with_us() -> Iterator[list[Worker]]:
    """Hold processes that are stopped when this one is; trainings save their state first."""
    working: list[Worker] = []
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield working
    finally:
        for each in working:
            each.process.terminate()
        for each in working:
            each.process.wait()
        signal.signal(signal.SIGTERM, before)


def start(options: AblateOptions, task: Task) -> Worker:
    """Start the task in a process of its own; its output goes to the first run's directory."""
    for run in task.runs:
        run.experiment.run.mkdir(parents=True, exist_ok=True)
    names = [run.name for run in task.runs]
    command = launchers.simuljax_command("ablate", str(options.file), "--only", *names)
    command += ["--stage", task.stage]
    command += ["--grid", options.grid] if options.grid else []
    output = task.runs[0].experiment.run / OUTPUT
    shared = options.workers > 1
    process = launchers.start(options.jobs, command, output, names[0], shared=shared)
    return Worker(task=task, process=process)


def collect(working: list[Worker]) -> None:
    """Remove processes that have ended; write the error of those that failed without one."""
    for each in [each for each in working if each.process.poll() is not None]:
        working.remove(each)
        explained = any((run.experiment.run / FAILED).exists() for run in each.task.runs)
        explained = explained or each.task.stage == "compile"  # training will meet the same error
        if each.process.returncode and not explained:
            error = _error_of(each)
            for run in [run for run in each.task.runs if not is_locked(run.experiment.run)]:
                (run.experiment.run / FAILED).write_text(error, "utf-8")


def _error_of(worker: Worker) -> str:
    """Return the exit status of a process and the end of its output."""
    output, status = worker.task.runs[0].experiment.run / OUTPUT, worker.process.returncode or 0
    tail = output.read_text(errors="replace")[-SHOWN:].strip() if output.exists() else ""
    tail = tail or "no output: did the job start?"
    if status < 0:
        tail += f"\nkilled by signal {-status}"
        tail += " (out of memory?)" if status == -signal.SIGKILL else ""
    elif "RESOURCE_EXHAUSTED" in tail:
        tail += "\nout of device memory: lower --together or --workers"
    return f"exit {status}\n{tail}"


def describe(runs: Sequence[Planned], grid: Grid, seconds: float) -> str:
    """Describe what is done, what failed and why, and what was not run."""
    states = {run.name: state_of(run, grid) for run in runs}
    done = sum(state == "done" for state in states.values())
    lines = [f"{done} of {len(runs)} runs are done, after {duration(seconds)}"]
    for run in runs:
        if states[run.name] == "failed":
            error = (run.experiment.run / FAILED).read_text("utf-8").strip().splitlines()
            lines.append(f"failed: {run.experiment.run}: {error[-1] if error else 'no output'}")
        elif states[run.name] != "done":
            lines.append(f"not run: {run.experiment.run} ({states[run.name]})")
    return "\n".join(lines)


def write_summary(grid: Grid, runs: Sequence[Planned], command: str) -> Path:
    """Write the page of a grid beside its runs, with its figures."""
    trained = published_runs(runs)
    variants = variants_of(grid, runs, trained)
    if not variants:
        raise ConfigError(f"{grid.runs}: no evaluation of this grid is complete")
    info, missing = grid_info(grid, runs, variants, command), missing_table(grid, runs)
    return write_grid_page(grid.runs / grid.name, info, variants, [*trained.values()], missing)


def publish(grid: Grid, runs: Sequence[Planned], results: Path, command: str) -> Path:
    """Write the folder of a grid in place of what was there; return it."""
    to = results / "-".join([grid.runs.name, *([] if grid.name == UNNAMED else [grid.name])])
    trained, logs, evaluations = published_runs(runs), {}, []
    for variant in grid.table:
        for run, setting, each in evaluated_of(grid, runs, variant):
            folder = run.experiment.run / "eval" / each.name
            names = {"variant": variant, "setting": setting, "seed": run.seed}
            evaluations.append(read_evaluation(folder, trained[run.name], **names))
            for log in folder.glob(LOGS):
                logs[f"{run.name}/{folder.name}/{log.name}"] = log.read_bytes()
    info = grid_info(grid, runs, variants_of(grid, runs, trained), command)
    written = Results(grid=info, runs=(*trained.values(),), evaluations=(*evaluations,))
    write_results(to, written, logs)
    write_published_page(to)
    return to


def published_runs(runs: Sequence[Planned]) -> dict[str, PublishedRun]:
    """Read the configurations, curves and costs of the runs that exist, each once."""
    return {
        run.name: replace(
            read_run(run.experiment.run, run.name, run.variant, run.seed),
            parameters=_parameters(run),
        )
        for run in runs
        if run.experiment.run.exists()
    }


def _parameters(run: Planned) -> int | None:
    """Count the parameters of a trained model; its vocabularies are known once training starts."""
    if isinstance(run.experiment, Pretrained) or not (run.experiment.run / CONFIG_FILE).exists():
        return None
    model = read_experiment(run.experiment.run).model
    return parameter_count(model) if model.target_vocabulary else None


def grid_info(
    grid: Grid, runs: Sequence[Planned], variants: Sequence[Variant], command: str
) -> GridInfo:
    """Return the declaration of a grid, as far as its page needs it."""
    times = [path.stat().st_mtime for run in runs if (path := run.experiment.run).exists()]
    return GridInfo(
        title=grid.title,
        command=command,
        baseline=grid.baseline,
        variants=tuple(each.name for each in variants),
        latency=grid.latency,
        claims=grid.claims,
        rule=grid.rule,
        date=time.strftime("%Y-%m-%d", time.gmtime(max(times))) if times else "",
    )


def variants_of(
    grid: Grid, runs: Sequence[Planned], trained: Mapping[str, PublishedRun]
) -> list[Variant]:
    """Return the variants that have been evaluated, each with those that continue it."""
    found = []
    for name in grid.table:
        evaluations: dict[str, dict[int, Evaluated]] = {}
        for run, setting, each in evaluated_of(grid, runs, name):
            evaluations.setdefault(setting, {})[run.seed or 0] = each
        own = [run for run in trained.values() if run.variant == name and run.seed is not None]
        # A run that was killed may not have written what it cost.
        spent = [run.spent["training"] for run in own if run.spent and run.spent.get("training")]
        if evaluations:
            found.append(make_variant(name, evaluations, spent))
    return found


def evaluated_of(
    grid: Grid, runs: Sequence[Planned], variant: str
) -> list[tuple[Planned, str, Evaluated]]:
    """Return (run, name of the evaluation in the grid, evaluation) of a variant's runs."""
    found = []
    for name in (variant, *grid.curves.get(variant, ())):
        later = name.removeprefix(variant).strip("_")
        for run in [run for run in runs if run.variant == name and run.seed is not None]:
            for setting, each in _evaluations(run, grid).items():
                found.append((run, "/".join(filter(None, [later, setting])), each))
    return found


def _evaluations(run: Planned, grid: Grid) -> Mapping[str, Evaluated]:
    """Return the evaluations of a run by the grid's names.

    These are the names of folders except for cascades: there a folder has the name of the run that
    follows, and the grid that of its variant.
    """
    directory = run.experiment.run
    done = {scores.parent.name for scores in directory.glob(f"eval/*/{SCORES}")}
    if not done:
        return {}
    named = {need.experiment.run: Path(need.variant) for need in run.needs}
    asked = {
        way.folder.name: replace(way, then=way.then and named.get(way.then, way.then)).folder.name
        for way in evaluations_of(run, grid)
        if way.folder.name in done
    }
    return {asked[each.name]: each for each in gather([directory]) if each.name in asked}


def missing_table(grid: Grid, runs: Sequence[Planned]) -> list[Table]:
    """Return what the grid asks for and has not been run, or not to its end."""
    planned, seeds = {run.variant for run in runs}, [str(seed) for seed in grid.seeds]
    missing = {(name, "all"): seeds for name in grid.seeded if name not in planned}
    for run in [run for run in runs if run.seed is not None and state_of(run, grid) != "done"]:
        left = lacking(run, grid)
        partly = is_trained(run) and len(left) < len(evaluations_of(run, grid))
        ways = ", ".join(way.folder.name for way in left) if partly else "all"
        missing.setdefault((run.variant, ways), []).append(str(run.seed))
    lines = tuple((variant, ", ".join(seeds), ways) for (variant, ways), seeds in missing.items())
    return [make_table("missing", lines)] if lines else []
