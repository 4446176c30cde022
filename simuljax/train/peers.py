"""The processes of one run agree before the first update, and end together.

Each process publishes what it does at JAX's coordination service, which process 0 hosts, and reads
what the others do, about once a second. A process that fails says why, one that lags behind is
named, and nobody is left waiting:

    a process fails                      the others end within a few seconds, with its message
    a process is killed or stopped       the others end within `cluster.silent_s`
    a process lags behind                the others end after `cluster.slow_s`

A process that is alone has no peers: all functions here then do nothing.
"""

import atexit
import contextlib
import ctypes
import functools
import hashlib
import importlib
import json
import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
from jax._src import distributed  # the coordination service has no public name

from simuljax.config.fields import changes
from simuljax.config.training import Cluster
from simuljax.errors import SimuljaxError

PERIOD_S = 1.0  # between looks at the others
PER_LOOK = 64  # processes that are looked at in one period
SILENT_LOOKS = 4  # without a sign, after which a process is named as the one that is gone
SHARED_S = 20.0  # until a new file is seen on every host: network file systems take a while
LEAVE_S = 10.0  # for a process that failed to close its files
ANY_TIME_MS = 7 * 24 * 3600 * 1000
TOKEN = ".together"  # in the run directory, while the processes look for it
FEW = 5  # differences that a message names

EXCHANGE = re.compile("Gloo|NCCL|collective|DEADLINE_EXCEEDED|UNAVAILABLE", re.IGNORECASE)


class ClusterError(SimuljaxError):
    """The processes of a run cannot find each other, do not agree, or have lost one of them."""


@dataclass
class Seen:
    """Keep the last sign of another process, and since when it does the same."""

    beat: int = -1
    count: int = 0  # of the places it has come to
    place: str = "starting"
    failed: str | None = None
    heard_s: float = field(default_factory=time.monotonic)
    moved_s: float = field(default_factory=time.monotonic)

    def update(self, told: Mapping[str, Any]) -> None:
        """Take in what the process has published."""
        now = time.monotonic()
        if told["beat"] != self.beat:
            self.heard_s = now
        if told["count"] != self.count:
            self.moved_s = now
        self.beat, self.count = told["beat"], told["count"]
        self.place, self.failed = told["place"], told["failed"]


class Peers:
    """The other processes of this run, watched by a thread."""

    def __init__(self, cluster: Cluster, client: Any, index: int, count: int) -> None:
        self.client, self.index, self.slow_s = client, index, cluster.slow_s
        self.count, self.name = count, f"process {index} of {count}"
        self.address = distributed.global_state.coordinator_address
        self.own = Seen()
        self.seen = {number: Seen() for number in range(count) if number != index}
        self.looked_s = time.monotonic()  # when the service last answered
        self.uses: dict[str, int] = {}
        self.warned: tuple[int, int] | None = None
        self.period_s = PERIOD_S * max(1.0, count / PER_LOOK)
        self._leaving = threading.Event()
        self.thread = threading.Thread(target=self._watch, name="peers", daemon=True)
        self.thread.start()

    def at(self, place: str) -> None:
        """Note what this process does now; every process comes to the same places in turn."""
        self.own.place, self.own.count = place, self.own.count + 1
        self.own.moved_s = time.monotonic()

    def compare(self, name: str, value: Any, patience_s: float) -> dict[int, Any]:
        """Return the values of process 0 and of those that differ from it; {} if all agree."""
        key = self._unused(name)
        text = json.dumps(value, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        self.client.key_value_set(f"{key}/value/{self.index}", text)
        self.client.key_value_set(f"{key}/digest/{self.index}", digest)
        self._meet(key, patience_s, f"compare their {name}")
        digests = self._directory(f"{key}/digest")
        differ = [number for number, held in sorted(digests.items()) if held != digests[0]]
        wanted = [0, *differ[:FEW]] if differ else []
        values = {n: self.client.key_value_try_get(f"{key}/value/{n}") for n in wanted}
        return {number: json.loads(held) for number, held in values.items()}

    def wait(self, name: str) -> None:
        """Wait until every process is here, however long the others work."""
        self._meet(self._unused(name), ANY_TIME_MS / 1000, name)

    def tell(self, name: str, value: str | None, patience_s: float) -> str:
        """Return the value that process 0 gives to all."""
        key = self._unused(name)
        if value is not None:
            self.client.key_value_set(key, value)
        return self.client.blocking_key_value_get(key, int(1000 * patience_s))

    def fail(self, error: BaseException) -> None:
        """Tell the others why this process ends, and see that it does end."""
        self.stop()
        self.own.failed = (str(error) or type(error).__name__)[:2000]
        with contextlib.suppress(Exception):
            self._publish()
        if self.index == 0:  # what was published is gone with this process
            time.sleep(2 * self.period_s + 1.0)
        # JAX would wait at the end for processes that have ended already.
        atexit.register(leave)
        timer = threading.Timer(LEAVE_S, leave)
        timer.daemon = True
        timer.start()

    def gone(self) -> list[int]:
        """Return the processes that have given no sign for a while."""
        now, while_s = time.monotonic(), SILENT_LOOKS * self.period_s
        if now - self.looked_s > while_s:
            return [0]  # who would tell
        return [number for number, held in self.seen.items() if now - held.heard_s > while_s]

    def wait_for_gone(self) -> list[int]:
        """Return the processes whose silence explains that an exchange has failed; [] if none."""
        deadline = time.monotonic() + (SILENT_LOOKS + 3) * self.period_s
        while not (found := self.gone()) and time.monotonic() < deadline:
            time.sleep(self.period_s / 4)
        return found

    def explain(self, error: BaseException) -> BaseException:
        """Return a `ClusterError` in place of an error that the other processes have caused."""
        found = self.wait_for_gone()
        if found:
            return ClusterError(self.describe_gone(found))
        first = str(error).splitlines()[0]
        if EXCHANGE.search(first):
            return ClusterError(f"{self.name}: an exchange with the others failed: {first}")
        return error

    def lost(self, *_: Any) -> None:
        """End this process: JAX has found that another is gone. Called by a thread of JAX."""
        others = [number for number in self.gone() or [0] if number != self.index]
        leave(
            self.describe_gone(others)
            if others
            else f"{self.name}: this process was stopped or cut off, so the others have ended. "
            "Start all of them again: the run resumes from its last checkpoint"
        )

    def describe_gone(self, numbers: list[int]) -> str:
        """Say which processes are gone and what to do."""
        named = " and ".join(map(str, numbers[:FEW])) + (" and others" if numbers[FEW:] else "")
        where = f" (coordinator {self.address})" if numbers == [0] else ""
        return (
            f"{self.name}: process {named}{where} was killed, has stopped or cannot be reached, so "
            "all processes end. Start all of them again, on as many hosts as there are: the run "
            "resumes from its last checkpoint"
        )

    def stop(self) -> None:
        """Look at the others no more."""
        self._leaving.set()

    def close(self) -> None:
        """Stop, and wait for the thread: if it asks the service while Python ends, it crashes."""
        self.stop()
        self.thread.join(LEAVE_S)

    def _meet(self, key: str, patience_s: float, what: str) -> None:
        try:
            self.client.wait_at_barrier(f"{key}/barrier", int(1000 * patience_s))
        except jax.errors.JaxRuntimeError as error:
            found = self.wait_for_gone()
            raise ClusterError(
                self.describe_gone(found)
                if found
                else f"not all {self.count} processes came to {what} within {patience_s:g} s "
                f"({str(error).splitlines()[0]})"
            ) from error

    def _unused(self, name: str) -> str:
        self.uses[name] = self.uses.get(name, 0) + 1
        return f"simuljax/{name}/{self.uses[name]}"

    def _directory(self, key: str) -> dict[int, str]:
        found = self.client.key_value_dir_get(key)
        return {int(path.rpartition("/")[2]): value for path, value in found}

    def _publish(self) -> None:
        self.own.beat += 1
        told = {name: getattr(self.own, name) for name in ("beat", "count", "place", "failed")}
        key = f"simuljax/state/{self.index}"
        self.client.key_value_set(key, json.dumps(told), allow_overwrite=True)

    def _watch(self) -> None:
        while not self._leaving.is_set():
            with contextlib.suppress(jax.errors.JaxRuntimeError):  # JAX notices by itself
                self._publish()
                for number, told in self._directory("simuljax/state").items():
                    if number in self.seen:
                        self.seen[number].update(json.loads(told))
                self.looked_s = time.monotonic()
                self._judge()
            self._leaving.wait(self.period_s)

    def _judge(self) -> None:
        """End this process if another has failed or lags too far behind."""
        for number, held in self.seen.items():
            if held.failed and not self._leaving.is_set():
                leave(f"{self.name}: process {number} ended: {held.failed}")
        behind = [n for n, held in self.seen.items() if held.count < self.own.count]
        if not behind or self.own.failed:
            return
        slowest = min(behind, key=lambda number: self.seen[number].count)
        held, now = self.seen[slowest], time.monotonic()
        waited_s = now - max(held.moved_s, self.own.moved_s)
        what = f"process {slowest} has been at {held.place!r} for {now - held.moved_s:.0f} s"
        if waited_s >= self.slow_s:
            leave(
                f"{self.name}: {what} while this one waits at {self.own.place!r}; after "
                f"cluster.slow_s ({self.slow_s} s) the run ends. See what that host is doing and "
                "start all processes again: the run resumes"
            )
        if waited_s >= self.slow_s / 10 and self.warned != (slowest, held.count):
            self.warned = (slowest, held.count)
            print(f"waiting: {what} ({self.own.place!r} here)", file=sys.stderr, flush=True)


_current: Peers | None = None


def begin_watch(cluster: Cluster) -> None:
    """Watch the other processes, once `jax.distributed` is initialised."""
    global _current
    known = distributed.global_state
    _current = Peers(cluster, known.client, known.process_id, known.num_processes)
    atexit.register(_current.close)  # before JAX parts from the service


def at(place: str) -> None:
    """Note what this process does now, for the others to read."""
    if _current is not None:
        _current.at(place)


def wait_for_all(name: str) -> None:
    """Wait until every process has come here."""
    if _current is not None:
        _current.wait(name)


def agree(name: str, facts: Mapping[str, Any], patience_s: float = 300.0) -> None:
    """Raise `ClusterError` on every process if one has other facts than process 0."""
    found = {} if _current is None else _current.compare(name, facts, patience_s)
    for number, theirs in found.items():
        lines = [
            f"process {number} has {place} {new!r}, process 0 has {old!r}"
            for place, old, new in changes(found[0], theirs)
        ]
        if lines:
            more = f"; and {len(lines) - FEW} more" if lines[FEW:] else ""
            raise ClusterError(
                f"the processes differ in their {name}: {'; '.join(lines[:FEW])}{more}. Start all "
                "with the same command, code and corpus"
            )


def check_shared(directory: Path, patience_s: float = 300.0) -> None:
    """Raise `ClusterError` on every process if one does not see what process 0 writes there."""
    if _current is None:
        return
    file, token = directory / TOKEN, None
    if _current.index == 0:
        token = secrets.token_hex(8)
        directory.mkdir(parents=True, exist_ok=True)
        file.write_text(token)
    token = _current.tell("token", token, patience_s)
    deadline, held = time.monotonic() + SHARED_S, _read(file)
    while held != token and time.monotonic() < deadline:
        time.sleep(0.2)
        held = _read(file)
    found = _current.compare("run directory", held, patience_s + SHARED_S)
    if _current.index == 0:
        file.unlink(missing_ok=True)
    blind = [number for number in found if number]
    if blind:
        raise ClusterError(
            f"process {' and '.join(map(str, blind))} does not see what process 0 writes into the "
            f"run directory {directory}: put it on a file system that all hosts share (--run)"
        )


def _read(file: Path) -> str | None:
    try:
        os.listdir(file.parent)  # a network file system then looks again
        return file.read_text()
    except OSError:
        return None


@contextmanager
def ending_together() -> Iterator[None]:
    """Tell the other processes of an error here; explain one that a lost process has caused."""
    try:
        yield
    except BaseException as error:
        if _current is None:
            raise
        told = _current.explain(error) if isinstance(error, jax.errors.JaxRuntimeError) else error
        _current.fail(told)
        if told is error:
            raise
        raise told from error


def leave(message: str = "") -> None:
    """End this process now, with status 1."""
    if message:
        print(f"simuljax: {message}", file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(1)


def without_native_trace() -> None:
    """Let `Peers.lost` end this process where JAX would abort with a native stack trace.

    JAX calls back when another process is gone. Its binding cannot convert the argument of the
    callback (jaxlib 0.10), which ends in std::terminate; so that is caught, too.
    """
    _jax: Any = importlib.import_module("jaxlib._jax")
    make: Callable[..., Any] = _jax.get_distributed_runtime_client
    if isinstance(make, functools.partial):
        return
    try:
        set_terminate = ctypes.CDLL("libstdc++.so.6")._ZSt13set_terminatePFvvE
    except (OSError, AttributeError):
        return  # the process aborts, as JAX does
    set_terminate(_terminated)
    _jax.get_distributed_runtime_client = functools.partial(make, missed_heartbeat_callback=_lost)


def _lost(*status: Any) -> None:
    if _current is None:
        leave("another process of the run is gone")
    else:
        _current.lost(*status)


_terminated = ctypes.CFUNCTYPE(None)(_lost)
