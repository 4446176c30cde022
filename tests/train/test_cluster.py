"""Whom a process is to meet, by what it was told and by what surrounds it."""

import importlib.util

import pytest

from simuljax.config.training import Cluster
from simuljax.train import cluster
from simuljax.train.cluster import ClusterError, Meeting, plan_meeting

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


@pytest.mark.parametrize(
    ("told", "environment", "meeting"),
    [
        (Cluster(), {}, None),
        (Cluster(), SLURM, Meeting(found_by="SLURM", devices=(0, 1, 2, 3))),
        (Cluster(), SLURM | {"SLURM_STEP_TASKS_PER_NODE": "4(x2)"}, Meeting(found_by="SLURM")),
        (Cluster(), SLURM | {"SLURM_NTASKS": "1"}, None),
        (Cluster(), {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "2"}, None),  # without srun
        (Cluster(), {"OMPI_COMM_WORLD_SIZE": "2"}, Meeting(found_by="Open MPI")),
        (Cluster(processes=1), SLURM, None),
        (Cluster(), POD | {"JAX_NUM_PROCESSES": "1"}, None),
    ],
)
def test_the_surroundings(told: Cluster, environment: dict, meeting: Meeting | None) -> None:
    assert plan_meeting(told, environment) == meeting


@pytest.mark.parametrize(
    ("told", "environment"),
    [
        (Cluster(coordinator="train-0.train:1234", processes=2, index=1), {}),
        (Cluster(coordinator="train-0.train:1234", processes=2, index=1), SLURM),
        (Cluster(), POD | ADDRESSED),
        (Cluster(), ADDRESSED | {"JAX_PROCESS_ID": "1"}),
        (Cluster(index=1), ADDRESSED | {"JAX_PROCESS_ID": "0"}),
    ],
)
def test_what_was_told_counts(told: Cluster, environment: dict) -> None:
    found = plan_meeting(told, environment)
    assert found == Meeting(
        found_by="as configured", coordinator="train-0.train:1234", processes=2, index=1
    )


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


def test_alone_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [*SLURM, *POD, *ADDRESSED]:
        monkeypatch.delenv(variable, raising=False)
    assert cluster.join() == "alone" and cluster.is_primary()


@pytest.mark.parametrize(
    "environment",
    [
        {"JAX_NUM_PROCESSES": "abc"},
        {"JAX_NUM_PROCESSES": "-1"},
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
