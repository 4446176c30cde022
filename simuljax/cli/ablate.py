"""The command `simuljax ablate`."""

from collections.abc import Callable

from simuljax.ablate import launchers
from simuljax.ablate.grid import load_grid, select
from simuljax.ablate.run import AblateOptions, ablate


def ablate_command(options: AblateOptions) -> Callable[[], None]:
    """Train and evaluate every run of a grid; what is done is not done again."""
    launchers.check(options.jobs)
    grid = load_grid(options.file, options.grid)
    runs, part = select(
        grid,
        variants=options.variants,
        seeds=options.seeds,
        only=options.only,
        publish=options.publish,
    )
    return lambda: ablate(options, grid, runs, part)
