"""The command `simuljax serve`: captions in a browser and streaming sockets."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import tyro

from simuljax.serve.bundled import DEFAULT, bundled, resolve
from simuljax.serve.web.server import ServeOptions, check_options, environment_token, run
from simuljax.serve.web.sessions import Limits


def serve_command(
    models: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="MODEL...")
    ] = (),
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    streams: int = 16,
    token: str | None = None,
    origin: tuple[str, ...] = (),
    certificate: Path | None = None,
    key: Path | None = None,
    idle: float = 60.0,
    drain: float = 30.0,
    dtype: Literal["float32", "bfloat16"] = "float32",
) -> Callable[[], None]:
    """Serve live captions: a page at /, sockets at /stream and /v1/realtime.

    Args:
        models: Directories of trained runs, bundled models (en-de, the default), Whisper files,
            cascades (ASR+MT: a run or Whisper, and a run). Clients name one; the first is theirs by
            default.
        host: Address to listen on; 0.0.0.0 for all. Use --token and TLS then.
        port: Port to listen on; 0 for any that is free.
        streams: Speakers at a time, of each model.
        token: What clients have to give; better in the environment, as SIMULJAX_TOKEN.
        origin: Addresses of pages elsewhere that may connect, like https://captions.example.org.
        certificate: The certificate for TLS, a PEM file.
        key: The key of the certificate, a PEM file.
        idle: Seconds without sound after which a session ends.
        drain: Seconds that sessions have to end after SIGTERM.
        dtype: Precision of Whisper models.
    """
    options = ServeOptions(
        host=host,
        port=port,
        streams=streams,
        token=token or environment_token(),
        origins=origin,
        certificate=certificate,
        key=key,
        drain_s=drain,
        dtype=dtype,
        limits=Limits(idle_s=idle),
    )
    found = tuple(map(resolve, models)) or tuple(p for p in bundled() if p.name == DEFAULT)
    check_options(found, options)
    return lambda: run(found, options)
