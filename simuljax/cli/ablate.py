"""The command `simuljax ablate`."""

from collections.abc import Callable

from simuljax.ablate import launchers
from simuljax.ablate.ablate import Grid, ablate, check_counts, part_of, the_one
from simuljax.ablate.grid import load_ablation, plan
from simuljax.errors import ChoiceError


def ablate_command(chosen: Grid) -> Callable[[], None]:
    """Train and evaluate every run of a grid; what is done is not done again."""
    check_counts(chosen)
    launchers.check(chosen.jobs)
    ablation = load_ablation(chosen.file, chosen.grid)
    if chosen.stage != "both" and not chosen.only:
        raise ChoiceError(f"--stage {chosen.stage} is for runs that are named: say --only, too")
    if chosen.only and (chosen.rows or chosen.seeds):
        raise ChoiceError("--only names runs: leave --rows and --seeds")
    if chosen.only or chosen.rows or chosen.seeds:
        runs = plan(ablation)
        part_of(runs, chosen.rows, chosen.seeds)
        for name in chosen.only:
            the_one(runs, name)
    return lambda: ablate(chosen, ablation)
