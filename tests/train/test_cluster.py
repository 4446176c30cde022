"""Whom a process meets; processes that differ, fail, lag behind or are gone (here: threads)."""

import importlib.util
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from simuljax.config.training import Cluster
from simuljax.train import cluster
from simuljax.train.cluster import ClusterError, Meeting, Peers, plan_meeting

FACTS = {"training": {"terms": [{"name": "st_latency", "weight": 0.1}]}}
OTHER = {"training": {"terms": [{"name": "st_latency", "weight": 0.2}]}}


class Service:
    """Keys and barriers as JAX's coordination service has them."""

    def __init__(self, count: int) -> None:
        self.held: dict[str, str] = {}
        self.barrier = threading.Barrier(count)

    def key_value_set(self, key: str, value: str, allow_overwrite: bool = False) -> None:
        assert allow_overwrite or key not in self.held
        self.held[key] = value

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str:
        deadline = time.monotonic() + timeout_in_ms / 1000
        while key not in self.held and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.held[key]

    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]:
        return [(k, v) for k, v in dict(self.held).items() if k.startswith(f"{key}/")]

    def wait_at_barrier(self, name: str, timeout_in_ms: int) -> None:
        self.barrier.wait(timeout_in_ms / 1000)


JOINED: list[Peers] = []


@pytest.fixture
def left(monkeypatch) -> Iterator[list[str]]:
    """The last words of processes that would have ended."""
    words: list[str] = []
    monkeypatch.setattr(cluster, "leave", words.append)
    monkeypatch.setattr(cluster, "PERIOD_S", 0.2)
    monkeypatch.setattr(cluster, "PATIENCE_S", 10.0)
    yield words
    for each in JOINED:
        each.close()
    JOINED.clear()


def joined(count: int, slow_s: int = 600) -> list[Peers]:
    service = Service(count)
    made = [Peers(Cluster(slow_s=slow_s), service, number, count) for number in range(count)]
    JOINED.extend(made)
    return made


def errors_of(monkeypatch, processes: list[Peers], check) -> list[str]:
    """Return what `check(number)` raises in each process; all run at once."""
    own = threading.local()

    class Current:
        def __getattr__(self, name):
            return getattr(own.process, name)

    def run(number: int) -> str:
        own.process = processes[number]
        try:
            check(number)
        except ClusterError as error:
            return str(error)
        return ""

    monkeypatch.setattr(cluster, "_current", Current())
    with ThreadPoolExecutor(len(processes)) as pool:
        return [*pool.map(run, range(len(processes)))]


def until(happened) -> None:
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_process_that_differs_is_named_by_all(left, monkeypatch):
    processes, facts = joined(3), [FACTS, FACTS, OTHER]
    named = errors_of(monkeypatch, processes, lambda n: cluster.agree("code", facts[n]))
    wanted = "process 2 has training.terms.st_latency.weight 0.2, process 0 has 0.1. Start"
    assert all(f"differ in their code: {wanted}" in error for error in named), named
    same = errors_of(monkeypatch, processes, lambda n: cluster.agree("code", FACTS))
    assert same == [""] * 3


@pytest.mark.parametrize("shared", [True, False])
def test_a_directory_that_is_not_shared_is_refused(left, monkeypatch, tmp_path, shared):
    monkeypatch.setattr(cluster, "SHARED_S", 0.3)
    places = ["run", "run" if shared else "elsewhere"]
    errors = errors_of(monkeypatch, joined(2), lambda n: cluster.check_shared(tmp_path / places[n]))
    assert ["process 1 does not see" in error for error in errors] == [not shared] * 2
    assert not list(tmp_path.glob(f"*/{cluster.TOKEN}"))


def test_a_failure_ends_the_others(left, monkeypatch):
    monkeypatch.setattr(cluster.atexit, "register", lambda function: None)
    monkeypatch.setattr(cluster, "LEAVE_S", 1e6)
    _, second = joined(2)
    second.fail(ValueError("no space left"))
    until(lambda: left)
    assert left[0] == "process 0 of 2: process 1 ended: no space left"


def test_one_that_lags_is_named(left, capsys):
    first, second = joined(2, slow_s=1)
    for place in ("reading", "update 1"):
        first.at(place)
    second.at("reading")
    until(lambda: left)
    assert "process 1 has been at 'reading'" in left[0] and "'update 1'" in left[0]
    assert "waiting: process 1" in capsys.readouterr().err


def test_those_that_wait_together_are_left_alone(left):
    for process in joined(2, slow_s=1):
        process.at("learning a vocabulary for hours")
    time.sleep(1.5)
    assert not left


def test_one_that_is_silent_is_gone(left):
    first, second = joined(2)
    assert first.gone() == []
    second.close()
    until(first.gone)
    first.lost()
    assert first.gone() == [1]
    assert "process 0 of 2: process 1 was killed, has stopped" in left[0]


SLURM = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_NODELIST": "node[001-002]",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_GPUS_ON_NODE": "4",
}
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "1"}
ADDRESSED = {"JAX_COORDINATOR_ADDRESS": "train-0.train:1234", "JAX_NUM_PROCESSES": "2"}


CONFIGURED = Meeting(
    found_by="as configured", coordinator="train-0.train:1234", processes=2, index=1
)
GIVEN = Cluster(coordinator="train-0.train:1234", processes=2, index=1)


@pytest.mark.parametrize(
    ("given", "environment", "meeting"),
    [
        (Cluster(), {}, None),
        (Cluster(), SLURM, Meeting(found_by="SLURM", devices=(0, 1, 2, 3))),
        (Cluster(), SLURM | {"SLURM_STEP_TASKS_PER_NODE": "4(x2)"}, Meeting(found_by="SLURM")),
        (Cluster(), SLURM | {"SLURM_NTASKS": "1"}, None),
        (Cluster(), {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "2"}, None),  # without srun
        (Cluster(), {"OMPI_COMM_WORLD_SIZE": "2"}, Meeting(found_by="Open MPI")),
        (Cluster(processes=1), SLURM, None),
        (Cluster(), POD | {"JAX_NUM_PROCESSES": "1"}, None),
        (GIVEN, {}, CONFIGURED),
        (GIVEN, SLURM, CONFIGURED),
        (Cluster(), POD | ADDRESSED, CONFIGURED),
        (Cluster(), ADDRESSED | {"JAX_PROCESS_ID": "1"}, CONFIGURED),
        (Cluster(index=1), ADDRESSED | {"JAX_PROCESS_ID": "0"}, CONFIGURED),
    ],
)
def test_the_meeting(given: Cluster, environment: dict, meeting: Meeting | None) -> None:
    assert plan_meeting(given, environment) == meeting


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClusterError, match=r"give processes \(or JAX_NUM_PROCESSES\) and index"):
        plan_meeting(Cluster(coordinator="a:1"), {})
    with pytest.raises(ValueError, match="give host and port"):
        Cluster(coordinator="node1")
    with pytest.raises(ValueError, match="index is 2 of 2 processes"):
        Cluster(processes=2, index=2)
    found = importlib.util.find_spec
    monkeypatch.setattr(
        cluster.importlib.util,
        "find_spec",
        lambda name: None if name == "kubernetes" else found(name),
    )
    with pytest.raises(ClusterError, match="JAX_NUM_PROCESSES=1 for a pod that trains alone"):
        plan_meeting(Cluster(), POD)
    for variable in [*SLURM, *POD, *ADDRESSED]:
        monkeypatch.delenv(variable, raising=False)
    assert cluster.join(Cluster()) == "alone" and cluster.is_primary()


@pytest.mark.parametrize(
    "environment",
    [
        {"JAX_NUM_PROCESSES": "abc"},
        {"JAX_NUM_PROCESSES": "0"},
        {"JAX_PROCESS_ID": "1.5"},
        {"JOB_COMPLETION_INDEX": "9" * 5000},
        {"OMPI_COMM_WORLD_SIZE": "two"},
        {"SLURM_STEP_NODELIST": "a", "SLURM_NTASKS": ".."},
    ],
)
def test_a_variable_that_is_no_number_is_named(environment):
    *_, (variable, value) = environment.items()
    with pytest.raises(ClusterError, match=f"{variable} is '{value[:10]}"):
        plan_meeting(Cluster(), environment)
