"""The processes of a run on several hosts: they meet, agree before the first update, end together.

    simuljax train ...                                                    alone
    srun simuljax train ...                                               SLURM: found
    mpirun simuljax train ...                                             Open MPI: found
    simuljax train ... --cluster.coordinator 10.0.0.1:1234 --cluster.processes 2 --cluster.index 0

Kubernetes and anything else can give the same three as JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES
and JAX_PROCESS_ID (or an indexed Job's JOB_COMPLETION_INDEX). Cloud TPU is found by JAX.

Each process publishes what it does at JAX's coordination service, which process 0 hosts, and reads
what the others do, about once a second. Nobody is left waiting:

    a process fails                      the others end within a few seconds, with its message
    a process is killed or stopped       the others end within `cluster.silent_s`
    a process lags behind                the others end after `cluster.slow_s`

A process that is alone has no peers: `at`, `agree` and the like then do nothing.
"""

import atexit
import contextlib
import ctypes
import functools
import importlib.util
import json
import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
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
PATIENCE_S = 300.0  # for the others to come to a comparison
SHARED_S = 20.0  # until a new file is seen on every host: network file systems take a while
LEAVE_S = 10.0  # for a process that failed to close its files
ANY_TIME_S = 7 * 24 * 3600.0
TOKEN = ".together"  # in the run directory, while the processes look for it
FEW = 5  # differences that a message names

EXCHANGE = re.compile("Gloo|NCCL|collective|DEADLINE_EXCEEDED|UNAVAILABLE", re.IGNORECASE)


class ClusterError(SimuljaxError):
    """The processes of a run cannot find each other, do not agree, or have lost one of them."""


@dataclass(frozen=True)
class Meeting:
    """Arguments of `jax.distributed.initialize`; None where it detects them."""

    found_by: str
    coordinator: str | None = None
    processes: int | None = None
    index: int | None = None
    devices: tuple[int, ...] | None = None  # of this process, among its host's


def join(cluster: Cluster) -> str:
    """Join the other processes, if there are any, and return what was found.

    Must come before anything is computed. Raises `ClusterError` with what was known and missing.
    """
    global _current
    meeting = plan_meeting(cluster, os.environ)
    if meeting is None:
        return "alone"
    without_native_trace()
    try:
        jax.distributed.initialize(
            coordinator_address=meeting.coordinator,
            num_processes=meeting.processes,
            process_id=meeting.index,
            local_device_ids=meeting.devices,
            cluster_detection_method="deactivate" if meeting.coordinator else None,
            initialization_timeout=cluster.start_s,
            heartbeat_timeout_seconds=cluster.silent_s,
        )
    except Exception as error:
        atexit.register(leave)  # JAX would try to part from processes it has not met
        reason = str(error).partition("\n")[0]
        reason = "" if "bad_cast" in reason else f" ({reason})"  # of `without_native_trace`
        raise ClusterError(
            f"{meeting.found_by}: process {meeting.index} of {meeting.processes} did not meet the "
            f"others at {meeting.coordinator or 'the detected address'} within {cluster.start_s} "
            f"s{reason}. See that all were started and reach that port, or run alone with "
            "processes=1."
        ) from error
    known = distributed.global_state
    _current = Peers(cluster, known.client, jax.process_index(), jax.process_count())
    atexit.register(_current.close)  # before JAX parts from the service
    return f"process {jax.process_index()} of {jax.process_count()} ({meeting.found_by})"


def is_primary() -> bool:
    """Return True on the process that writes files and prints."""
    return jax.process_index() == 0


def plan_meeting(cluster: Cluster, environment: Mapping[str, str]) -> Meeting | None:
    """Return how to join, from the settings and the environment; None for a single process."""
    number = functools.partial(_number, environment)
    processes = cluster.processes or number("JAX_NUM_PROCESSES", least=1)
    if processes == 1:
        return None
    coordinator = cluster.coordinator or environment.get("JAX_COORDINATOR_ADDRESS")
    index = number("JAX_PROCESS_ID") if cluster.index is None else cluster.index
    pod = number("JOB_COMPLETION_INDEX")
    if (coordinator, processes, index) != (None, None, None):
        index = pod if index is None else index
        known = {
            "coordinator (or JAX_COORDINATOR_ADDRESS)": coordinator,
            "processes (or JAX_NUM_PROCESSES)": processes,
            "index (or JAX_PROCESS_ID)": index,
        }
        missing = [name for name, value in known.items() if value is None]
        if missing:
            raise ClusterError(
                f"Of a run of several processes, coordinator={coordinator}, processes={processes}, "
                f"index={index} are known: give {' and '.join(missing)} too, or none of them."
            )
        return Meeting("as configured", coordinator, processes, index)
    if "SLURM_STEP_NODELIST" in environment and (number("SLURM_NTASKS") or 1) > 1:
        return Meeting(found_by="SLURM", devices=_slurm_devices(environment))
    if (number("OMPI_COMM_WORLD_SIZE") or 1) > 1:
        return Meeting(found_by="Open MPI")
    devices = [*Path("/dev").glob("accel*"), *Path("/dev/vfio").glob("[0-9]*")]
    if importlib.util.find_spec("libtpu") and devices:
        return Meeting(found_by="Cloud TPU")
    if pod is None or "KUBERNETES_SERVICE_HOST" not in environment:
        return None
    if importlib.util.find_spec("kubernetes") is None:  # by which JAX asks the cluster's API
        raise ClusterError(
            "This is a pod of an indexed Kubernetes Job, and the others are not known. Set "
            "JAX_COORDINATOR_ADDRESS and JAX_NUM_PROCESSES in the pod (see "
            "experiments/launch/kubernetes.yaml), pip install 'jax[k8s]', or set "
            "JAX_NUM_PROCESSES=1 for a pod that trains alone."
        )
    return Meeting(found_by="Kubernetes")


def _number(environment: Mapping[str, str], variable: str, least: int = 0) -> int | None:
    """Return the whole number that a variable holds; None if it is not set."""
    text = environment.get(variable, "")
    if text and not (text.isdecimal() and len(text) < 10 and int(text) >= least):
        raise ClusterError(f"{variable} is {text!r:.40}; it must be a whole number from {least} on")
    return int(text) if text else None


def _slurm_devices(environment: Mapping[str, str]) -> tuple[int, ...] | None:
    """Return all GPUs of a node with one task; JAX takes one per task by default."""
    tasks = re.sub(r"\(x\d+\)", "", environment.get("SLURM_STEP_TASKS_PER_NODE", ""))
    gpus = environment.get("SLURM_GPUS_ON_NODE", "")
    alone = tasks and all(count == "1" for count in tasks.split(","))
    return tuple(range(int(gpus))) if alone and gpus.isdecimal() else None


@dataclass
class Seen:
    """Keep the last sign of a process, and since when it does the same."""

    beat: int = -1
    count: int = 0  # of the places it has come to
    place: str = "starting"
    failed: str | None = None
    heard_s: float = field(default_factory=time.monotonic)
    moved_s: float = field(default_factory=time.monotonic)

    def update(self, beat: int, count: int, place: str, failed: str | None) -> None:
        """Take in what the process has published."""
        now = time.monotonic()
        self.heard_s = self.heard_s if beat == self.beat else now
        self.moved_s = self.moved_s if count == self.count else now
        self.beat, self.count, self.place, self.failed = beat, count, place, failed


class Peers:
    """The other processes of this run, watched by a thread."""

    def __init__(self, cluster: Cluster, client: Any, index: int, count: int) -> None:
        self.client, self.index, self.slow_s = client, index, cluster.slow_s
        self.name = f"process {index} of {count}"
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

    def tell(self, name: str, value: str) -> str:
        """Return the value of process 0."""
        key = self._unused(name)
        if self.index == 0:
            self.client.key_value_set(key, value)
        return self.client.blocking_key_value_get(key, int(1000 * PATIENCE_S))

    def gather(self, name: str, value: Any, patience_s: float) -> dict[int, Any]:
        """Wait until every process is here; return the values that they bring."""
        key = self._unused(name)
        self.client.key_value_set(f"{key}/{self.index}", json.dumps(value))
        self.client.wait_at_barrier(f"{key}/barrier", int(1000 * patience_s))
        return self._directory(key)

    def fail(self, error: BaseException) -> None:
        """Tell the others why this process ends, and see that it does end."""
        self._leaving.set()
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

    def explain(self, error: BaseException) -> BaseException:
        """Return a `ClusterError` in place of an error that the other processes have caused."""
        deadline = time.monotonic() + (SILENT_LOOKS + 3) * self.period_s
        while not (found := self.gone()) and time.monotonic() < deadline:
            time.sleep(self.period_s / 4)
        if found:
            return ClusterError(self._describe_gone(found))
        first = str(error).splitlines()[0]
        if EXCHANGE.search(first):
            return ClusterError(f"{self.name}: an exchange with the others failed: {first}")
        return error

    def lost(self) -> None:
        """End this process: JAX has found that another is gone. Called by a thread of JAX."""
        others = [number for number in self.gone() or [0] if number != self.index]
        leave(
            self._describe_gone(others)
            if others
            else f"{self.name}: this process was stopped or cut off, so the others have ended. "
            "Start all of them again: the run resumes from its last checkpoint"
        )

    def _describe_gone(self, numbers: list[int]) -> str:
        named = " and ".join(map(str, numbers[:FEW])) + (" and others" if numbers[FEW:] else "")
        where = f" (coordinator {self.address})" if numbers == [0] else ""
        return (
            f"{self.name}: process {named}{where} was killed, has stopped or cannot be reached, so "
            "all processes end. Start all of them again, on as many hosts as there are: the run "
            "resumes from its last checkpoint"
        )

    def close(self) -> None:
        """Stop, and wait for the thread: if it asks the service while Python ends, it crashes."""
        self._leaving.set()
        self.thread.join(LEAVE_S)

    def _unused(self, name: str) -> str:
        self.uses[name] = self.uses.get(name, 0) + 1
        return f"simuljax/{name}/{self.uses[name]}"

    def _directory(self, key: str) -> dict[int, Any]:
        found = self.client.key_value_dir_get(key)
        return {int(path.rpartition("/")[2]): json.loads(value) for path, value in found}

    def _publish(self) -> None:
        self.own.beat += 1
        sign = [self.own.beat, self.own.count, self.own.place, self.own.failed]
        key = f"simuljax/state/{self.index}"
        self.client.key_value_set(key, json.dumps(sign), allow_overwrite=True)

    def _watch(self) -> None:
        while not self._leaving.is_set():
            with contextlib.suppress(jax.errors.JaxRuntimeError):  # JAX notices by itself
                self._publish()
                for number, sign in self._directory("simuljax/state").items():
                    if number in self.seen:
                        self.seen[number].update(*sign)
                self.looked_s = time.monotonic()
                self._end_if_needed()
            self._leaving.wait(self.period_s)

    def _end_if_needed(self) -> None:
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


def at(place: str) -> None:
    """Note what this process does now, for the others to read."""
    if _current is not None:
        _current.at(place)


def wait_for_all(name: str) -> None:
    """Wait until every process has come here, however long the others work."""
    if _current is not None:
        _current.gather(name, None, ANY_TIME_S)


def agree(name: str, facts: Mapping[str, Any]) -> None:
    """Raise `ClusterError` on every process if one has other facts than process 0."""
    if _current is None:
        return
    own = json.dumps(facts)
    first = json.loads(_current.tell(name, own))
    lines = [
        f"{place} {new!r}, process 0 has {old!r}"
        for place, old, new in changes(first, json.loads(own))
    ]
    found = _current.gather(name, [lines[:FEW], len(lines)], PATIENCE_S)
    for number, (named, count) in sorted(found.items()):
        if named:
            listed = "; ".join(f"process {number} has {line}" for line in named)
            more = f"; and {count - FEW} more" if count > FEW else ""
            raise ClusterError(
                f"the processes differ in their {name}: {listed}{more}. Start all with the same "
                "command, code and corpus"
            )


def check_shared(directory: Path) -> None:
    """Raise `ClusterError` on every process if one does not see what process 0 writes there."""
    if _current is None:
        return
    file, token = directory / TOKEN, secrets.token_hex(8)
    if _current.index == 0:
        directory.mkdir(parents=True, exist_ok=True)
        file.write_text(token)
    token, deadline = _current.tell("token", token), time.monotonic() + SHARED_S
    while not (seen := _holds(file, token)) and time.monotonic() < deadline:
        time.sleep(0.2)
    found = _current.gather("run directory", seen, PATIENCE_S + SHARED_S)
    if _current.index == 0:
        file.unlink(missing_ok=True)
    blind = [number for number, seen in sorted(found.items()) if not seen]
    if blind:
        raise ClusterError(
            f"process {' and '.join(map(str, blind))} does not see what process 0 writes into the "
            f"run directory {directory}: put it on a file system that all hosts share (--run)"
        )


def _holds(file: Path, token: str) -> bool:
    try:
        os.listdir(file.parent)  # a network file system then looks again
        return file.read_text() == token
    except OSError:
        return False


@contextlib.contextmanager
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


def _lost(*_: Any) -> None:
    if _current is None:
        leave("another process of the run is gone")
    else:
        _current.lost()


_terminated = ctypes.CFUNCTYPE(None)(_lost)
