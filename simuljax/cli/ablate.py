"""The command `simuljax ablate`."""

from collections.abc import Callable

from simuljax.ablate import launchers
from simuljax.ablate.grid import load_grid, part_of, plan, the_one, wanted_of
from simuljax.ablate.run import AblateOptions, ablate
from simuljax.errors import ChoiceError


def ablate_command(options: AblateOptions) -> Callable[[], None]:
    """Train and evaluate every run of a grid; what is done is not done again."""
    launchers.check(options.jobs)
    grid = load_grid(options.file, options.grid)
    if options.stage != "both" and not options.only:
        raise ChoiceError(f"--stage {options.stage} is for runs that are named: say --only, too")
    if options.only and (options.variants or options.seeds):
        raise ChoiceError("--only names runs: leave --variants and --seeds")
    if options.only or options.variants or options.seeds:
        runs = plan(grid, wanted_of(grid, options.variants, options.only, publish=options.publish))
        part_of(runs, options.variants, options.seeds)
        for name in options.only:
            the_one(runs, name)
    return lambda: ablate(options, grid)
