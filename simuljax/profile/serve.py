"""`simuljax profile serve`: speakers in real time over real sockets, and what they wait for.

The server runs in this process as `simuljax serve` runs it, except that it refuses nobody for being
late. The clients are processes of their own. A speaker keeps up if 9 of 10 READs end within the
time of a READ after their sound was sent.
"""

import functools
import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from simuljax.audio import read_audio
from simuljax.cache import enable_compilation_cache
from simuljax.config.decoding import Decoding
from simuljax.profile.decode import DecodeProfile, build, decoder_backend, random_params
from simuljax.profile.measure import (
    check_positive,
    counted_programs,
    environment,
    percentiles,
    say,
)
from simuljax.serve.bundled import parts_of
from simuljax.serve.engine import Engine
from simuljax.serve.web.client import Job
from simuljax.serve.web.hub import Hub, Limits
from simuljax.serve.web.models import Model
from simuljax.serve.web.server import ServeOptions, bind, load_models
from simuljax.serve.web.server import build as build_server


@dataclass(frozen=True, kw_only=True)
class ServeProfile:
    """Count the speakers that keep up; report push-to-word latency and where the time goes."""

    model: Path | None = None
    """A run or a Whisper file; by default a preset with random parameters."""
    preset: Literal["dar", "small", "tiny"] = "tiny"
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of a preset or a Whisper model."""
    streams: int = 16
    """Speakers at a time."""
    seconds: float = 20.0
    """Seconds that are timed."""
    warm_up: float = 5.0
    """Seconds before them."""
    chunk_ms: int = 100
    """Sound in a frame."""
    utterance: float = 20.0
    """Seconds until a speaker ends and another comes."""
    recording: Path | None = None
    """A sound file that all speak, from different places; by default noise."""
    processes: int = 2
    """Processes of clients."""

    def __post_init__(self) -> None:
        """Refuse settings without anything to measure."""
        check_positive(self)
        models = [] if self.model is None else parts_of(self.model)
        for path in (*models, self.recording):
            if path is not None and not path.exists():
                raise ValueError(f"{path} does not exist")


def run(config: ServeProfile) -> dict[str, Any]:
    """Serve, load the server, and return the times."""
    options = ServeOptions(
        port=0, streams=config.streams, dtype=config.dtype, limits=Limits(load=1e9)
    )
    enable_compilation_cache()
    say("loading and compiling")
    start = time.monotonic()
    models = load_models([config.model], options) if config.model else _preset(config)
    hub, ready_s = Hub(models, options.limits), time.monotonic() - start
    server, bound = build_server(hub, options), bind(options)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    (model,) = models.values()
    say(f"{config.streams} speakers for {config.seconds + config.warm_up:.0f} s")
    before = _counts(model, thread, hub)
    try:
        with counted_programs() as programs:
            clients = _load(config, f"ws://127.0.0.1:{bound.getsockname()[1]}/stream")
        spent = _counts(model, thread, hub) - before
        lag_ms = hub.lags.percentile(90) * 1e3
    finally:
        server.should_exit = True
        thread.join(30)
    wall_s, step_s, steps, audio_s, loop_s, device_s = spent.tolist()
    device = {
        "steps_per_s": steps / wall_s,
        "step_ms": step_s / max(steps, 1) * 1e3,
        "stepping": step_s / wall_s,  # of the time
        "loop_late_p90_ms": lag_ms,
        "compiled": len(programs),  # meanwhile, for which all wait
        # Processor time of the two threads that share Python's lock.
        "loop_us_per_frame": loop_s * 1e6 / max(audio_s * 1000 / config.chunk_ms, 1),
        "device_thread_us_per_frame": device_s * 1e6 / max(audio_s * 1000 / config.chunk_ms, 1),
    }
    firsts = [c["first_word"] - start for c in clients if c["first_word"] is not None]
    begun = {"ready_s": ready_s, "first_word_s": min(firsts, default=None)}
    return {**environment(config), **begun, **summary(clients), **device}


def _counts(model: Model, loop: threading.Thread, hub: Hub) -> np.ndarray:
    """Return wall time, time in steps, steps, sound and processor time of both threads."""
    running = [t.ident for t in (loop, hub.thread) if t is not None and t.ident is not None]
    threads = (time.clock_gettime(time.pthread_getcpuclockid(ident)) for ident in running)
    counted = [model.metrics.counts[name] for name in ("step_seconds", "steps", "audio_seconds")]
    return np.array([time.perf_counter(), *counted, *threads])


def _preset(config: ServeProfile) -> dict[str, Model]:
    decode = DecodeProfile(preset=config.preset, seconds=config.utterance, dtype=config.dtype)
    decoder = build(decode)
    cut = Decoding(sentences="pauses")  # as `simuljax serve` does
    backend = decoder_backend(decoder, random_params(decoder), decode.read, cut)
    make = functools.partial(Engine, backend, streams=config.streams, waiting_ms=40_000.0)
    model = Model(config.preset, make)
    model.warm_up()
    return {config.preset: model}


def _load(config: ServeProfile, url: str) -> list[dict[str, Any]]:
    """Run the clients, spread over processes; return what each has seen."""
    parts = [len(part) for part in np.array_split(range(config.streams), config.processes)]
    with tempfile.TemporaryDirectory() as folder:
        recording = None
        if config.recording:
            recording = str(Path(folder) / "sound.raw")
            Path(recording).write_bytes(read_audio(config.recording).samples.tobytes())
        running, first = [], 0
        for clients in filter(None, parts):
            job = Job(
                clients=clients,
                chunk_ms=config.chunk_ms,
                utterance_s=config.utterance,
                warm_up_s=config.warm_up,
                seconds=config.seconds,
                recording=recording,
                first=first,
                total=config.streams,
            )
            command = [sys.executable, "-m", "simuljax.serve.web.client", url]
            given = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            process = subprocess.Popen(command, **given)
            assert process.stdin is not None
            process.stdin.write(json.dumps(asdict(job)))
            process.stdin.close()
            running.append(process)
            first += clients
        found = []
        for process in running:
            with process:  # waits for its end
                found += json.loads(process.stdout.read() or "[]")
    return found


def summary(clients: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the times of all clients, and how many kept up."""
    words, reads, late = ([ms for c in clients for ms in c[key]] for key in KEYS)
    kept = [c for c in clients if c["reads"] and np.percentile(c["reads"], 90) < c["read_ms"]]
    return {
        "clients": len(clients),
        "keep_up": len(kept),
        "refused": sum(c["refused"] for c in clients),
        "read_ms": max((c["read_ms"] for c in clients), default=0.0),
        "words": len(words),
        "push_to_word_ms": percentiles(words) if words else None,
        "push_to_read_ms": percentiles(reads) if reads else None,
        "client_late_ms": percentiles(late) if late else None,
    }


KEYS = ("words", "reads", "late")
