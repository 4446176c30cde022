"""Small runs in processes of their own: started, waited for, signalled.

`python -m tests.train.processes RUN` is one of them.
"""

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE_S = 240
DEVICES = "--xla_force_host_platform_device_count"


class Process:
    """One of them; what it says is kept."""

    def __init__(self, run: Path, *options: str) -> None:
        run.mkdir(parents=True, exist_ok=True)
        self._said = run / f"said.{time.monotonic_ns()}"
        with self._said.open("w") as said:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "tests.train.processes", str(run), *options],
                cwd=ROOT,
                env=os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
                stdout=said,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        return self._said.read_text()

    def kill(self) -> None:
        """Ends it as a power cut would."""
        self.popen.send_signal(signal.SIGKILL)
        assert self.popen.wait() == -signal.SIGKILL, self.said  # it was alive until now

    def ended(self) -> int:
        """Waits, and gives the exit status."""
        try:
            return self.popen.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            raise AssertionError(f"it did not end:\n{self.said}") from None

    def wait_for_step(self, step: int) -> None:
        """Until it has said that it is there."""
        self.wait_for(
            lambda: max(map(int, re.findall(r"^step (\d+)/", self.said, re.M)), default=0) >= step
        )

    def wait_for(self, happens: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not happens():
            assert self.popen.poll() is None and time.monotonic() < deadline, self.said
            time.sleep(0.0005)


def two(run: Path, *options: str, second: tuple[str, ...] = ()) -> list[Process]:
    """Two that are one run, of two devices each; the second may have options of its own."""
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        port = opened.getsockname()[1]
    meeting = ("--devices", "2", "--coordinator", f"127.0.0.1:{port}")
    more = ((), second)
    return [
        Process(run, *options, *meeting, "--index", str(index), *more[index]) for index in (0, 1)
    ]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--ways", nargs="+", default=["shard_map"])  # a run below `run` for each
    parser.add_argument("--method", default="adam")
    parser.add_argument("--updates", type=int, default=12)
    parser.add_argument("--average", type=int)
    parser.add_argument("--pause", type=float, default=0.0)  # seconds before every batch
    parser.add_argument("--period", type=float)  # seconds between looks at the other
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--coordinator")
    parser.add_argument("--index", type=int)
    return parser.parse_args()


def main(given: argparse.Namespace) -> None:
    from simuljax.config.training import Cluster
    from simuljax.train import cluster
    from simuljax.train.loop import TrainingRun
    from tests.train import runs

    if given.period is not None:
        cluster.PERIOD_S = given.period
    processes = 1 if given.coordinator is None else 2
    meeting = {"coordinator": given.coordinator, "processes": processes, "index": given.index}
    print(cluster.join(Cluster(silent_s=10, **meeting)), flush=True)
    share = runs.Share(index=given.index or 0, count=processes)
    chosen = {name: getattr(given, name) for name in ("updates", "method", "average", "seed")}
    for way in given.ways:
        training = runs.training(parallelism=way, **chosen)
        with cluster.ending_together():
            member = TrainingRun(given.run / way, training)
            data = runs.data(share, lambda: time.sleep(given.pause))
            state = runs.fit([member], given=data)
        print("ended", way, int(state.step), flush=True)


if __name__ == "__main__":
    chosen = arguments()
    # Compiled as in the process that compares: other flags of XLA stay as they are.
    others = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if DEVICES not in flag]
    flags = " ".join([*others, f"{DEVICES}={chosen.devices}"])
    os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    from simuljax.errors import SimuljaxError

    try:
        main(chosen)
    except SimuljaxError as error:
        sys.exit(f"simuljax: {error}")
