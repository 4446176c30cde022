"""The command `simuljax ablate`."""

from collections.abc import Callable

from simuljax.ablate import launchers
from simuljax.ablate.grid import load_ablation, plan
from simuljax.ablate.run import AblateOptions, ablate, check_counts, part_of, the_one
from simuljax.errors import ChoiceError


def ablate_command(options: AblateOptions) -> Callable[[], None]:
    """Train and evaluate every run of a grid; what is done is not done again."""
    check_counts(options)
    launchers.check(options.jobs)
    ablation = load_ablation(options.file, options.grid)
    if options.stage != "both" and not options.only:
        raise ChoiceError(f"--stage {options.stage} is for runs that are named: say --only, too")
    if options.only and (options.rows or options.seeds):
        raise ChoiceError("--only names runs: leave --rows and --seeds")
    if options.only or options.rows or options.seeds:
        runs = plan(ablation)
        part_of(runs, options.rows, options.seeds)
        for name in options.only:
            the_one(runs, name)
    return lambda: ablate(options, ablation)
