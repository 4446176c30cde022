"""The command `simuljax evaluate`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from simuljax.config.evaluation import Evaluation
from simuljax.runs.evaluate import evaluate_all, plan_evaluations


def evaluate_command(
    evaluation: Evaluation,
    sweep: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = (),
    also: tuple[Path, ...] = (),
) -> Callable[[], object]:
    """Translate a split with a trained run, streamed or offline; write its log and its scores.

    Args:
        evaluation: What is translated, and how.
        sweep: SETTING=VALUE,VALUE,...: an evaluation for each value, and a curve through them.
            Given several times, for each combination.
        also: More runs, say with other lambdas: the same of each, on the same curve.
    """
    return partial(evaluate_all, *plan_evaluations(evaluation, sweep, also))
