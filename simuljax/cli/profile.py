"""The command `simuljax profile`."""

import contextlib
import json as json_format
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union

import jax
import tyro

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
        _show(report, table(report), json)

    return command


def _show(report: dict, text: str, path: str | None) -> None:
    document = json_format.dumps(report, indent=1)
    print(document if path == "-" else text)
    if path and path != "-":
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(document + "\n")
