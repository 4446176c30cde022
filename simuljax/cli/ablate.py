"""The command `simuljax ablate`."""

import shutil
from collections.abc import Callable
from functools import partial

from simuljax.ablate.grid import load_grid, select
from simuljax.ablate.launchers import Jobs
from simuljax.ablate.run import AblateOptions, ablate
from simuljax.errors import ChoiceError, import_extra


def ablate_command(ablation: AblateOptions) -> Callable[[], None]:
    """Train and evaluate every run of a grid; what is done is not done again."""
    check(ablation.jobs)
    grid = load_grid(ablation.file, ablation.grid)
    runs, part = select(
        grid,
        variants=ablation.variants,
        seeds=ablation.seeds,
        only=ablation.only,
        publish=ablation.publish,
        listing=ablation.list,
    )
    return partial(ablate, ablation, grid, runs, part)


def check(jobs: Jobs) -> None:
    """Reject an engine that is not installed, before anything starts."""
    if jobs.engine == "ray":
        import_extra("ray", "ray")
    elif jobs.engine != "none":
        import_extra("submitit", "cluster")
    if jobs.engine == "slurm" and shutil.which("sbatch") is None:
        raise ChoiceError(
            "--engine slurm: sbatch was not found; run this where jobs can be submitted, "
            "or leave --engine out to work on this machine"
        )
