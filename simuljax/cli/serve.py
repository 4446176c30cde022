"""The command `simuljax serve`: captions in a browser and streaming sockets."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import tyro

from simuljax.serve.bundled import DEFAULT, bundled, resolve
from simuljax.serve.web.hub import Limits
from simuljax.serve.web.server import ServeOptions, check_options, run


def serve_command(
    models: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="MODEL...")
    ] = (),
    *,
    server: ServeOptions = ServeOptions(),  # noqa: B008 (frozen)
    idle: float = 60.0,
) -> Callable[[], None]:
    """Serve live captions: a page at /, sockets at /stream and /v1/realtime.

    Args:
        models: Directories of trained runs, bundled models (en-de, the default), Whisper files,
            cascades (ASR+MT: a run or Whisper, and a run). Clients name one; the first is theirs by
            default.
        server: Address, protection and limits.
        idle: Seconds without sound after which a session ends.
    """
    token = server.token or os.environ.get("SIMULJAX_TOKEN") or None  # which `ps` does not show
    server = replace(server, token=token, limits=Limits(idle_s=idle))
    found = tuple(map(resolve, models)) or tuple(p for p in bundled() if p.name == DEFAULT)
    check_options(found, server)
    return lambda: run(found, server)
