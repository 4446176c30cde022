"""The command `simuljax profile`."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union

import jax
import tyro

from simuljax.cli.score import show
from simuljax.profile import alignment, data, decode, long_stream, serve, train
from simuljax.profile.measure import table

PARTS = {
    "alignment": (alignment.AlignmentProfile, alignment),
    "data": (data.DataProfile, data),
    "decode": (decode.DecodeProfile, decode),
    "serve": (serve.ServeProfile, serve),
    "stream": (long_stream.StreamProfile, long_stream),
    "train": (train.TrainProfile, train),
}
if TYPE_CHECKING:
    Part = Any
else:
    Part = Union[  # noqa: UP007 (as many as there are)
        tuple(
            Annotated[kind, tyro.conf.subcommand(name, prefix_name=False)]
            for name, (kind, _) in PARTS.items()
        )
    ]


def profile_command(
    what: Part, json: str | None = None, trace: Path | None = None
) -> Callable[[], object]:
    """Measure a part on this device.

    Args:
        what: The part.
        json: Write the numbers as JSON to this file, or to standard output (`--json` alone).
        trace: Write a trace for Perfetto or XProf into this directory.
    """

    def command() -> None:
        part = next(module for kind, module in PARTS.values() if isinstance(what, kind))
        if part in (train, decode):  # these read their own traces
            report = part.run(what, trace)
        else:
            with jax.profiler.trace(str(trace)) if trace else contextlib.nullcontext():
                report = part.run(what)
        show(table(report), report, json)

    return command
