"""Joining the other processes of a run, where there are any.

    simuljax train ...                                                    alone
    srun simuljax train ...                                               SLURM: found
    mpirun simuljax train ...                                             Open MPI: found
    simuljax train ... --cluster.coordinator 10.0.0.1:1234 --cluster.processes 2 --cluster.index 0

Kubernetes and anything else can give the same three as JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES
and JAX_PROCESS_ID (or an indexed Job's JOB_COMPLETION_INDEX). Cloud TPU is found by JAX.
"""

import atexit
import importlib.util
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jax

from simuljax.config.training import Cluster
from simuljax.train import peers
from simuljax.train.peers import ClusterError


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """Arguments of `jax.distributed.initialize`; None where it detects them."""

    found_by: str
    coordinator: str | None = None
    processes: int | None = None
    index: int | None = None
    devices: tuple[int, ...] | None = None  # of this process, among its host's


def join(cluster: Cluster | None = None) -> str:
    """Join the other processes, if there are any, and print what was found.

    Must come before anything is computed. Raises `ClusterError` with what was known and missing.
    """
    cluster = cluster or Cluster()
    meeting = plan_meeting(cluster, os.environ)
    if meeting is None:
        return "alone"
    peers.without_native_trace()
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
        atexit.register(peers.leave)  # JAX would try to part from processes it has not met
        reason = str(error).partition("\n")[0]
        reason = "" if "bad_cast" in reason else f" ({reason})"  # of `without_native_trace`
        raise ClusterError(
            f"{meeting.found_by}: process {meeting.index} of {meeting.processes} did not meet the "
            f"others at {meeting.coordinator or 'the detected address'} within {cluster.start_s} "
            f"s{reason}. See that all were started and reach that port, or run alone with "
            "processes=1."
        ) from error
    peers.begin_watch(cluster)
    return f"process {jax.process_index()} of {jax.process_count()} ({meeting.found_by})"


def is_primary() -> bool:
    """Return True on the process that writes files and prints."""
    return jax.process_index() == 0


def plan_meeting(cluster: Cluster, environment: Mapping[str, str]) -> Meeting | None:
    """Return how to join, from the settings and the environment; None for a single process."""
    if cluster.processes == 1:
        return None
    given = configured(cluster, environment)
    if given is not None:
        return given if given.processes != 1 else None
    if "SLURM_STEP_NODELIST" in environment and (number(environment, "SLURM_NTASKS") or 1) > 1:
        return Meeting(found_by="SLURM", devices=slurm_devices(environment))
    if (number(environment, "OMPI_COMM_WORLD_SIZE") or 1) > 1:
        return Meeting(found_by="Open MPI")
    if importlib.util.find_spec("libtpu") and on_cloud_tpu():
        return Meeting(found_by="Cloud TPU")
    if "JOB_COMPLETION_INDEX" in environment and "KUBERNETES_SERVICE_HOST" in environment:
        return kubernetes()
    return None


def configured(cluster: Cluster, environment: Mapping[str, str]) -> Meeting | None:
    """Return what the configuration or environment variables say of the cluster."""
    coordinator = cluster.coordinator or environment.get("JAX_COORDINATOR_ADDRESS")
    index = number(environment, "JAX_PROCESS_ID")
    processes = cluster.processes or number(environment, "JAX_NUM_PROCESSES", least=1)
    own = number(environment, "JOB_COMPLETION_INDEX") if index is None else index
    own = own if cluster.index is None else cluster.index
    if processes == 1 or (coordinator, processes, cluster.index, index) == (None,) * 4:
        return Meeting(found_by="", processes=1) if processes == 1 else None
    missing = [
        f"{name} (or {variable})"
        for name, variable, value in (
            ("coordinator", "JAX_COORDINATOR_ADDRESS", coordinator),
            ("processes", "JAX_NUM_PROCESSES", processes),
            ("index", "JAX_PROCESS_ID", own),
        )
        if value is None
    ]
    if missing:
        raise ClusterError(
            f"Of a run of several processes, coordinator={coordinator}, processes={processes}, "
            f"index={own} are known: give {' and '.join(missing)} too, or none of them."
        )
    return Meeting(
        found_by="as configured", coordinator=coordinator, processes=processes, index=own
    )


def number(environment: Mapping[str, str], variable: str, least: int = 0) -> int | None:
    """Return the whole number that a variable holds; None if it is not set."""
    text = environment.get(variable, "")
    if text and not (text.isdecimal() and len(text) < 10 and int(text) >= least):
        raise ClusterError(f"{variable} is {text!r:.40}; it must be a whole number from {least} on")
    return int(text) if text else None


def slurm_devices(environment: Mapping[str, str]) -> tuple[int, ...] | None:
    """Return all GPUs of a node with one task; JAX takes one per task by default."""
    tasks = re.sub(r"\(x\d+\)", "", environment.get("SLURM_STEP_TASKS_PER_NODE", ""))
    gpus = environment.get("SLURM_GPUS_ON_NODE", "")
    alone = tasks and all(count == "1" for count in tasks.split(","))
    return tuple(range(int(gpus))) if alone and gpus.isdecimal() else None


def on_cloud_tpu() -> bool:
    """Return True if this machine has TPUs."""
    return any(Path("/dev").glob("accel*")) or any(Path("/dev/vfio").glob("[0-9]*"))


def kubernetes() -> Meeting:
    """Return what JAX finds by the cluster's API, which needs a package and a permission."""
    if importlib.util.find_spec("kubernetes") is None:
        raise ClusterError(
            "This is a pod of an indexed Kubernetes Job, and the others are not known. Set "
            "JAX_COORDINATOR_ADDRESS and JAX_NUM_PROCESSES in the pod (see "
            "experiments/launch/kubernetes.yaml), pip install 'jax[k8s]', or set "
            "JAX_NUM_PROCESSES=1 for a pod that trains alone."
        )
    return Meeting(found_by="Kubernetes")
