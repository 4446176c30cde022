"""A small run in a process of its own: `python -m tests.train.running RUN`."""

import argparse
import itertools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

DEVICES = "--xla_force_host_platform_device_count"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--ways", nargs="+", default=["shard_map"])  # a run below `run` for each
    parser.add_argument("--method", default="adam")
    parser.add_argument("--updates", type=int, default=12)
    parser.add_argument("--average", type=int)
    parser.add_argument("--pause", type=float, default=0.0)  # seconds before every batch
    parser.add_argument("--slow", type=float, default=0.0)  # seconds before batch 6, on host 1
    parser.add_argument("--slow-s", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--coordinator")
    parser.add_argument("--index", type=int)
    return parser.parse_args()


def pausing(given: argparse.Namespace) -> Callable[[], None]:
    """Do what comes before every batch."""
    batches = itertools.count(1)

    def pause() -> None:
        if next(batches) == 6 and given.index == 1:
            time.sleep(given.slow)
        time.sleep(given.pause)

    return pause


def main(given: argparse.Namespace) -> None:
    from simuljax.config.training import Cluster
    from simuljax.train import peers
    from simuljax.train.cluster import join
    from simuljax.train.loop import TrainingRun, fit
    from tests.train import runs

    processes = 1 if given.coordinator is None else 2
    print(
        join(
            Cluster(
                coordinator=given.coordinator,
                processes=processes,
                index=given.index,
                silent_s=10,
                slow_s=given.slow_s,
            )
        ),
        flush=True,
    )
    share = runs.Share(index=given.index or 0, count=processes)
    for way in given.ways:
        training = runs.training(
            updates=given.updates,
            parallelism=way,
            method=given.method,
            average=given.average,
            seed=given.seed,
        )
        data = runs.data(share, pause=pausing(given))
        with peers.ending_together():
            state = fit([TrainingRun(given.run / way, training)], runs.MODEL, data)
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
