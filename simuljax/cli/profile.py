"""The command `simuljax profile`."""

import contextlib
import json as json_format
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import jax
import tyro

from simuljax.profile import (
    alignment,
    data,
    decode,
    long_stream,
    losses,
    serve,
    start_up,
    train,
    whisper,
)

Part = (
    Annotated[alignment.AlignmentProfile, tyro.conf.subcommand("alignment", prefix_name=False)]
    | Annotated[losses.DarProfile, tyro.conf.subcommand("dar", prefix_name=False)]
    | Annotated[data.DataProfile, tyro.conf.subcommand("data", prefix_name=False)]
    | Annotated[decode.DecodeProfile, tyro.conf.subcommand("decode", prefix_name=False)]
    | Annotated[serve.ServeProfile, tyro.conf.subcommand("serve", prefix_name=False)]
    | Annotated[start_up.StartUpProfile, tyro.conf.subcommand("start-up", prefix_name=False)]
    | Annotated[long_stream.StreamProfile, tyro.conf.subcommand("stream", prefix_name=False)]
    | Annotated[train.TrainProfile, tyro.conf.subcommand("train", prefix_name=False)]
    | Annotated[losses.TransducerProfile, tyro.conf.subcommand("transducer", prefix_name=False)]
    | Annotated[whisper.WhisperProfile, tyro.conf.subcommand("whisper", prefix_name=False)]
)
MODULES = {
    alignment.AlignmentProfile: alignment,
    losses.DarProfile: losses,
    data.DataProfile: data,
    decode.DecodeProfile: decode,
    serve.ServeProfile: serve,
    start_up.StartUpProfile: start_up,
    long_stream.StreamProfile: long_stream,
    train.TrainProfile: train,
    losses.TransducerProfile: losses,
    whisper.WhisperProfile: whisper,
}


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
        part = MODULES[type(what)]
        if isinstance(what, train.TrainProfile):  # these read their own traces
            report = train.run(what, trace)
        elif isinstance(what, decode.DecodeProfile):
            report = decode.run(what, trace)
        else:
            with jax.profiler.trace(str(trace)) if trace else contextlib.nullcontext():
                report = part.run(what)
        _show(report, part.table(report), json)

    return command


def _show(report: dict, text: str, path: str | None) -> None:
    document = json_format.dumps(report, indent=1)
    print(document if path == "-" else text)
    if path and path != "-":
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(document + "\n")
