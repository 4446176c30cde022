"""A small run in a process of its own: `python -m tests.train.running RUN`."""

import argparse
import os
import time
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
    parser.add_argument("--coordinator")
    parser.add_argument("--index", type=int)
    return parser.parse_args()


def main(given: argparse.Namespace) -> None:
    from simuljax.config.training import Cluster
    from simuljax.train.cluster import join
    from simuljax.train.loop import TrainingRun, fit
    from tests.train import runs

    processes = 1 if given.coordinator is None else 2
    print(
        join(
            Cluster(
                coordinator=given.coordinator, processes=processes, index=given.index, silent_s=10
            )
        )
    )
    share = runs.Share(index=given.index or 0, count=processes)
    for way in given.ways:
        training = runs.training(
            updates=given.updates, parallelism=way, method=given.method, average=given.average
        )
        data = runs.data(share, pause=lambda: time.sleep(given.pause))
        state = fit([TrainingRun(given.run / way, training)], runs.MODEL, data)
        print("ended", way, int(state.step), flush=True)


if __name__ == "__main__":
    chosen = arguments()
    # Compiled as in the process that compares: other flags of XLA stay as they are.
    others = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if DEVICES not in flag]
    flags = " ".join([*others, f"{DEVICES}={chosen.devices}"])
    os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    main(chosen)
