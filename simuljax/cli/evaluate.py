"""The command `simuljax evaluate`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import tyro

from simuljax.cache import enable_compilation_cache
from simuljax.config.evaluation import Evaluation
from simuljax.runs.evaluate import evaluate_all, plan_evaluations


def evaluate_command(
    chosen: Evaluation,
    sweep: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = (),
    also: tuple[Path, ...] = (),
) -> Callable[[], None]:
    """Translate a split with a trained run, streamed or offline; write its log and its scores.

    Args:
        chosen: What is translated, and how.
        sweep: SETTING=VALUE,VALUE,...: an evaluation for each value, and a curve through them.
            Given several times, for each combination.
        also: More runs, say with other lambdas: the same of each, on the same curve.
    """
    planned = plan_evaluations(chosen, sweep, also)

    def command() -> None:
        enable_compilation_cache()
        evaluate_all(*planned)

    return command
