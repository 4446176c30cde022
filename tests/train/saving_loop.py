"""A run that does nothing but save, for being killed: `python -m tests.train.saving_loop DIR`."""

import itertools
import sys

from simuljax.train.checkpoint import Checkpoints
from tests.train.states import state_of

ROWS = 30_000  # large enough that a write can be interrupted


def main(directory: str) -> None:
    """Resumes, then saves every step for ever, and says which steps are safe."""
    checkpoints = Checkpoints(directory, keep_last=2, keep_best=1)
    restored = checkpoints.restore(state_of(0, rows=ROWS))
    done = 0 if restored is None else restored.step
    print("resumed", done, flush=True)
    for step in itertools.count(done + 1):
        checkpoints.save(step, state_of(step, rows=ROWS), {"step": step}, score=-step)
        print("safe", step - 1, flush=True)  # the save before this one is complete


if __name__ == "__main__":
    main(sys.argv[1])
