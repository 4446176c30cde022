"""The command `simuljax train`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from simuljax.config.experiment import Experiment, load_experiments
from simuljax.config.options import attach_help
from simuljax.errors import ChoiceError, unknown
from simuljax.runs.train import train


def train_command(
    experiment: Annotated[Path, tyro.conf.Positional],
    changes: tyro.conf.Suppress[tuple[str, ...]] = (),
) -> Callable[[], object]:
    """Train an experiment, or resume its training; multi-host when the cluster says so.

    Fields of the experiment can be changed: `simuljax train FILE --training.seed 2`, and
    `simuljax train FILE --help` lists them.

    Args:
        experiment: A Python file like those in experiments/.
        changes: The arguments after the file; their names are in the file.
    """
    named, prog = load_experiments(experiment), f"simuljax train {experiment}"
    if "" in named:
        default = named[""]
    elif not changes or changes[0] not in (*named, "-h", "--help"):
        problem = unknown(changes[0], named) if changes else "say which experiment"
        raise ChoiceError(f"{problem} ({experiment} has {', '.join(named)})")
    elif changes[0] not in named:
        return partial(print, f"usage: {prog} NAME [--field value]\n\nnames: {', '.join(named)}")
    else:
        default, prog, changes = named[changes[0]], f"{prog} {changes[0]}", changes[1:]
    attach_help(Experiment)
    chosen = tyro.cli(
        Experiment,
        default=default,
        args=[by_index(change, default) for change in changes],
        prog=prog,
        config=(tyro.conf.AvoidSubcommands, tyro.conf.FlagConversionOff),
        description="",
    )
    return partial(train, chosen)


def by_index(argument: str, experiment: Experiment) -> str:
    """Replace the name of a term by its index: `--training.objective.terms.kd.weight`."""
    for index, term in enumerate(experiment.training.objective.terms):
        argument = argument.replace(f".objective.terms.{term.name}.", f".objective.terms.{index}.")
    return argument
